"""Rules of `.gitignore` files in workspace folders, applied without git and without backtracking.

Tools may not read other ignore files, such as the user's global one. A pattern is split at its stars, and each piece is
searched for only once, after the previous piece, because the first position is as good as any other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from thinklsp.core.errors import PathRefused
from thinklsp.workspace.paths import Listing, Root
from thinklsp.workspace.uri import RelPath

# Folders that are never listed or searched.
PRUNED_FOLDERS = (".git", ".thinklsp")
_FILE_NAME = ".gitignore"
_MAX_FILE_BYTES = 256 * 1024
# The characters of all patterns with wildcards in one file. Matching as many with a name can take 4 ms.
_MAX_WILD_CHARACTERS = 20_000
# A single match keeps the interpreter lock.
_NAMES_AT_ONCE = 16
# Parts of a line that ripgrep reads, or may read, in another way than git: `?`, which is a byte for git and a character
# for ripgrep, braces, escapes, sets other than `[a-z0-9_.]`, stars in a row, tabs at the end, and unusual paths.
_AMBIGUOUS = re.compile(
    r"[?{}\\\0\ufeff\ufffd]|\[(?!(?:[A-Za-z0-9_.](?:-[A-Za-z0-9])?)+\])|(?<=[^/])\*\*|\*\*(?=[^/])"
    r"|[^\S ] *$|//|(?:^|/)\.{1,2}(?:/|$)|^!?/?$"
)
_TOKEN = re.compile(
    r"\\(?P<escaped>.)|(?P<stars>\*+)|(?P<any>\?)|(?P<plain>[^\\*?\[]+)"
    r"|\[(?P<negated>[!^]?)(?P<set>\]?(?:\[:\w*:\]|\\.|[^\]\\])*+)\]|(?P<open>.)",
    re.DOTALL,
)
_IN_SET = re.compile(r"\[:(?P<named>\w*):\]|\\?(?P<plain>.)", re.DOTALL)
_NAMED_SETS = {
    "alnum": "A-Za-z0-9", "alpha": "A-Za-z", "blank": r" \t", "cntrl": r"\x00-\x1f\x7f", "digit": "0-9", "graph": "!-~",
    "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~", "space": r"\s", "upper": "A-Z", "xdigit": "A-Fa-f0-9",
}  # fmt: skip
_WILD = re.compile(r"(?<!\\)(?:\\\\)*[*?\[]")
_ANY_FOLDER = re.compile(r"\*\*+")
# Any character of a name. The null character separates the names of a listing.
_ANY = r"[^/\0]"
_ANY_FOLDERS = f"(?:{_ANY}+/)*"


@dataclass(frozen=True, slots=True)
class Pattern:
    """The pattern in one line of `.gitignore`.

    `folder` matches the folders in which the pattern can match, with a slash behind each name. It is None for a pattern
    that can match in every folder.

    `regex` matches the path, or the name if `is_name_only` is true. `last` is the last name, or its regular expression.
    """

    regex: re.Pattern[str]
    folder: re.Pattern[str] | None
    last: str
    is_wild: bool
    ignores: bool
    folders_only: bool
    is_name_only: bool

    def matches(self, parts: Sequence[str]) -> bool:
        """Return True if the pattern matches the path itself. A match with a parent folder does not count."""
        return self.regex.fullmatch(parts[-1] if self.is_name_only else "/".join(parts)) is not None


def parse_pattern(text: str, *, ignores: bool = True) -> Pattern | None:
    """Parse a pattern in which `#` and `!` have no special meaning. Return None if it cannot match any path."""
    bare = text.rstrip(" ")
    # The last of an odd number of backslashes escapes a space.
    text = bare + " " if bare != text and (len(bare) - len(bare.rstrip("\\"))) % 2 else bare
    folders_only = text.endswith("/")
    text = text[:-1] if folders_only else text
    names = text.removeprefix("/").split("/")
    # A pattern that ends in `**` matches everything in the folder.
    names += ["*"] if "/" in text and _ANY_FOLDER.fullmatch(names[-1]) else []
    try:
        path, last = _translate_path(names), _translate_name(names[-1])
        above = path.removesuffix(last)
        is_anywhere = "/" not in text or above == _ANY_FOLDERS
        regex, folder = re.compile(path), None if is_anywhere else re.compile(above)
    except (ValueError, re.error):
        return None
    is_wild = _WILD.search(names[-1]) is not None
    name = last if is_wild else re.sub(r"\\(.)", r"\1", names[-1])
    return Pattern(regex, folder, name, is_wild, ignores, folders_only, "/" not in text)


def _translate_path(names: Sequence[str]) -> str:
    """Return a regular expression for path components, of which `**` stands for any number of folders."""
    if len(names) == 1:
        return _translate_name(names[0])
    groups: list[list[str]] = [[]]
    for name in names:
        if not _ANY_FOLDER.fullmatch(name):
            groups[-1].append(_translate_name(name))
        elif len(groups) == 1 or groups[-1]:
            groups.append([])
    first, *others = ["/".join(group) for group in groups]
    if not others:
        return first
    middle = "".join(f"(?>(?:{_ANY}+/)*?{group}/)" for group in others[:-1])
    return (f"{first}/" if first else "") + middle + _ANY_FOLDERS + others[-1]


def _translate_name(name: str) -> str:
    """Return a regular expression for a path component. Raises ValueError or re.error if no name can match."""
    if not name or "\0" in name:
        raise ValueError("an empty name")
    first, *others = _TOKEN.sub(_translate_token, name).split("\0")
    # Every piece except the last is in an atomic group, so that the regular expression does not backtrack.
    atomic = "".join(f"(?>{_ANY}*?{piece})" for piece in others[:-1])
    return first + atomic + "".join(f"{_ANY}*{piece}(?!{_ANY})" for piece in others[-1:])


def _translate_token(token: re.Match[str]) -> str:
    """Return a regular expression for a part of a name, or a null character for stars."""
    if token["stars"]:
        return "\0"
    if token["any"]:
        return _ANY
    if token["open"]:
        raise ValueError("an open set, or a backslash at the end")
    if token["set"] is None:
        return re.escape(token["escaped"] or token["plain"])
    # Of two hyphens, the first one is a member of the set.
    inside = _IN_SET.sub(_translate_member, token["set"]).replace("--", "\\--")
    return f"[^/\\0{inside}]" if token["negated"] else f"(?![/\\0])[{inside}]"


def _translate_member(sign: re.Match[str]) -> str:
    if sign["named"] is not None:
        return _NAMED_SETS.get(sign["named"]) or "z-a"  # An invalid range, because git matches nothing.
    return sign["plain"] if sign[0] == "-" else re.escape(sign["plain"])


class _IgnoreFile:
    """The patterns of a `.gitignore` file, the last one first. The first matching pattern decides."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._patterns: list[Pattern] = []
        budget = _MAX_WILD_CHARACTERS
        for line in lines:
            if line.startswith("#"):
                continue
            is_wild = not set(line).isdisjoint("*?[\\") or "/" in line.strip("/")
            budget -= len(line) if is_wild else 0
            if budget >= 0 or not is_wild:
                pattern = parse_pattern(line.removeprefix("!"), ignores=not line.startswith("!"))
                self._patterns += [] if pattern is None else [pattern]
        self._patterns.reverse()
        self._folders = [pattern.folder for pattern in self._patterns if pattern.folder is not None]
        anywhere = [pattern for pattern in self._patterns if pattern.folder is None]
        self._names = frozenset(pattern.last for pattern in anywhere if not pattern.is_wild)
        wild = dict.fromkeys(pattern.last for pattern in anywhere if pattern.is_wild)
        # Most patterns begin with a star, for which one search in a name is enough.
        star = f"{_ANY}*"
        ends = "|".join(last.removeprefix(star) for last in wild if last.startswith(star))
        forms = [*([f"{star}(?:{ends})"] if ends else []), *(last for last in wild if not last.startswith(star))]
        self._wild = re.compile(rf"\0({'|'.join(forms)})(?=\0)") if forms else None

    def find_candidates(self, folder: tuple[str, ...], names: Sequence[str]) -> set[str]:
        """Return the names in a folder that a pattern may match. A search in all names is fast, because few match."""
        path = "/".join((*folder, ""))
        if any(each.fullmatch(path) for each in self._folders):
            return set(names)
        found = set(self._names.intersection(names))
        if self._wild is not None:
            found |= {match[1] for match in self._wild.finditer("\0".join(("", *names, "")))}
        return found

    def decide(self, parts: tuple[str, ...], *, is_folder: bool) -> bool | None:
        """Return True if a path is ignored, False if it is not, or None if no pattern matches."""
        for pattern in self._patterns:
            if (is_folder or not pattern.folders_only) and pattern.matches(parts):
                return pattern.ignores
        return None


class IgnoreRules:
    """The `.gitignore` rules of a workspace folder. If the folder `start` is ignored, only the rules in it apply."""

    def __init__(self, root: Root, start: tuple[str, ...] = ()) -> None:
        self._root = root
        self._files: dict[tuple[str, ...], _IgnoreFile | None] = {}
        self._first_depth, self._start_depth = 0, len(start)
        self.is_start_ignored = any(self._is_excluded(start[: depth + 1], True) for depth in range(len(start)))
        self._first_depth = len(start) if self.is_start_ignored else 0

    def is_ignored(self, parts: tuple[str, ...]) -> bool:
        """Return True if a file, or a folder between the start folder and the file, is ignored."""
        depths = range(self._start_depth + 1, len(parts) + 1)
        return any(self._is_excluded(parts[:depth], depth < len(parts)) for depth in depths)

    def is_ambiguous(self, folder: tuple[str, ...]) -> bool:
        """Return True if ripgrep may read the `.gitignore` of a folder in another way than git."""
        if (lines := self._read_lines(folder)) is None or sum(map(len, lines)) > _MAX_WILD_CHARACTERS:
            return True
        return any(line and not line.startswith("#") and _AMBIGUOUS.search(line) for line in lines)

    def filter_listing(
        self, folder: tuple[str, ...], listing: Listing, should_stop: Callable[[], bool] = lambda: False
    ) -> Listing:
        """Return the names in a folder that are not ignored.

        Matching many names can take a long time. When `should_stop` returns True, the remaining names are dropped.
        """
        if _FILE_NAME not in listing.files:
            self._files[folder] = None
        folders = self._find_ignored(folder, listing.directories, True, should_stop)
        files = self._find_ignored(folder, listing.files, False, should_stop)
        kept_folders = [name for name in listing.directories if name not in folders]
        return Listing(tuple(kept_folders), tuple([name for name in listing.files if name not in files]))

    def _is_excluded(self, parts: tuple[str, ...], is_folder: bool) -> bool:
        return parts[-1] in self._find_ignored(parts[:-1], parts[-1:], is_folder)

    def _find_ignored(
        self,
        folder: tuple[str, ...],
        names: Sequence[str],
        is_folder: bool,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> set[str]:
        """Return the ignored names in a folder. Deeper `.gitignore` files have priority."""
        ignored, decided = set(PRUNED_FOLDERS), set[str]()
        for depth in range(len(folder), self._first_depth - 1, -1):
            if (file := self._find_file(folder[:depth])) is None:
                continue
            for start in range(0, len(names), _NAMES_AT_ONCE):
                if should_stop():
                    return ignored | set(names)
                candidates = file.find_candidates(folder[depth:], names[start : start + _NAMES_AT_ONCE])
                for name in candidates - decided:
                    if (verdict := file.decide((*folder[depth:], name), is_folder=is_folder)) is not None:
                        decided.add(name)
                        ignored |= {name} if verdict else set()
        return ignored

    def _find_file(self, folder: tuple[str, ...]) -> _IgnoreFile | None:
        if folder not in self._files:
            lines = self._read_lines(folder)
            self._files[folder] = _IgnoreFile(lines) if lines else None
        return self._files[folder]

    def _read_lines(self, folder: tuple[str, ...]) -> list[str] | None:
        """Return the lines of the `.gitignore` in a folder, or None if tools may not read it."""
        try:
            data = self._root.read(RelPath.build((*folder, _FILE_NAME)), limit=_MAX_FILE_BYTES) or b""
        except PathRefused:
            return None
        text = data.decode("utf-8", "replace").removeprefix("\ufeff")
        return [line.removesuffix("\r") for line in text.split("\n")] if text else []
