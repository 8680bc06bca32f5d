"""A parser for the mentions in a prompt: `@path`, `@path:10-20`, `@"a path"`, `@selection` and `@diagnostics`.

The parser does not check whether a file exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

SPECIAL_MENTIONS = ("selection", "diagnostics")
"""The mentions that are not files."""

_REFERENCE = re.compile(
    r"""(?<![\w@])@(?:"(?P<quoted>(?:[^"\\\n\r]|\\.)+)"|(?P<bare>[^\s:@"]+))"""
    r"(?::L?(?P<first>\d{1,9})(?:-L?(?P<last>\d{1,9}))?)?"
)
_ESCAPED = re.compile(r"""\\(["\\])""")


@dataclass(frozen=True, slots=True)
class Mention:
    """A mention in a prompt, such as `@path` or `@path:10-20`.

    Lines are numbered from 1. `text` is the mention as written. A quoted mention (`is_quoted`) always names a file.
    """

    path: str
    lines: tuple[int, int] | None
    text: str = field(default="", compare=False)
    is_quoted: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class NameList:
    """The file paths for completion. `complete` is False if there may be more files."""

    paths: Sequence[str] = ()
    complete: bool = True


def find_mentions(prompt: str) -> tuple[Mention, ...]:
    """Return the files that the prompt mentions, without duplicates."""
    return tuple(dict.fromkeys(mention for mention in _parse_mentions(prompt) if not _is_special(mention)))


def find_special_mentions(prompt: str) -> tuple[str, ...]:
    """Return the special mentions in the prompt, such as `selection`, without duplicates."""
    return tuple(dict.fromkeys(mention.path for mention in _parse_mentions(prompt) if _is_special(mention)))


def write_mention(path: str, lines: tuple[int, int] | None = None) -> str:
    """Format a mention of a path and its lines, quoting the path if necessary."""
    text = f"@{path}"
    parsed = [(mention.path, mention.text) for mention in find_mentions(text)]
    if parsed != [(path, text)]:
        quoted = path.replace("\\", "\\\\").replace('"', '\\"')
        text = f'@"{quoted}"'
    return text if lines is None else f"{text}:{lines[0]}-{lines[1]}"


def can_be_mentioned(path: str) -> bool:
    """Return True if a mention can name the path. A path that contains a line ending cannot be mentioned."""
    return [mention.path for mention in find_mentions(write_mention(path))] == [path]


def _is_special(mention: Mention) -> bool:
    return mention.path in SPECIAL_MENTIONS and not mention.is_quoted


def _parse_mentions(prompt: str) -> Iterator[Mention]:
    for match in _REFERENCE.finditer(prompt):
        quoted, bare = match["quoted"], match["bare"]
        path = bare.rstrip(".,;!?)") if quoted is None else _ESCAPED.sub(r"\1", quoted)
        first = int(match["first"]) if match["first"] else None
        last = int(match["last"]) if match["last"] else first
        lines = None if first is None or last is None else (first, last)
        if path:
            mention_text = match[0] if lines is not None or quoted is not None else f"@{path}"
            yield Mention(path, lines, mention_text, quoted is not None)
