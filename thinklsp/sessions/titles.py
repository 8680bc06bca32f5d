"""The title of a session: what its first prompt says first, without marks that only mean something in the prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator

LENGTH = 60
_FENCE = re.compile(r"\s*(```+|~~~+)")
_LINE_MARK = re.compile(r"\s*(?:#{1,6}\s+|>\s?|[-*+]\s+(?:\[[ xX]\]\s+)?|\d{1,3}[.)]\s+)+")
_LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\s]*\)")
_MARKED = re.compile(r"(\*\*|\*|`+|~~)(?=\S)(.+?)(?<=\S)\1")
_REFERENCE = re.compile(
    r"""(?<![\w@])@(?:"(?P<quoted>(?:[^"\\]|\\.)+)"|(?P<bare>[^\s:@"]*[^\s:@".,;!?)]))(?::L?\d+(?:-L?\d+)?)?"""
)
_OF_THE_EDITOR = frozenset({"selection", "diagnostics"})


def title_of(prompt: str) -> str:
    """The first line with words in it; where there is none, the first line with anything. Empty for an empty prompt."""
    plain = (_plain(line) for line in _prose(prompt))
    named = (line.strip() for line in prompt.splitlines())
    found = next((line for line in plain if any(letter.isalnum() for letter in line)), None)
    return shortened(found or next(filter(None, named), ""))


def _prose(prompt: str) -> Iterator[str]:
    """The lines outside of code; then those within, for a prompt that is nothing else."""
    code, fence = [], ""
    for line in prompt.splitlines():
        found = _FENCE.match(line)
        if found is not None and (not fence or found[1].startswith(fence)):
            fence = "" if fence else found[1]
        elif fence:
            code.append(line)
        else:
            yield line
    yield from code


def _plain(line: str) -> str:
    line = _LINE_MARK.sub("", line, count=1) if _LINE_MARK.match(line) else line
    line = _LINK.sub(r"\1", line)
    line = _REFERENCE.sub(_referred, line)
    for _ in range(2):
        line = _MARKED.sub(r"\2", line)
    return " ".join(line.split())


def _referred(found: re.Match[str]) -> str:
    """A file by its own name; what stands for a place in the editor says nothing later."""
    if found["bare"] in _OF_THE_EDITOR:
        return ""
    path: str = found["bare"] or found["quoted"].replace('\\"', '"')
    return path.rstrip("/").rpartition("/")[2]


def shortened(line: str, length: int = LENGTH) -> str:
    """To so many characters, at the end of a word where there is one near."""
    if len(line) <= length:
        return line
    kept = line[: length - 1]
    word = kept.rpartition(" ")[0]
    return (word if len(word) > length * 2 // 3 else kept).rstrip() + "…"
