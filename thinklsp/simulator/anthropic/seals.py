"""Signatures on thinking: made with a secret that lives and dies with the process, and opened again.

A seal carries everything that a later request is checked against, so no memory is needed to judge it. To clients it
is what the service's signatures are: long, opaque base64.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from dataclasses import asdict, dataclass
from typing import Literal

_MAC = 32
_HEAD = _MAC + 4
_FILLER = 160


@dataclass(frozen=True, slots=True)
class Seal:
    """What one signed block is about.

    `answer`: id of the model answer it stands in. `text`: digest of the thinking as it was shown, None where it was
    omitted. `prefix`: digest of everything before the answer but thinking. `seen`: marks of the thinking before it.
    """

    kind: Literal["thinking", "redacted_thinking"]
    model: str
    answer: str
    place: int
    text: str | None
    prefix: str
    seen: tuple[str, ...]
    tokens: int


class Sealer:
    """Owns the secret. The same seal gives the same text for the life of the process."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def close(self, seal: Seal) -> str:
        payload = json.dumps(asdict(seal), separators=(",", ":")).encode("utf-8")
        # Filler of the thinking's own size makes signatures as long as the service's; a length divisible by three
        # needs no padding, whose spare bits could be changed unnoticed.
        size = _FILLER + 3 * seal.tokens
        size += -(_HEAD + len(payload) + size) % 3
        filler = hashlib.shake_256(self._secret + payload).digest(size)
        rest = len(payload).to_bytes(4, "big") + payload + filler
        return base64.b64encode(self._mac(rest) + rest).decode("ascii")

    def open(self, text: str) -> Seal | None:
        """The seal, or None for anything that this process did not sign exactly so."""
        try:
            blob = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            return None
        if not hmac.compare_digest(blob[:_MAC], self._mac(blob[_MAC:])):
            return None
        length = int.from_bytes(blob[_MAC:_HEAD], "big")
        fields = json.loads(blob[_HEAD : _HEAD + length])
        return Seal(**{**fields, "seen": tuple(fields["seen"])})

    def _mac(self, data: bytes) -> bytes:
        return hmac.new(self._secret, data, hashlib.sha256).digest()


def mark_of(signature: str) -> str:
    """A short name of a signed block, by which others remember having seen it."""
    return hashlib.sha256(signature.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def text_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
