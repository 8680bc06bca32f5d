"""`@path`, `@path:10-20`, `@selection` and `@diagnostics` in the text of a prompt. Says nothing about existence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

SPECIAL = ("selection", "diagnostics")
"""What a prompt can refer to beside files."""

_REFERENCE = re.compile(r"(?<![\w@])@(?P<path>[^\s:@]+)(?::L?(?P<first>\d{1,9})(?:-L?(?P<last>\d{1,9}))?)?")


@dataclass(frozen=True, slots=True)
class Mention:
    """`@path` or `@path:10-20` in a prompt; lines count from 1."""

    path: str
    lines: tuple[int, int] | None


def mentions(prompt: str) -> tuple[Mention, ...]:
    """Files that the prompt refers to."""
    return tuple(dict.fromkeys(mention for mention in _mentioned(prompt) if mention.path not in SPECIAL))


def special_mentions(prompt: str) -> tuple[str, ...]:
    """Those of `SPECIAL` that the prompt names."""
    return tuple(dict.fromkeys(mention.path for mention in _mentioned(prompt) if mention.path in SPECIAL))


def can_be_mentioned(path: str) -> bool:
    """Whether `@path` is read back as this path."""
    return mentions(f"@{path}") == (Mention(path, None),)


def _mentioned(prompt: str) -> Iterator[Mention]:
    for match in _REFERENCE.finditer(prompt):
        path = match["path"].rstrip(".,;!?)")
        first = int(match["first"]) if match["first"] else None
        last = int(match["last"]) if match["last"] else first
        if path:
            yield Mention(path, None if first is None or last is None else (first, last))
