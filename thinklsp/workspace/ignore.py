"""Which files `.gitignore` leaves out, and which a glob takes in. Needs no git, and reads only through the gate.

Only the `.gitignore` files of the folder itself count: those above it, `.git/info/exclude` and the user's global
list are outside of what tools may read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pathspec import GitIgnoreSpec

from thinklsp.core.errors import PathRefused
from thinklsp.workspace.paths import Listing, Root
from thinklsp.workspace.relpath import RelPath, quoted

# Never listed and never searched: they hold no text of the project.
PRUNED = (".git", ".thinklsp")
_FILE_NAME = ".gitignore"
_MOST_ALTERNATIVES = 64
_MOST_WILDCARDS = 3
_LARGEST_FILE = 256 * 1024
# How pathspec marks, in the regular expression of a pattern, the slash behind a folder that matches.
_FOLDER_GROUP = "ps_d"
_FOLDER_MARK = f"(?P<{_FOLDER_GROUP}>/)"
_FILE_OR_FOLDER = f"(?:{_FOLDER_MARK}|$)"
# How its expression begins for a pattern that matches at any depth.
_BELOW_ANY = "^(?:.+/)?"
_BRACES = re.compile(r"(?<!\\)\{([^{}]*)\}")
# How a glob ends with wildcards in its last name.
_WILD_NAME = re.compile(r"(?<!\\)[*?[][^/]*$")
# What stands for itself in a glob: an escaped character, or one of several between brackets.
_PLAIN_IN_GLOB = re.compile(r"\\.|\[[!^]?\]?[^]]*\]")


class IgnoreRules:
    """The ignore files of one root, read when a question first needs them. Owned by one listing or search.

    `start`: the folder that was asked for by name. It is wanted even where it is ignored; then only the rules below
    it count.
    """

    def __init__(self, root: Root, start: tuple[str, ...] = ()) -> None:
        self._root = root
        self._specs: dict[tuple[str, ...], _IgnoreFile | None] = {}
        self._highest = 0
        self._wanted = len(start)
        self.start_ignored = any(self._excluded(start[: depth + 1], "/") for depth in range(len(start)))
        if self.start_ignored:
            self._highest = len(start)

    def ignored(self, parts: tuple[str, ...]) -> bool:
        """Whether a file, or a folder between it and the start, is left out."""
        return any(
            self._excluded(parts[:depth], "/" if depth < len(parts) else "")
            for depth in range(self._wanted + 1, len(parts) + 1)
        )

    def kept(self, folder: tuple[str, ...], listing: Listing) -> Listing:
        """What of a folder is not left out, for a walk that goes into no ignored folder."""
        if _FILE_NAME not in listing.files:
            self._specs[folder] = None
        ignored = self._left_out(folder, listing.directories, "/"), self._left_out(folder, listing.files, "")
        return Listing(
            tuple([name for name in listing.directories if name not in ignored[0]]),
            tuple([name for name in listing.files if name not in ignored[1]]),
        )

    def _excluded(self, parts: tuple[str, ...], end: str) -> bool:
        return parts[-1] in self._left_out(parts[:-1], parts[-1:], end)

    def _left_out(self, folder: tuple[str, ...], names: Iterable[str], end: str) -> set[str]:
        """Names in a folder: some of `names`, and those that always are. `end`: what closes the path of each, a slash
        where they are folders.

        The deepest file with a pattern for an entry decides, and in there the last pattern.
        """
        verdicts: dict[str, bool] = {}
        for depth in range(self._highest, len(folder) + 1):
            if (spec := self._spec(folder[:depth])) is not None:
                verdicts |= spec.verdicts("".join(f"{part}/" for part in folder[depth:]), names, end)
        return {name for name, ignored in verdicts.items() if ignored}.union(PRUNED)

    def _spec(self, folder: tuple[str, ...]) -> _IgnoreFile | None:
        if folder not in self._specs:
            self._specs[folder] = self._load(folder)
        return self._specs[folder]

    def _load(self, folder: tuple[str, ...]) -> _IgnoreFile | None:
        try:
            data = self._root.read(RelPath.of((*folder, _FILE_NAME)), limit=_LARGEST_FILE)
        except PathRefused:
            return None
        if data is None:
            return None
        lines = data.decode("utf-8", "replace").removeprefix("\ufeff").split("\n")
        return _IgnoreFile(line.removesuffix("\r") for line in lines if _usable(line))


class _IgnoreFile:
    """The patterns of one file, asked about entries of a walk.

    pathspec's own answer takes in what lies below a matching folder. Here the folders above an entry have had their
    turn already, and a pattern must be about the entry itself: else `!*/` would bring back every file in a folder.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._patterns = [
            (pattern.regex, bool(pattern.include))
            for pattern in reversed(list(GitIgnoreSpec.from_lines(lines).patterns))
            if pattern.regex is not None
        ]
        # One look for the many entries that no pattern is about.
        self._any = _union(regex for regex, _ in self._patterns)

    def verdicts(self, above: str, names: Iterable[str], end: str) -> dict[str, bool]:
        """Of names in the folder `above`. True: left out; False: taken back in; a name that no pattern
        is about has none."""
        mentioned = [name for name in names if self._any.search(f"{above}{name}{end}")]
        found = {name: self._verdict(above + name, end) for name in mentioned}
        return {name: verdict for name, verdict in found.items() if verdict is not None}

    def _verdict(self, path: str, end: str) -> bool | None:
        """The last pattern wins."""
        closed = path + end
        for regex, include in self._patterns:
            if _FOLDER_GROUP not in regex.groupindex:
                if regex.search(path):
                    return include
            elif any(match.end() == len(closed) for match in regex.finditer(closed)):
                return include
        return None


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
        self._any = _union(_compiled(pattern, files_only=not self.leaves_out) for pattern in self.patterns)

    def takes(self, parts: tuple[str, ...], *, below: int = 0, above: tuple[str, ...] = ()) -> bool:
        """A glob may be meant from the workspace folder on, from the folder `below` components into it, or as paths are
        shown, with what stands `above` them."""
        found = (
            self._any.search("/".join(parts))
            or (below and self._any.search("/".join(parts[below:])))
            or (above and self._any.search("/".join((*above, *parts))))
        )
        return bool(found) != self.leaves_out


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
    if _is_slow(pattern):
        return f"it holds more than {_MOST_WILDCARDS} `**`, or more than {_MOST_WILDCARDS} `*` in one name"
    return None if _compiled(pattern) is not None else "no file can match it"


def _compiled(pattern: str, *, files_only: bool = False) -> re.Pattern[str] | None:
    """None for one that cannot be used. `files_only`: a name with wildcards is that of a file."""
    # A leading sign would turn a pattern around; as a glob it is a plain character.
    plain = re.sub(r"^([!#])", r"\\\1", pattern)
    regex = next((one.regex for one in GitIgnoreSpec.from_lines([plain]).patterns), None) if _usable(plain) else None
    if regex is None or not (files_only and _WILD_NAME.search(pattern)):
        return regex
    return re.compile(regex.pattern.replace(_FILE_OR_FOLDER, "$"))


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


def _union(patterns: Iterable[re.Pattern[str] | None]) -> re.Pattern[str]:
    """One expression for all; of none it matches nothing."""
    bare = [regex.pattern.replace(_FOLDER_MARK, "/") for regex in patterns if regex is not None]
    # Going through the folders of a path once, not for each pattern, takes a quarter of the time.
    below_any = "|".join(f"(?:{text.removeprefix(_BELOW_ANY)})" for text in bare if text.startswith(_BELOW_ANY))
    whole = [f"(?:{text})" for text in bare if not text.startswith(_BELOW_ANY)]
    return re.compile("|".join((*whole, f"{_BELOW_ANY}(?:{below_any or '(?!)'})")))


def _usable(line: str) -> bool:
    """One line that no matcher understands must not take the others down, nor one that takes for ever."""
    if _is_slow(line):
        return False
    try:
        GitIgnoreSpec.from_lines([line])
    except (ValueError, re.error):
        return False
    return True


def _is_slow(line: str) -> bool:
    """Python tries every way to share a name out among its wildcards, so their number is bounded."""
    parts = line.split("/")
    return parts.count("**") > _MOST_WILDCARDS or any(part.count("*") > _MOST_WILDCARDS for part in parts)
