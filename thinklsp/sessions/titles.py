"""The titles of sessions, derived from prompts. The server imports this module early, so it must load quickly."""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_TITLE_LENGTH = 60
_FENCE = re.compile(r"\s*(```+|~~~+)")
_LINE_MARK = re.compile(r"\s*(?:#{1,6}\s+|>\s?|[-*+]\s+(?:\[[ xX]\]\s+)?|\d{1,3}[.)]\s+)+")
_LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\s]*\)")
_EMPHASIS = re.compile(r"(\*\*|\*|`+|~~)(?=\S)(.+?)(?<=\S)\1")
_REFERENCE = re.compile(
    r"""(?<![\w@])@(?:"(?P<quoted>(?:[^"\\]|\\.)+)"|(?P<bare>[^\s:@"]*[^\s:@".,;!?)]))(?::L?\d+(?:-L?\d+)?)?"""
)
_EDITOR_REFERENCES = frozenset({"selection", "diagnostics"})


def derive_title(prompt: str) -> str:
    """Derive a title from the first line of the prompt that contains words.

    The title of an empty prompt is empty.
    """
    plain = (_strip_markup(line) for line in _list_title_lines(prompt))
    lines = (line.strip() for line in prompt.splitlines())
    title_line = next((line for line in plain if any(letter.isalnum() for letter in line)), None)
    return truncate_title(title_line or next(filter(None, lines), ""))


def _list_title_lines(prompt: str) -> Iterator[str]:
    """Yield the lines outside code blocks, followed by the lines inside code blocks."""
    code, fence = [], ""
    for line in prompt.splitlines():
        match = _FENCE.match(line)
        if match is not None and (not fence or match[1].startswith(fence)):
            fence = "" if fence else match[1]
        elif fence:
            code.append(line)
        else:
            yield line
    yield from code


def _strip_markup(line: str) -> str:
    line = _LINE_MARK.sub("", line, count=1) if _LINE_MARK.match(line) else line
    line = _LINK.sub(r"\1", line)
    line = _REFERENCE.sub(_replace_reference, line)
    for _ in range(2):
        line = _EMPHASIS.sub(r"\2", line)
    return " ".join(line.split())


def _replace_reference(match: re.Match[str]) -> str:
    """Replace a file reference with the file's name.

    References such as `@selection` are removed, because they mean nothing in a title.
    """
    if match["bare"] in _EDITOR_REFERENCES:
        return ""
    path: str = match["bare"] or match["quoted"].replace('\\"', '"')
    return path.rstrip("/").rpartition("/")[2]


def truncate_title(line: str, length: int = MAX_TITLE_LENGTH) -> str:
    """Truncate a line to `length` characters, at a word boundary if possible."""
    if len(line) <= length:
        return line
    beginning = line[: length - 1]
    words = beginning.rpartition(" ")[0]
    return (words if len(words) > length * 2 // 3 else beginning).rstrip() + "…"
