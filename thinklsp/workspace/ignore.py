"""Rules of `.gitignore` files and globs, applied without git and without backtracking."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from thinklsp.core.errors import PathRefused
from thinklsp.workspace.paths import Listing, Root
from thinklsp.workspace.uri import RelPath, quote_path

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


# Folders that are never listed or searched.
PRUNED_FOLDERS = (".git", ".thinklsp")
_FILE_NAME = ".gitignore"
_MAX_ALTERNATIVES = 64
_MAX_FILE_BYTES = 256 * 1024
# The maximum number of names with `?` or character sets in the patterns of one file.
_MAX_COMPILED = 500
# Parts of a line that ripgrep reads, or may read, in another way than git: `?`, which is a byte for git and a character
# for ripgrep, braces, escapes, sets other than `[a-z0-9_.]`, stars in a row, tabs at the end, and unusual paths.
_AMBIGUOUS = re.compile(
    r"[?{}\\\0\ufeff]|\[(?!(?:[A-Za-z0-9_.](?:-[A-Za-z0-9])?)+\])|(?<=[^/])\*\*|\*\*(?=[^/])"
    r"|[^\S ] *$|//|(?:^|/)\.{1,2}(?:/|$)|^!?/?$"
)
_BRACES = re.compile(r"(?<!\\)\{([^{}]*)\}")
# A part of a glob in which brackets and braces are literal: an escaped character or a character set.
_PLAIN_IN_GLOB = re.compile(r"\\.|\[[!^]?\]?[^]]*\]")

ShouldStop = Callable[[], bool]


class IgnoreRules:
    """The `.gitignore` rules of a workspace folder. Each file is read on first use.

    The `start` folder is included even if it is ignored. In this case, only the rules inside it apply.
    """

    def __init__(self, root: Root, start: tuple[str, ...] = ()) -> None:
        self._root = root
        self._specs: dict[tuple[str, ...], Patterns | None] = {}
        self._first_depth = 0
        self._start_depth = len(start)
        self.is_start_ignored = any(self._is_excluded(start[: depth + 1], True) for depth in range(len(start)))
        if self.is_start_ignored:
            self._first_depth = len(start)

    def is_ignored(self, parts: tuple[str, ...]) -> bool:
        """Return True if a file, or a folder between the start folder and the file, is ignored."""
        return any(
            self._is_excluded(parts[:depth], depth < len(parts))
            for depth in range(self._start_depth + 1, len(parts) + 1)
        )

    def is_ambiguous(self, folder: tuple[str, ...]) -> bool:
        """Return True if ripgrep may read the `.gitignore` of a folder in another way than git."""
        try:
            lines = self._read_lines(folder, errors="strict") or ()
        except (PathRefused, UnicodeDecodeError):
            return True
        return sum("[" in line for line in lines) > _MAX_COMPILED or any(
            line and not line.startswith("#") and _AMBIGUOUS.search(line) for line in lines
        )

    def filter_listing(
        self, folder: tuple[str, ...], listing: Listing, should_stop: ShouldStop = lambda: False
    ) -> Listing:
        """Return the names in a folder that are not ignored.

        Matching many names can take a long time. When `should_stop` returns True, the remaining names are dropped.
        """
        if _FILE_NAME not in listing.files:
            self._specs[folder] = None
        ignored = (
            self._find_ignored(folder, listing.directories, True, should_stop),
            self._find_ignored(folder, listing.files, False, should_stop),
        )
        return Listing(
            tuple([name for name in listing.directories if name not in ignored[0]]),
            tuple([name for name in listing.files if name not in ignored[1]]),
        )

    def _is_excluded(self, parts: tuple[str, ...], is_folder: bool) -> bool:
        return parts[-1] in self._find_ignored(parts[:-1], parts[-1:], is_folder)

    def _find_ignored(
        self, folder: tuple[str, ...], names: Iterable[str], is_folder: bool, should_stop: ShouldStop = lambda: False
    ) -> set[str]:
        """Return the ignored names in a folder, including names that are always ignored.

        Deeper `.gitignore` files have priority. In each file, the last matching pattern decides.
        """
        depths = range(len(folder), self._first_depth - 1, -1)
        specs = [
            (folder[depth:], spec) for depth in depths if (spec := self._find_patterns(folder[:depth])) is not None
        ]

        def is_left_out(name: str) -> bool:
            if should_stop():
                return True
            verdicts = (spec.decide(above, name, is_folder=is_folder) for above, spec in specs)
            return next((verdict for verdict in verdicts if verdict is not None), False)

        return {name for name in names if is_left_out(name)}.union(PRUNED_FOLDERS)

    def _find_patterns(self, folder: tuple[str, ...]) -> Patterns | None:
        if folder not in self._specs:
            self._specs[folder] = self._load(folder)
        return self._specs[folder]

    def _load(self, folder: tuple[str, ...]) -> Patterns | None:
        try:
            lines = self._read_lines(folder, errors="replace")
        except PathRefused:
            return None
        if lines is None:
            return None
        parsed = map(parse_line, lines)
        return Patterns(_limit_compiled(pattern for pattern in parsed if pattern is not None))

    def _read_lines(self, folder: tuple[str, ...], errors: str) -> list[str] | None:
        data = self._root.read(RelPath.build((*folder, _FILE_NAME)), limit=_MAX_FILE_BYTES)
        if data is None:
            return None
        return [line.removesuffix("\r") for line in data.decode("utf-8", errors).removeprefix("\ufeff").split("\n")]


class GlobFilter:
    """A glob in the syntax that tools accept.

    `*.py` matches at any depth, while `src/**/*.ts` and `./*.py` are relative to the folder. `{a,b}` lists
    alternatives, and a leading `!` excludes files. A glob that names a folder includes all files in the folder, but
    `src/*` includes only the files directly in `src`.
    """

    def __init__(self, glob: str) -> None:
        """Parse a glob. Raises PathRefused if it is invalid."""
        self.is_negated = glob.startswith("!")
        self.patterns = tuple(re.sub(r"^(\./+)+", "/", each) for each in expand_braces(glob.removeprefix("!")))
        for pattern in self.patterns:
            if (fault := _find_problem(pattern)) is not None:
                raise PathRefused(
                    f"The glob {quote_path(glob)} cannot be used: {fault}. Use a form like `*.py` or `src/**/*.ts`."
                )
        self._parsed = [each for each in map(parse_pattern, self.patterns) if each is not None]

    def includes(self, parts: tuple[str, ...], *, below: int = 0, above: tuple[str, ...] = ()) -> bool:
        """Return True if the glob includes a file.

        The glob may be relative to the workspace folder, or to the subfolder formed by the first `below` components of
        the path. It may also begin with `above`, the prefix of all paths that the model sees.
        """
        paths = (tuple(parts), *((parts[below:],) if below else ()), *(((*above, *parts),) if above else ()))
        has_match = any(self._matches(pattern, path) for pattern in self._parsed for path in paths if path)
        return has_match != self.is_negated

    def _matches(self, pattern: Pattern, parts: tuple[str, ...]) -> bool:
        """Return True if the pattern matches the file or a folder that contains the file."""
        if not pattern.folders_only and pattern.matches(parts):
            return True
        if not (self.is_negated or pattern.last.literal is not None or pattern.folders_only):
            # A name with wildcards matches only files.
            return False
        return any(pattern.matches(parts[:depth]) for depth in range(1, len(parts)))


def _find_problem(pattern: str) -> str | None:
    """Return the reason why a pattern in a glob is invalid, as the end of an error message, or None."""
    signs = _PLAIN_IN_GLOB.sub("", pattern)
    for sign, other in ("[]", "{}", "}{"):
        if sign in signs:
            return f"a `{sign}` in it has no `{other}`; write `\\{sign}` for the character itself"
    if not pattern.strip("/"):
        return "it is empty"
    if ".." in pattern.split("/"):
        return "it contains `..`, but paths above the workspace folder cannot be used"
    return None if parse_pattern(pattern) is not None else "no file can match it"


def expand_braces(glob: str) -> tuple[str, ...]:
    """Expand `*.{ts,tsx}` to `*.ts` and `*.tsx`. Raises PathRefused if there are more than 64 alternatives."""
    expanded: list[str] = []
    pending = [glob]
    while pending:
        pattern = pending.pop(0)
        braces = _BRACES.search(pattern)
        if braces is None:
            expanded.append(pattern)
        else:
            pending += [pattern[: braces.start()] + choice + pattern[braces.end() :] for choice in braces[1].split(",")]
        if len(expanded) + len(pending) > _MAX_ALTERNATIVES:
            raise PathRefused(f"The glob has more than {_MAX_ALTERNATIVES} alternatives; use a simpler one.")
    return tuple(dict.fromkeys(expanded))


def _limit_compiled(patterns: Iterable[Pattern]) -> list[Pattern]:
    """Drop patterns with `?` or character sets beyond the limit, because compiling a pattern takes 0.1 ms."""
    affordable, budget = [], _MAX_COMPILED
    for pattern in patterns:
        compiled = sum(not segment.is_plain for group in pattern.groups for segment in group)
        budget -= compiled
        if not compiled or budget >= 0:
            affordable.append(pattern)
    return affordable
