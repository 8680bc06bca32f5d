"""Which files `.gitignore` leaves out, and which a glob takes in. Needs no git, and reads only through the gate.

Only the `.gitignore` files of the folder itself count: those above it, `.git/info/exclude` and the user's global
list are outside of what tools may read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from thinklsp.core.errors import PathRefused
from thinklsp.workspace.paths import Listing, Root
from thinklsp.workspace.relpath import RelPath, quoted
from thinklsp.workspace.wildmatch import Pattern, Patterns, parse_line, parse_pattern

# Never listed and never searched: they hold no text of the project.
PRUNED = (".git", ".thinklsp")
_FILE_NAME = ".gitignore"
_MOST_ALTERNATIVES = 64
_LARGEST_FILE = 256 * 1024
# Names with `?` or sets in the patterns of one file.
_MOST_COMPILED = 500
_BRACES = re.compile(r"(?<!\\)\{([^{}]*)\}")
# What stands for itself in a glob: an escaped character, or one of several between brackets.
_PLAIN_IN_GLOB = re.compile(r"\\.|\[[!^]?\]?[^]]*\]")

Stopped = Callable[[], bool]


def never() -> bool:
    return False


class IgnoreRules:
    """The ignore files of one root, read when a question first needs them. Owned by one listing or search.

    `start`: the folder that was asked for by name. It is wanted even where it is ignored; then only the rules below
    it count.
    """

    def __init__(self, root: Root, start: tuple[str, ...] = ()) -> None:
        self._root = root
        self._specs: dict[tuple[str, ...], Patterns | None] = {}
        self._highest = 0
        self._wanted = len(start)
        self.start_ignored = any(self._excluded(start[: depth + 1], True) for depth in range(len(start)))
        if self.start_ignored:
            self._highest = len(start)

    def ignored(self, parts: tuple[str, ...]) -> bool:
        """Whether a file, or a folder between it and the start, is left out."""
        return any(
            self._excluded(parts[:depth], depth < len(parts)) for depth in range(self._wanted + 1, len(parts) + 1)
        )

    def kept(self, folder: tuple[str, ...], listing: Listing, stopped: Stopped = never) -> Listing:
        """What of a folder is not left out, for a walk that goes into no ignored folder. Once `stopped`, the names that
        were not looked at are left out too: many of them and many patterns take long."""
        if _FILE_NAME not in listing.files:
            self._specs[folder] = None
        ignored = (
            self._left_out(folder, listing.directories, True, stopped),
            self._left_out(folder, listing.files, False, stopped),
        )
        return Listing(
            tuple([name for name in listing.directories if name not in ignored[0]]),
            tuple([name for name in listing.files if name not in ignored[1]]),
        )

    def _excluded(self, parts: tuple[str, ...], is_folder: bool) -> bool:
        return parts[-1] in self._left_out(parts[:-1], parts[-1:], is_folder)

    def _left_out(
        self, folder: tuple[str, ...], names: Iterable[str], is_folder: bool, stopped: Stopped = never
    ) -> set[str]:
        """Names in a folder: some of `names`, and those that always are.

        The deepest file with a pattern for an entry decides, and in there the last pattern.
        """
        depths = range(len(folder), self._highest - 1, -1)
        specs = [(folder[depth:], spec) for depth in depths if (spec := self._spec(folder[:depth])) is not None]

        def is_left_out(name: str) -> bool:
            if stopped():
                return True
            verdicts = (spec.verdict(above, name, is_folder=is_folder) for above, spec in specs)
            return next((verdict for verdict in verdicts if verdict is not None), False)

        return {name for name in names if is_left_out(name)}.union(PRUNED)

    def _spec(self, folder: tuple[str, ...]) -> Patterns | None:
        if folder not in self._specs:
            self._specs[folder] = self._load(folder)
        return self._specs[folder]

    def _load(self, folder: tuple[str, ...]) -> Patterns | None:
        try:
            data = self._root.read(RelPath.of((*folder, _FILE_NAME)), limit=_LARGEST_FILE)
        except PathRefused:
            return None
        if data is None:
            return None
        lines = data.decode("utf-8", "replace").removeprefix("\ufeff").split("\n")
        parsed = (parse_line(line.removesuffix("\r")) for line in lines)
        return Patterns(_affordable(pattern for pattern in parsed if pattern is not None))


class GlobFilter:
    """A glob as tools take it: `*.py` at any depth, `src/**/*.ts` and `./*.py` from the folder on, `{a,b}`, `!` to
    leave out. With a folder all that is below it is meant; but `src/*` takes only what is in `src` itself."""

    def __init__(self, glob: str) -> None:
        """Raises PathRefused for a glob that means nothing."""
        self.leaves_out = glob.startswith("!")
        self.patterns = tuple(re.sub(r"^(\./+)+", "/", each) for each in expand_braces(glob.removeprefix("!")))
        for pattern in self.patterns:
            if (fault := _fault(pattern)) is not None:
                raise PathRefused(
                    f"The glob {quoted(glob)} cannot be used: {fault}. Write it like `*.py` or `src/**/*.ts`."
                )
        self._parsed = [each for each in map(parse_pattern, self.patterns) if each is not None]

    def takes(self, parts: tuple[str, ...], *, below: int = 0, above: tuple[str, ...] = ()) -> bool:
        """A glob may be meant from the workspace folder on, from the folder `below` components into it, or as paths are
        shown, with what stands `above` them."""
        meant = (tuple(parts), *((parts[below:],) if below else ()), *(((*above, *parts),) if above else ()))
        found = any(self._matches(pattern, path) for pattern in self._parsed for path in meant if path)
        return found != self.leaves_out

    def _matches(self, pattern: Pattern, parts: tuple[str, ...]) -> bool:
        """Whether the pattern means the file or a folder above it."""
        if not pattern.folders_only and pattern.matches(parts):
            return True
        named = pattern.last is not None and pattern.last.literal is not None
        if not (self.leaves_out or named or pattern.folders_only):
            # A name with wildcards is that of a file.
            return False
        return any(pattern.matches(parts[:depth]) for depth in range(1, len(parts)))


def _fault(pattern: str) -> str | None:
    """What is wrong with one pattern of a glob, as the end of a sentence; None where it can be used."""
    signs = _PLAIN_IN_GLOB.sub("", pattern)
    for sign, other in ("[]", "{}", "}{"):
        if sign in signs:
            return f"a `{sign}` in it has no `{other}`; where the character itself is meant, it is written `\\{sign}`"
    if not pattern.strip("/"):
        return "it names nothing"
    if ".." in pattern.split("/"):
        return "it holds `..`, and nothing above the workspace folder can be used"
    return None if parse_pattern(pattern) is not None else "no file can match it"


def expand_braces(glob: str) -> tuple[str, ...]:
    """`*.{ts,tsx}` as `*.ts` and `*.tsx`. Raises PathRefused beyond 64 alternatives."""
    done: list[str] = []
    waiting = [glob]
    while waiting:
        pattern = waiting.pop(0)
        braces = _BRACES.search(pattern)
        if braces is None:
            done.append(pattern)
        else:
            waiting += [pattern[: braces.start()] + choice + pattern[braces.end() :] for choice in braces[1].split(",")]
        if len(done) + len(waiting) > _MOST_ALTERNATIVES:
            raise PathRefused(f"The glob has more than {_MOST_ALTERNATIVES} alternatives; use a simpler one.")
    return tuple(dict.fromkeys(done))


def _affordable(patterns: Iterable[Pattern]) -> list[Pattern]:
    """Pass over the patterns with `?` or sets that are too many: each is compiled, which takes 0.1 ms."""
    kept, left = [], _MOST_COMPILED
    for pattern in patterns:
        compiled = sum(not segment.is_plain for group in pattern.groups for segment in group)
        left -= compiled
        if not compiled or left >= 0:
            kept.append(pattern)
    return kept
