"""Rules of `.gitignore` files and globs, applied without git.

Only `.gitignore` files inside a workspace folder are used. Other ignore files, such as the user's global ignore file,
are outside the folders that tools may read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from thinklsp.core.errors import PathRefused
from thinklsp.workspace.paths import Listing, Root
from thinklsp.workspace.relpath import RelPath, quote_path
from thinklsp.workspace.wildmatch import Pattern, Patterns, parse_line, parse_pattern

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
