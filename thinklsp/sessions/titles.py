"""The title of a session: what its first prompt says first, without marks that only mean something in the prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LENGTH = 60
_FENCE = re.compile(r"\s*(```+|~~~+)")
_LINE_MARK = re.compile(r"\s*(?:#{1,6}\s+|>\s?|[-*+]\s+(?:\[[ xX]\]\s+)?|\d{1,3}[.)]\s+)+")
_LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\s]*\)")
_MARKED = re.compile(r"(\*\*|\*|`+|~~)(?=\S)(.+?)(?<=\S)\1")
_REFERENCE = re.compile(r"(?<!\S)@(?:<([^>\n]+)>|\"([^\"\n]+)\"|(\S+))")
_LINES = re.compile(r"(?::L?\d+(?:-L?\d+)?|#L?\d+(?:-L?\d+)?)?([.,;:!?)]*)$")
_OF_THE_EDITOR = frozenset({"selection", "diagnostics"})


def title_of(prompt: str) -> str:
    """The first line with words in it; where there is none, the first line with anything. Empty for an empty prompt."""
    plain = (_plain(line) for line in _prose(prompt))
    named = (line.strip() for line in prompt.splitlines())
    found = next((line for line in plain if any(letter.isalnum() for letter in line)), None)
    return _cut(found or next(filter(None, named), ""))


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
    written = found[1] or found[2] or found[3]
    end = _LINES.search(written)
    name, marks = (written[: end.start()], end[1]) if end is not None else (written, "")
    return marks if name in _OF_THE_EDITOR else name.rstrip("/").rpartition("/")[2] + marks


def _cut(line: str) -> str:
    if len(line) <= _LENGTH:
        return line
    kept = line[: _LENGTH - 1]
    word = kept.rpartition(" ")[0]
    return (word if len(word) > _LENGTH * 2 // 3 else kept).rstrip() + "…"
