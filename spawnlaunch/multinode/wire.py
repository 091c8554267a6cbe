"""Messages as lines of bytes that no stranger can write, repeat, reflect or reorder.

    node  spawnlaunch/4 RUN NONCE             RUN: digest of the run's id, the same in all versions
    hub   spawnlaunch/4 NONCE PROOF           or: no WHY
    node  PROOF
    both  MAC JSON                            from here on; without any JSON: a beat

Proofs and MACs are HMAC-SHA256 (RFC 2104) of both nonces, or of direction, number and text. So each
end has proved that it knows the secret before its messages are read, and each line is valid once,
in its place. Before the proof a line may have 4 KiB, and the first line after it 64.

This module uses no socket: bytes come in through `feed`, and go out through `out`.
"""

from __future__ import annotations

import hashlib
import hmac
import json

from spawnlaunch.base import machine
from spawnlaunch.multinode.messages import VERSION, Order, Report, read_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST_FIRST = 4096  # bytes of a line before the other end has proved itself
MOST_REPORT = 2**16  # bytes of the first line after that, which a hub reads
MOST_LINE = 2**20  # bytes of each further line
NAME = f"spawnlaunch/{VERSION}"
MAC_HEX = 32  # 16 bytes
NONCE_HEX = 32
OTHER_RUN = "another --rdzv-id"  # on a computed port: another launch has it
OTHER_TOKEN = "another token"


class Foreign(Exception):
    """The other end is no launcher of this launch; `is_final`: it will never be one."""

    def __init__(self, why: str, is_final: bool = False) -> None:
        super().__init__(why)
        self.is_final = is_final


def digest(key: bytes, text: bytes) -> bytes:
    """Return the HMAC-SHA256 of a text (RFC 2104)."""
    return hmac.digest(key, text, "sha256")


def secret_of(token: bytes | None, run: str) -> bytes:
    """The secret of a run; without a token it only prevents accidental connections."""
    return digest(token or b"spawnlaunch", b"run " + run.encode())


def digest_of(run: str) -> str:
    """Return a digest of the run's id, which tells runs apart without showing their ids."""
    return hashlib.sha256(run.encode()).hexdigest()[:16]


_last: list[tuple[Report | Order | None, bytes]] = [(None, b"")]


def text_of(message: Report | Order | None) -> bytes:
    """The text of a message, b"" of a beat; cached, as an order to many nodes is one object."""
    if message is None:
        return b""
    if _last[0][0] is not message:
        _last[0] = message, json.dumps(message, separators=(",", ":")).encode()
    return _last[0][1]


class Wire:
    """The handshake and the lines of one end of a connection."""

    def __init__(self, secret: bytes, run: str, is_hub: bool) -> None:
        self._secret, self._run, self.is_hub = secret, digest_of(run), is_hub
        self._mine, self._theirs = machine.urandom(NONCE_HEX // 2).hex(), ""
        self._key, self._sent, self._heard, self.rest = b"", 0, 0, b""
        self.is_ready = False  # both ends have proved that they know the secret
        self.out = b"" if is_hub else f"{NAME} {self._run} {self._mine}\n".encode()

    def encode(self, message: Report | Order | None) -> bytes:
        """Return the line of a message, as the next one in this direction; None: a beat."""
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
                self._shake_as_node(line)
        self._limit(self.rest)
        return heard

    @property
    def has_begun(self) -> bool:
        """Whether the other end has sent a first line as a launcher of this launch would."""
        return bool(self._theirs)

    def take(self) -> bytes:
        """Remove and return the bytes that the handshake wants to send."""
        out, self.out = self.out, b""
        return out

    def _limit(self, line: bytes) -> None:
        most = MOST_LINE if self._heard or not self.is_hub else MOST_REPORT
        if len(line) > (most if self.is_ready else MOST_FIRST):
            raise Foreign("a line that is too long")

    def _shake_as_hub(self, line: bytes) -> None:
        if self._theirs:
            self._check(line, b"node")
            self._begin()
            return
        name, run, nonce = self._words(line)
        if run != self._run:
            raise Foreign(OTHER_RUN, is_final=True)
        if name != NAME:
            why = f"another version of spawnlaunch: {name} there, {NAME} at the hub"
            raise Foreign(why, is_final=True)
        self._theirs = self._nonce(nonce)
        self.out += f"{NAME} {self._mine} ".encode() + self._proof(b"hub") + b"\n"

    def _shake_as_node(self, line: bytes) -> None:
        if line.startswith(b"no "):
            raise Foreign(line[3:].decode("ascii", "replace"), is_final=True)
        name, nonce, proof = self._words(line)
        if name != NAME:
            raise Foreign(f"another version of spawnlaunch: {name} there, {NAME} here", True)
        self._theirs = self._nonce(nonce)
        self._check(proof.encode(), b"hub")
        self.out += self._proof(b"node") + b"\n"
        self._begin()

    def _words(self, line: bytes) -> list[str]:
        words = line.decode("ascii", "replace").split(" ")
        if not words[0].startswith("spawnlaunch/") or (words[0] == NAME and len(words) != 3):
            raise Foreign("no launcher of spawnlaunch")
        return [*words, "", ""][:3]

    def _nonce(self, nonce: str) -> str:
        if len(nonce) != NONCE_HEX or not nonce.isalnum():
            raise Foreign("no launcher of spawnlaunch")
        return nonce

    def _nonces(self) -> bytes:
        """Return both nonces, the node's first."""
        pair = (self._theirs, self._mine) if self.is_hub else (self._mine, self._theirs)
        return " ".join(pair).encode()

    def _proof(self, who: bytes) -> bytes:
        text = b" ".join((who, NAME.encode(), self._nonces()))
        return digest(self._secret, text).hex().encode()

    def _check(self, proof: bytes, who: bytes) -> None:
        if not hmac.compare_digest(proof, self._proof(who)):
            raise Foreign(OTHER_TOKEN, is_final=True)

    def _begin(self) -> None:
        self._key = digest(self._secret, b"key " + self._nonces())
        self.is_ready = True

    def mac(self, from_hub: bool, number: int, text: bytes) -> bytes:
        what = (b"hub %d " if from_hub else b"node %d ") % number + text
        return digest(self._key, what).hex().encode()[:MAC_HEX]

    def _decode(self, line: bytes) -> Any:
        mac, _, text = line.partition(b" ")
        if not hmac.compare_digest(mac, self.mac(not self.is_hub, self._heard, text)):
            raise Foreign("a line that it cannot have written")
        self._heard += 1
        try:
            return read_record(Report if self.is_hub else Order, json.loads(text)) if text else None
        except (ValueError, RecursionError) as error:
            raise Foreign(f"a message that is none: {error}") from error
