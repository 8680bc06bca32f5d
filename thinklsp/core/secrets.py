"""Secrets that stand in a text, whole or in pieces: of what was cut, or masked by another rule, a part is there."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

HIDDEN = "[hidden]"
# Shorter ones are words: nobody's key, but the placeholder that a server on this machine is given.
_SHORTEST = 6
# What is longer says too much of a key, and is hardly found in other texts by chance.
_PIECE = 8
# Placeholders are shorter, and made of the words that sentences about their server are made of.
_LONG = 16


def hide(text: str, secrets: Iterable[str]) -> str:
    """The text without the secrets, as they are or as a URL spells them, and without pieces of long ones. Linear."""
    for secret in secrets:
        for spelled in {secret, quote(secret, safe="")}:
            if len(spelled) >= _SHORTEST:
                text = text.replace(spelled, HIDDEN)
            if len(spelled) >= _LONG:
                text = _without_pieces(text, spelled)
    return text


def _without_pieces(text: str, secret: str) -> str:
    known = {secret[at : at + _PIECE] for at in range(len(secret) - _PIECE + 1)}
    kept: list[str] = []
    at = 0
    while at < len(text):
        end = at
        while text[end : end + _PIECE] in known:
            end += 1
        if end > at:
            kept.append(HIDDEN)
            at = end + _PIECE - 1
        else:
            kept.append(text[at])
            at += 1
    return "".join(kept).replace(HIDDEN * 2, HIDDEN)
