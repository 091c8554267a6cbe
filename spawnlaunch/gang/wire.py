"""Messages as lines of bytes that no stranger can write, repeat, reflect or reorder.

    member  spawnlaunch/2 RUN NONCE           RUN: digest of the run's id, the same in all versions
    hub     spawnlaunch/2 NONCE PROOF         or: no WHY
    member  PROOF
    both    MAC JSON                          from here on

Proofs and MACs are HMAC-SHA256 (RFC 2104) of both nonces, or of direction, number and text. So each
end has proved that it knows the secret before its messages are read, and each line is valid once,
in its place. Before the proof a line may have 4 KiB, and the first line after it 64. Messages are
JSON only (see messages).

This module uses no socket: bytes come in through `feed`, and go out through `out`.
"""

from __future__ import annotations

import json
from _operator import _compare_digest as compare_digest  # as in hmac, but without OpenSSL

from spawnlaunch.base import machine
from spawnlaunch.gang import messages

# Python's own SHA-256: hashlib loads OpenSSL, which is a megabyte in every launcher.
try:
    from _sha2 import sha256  # type: ignore[import-not-found,unused-ignore]
except ImportError:
    try:
        from _sha256 import sha256  # type: ignore[import-not-found,no-redef,unused-ignore]
    except ImportError:  # a Python without these modules
        from hashlib import sha256  # type: ignore[assignment,unused-ignore]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST_FIRST = 4096  # bytes of a line before the other end has proved itself
MOST_HELLO = 2**16  # bytes of the first line after that, which a hub reads
MOST_LINE = 2**20  # bytes of each further line
NAME = f"spawnlaunch/{messages.VERSION}"
MAC_HEX = 32  # 16 bytes
NONCE_HEX = 32
BLOCK = 64  # bytes, of SHA-256
INNER, OUTER = (bytes(byte ^ pad for byte in range(256)) for pad in (0x36, 0x5C))
OTHER_RUN = "another --rdzv-id"  # on a computed port: another launch has it
OTHER_TOKEN = "another token"


class Foreign(Exception):
    """The other end is no launcher of this gang; `is_final`: it will never be one."""

    def __init__(self, why: str, is_final: bool = False) -> None:
        super().__init__(why)
        self.is_final = is_final


def digest(key: bytes, text: bytes) -> bytes:
    """Return the HMAC-SHA256 of a text (RFC 2104)."""
    key = (sha256(key).digest() if len(key) > BLOCK else key).ljust(BLOCK, b"\0")
    inner = sha256(key.translate(INNER) + text).digest()
    outer: bytes = sha256(key.translate(OUTER) + inner).digest()
    return outer


def secret_of(token: bytes | None, run: str) -> bytes:
    """The secret of a run; without a token it only prevents accidental connections."""
    return digest(token or b"spawnlaunch", b"run " + run.encode())


def digest_of(run: str) -> str:
    """Return a digest of the run's id, which tells runs apart without showing their ids."""
    name: str = sha256(run.encode()).hexdigest()
    return name[:16]


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
        self._run = digest_of(run)
        self.is_hub = is_hub
        self._mine = machine.urandom(NONCE_HEX // 2).hex()
        self._theirs = ""
        self._key = b""
        self._sent, self._heard = 0, 0
        self.rest = b""
        self.is_ready = False  # both ends have proved that they know the secret
        self.out = b"" if is_hub else f"{NAME} {self._run} {self._mine}\n".encode()

    def encode(self, message: messages.Message) -> bytes:
        """Return the line of a message, as the next one in this direction."""
        text = text_of(message)
        mac = self.mac(self.is_hub, self._sent, text)
        self._sent += 1
        return mac + b" " + text + b"\n"

    def feed(self, data: bytes) -> list[Any]:
        """Read bytes and return the messages that they complete. Raises Foreign."""
        *lines, self.rest = (self.rest + data).split(b"\n")
        heard = []
        for line in lines:
            self._limit(line)
            if self.is_ready:
                heard.append(self._decode(line))
            elif self.is_hub:
                self._shake_as_hub(line)
            else:
                self._shake_as_member(line)
        self._limit(self.rest)
        return heard

    @property
    def has_begun(self) -> bool:
        """Whether the other end has sent a first line as a launcher of this gang would."""
        return bool(self._theirs)

    def take(self) -> bytes:
        """Remove and return the bytes that the handshake wants to send."""
        out, self.out = self.out, b""
        return out

    def _limit(self, line: bytes) -> None:
        most = MOST_LINE if self._heard or not self.is_hub else MOST_HELLO
        if len(line) > (most if self.is_ready else MOST_FIRST):
            raise Foreign("a line that is too long")

    def _shake_as_hub(self, line: bytes) -> None:
        if self._theirs:
            if not compare_digest(line, self._proof(b"member")):
                raise Foreign(OTHER_TOKEN, is_final=True)
            self._begin()
            return
        name, run, nonce = self._words(line, 3)
        if run != self._run:
            raise Foreign(OTHER_RUN, is_final=True)
        if name != NAME:
            why = f"another version of spawnlaunch: {name} there, {NAME} at the hub"
            raise Foreign(why, is_final=True)
        self._theirs = self._nonce(nonce)
        self.out += f"{NAME} {self._mine} ".encode() + self._proof(b"hub") + b"\n"

    def _shake_as_member(self, line: bytes) -> None:
        if line.startswith(b"no "):
            raise Foreign(line[3:].decode("ascii", "replace"), is_final=True)
        name, nonce, proof = self._words(line, 3)
        if name != NAME:
            raise Foreign(f"another version of spawnlaunch: {name} there, {NAME} here", True)
        self._theirs = self._nonce(nonce)
        if not compare_digest(proof.encode(), self._proof(b"hub")):
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
        pair = (self._theirs, self._mine) if self.is_hub else (self._mine, self._theirs)
        return " ".join(pair).encode()

    def _proof(self, who: bytes) -> bytes:
        text = b" ".join((who, NAME.encode(), self._nonces()))
        return digest(self._secret, text).hex().encode()

    def _begin(self) -> None:
        self._key = digest(self._secret, b"key " + self._nonces())
        self.is_ready = True

    def mac(self, from_hub: bool, number: int, text: bytes) -> bytes:
        what = (b"hub %d " if from_hub else b"member %d ") % number + text
        return digest(self._key, what).hex().encode()[:MAC_HEX]

    def _decode(self, line: bytes) -> Any:
        mac, _, text = line.partition(b" ")
        if not compare_digest(mac, self.mac(not self.is_hub, self._heard, text)):
            raise Foreign("a line that it cannot have written")
        self._heard += 1
        try:
            expected = messages.TO_HUB if self.is_hub else messages.TO_MEMBER
            return messages.from_json(json.loads(text), expected)
        except (ValueError, RecursionError) as error:
            raise Foreign(f"a message that is none: {error}") from error
