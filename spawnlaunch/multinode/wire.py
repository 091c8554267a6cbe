"""Messages as lines of bytes that no stranger can write, repeat, reflect or reorder.

    member  spawnlaunch/VERSION RUN NONCE ID  RUN: digest of the run's ID, the same in all versions
    hub     spawnlaunch/VERSION NONCE PROOF   or: no WHY
    member  PROOF
    both    MAC JSON                          from here on

Proofs and MACs are HMAC-SHA256 (RFC 2104) of both nonces, or of direction, number and text. So each
end has proved that it knows the secret before its messages are read, and each line is valid once,
in its place. Before the proof a line may have 4 KiB, and the first line after it 64. Messages are
JSON only (see messages).

This module uses no socket: bytes come in through `feed`, and go out through `out`.
"""

from __future__ import annotations

import hashlib
import hmac
import json

from spawnlaunch.base import machine
from spawnlaunch.multinode import messages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST_FIRST = 4096  # bytes of a line before the other end has proved itself
MOST_HELLO = 2**16  # bytes of the first line after that, which a hub reads
MOST_LINE = 2**20  # bytes of each further line
NAME = f"spawnlaunch/{messages.VERSION}"
MAC_HEX = 32  # 16 bytes
NONCE_HEX = 32
OTHER_RUN = "another --rdzv-id"  # on a computed port: another launch has it
MOST_SHOWN = 64  # characters of a run's id in a refusal
OTHER_TOKEN = "another token"


class Foreign(Exception):
    """The other end is no launcher of this launch; `is_final`: it will never be one."""

    def __init__(self, why: str, is_final: bool = False) -> None:
        super().__init__(why)
        self.is_final = is_final


def _another_version(name: str, here: str) -> Foreign:
    return Foreign(f"another version of spawnlaunch: {name} there, {NAME} {here}", is_final=True)


def digest(key: bytes, text: bytes) -> bytes:
    """Return the HMAC-SHA256 of a text (RFC 2104)."""
    return hmac.digest(key, text, "sha256")


def secret_of(token: bytes | None, run: str) -> bytes:
    """The secret of a run; without a token it only prevents accidental connections."""
    return digest(token or b"spawnlaunch", b"run " + run.encode())


def digest_of(run: str) -> str:
    """Return a digest of the run's id, which tells runs apart without showing their ids."""
    return hashlib.sha256(run.encode()).hexdigest()[:16]


def shown(run: str) -> str:
    """The run's id as one word of ASCII, for the launcher that another run's hub refuses."""
    word = "".join(c if "!" <= c <= "~" else "?" for c in run)
    return word if len(word) <= MOST_SHOWN else f"{word[:MOST_SHOWN]}..."


_last: list[tuple[messages.Message, bytes]] = []


def text_of(message: messages.Message) -> bytes:
    """The JSON text of a message; cached, as a message to all members is one object."""
    if not _last or _last[0][0] is not message:
        text = json.dumps(messages.to_json(message), separators=(",", ":")).encode()
        _last[:] = [(message, text)]
    return _last[0][1]


class Wire:
    """The handshake and the lines of one end of a connection."""

    def __init__(self, secret: bytes, run: str, is_hub: bool) -> None:
        self._secret = secret
        self._run, self._run_id = digest_of(run), shown(run)
        self.is_hub = is_hub
        self._local_nonce = machine.urandom(NONCE_HEX // 2).hex()
        self._peer_nonce = ""
        self._key = b""
        self._count_sent, self._count_read = 0, 0
        self.rest = b""
        self.is_ready = False  # both ends have proved that they know the secret
        greeting = f"{NAME} {self._run} {self._local_nonce} {self._run_id}\n"
        self.out = b"" if is_hub else greeting.encode()

    def encode(self, message: messages.Message) -> bytes:
        """Return the line of a message, as the next one in this direction."""
        text = text_of(message)
        mac = self.mac(self.is_hub, self._count_sent, text)
        self._count_sent += 1
        return mac + b" " + text + b"\n"

    def feed(self, data: bytes) -> list[Any]:
        """Read bytes and return the messages that they complete. Raises Foreign."""
        *lines, self.rest = (self.rest + data).split(b"\n")
        read = []
        for line in lines:
            self._limit(line)
            if self.is_ready:
                read.append(self._decode(line))
            elif self.is_hub:
                self._shake_as_hub(line)
            else:
                self._shake_as_member(line)
        self._limit(self.rest)
        return read

    @property
    def has_begun(self) -> bool:
        """Whether the other end has sent a first line as a launcher of this launch would."""
        return bool(self._peer_nonce)

    def take(self) -> bytes:
        """Remove and return the bytes that the handshake wants to send."""
        out, self.out = self.out, b""
        return out

    def _limit(self, line: bytes) -> None:
        most = MOST_LINE if self._count_read or not self.is_hub else MOST_HELLO
        if len(line) > (most if self.is_ready else MOST_FIRST):
            raise Foreign("a line that is too long")

    def _shake_as_hub(self, line: bytes) -> None:
        if self._peer_nonce:
            if not hmac.compare_digest(line, self._proof(b"member")):
                raise Foreign(OTHER_TOKEN, is_final=True)
            self._begin()
            return
        name, run, nonce, run_id = self._words(line, 4)
        if run != self._run:
            raise Foreign(
                f"{OTHER_RUN}: the launcher has {shown(run_id) or '?'}, the hub {self._run_id}; "
                "use the same on all",
                is_final=True,
            )
        if name != NAME:
            raise _another_version(name, "at the hub")
        self._peer_nonce = self._nonce(nonce)
        self.out += f"{NAME} {self._local_nonce} ".encode() + self._proof(b"hub") + b"\n"

    def _shake_as_member(self, line: bytes) -> None:
        if line.startswith(b"no "):
            raise Foreign(line[3:].decode("ascii", "replace"), is_final=True)
        name, nonce, proof = self._words(line, 3)
        if name != NAME:
            raise _another_version(name, "here")
        self._peer_nonce = self._nonce(nonce)
        if not hmac.compare_digest(proof.encode(), self._proof(b"hub")):
            raise Foreign(OTHER_TOKEN, is_final=True)
        self.out += self._proof(b"member") + b"\n"
        self._begin()

    def _words(self, line: bytes, count: int) -> list[str]:
        words = line.decode("ascii", "replace").split(" ")
        if not words[0].startswith("spawnlaunch/") or (words[0] == NAME and len(words) != count):
            raise Foreign("no launcher of spawnlaunch")
        return (words + [""] * count)[:count]

    def _nonce(self, nonce: str) -> str:
        if len(nonce) != NONCE_HEX or not nonce.isalnum():
            raise Foreign("no launcher of spawnlaunch")
        return nonce

    def _nonces(self) -> bytes:
        """Return both nonces, the member's first."""
        pair = (
            (self._peer_nonce, self._local_nonce)
            if self.is_hub
            else (self._local_nonce, self._peer_nonce)
        )
        return " ".join(pair).encode()

    def _proof(self, end: bytes) -> bytes:
        text = b" ".join((end, NAME.encode(), self._nonces()))
        return digest(self._secret, text).hex().encode()

    def _begin(self) -> None:
        self._key = digest(self._secret, b"key " + self._nonces())
        self.is_ready = True

    def mac(self, from_hub: bool, number: int, text: bytes) -> bytes:
        numbered = (b"hub %d " if from_hub else b"member %d ") % number + text
        return digest(self._key, numbered).hex().encode()[:MAC_HEX]

    def _decode(self, line: bytes) -> Any:
        mac, _, text = line.partition(b" ")
        if not hmac.compare_digest(mac, self.mac(not self.is_hub, self._count_read, text)):
            raise Foreign("a line that it cannot have written")
        self._count_read += 1
        try:
            expected = messages.TO_HUB if self.is_hub else messages.TO_MEMBER
            return messages.from_json(json.loads(text), expected)
        except (ValueError, RecursionError) as error:
            raise Foreign(f"a message that is none: {error}") from error
