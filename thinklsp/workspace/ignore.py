"""Which files `.gitignore` leaves out, and which a glob takes in. Needs no git, and reads only through the gate.

Only the `.gitignore` files of the folder itself count: those above it, `.git/info/exclude` and the user's global
list are outside of what tools may read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pathspec import GitIgnoreSpec

from thinklsp.core.errors import PathRefused
from thinklsp.workspace.paths import Root
from thinklsp.workspace.relpath import RelPath

# Never listed and never searched: they hold no text of the project.
PRUNED = (".git", ".thinklsp")
_MOST_ALTERNATIVES = 64
_BRACES = re.compile(r"\{([^{}]*)\}")


class IgnoreRules:
    """The ignore files of one root, read when a question first needs them. Owned by one listing or search."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._specs: dict[tuple[str, ...], GitIgnoreSpec | None] = {}

    def ignored(self, parts: tuple[str, ...], *, is_directory: bool = False, below: int = 0) -> bool:
        """Whether the path or a folder above it is left out. The first `below` components are taken as wanted."""
        return any(
            self._excluded(parts[:depth], is_directory=is_directory or depth < len(parts))
            for depth in range(below + 1, len(parts) + 1)
        )

    def entry_ignored(self, parts: tuple[str, ...], *, is_directory: bool) -> bool:
        """The same for a walk that does not go into ignored folders."""
        return self._excluded(parts, is_directory=is_directory)

    def _excluded(self, parts: tuple[str, ...], *, is_directory: bool) -> bool:
        """The deepest file with a pattern for it decides, and in there the last pattern."""
        if parts[-1] in PRUNED:
            return True
        for depth in range(len(parts) - 1, -1, -1):
            spec = self._spec(parts[:depth])
            if spec is not None:
                verdict = spec.check_file("/".join(parts[depth:]) + ("/" if is_directory else "")).include
                if verdict is not None:
                    return verdict
        return False

    def _spec(self, folder: tuple[str, ...]) -> GitIgnoreSpec | None:
        if folder not in self._specs:
            self._specs[folder] = self._load(folder)
        return self._specs[folder]

    def _load(self, folder: tuple[str, ...]) -> GitIgnoreSpec | None:
        try:
            data = self._root.read(RelPath.of((*folder, ".gitignore")))
        except PathRefused:
            return None
        if data is None:
            return None
        lines = data.decode("utf-8", "replace").removeprefix("\ufeff").split("\n")
        return GitIgnoreSpec.from_lines(line.removesuffix("\r") for line in lines if _usable(line))


class GlobFilter:
    """A glob as tools take it: `*.py` at any depth, `src/**/*.ts` from the folder on, `{a,b}`, `!` to leave out."""

    def __init__(self, glob: str) -> None:
        """Raises PathRefused for a glob that means nothing."""
        self.leaves_out = glob.startswith("!")
        self.patterns = expand_braces(glob.removeprefix("!"))
        if not all(pattern.strip("/") and _usable(pattern) for pattern in self.patterns):
            raise PathRefused(f"The glob `{glob}` cannot be used; write it like `*.py` or `src/**/*.ts`.")
        # A leading sign would turn a pattern around; as a glob it is a plain character.
        self._spec = GitIgnoreSpec.from_lines(re.sub(r"^([!#])", r"\\\1", pattern) for pattern in self.patterns)

    def takes(self, parts: Iterable[str]) -> bool:
        return self._spec.match_file("/".join(parts)) != self.leaves_out


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


def _usable(line: str) -> bool:
    """One line that no matcher understands must not take the others down."""
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True
