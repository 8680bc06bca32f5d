"""Opaque state that the simulator issues: made with a secret that lives and dies with the process, and opened again.

A seal carries everything that a later request is checked against, so no memory is needed to judge it. To clients it
is what the services' signatures are: long, opaque base64. What stands in a seal is the dialect's business.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from typing import Any

_MAC = 32
_HEAD = _MAC + 4
_FILLER = 160


class Sealer:
    """Owns the secret. The same content gives the same text for the life of the process."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def close(self, content: Mapping[str, Any], tokens: int) -> str:
        """`content` is JSON; `tokens`: how much thinking it stands for, which decides how long the text gets."""
        payload = json.dumps(content, separators=(",", ":")).encode("utf-8")
        # Filler of the thinking's own size makes signatures as long as the services'; a length divisible by three
        # needs no padding, whose spare bits could be changed unnoticed.
        size = _FILLER + 3 * tokens
        size += -(_HEAD + len(payload) + size) % 3
        filler = hashlib.shake_256(self._secret + payload).digest(size)
        rest = len(payload).to_bytes(4, "big") + payload + filler
        return base64.b64encode(self._mac(rest) + rest).decode("ascii")

    def open(self, text: str) -> Mapping[str, Any] | None:
        """The content, or None for anything that this process did not seal exactly so."""
        try:
            blob = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            return None
        if not hmac.compare_digest(blob[:_MAC], self._mac(blob[_MAC:])):
            return None
        length = int.from_bytes(blob[_MAC:_HEAD], "big")
        content: Mapping[str, Any] = json.loads(blob[_HEAD : _HEAD + length])
        return content

    def _mac(self, data: bytes) -> bytes:
        return hmac.new(self._secret, data, hashlib.sha256).digest()


def text_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
