"""Matching of `.gitignore` patterns as git does, but without backtracking.

A pattern is split at its stars. Each piece is searched for only once, after the previous piece, because the first
position is as good as any other. The regular expressions of pathspec backtrack instead: for 2,000 patterns like
`*a*a*a1`, matching one name of 240 letters took a minute.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

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


class Segment:
    """The pattern for one path component.

    `texts` contains the pieces between stars. `regex` is set if the pattern contains `?` or a character set.
    """

    __slots__ = ("_head", "_middle", "_regex", "end", "literal")

    def __init__(self, texts: Sequence[str], regex: str | None = None) -> None:
        self._regex = regex
        self.literal = texts[0] if len(texts) == 1 and regex is None else None
        """The only name that matches, or None."""
        self._head, *self._middle, self.end = texts if len(texts) > 1 else ("", *texts)

    @property
    def is_plain(self) -> bool:
        return self._regex is None

    def matches(self, name: str) -> bool:
        if self.literal is not None:
            return name == self.literal
        if self._regex is not None:
            return re.compile(self._regex, re.DOTALL).fullmatch(name) is not None
        if not (name.startswith(self._head) and name.endswith(self.end)):
            return False
        at = len(self._head)
        for text in self._middle:
            at = name.find(text, at) + len(text)
            if at < len(text):
                return False
        return at <= len(name) - len(self.end)


_ANY = Segment(("", ""))


@dataclass(frozen=True)
class Pattern:
    """The pattern in one line of `.gitignore`.

    `groups` contains sequences of path components, with any number of folders between two groups. The last component
    matches the file or folder itself. If `is_name_only` is true, the pattern matches names at any depth.
    """

    groups: tuple[tuple[Segment, ...], ...]
    is_ignoring: bool = True
    folders_only: bool = False
    is_name_only: bool = False

    @property
    def last(self) -> Segment:
        """The pattern for the last path component."""
        return self.groups[-1][-1]

    def matches(self, parts: Sequence[str]) -> bool:
        """Return True if the pattern matches the path itself. A match with a parent folder does not count."""
        return self.last.matches(parts[-1]) and (self.is_name_only or self.matches_path(parts))

    def matches_path(self, parts: Sequence[str]) -> bool:
        """Return True if the pattern matches a path. The caller has already matched the last component."""
        first, *others = self.groups
        if not others:
            return len(parts) == len(first) and _matches_group(first, parts, 0)
        *middle, last = others
        at, end = len(first), len(parts) - len(last)
        if end < at or not _matches_group(first, parts, 0) or not _matches_group(last, parts, end):
            return False
        for group in middle:
            position = next((n for n in range(at, end - len(group) + 1) if _matches_group(group, parts, n)), None)
            if position is None:
                return False
            at = position + len(group)
        return True


def _matches_group(group: Sequence[Segment], parts: Sequence[str], start: int) -> bool:
    return all(segment.matches(parts[start + n]) for n, segment in enumerate(group))


def parse_line(line: str) -> Pattern | None:
    """Return the pattern in a line of `.gitignore`, or None if the line cannot match any path."""
    if line.startswith("#"):
        return None
    ignores = not line.startswith("!")
    return parse_pattern(line if ignores else line[1:], ignores=ignores)


def parse_pattern(text: str, *, ignores: bool = True) -> Pattern | None:
    """Parse a pattern in which `#` and `!` have no special meaning."""
    text = _strip_trailing_spaces(text)
    folders_only = text.endswith("/")
    text = text[:-1] if folders_only else text
    try:
        segments = _parse_segments(text.removeprefix("/"))
    except ValueError:
        return None
    if anywhere := "/" not in text:
        segments = [_ANY if segment is None else segment for segment in segments]
    groups: list[list[Segment]] = [[]]
    for segment in segments:
        if segment is not None:
            groups[-1].append(segment)
        elif len(groups) == 1 or groups[-1]:
            groups.append([])
    # A pattern that ends in `**` matches everything in the folder.
    groups[-1] = groups[-1] or [_ANY]
    return Pattern(tuple(map(tuple, groups)), ignores, folders_only, anywhere)


def _strip_trailing_spaces(text: str) -> str:
    bare = text.rstrip(" ")
    backslashes = len(bare) - len(bare.rstrip("\\"))
    return bare + " " if bare != text and backslashes % 2 else bare


def _parse_segments(text: str) -> list[Segment | None]:
    """Split a pattern at slashes, with None for `**`. Raises ValueError if no path can match."""
    if _SPECIAL.search(text) is None:
        return [_build_segment(name.count("*"), _STARS.split(name)) for name in text.split("/")]
    segments: list[Segment | None] = []
    stars, pieces = 0, [("", "")]
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError("an open set, or a backslash at the end")
        at = token.end()
        if token["slash"] or token["escaped"] == "/":
            segments.append(_build_escaped_segment(stars, pieces))
            stars, pieces = 0, [("", "")]
        elif token["stars"]:
            stars += len(token["stars"])
            pieces.append(("", ""))
        else:
            plain, regex = _convert_token(token)
            pieces[-1] = pieces[-1][0] + plain, pieces[-1][1] + regex
    return [*segments, _build_escaped_segment(stars, pieces)]


def _build_segment(stars: int, texts: Sequence[str], regex: str | None = None) -> Segment | None:
    if len(texts) == 1 and not texts[0] and regex is None:
        raise ValueError("an empty name")
    return None if stars > 1 and regex is None and not any(texts) else Segment(texts, regex)


def _build_escaped_segment(stars: int, pieces: Sequence[tuple[str, str]]) -> Segment | None:
    texts = [plain if re.escape(plain) == regex else "" for plain, regex in pieces]
    if texts == [plain for plain, _ in pieces]:
        return _build_segment(stars, texts)
    first, *others = [regex for _, regex in pieces]
    # Every piece except the last is an atomic group, so that the regular expression does not backtrack.
    regex = first + "".join(f"(?>.*?{piece})" for piece in others[:-1]) + "".join(f".*{piece}" for piece in others[-1:])
    return _build_segment(stars, texts, regex)


def _convert_token(token: re.Match[str]) -> tuple[str, str]:
    """Convert a token to plain text and to a regular expression. The plain text of a wildcard is `?`."""
    if token["any"]:
        return "?", "."
    if token["set"] is None:
        plain = token["escaped"] or token["plain"]
        return plain, re.escape(plain)
    inside = _convert_set(token["set"])
    if not (inside or token["negated"]):
        raise ValueError("an empty set")
    return "?", f"[{'^' if token['negated'] else ''}{inside}]"


def _convert_set(text: str) -> str:
    """Convert a character set to the syntax of `re`. Raises ValueError if git does not support a class in the set."""
    inside: list[str] = []
    before, range_from = "", ""
    for sign in _IN_SET.finditer(text):
        if (name := sign["named"]) is not None:
            if name not in _NAMED_SETS:
                raise ValueError("an unknown set")
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


_Ranked = tuple[int, Segment, Pattern]


class Patterns:
    """The patterns in a `.gitignore` file, indexed by the names that they can match.

    The last matching pattern decides.
    """

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._by_name: dict[str, list[_Ranked]] = {}
        self._by_end: dict[str, list[_Ranked]] = {}
        for rank, pattern in enumerate(patterns):
            last = pattern.last
            if last.literal is not None:
                place = self._by_name.setdefault(last.literal, [])
            else:
                place = self._by_end.setdefault(last.end[-1:], [])
            place.append((rank, last, pattern))

    def decide(self, above: tuple[str, ...], name: str, *, is_folder: bool) -> bool | None:
        """Return True if the entry `name` in the folder `above` is ignored, False if it is not, or None if no pattern
        matches."""
        candidates = (
            self._by_name.get(name, ()),
            self._by_end.get(name[-1:], ()),
            self._by_end.get("", ()),
        )
        best, verdict, parts = -1, None, (*above, name)
        for rank, last, pattern in chain.from_iterable(candidates):
            if not last.matches(name) or rank < best or (pattern.folders_only and not is_folder):
                continue
            if pattern.is_name_only or pattern.matches_path(parts):
                best, verdict = rank, pattern.is_ignoring
        return verdict
