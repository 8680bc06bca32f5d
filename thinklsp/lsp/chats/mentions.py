"""`@path`, `@path:10-20`, `@"a path"`, `@selection` and `@diagnostics` in the text of a prompt. Says nothing about
existence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

SPECIAL = ("selection", "diagnostics")
"""What a prompt can refer to beside files."""

_REFERENCE = re.compile(
    r"""(?<![\w@])@(?:"(?P<quoted>(?:[^"\\\n\r]|\\.)+)"|(?P<bare>[^\s:@"]+))"""
    r"(?::L?(?P<first>\d{1,9})(?:-L?(?P<last>\d{1,9}))?)?"
)
_ESCAPED = re.compile(r"""\\(["\\])""")


@dataclass(frozen=True, slots=True)
class Mention:
    """`@path` or `@path:10-20` in a prompt; lines count from 1. `text`: as it stands there. `is_quoted`: it
    can be none of `SPECIAL`."""

    path: str
    lines: tuple[int, int] | None
    text: str = field(default="", compare=False)
    is_quoted: bool = field(default=False, compare=False)


def mentions(prompt: str) -> tuple[Mention, ...]:
    """Files that the prompt refers to."""
    return tuple(dict.fromkeys(mention for mention in _mentioned(prompt) if not _is_special(mention)))


def special_mentions(prompt: str) -> tuple[str, ...]:
    """Those of `SPECIAL` that the prompt names."""
    return tuple(dict.fromkeys(mention.path for mention in _mentioned(prompt) if _is_special(mention)))


def written(path: str, lines: tuple[int, int] | None = None) -> str:
    """The mention that is read back as this path and these lines: in quotes where it must be."""
    text = f"@{path}"
    found = [(mention.path, mention.text) for mention in mentions(text)]
    if found != [(path, text)]:
        quoted = path.replace("\\", "\\\\").replace('"', '\\"')
        text = f'@"{quoted}"'
    return text if lines is None else f"{text}:{lines[0]}-{lines[1]}"


def can_be_mentioned(path: str) -> bool:
    """A line end is in no mention."""
    return [mention.path for mention in mentions(written(path))] == [path]


def _is_special(mention: Mention) -> bool:
    return mention.path in SPECIAL and not mention.is_quoted


def _mentioned(prompt: str) -> Iterator[Mention]:
    for match in _REFERENCE.finditer(prompt):
        quoted, bare = match["quoted"], match["bare"]
        path = bare.rstrip(".,;!?)") if quoted is None else _ESCAPED.sub(r"\1", quoted)
        first = int(match["first"]) if match["first"] else None
        last = int(match["last"]) if match["last"] else first
        lines = None if first is None or last is None else (first, last)
        if path:
            whole = match[0] if lines is not None or quoted is not None else f"@{path}"
            yield Mention(path, lines, whole, quoted is not None)
