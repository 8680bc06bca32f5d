"""Patterns of `.gitignore` as git reads them, matched without backtracking.

A pattern is cut at its stars, and every piece between two stars is looked for once, behind the one before it: the first
place is as good as any later one. The same holds for the folders between two `**`. So a match takes time by the length
of the name times that of the longest piece. pathspec's regular expressions try every way to share a name out among
the stars: 2,000 patterns like `*a*a*a1` kept the interpreter lock for a minute on one name of 240 letters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

_TOKEN = re.compile(
    r"\\(?P<escaped>.)|(?P<stars>\*+)|(?P<any>\?)|(?P<slash>/)|(?P<plain>[^\\*?\[/]+)"
    r"|\[(?P<negated>[!^]?)(?P<set>\]?(?:\[:\w*:\]|\\.|[^\]\\])*+)\]",
    re.DOTALL,
)
_SPECIAL = re.compile(r"[\\?\[]")
_STARS = re.compile(r"\*+")
_IN_SET = re.compile(r"\[:(?P<named>\w*):\]|\\(?P<escaped>.)|(?P<plain>.)", re.DOTALL)
_NAMED_SETS = {
    "alnum": "A-Za-z0-9", "alpha": "A-Za-z", "blank": r" \t", "cntrl": r"\x00-\x1f\x7f", "digit": "0-9", "graph": "!-~",
    "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~", "space": r"\s", "upper": "A-Z", "xdigit": "A-Fa-f0-9",
}  # fmt: skip


class _Piece(NamedTuple):
    """Characters without a star between them: `length` of them, in `text` if they are plain, else by `regex`."""

    length: int
    text: str | None
    regex: str

    def is_at(self, name: str, start: int) -> bool:
        if self.text is not None:
            return name.startswith(self.text, start)
        return re.compile(self.regex, re.DOTALL).match(name, start) is not None

    def find(self, name: str, start: int, end: int) -> int:
        if self.text is not None:
            return name.find(self.text, start, end)
        found = re.compile(self.regex, re.DOTALL).search(name, start, end)
        return -1 if found is None else found.start()


class Segment:
    """What one name in a path has to be: pieces, a star between each two."""

    __slots__ = ("_head", "_middle", "_pieces", "_tail", "is_plain", "literal")

    def __init__(self, pieces: tuple[_Piece, ...]) -> None:
        self._pieces = pieces
        self.is_plain = all(piece.text is not None for piece in pieces)
        """Whether it holds no `?` and no set."""
        self.literal = pieces[0].text if len(pieces) == 1 else None
        """The only name that matches."""
        self._head, *self._middle, self._tail = (piece.text or "" for piece in (pieces[0], *pieces[1:-1], pieces[-1]))

    @property
    def end(self) -> str:
        """The characters that a name has to end with, as far as they are plain."""
        return self._tail

    def matches(self, name: str) -> bool:
        if len(self._pieces) == 1:
            return len(name) == self._pieces[0].length and self._pieces[0].is_at(name, 0)
        if not self.is_plain:
            return self._matches_signs(name)
        if not (name.startswith(self._head) and name.endswith(self._tail)):
            return False
        at = len(self._head)
        for text in self._middle:
            at = name.find(text, at) + len(text)
            if at < len(text):
                return False
        return at <= len(name) - len(self._tail)

    def _matches_signs(self, name: str) -> bool:
        first, *middle, last = self._pieces
        at, end = first.length, len(name) - last.length
        if end < at or not last.is_at(name, end) or not first.is_at(name, 0):
            return False
        for piece in middle:
            found = piece.find(name, at, end)
            if found < 0:
                return False
            at = found + piece.length
        return True


_ANY = Segment((_Piece(0, "", ""), _Piece(0, "", "")))


@dataclass(frozen=True)
class Pattern:
    """One line. `groups`: names of folders, any number of others between each two groups; the last name is that of the
    entry. `anywhere`: it is about the name alone. `below`: about whatever is below the last group.
    """

    groups: tuple[tuple[Segment, ...], ...]
    ignores: bool = True
    folders_only: bool = False
    anywhere: bool = False
    below: bool = False

    @cached_property
    def last(self) -> Segment | None:
        """What the name of the entry has to be; None if it may be any."""
        return None if self.below or not self.groups[-1] else self.groups[-1][-1]

    def matches(self, parts: Sequence[str]) -> bool:
        """Whether it is about the entry itself, not only about a folder above it."""
        return (self.last is None or self.last.matches(parts[-1])) and (self.anywhere or self.is_path(parts))

    def is_path(self, parts: Sequence[str]) -> bool:
        """The same for an entry whose name is known to match."""
        first, *middle, last = self.groups if len(self.groups) > 1 else (*self.groups, ())
        if len(self.groups) == 1 and not self.below and len(parts) != len(first):
            return False
        at, end = len(first), len(parts) - (1 if self.below else 0)
        if self.below:
            middle = [*middle, last]
        else:
            end -= len(last)
        if end < at or not _fit(first, parts, 0) or not (self.below or _fit(last, parts, end)):
            return False
        for group in middle:
            found = next((n for n in range(at, end - len(group) + 1) if _fit(group, parts, n)), None)
            if found is None:
                return False
            at = found + len(group)
        return True


def _fit(group: Sequence[Segment], parts: Sequence[str], start: int) -> bool:
    return all(segment.matches(parts[start + n]) for n, segment in enumerate(group))


def parse_line(line: str) -> Pattern | None:
    """Return the pattern in a line of `.gitignore`; None if nothing can match it."""
    if line.startswith("#"):
        return None
    ignores = not line.startswith("!")
    return parse_pattern(line if ignores else line[1:], ignores=ignores)


def parse_pattern(text: str, *, ignores: bool = True) -> Pattern | None:
    """As `parse_line`, for a text in which `#` and `!` mean themselves."""
    text = _without_trailing_spaces(text)
    folders_only = text.endswith("/")
    text = text[:-1] if folders_only else text
    segments = _segments(text.removeprefix("/"))
    if not text.strip("/") or segments is None:
        return None
    if anywhere := "/" not in text:
        segments = [_ANY if segment is None else segment for segment in segments]
    groups: list[list[Segment]] = [[]]
    for segment in segments:
        if segment is not None:
            groups[-1].append(segment)
        elif len(groups) == 1 or groups[-1]:
            groups.append([])
    below = len(groups) > 1 and not groups[-1]
    return Pattern(tuple(map(tuple, groups[:-1] if below else groups)), ignores, folders_only, anywhere, below)


def _without_trailing_spaces(text: str) -> str:
    bare = text.rstrip(" ")
    backslashes = len(bare) - len(bare.rstrip("\\"))
    return bare + " " if bare != text and backslashes % 2 else bare


def _segments(text: str) -> list[Segment | None] | None:
    """Return the names between the slashes, None for `**`; None for a text that no path matches."""
    if _SPECIAL.search(text) is None:
        names = text.split("/")
        return None if "" in names else [_plain_segment(name) for name in names]
    return _parsed_segments(text)


def _plain_segment(name: str) -> Segment | None:
    if len(name) > 1 and not name.strip("*"):
        return None
    return Segment(tuple(_Piece(len(text), text, "") for text in _STARS.split(name)))


def _parsed_segments(text: str) -> list[Segment | None] | None:
    segments: list[Segment | None] = []
    names: list[list[list[tuple[str, bool]]]] = [[[]]]
    stars: list[str] = [""]
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            return None
        at = token.end()
        if token["slash"] or token["escaped"] == "/":
            names.append([[]])
            stars.append("")
        elif token["stars"]:
            names[-1].append([])
            stars[-1] += token["stars"]
        elif (signs := _signs(token)) is None:
            return None
        else:
            names[-1][-1] += signs
    for pieces, run in zip(names, stars, strict=True):
        if len(run) > 1 and not any(pieces):
            segments.append(None)
        elif pieces == [[]]:
            return None
        else:
            segments.append(Segment(tuple(map(_piece, pieces))))
    return segments


def _signs(token: re.Match[str]) -> list[tuple[str, bool]] | None:
    """Return the characters that a token stands for: plain, or as a regular expression of one character."""
    if token["any"]:
        return [(".", False)]
    if token["set"] is None:
        return [(char, True) for char in token["escaped"] or token["plain"]]
    inside = _set(token["set"])
    if inside is None or not (inside or token["negated"]):
        return None
    return [(f"[{'^' if token['negated'] else ''}{inside}]", False)]


def _set(text: str) -> str | None:
    """Return the inside of a set for `re`; None for a name that git does not know."""
    inside: list[str] = []
    before, range_from = "", ""
    for sign in _IN_SET.finditer(text):
        if (name := sign["named"]) is not None:
            if name not in _NAMED_SETS:
                return None
            inside += [re.escape("-")] * bool(range_from) + [_NAMED_SETS[name]]
            before = range_from = ""
            continue
        char = sign["escaped"] or sign["plain"]
        if range_from:
            inside += [f"{re.escape(range_from)}-{re.escape(char)}"] if range_from <= char else []
            before = range_from = ""
        elif char == "-" and sign["plain"] and before and sign.end() < len(text):
            range_from = before
        else:
            inside.append(re.escape(char))
            before = char
    return "".join(inside)


def _piece(signs: list[tuple[str, bool]]) -> _Piece:
    if all(plain for _, plain in signs):
        return _Piece(len(signs), "".join(char for char, _ in signs), "")
    return _Piece(len(signs), None, "".join(re.escape(char) if plain else char for char, plain in signs))


_Ranked = tuple[int, Segment, Pattern]


class Patterns:
    """The patterns of one file, found by the name that they are about. The last one that matches decides."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._by_name: dict[str, list[_Ranked]] = {}
        self._by_end: dict[str, list[_Ranked]] = {}
        for rank, pattern in enumerate(patterns):
            last = pattern.last or _ANY
            if last.literal is not None:
                place = self._by_name.setdefault(last.literal, [])
            else:
                place = self._by_end.setdefault(last.end[-1:], [])
            place.append((rank, last, pattern))

    def verdict(self, above: tuple[str, ...], name: str, *, is_folder: bool) -> bool | None:
        """Return whether the entry `name` in the folder `above` is ignored; None if no pattern is about it."""
        candidates = (
            self._by_name.get(name, ()),
            self._by_end.get(name[-1:], ()),
            self._by_end.get("", ()),
        )
        best, verdict, parts = -1, None, (*above, name)
        for rank, last, pattern in chain.from_iterable(candidates):
            if not last.matches(name) or rank < best or (pattern.folders_only and not is_folder):
                continue
            if pattern.anywhere or pattern.is_path(parts):
                best, verdict = rank, pattern.ignores
        return verdict
