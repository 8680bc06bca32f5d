"""Random changes of documents by two sides, and what they come to when they are merged.

Two oracles that share no code with the product: blocks of changed lines, which is exact because no line of a document
occurs twice, and `git merge-file`.
"""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tests.support.signing_server import Tool, tool
from thinklsp.workspace.merge import Conflict, merge

ENDS = {"lf": ("\n",), "crlf": ("\r\n",), "mixed": ("\n", "\r\n")}
# Words that positions go wrong at; the last ones end a line for some programs, and for LSP they do not.
WORDS = ("x", "𝒳𝒴", "🙂", "👩‍👩‍👧", "é", "ß = ", "字", "\t", "  ", "\u2028", "\f", "\x85", "#", "é́", "")
BOM = "\ufeff"

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")


def lines_of(text: str) -> list[str]:
    """With their ends. Only CRLF, CR and LF end a line."""
    return _LINE.findall(text)


@dataclass(frozen=True)
class Block:
    """Lines `[start, end)` of the base become `lines`."""

    start: int
    end: int
    lines: tuple[str, ...]


def blocks(base: Sequence[str], new: Sequence[str]) -> list[Block]:
    """What changed, for texts in which no line occurs twice and none changes its place."""
    at = {line: number for number, line in enumerate(base)}
    found, start, fresh = [], 0, list[str]()
    for line in [*new, None]:
        place = len(base) if line is None else at.get(line)
        if place is None:
            fresh.append(str(line))
            continue
        if place > start or fresh:
            found.append(Block(start, place, tuple(fresh)))
        start, fresh = place + 1, []
    return found


def merged(base: str, ours: str, theirs: str) -> str | None:
    """Both sides' changes, None where they touch. The same change on both sides is one."""
    old = lines_of(base)
    mine, yours = blocks(old, lines_of(ours)), blocks(old, lines_of(theirs))
    changes = sorted({*mine, *yours}, key=lambda block: (block.start, block.end))
    if any(after.start <= before.end for before, after in pairwise(changes)):
        return None
    for block in reversed(changes):
        old[block.start : block.end] = block.lines
    return "".join(old)


def git_merged(place: Path, base: str, ours: str, theirs: str) -> str | None:
    for name, text in (("ours", ours), ("base", base), ("theirs", theirs)):
        (place / name).write_bytes(text.encode())
    argv = ["git", "merge-file", "-p", "ours", "base", "theirs"]
    done = subprocess.run(argv, cwd=place, capture_output=True, check=False)
    assert done.returncode < 128, done.stderr
    return done.stdout.decode() if done.returncode == 0 else None


def compare_with_git(place: Path, base: str, ours: str, theirs: str) -> str:
    """Compare the product's merge with Git's, and return how they agree. A conflict for Git's text loses nothing."""
    result, expected = merge(base, ours, theirs), git_merged(place, base, ours, theirs)
    if isinstance(result, Conflict):
        return "same conflict" if expected is None else "needless conflict"
    assert result.text == expected, (base, ours, theirs)
    return "same text"


@dataclass
class Case:
    """One document: its text, what the model does to it by tool calls, what the user types."""

    name: str
    chance: random.Random
    base: str = ""
    ours: str = ""
    theirs: str = ""
    calls: list[Tool] = field(default_factory=list)
    typed: list[tuple[str, str]] = field(default_factory=list)
    _made: int = 0

    def __post_init__(self) -> None:
        ends = ENDS[self.chance.choice(list(ENDS))]
        lines = [self._line(self.chance.choice(ends)) for _ in range(self.chance.randint(1, 40))]
        if self.chance.random() < 0.3:
            lines[-1] = lines[-1].rstrip("\r\n")
        mark = BOM if self.chance.random() < 0.2 else ""
        self.base = mark + "".join(lines)
        # Mostly a few places near each other, so that all distances occur.
        around = self.chance.randrange(len(lines))
        self.ours = self.base
        for number in self._places(len(lines), around):
            self._model(lines[number])
        self.theirs = self.base
        for number in self._places(len(lines), around):
            self._user(lines[number])
        if self.chance.random() < 0.1:
            # Both had the same idea.
            self.typed = [(call.input["old_text"], call.input["new_text"]) for call in self.calls]
            self.theirs = self.ours

    def _line(self, end: str) -> str:
        self._made += 1
        words = self.chance.choices(WORDS, k=self.chance.randint(0, 5))
        return "".join([*words, f"<{self.name} {self._made}>", *self.chance.choices(WORDS, k=2)]) + end

    def _places(self, count: int, around: int) -> list[int]:
        near = [n for n in range(around - 4, around + 5) if 0 <= n < count]
        pool = near if self.chance.random() < 0.7 else list(range(count))
        return self.chance.sample(pool, min(len(pool), self.chance.randint(1, 3)))

    def _change(self, line: str) -> tuple[str, str]:
        """Old and new text: a line changed, removed, or followed or preceded by new ones."""
        text = line.rstrip("\r\n")
        end = line[len(text) :]
        kind = self.chance.choice(["change", "change", "remove", "after", "before"])
        if kind == "remove" and end:
            return line, ""
        if kind in ("after", "before") and end:
            fresh = "".join(self._line(end) for _ in range(self.chance.randint(1, 3)))
            return line, line + fresh if kind == "after" else fresh + line
        return text, self._line("")

    def _model(self, line: str) -> None:
        old, new = self._change(line)
        self.ours = self.ours.replace(old, new)
        self.calls.append(tool("edit_file", path=self.name, old_text=old, new_text=new))

    def _user(self, line: str) -> None:
        old, new = self._change(line)
        self.theirs = self.theirs.replace(old, new)
        self.typed.append((old, new))
