"""Functions that find the workspace folder for a path, and that open read-only folders next to the workspace."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from thinklsp.core.errors import PathRefused
from thinklsp.workspace.paths import Root, resolve_real_path
from thinklsp.workspace.protected import ProtectedPaths
from thinklsp.workspace.uri import normalize_uri, path_to_uri, uri_to_path

RootPath = tuple[Root, tuple[str, ...]]
"""A root, and the components of a path below it."""


class RootResolver:
    """A resolver that finds the workspace folder for a path. An editor may open a file in a workspace folder through a
    link. The resolver recognizes that both paths lead to the same file.

    Links are followed only for the documents and edits that `follow` is given, and only at that moment.
    """

    def __init__(self, roots: Sequence[Root]) -> None:
        # The components of each folder's path, with and without links.
        self._bases = [(root, parts) for root in roots for parts in {_split(root.path), _split(root.given_path)}]
        # The real paths of the files that have a second path through a link, and of the folders of all documents.
        self._through_links: dict[str, RootPath] = {}
        self._real_folders: dict[str, str] = {}

    def follow(self, uri: str) -> tuple[str, bool]:
        """Return the key of a URI, and True if it leads through a link. `resolve_path` then follows the link, too."""
        try:
            path = uri_to_path(uri)
        except (PathRefused, UnicodeError):
            return normalize_uri(uri), False
        given = self.find_root(path)
        try:
            target = self.find_root(self._resolve_links(path))
        except (OSError, UnicodeError):
            target = None
        if target is None or target == given:
            return path_to_uri(_build_path(given, path)), False
        self._through_links[_build_path(given, path)] = target
        return build_key(*target), True

    def _resolve_links(self, path: str) -> str:
        """Return the real path of a file. The folders are resolved once, because many documents share them."""
        above, _, name = path.rpartition("/")
        folder = self._real_folders.get(above)
        if folder is None:
            folder = self._real_folders[above] = resolve_real_path(above or "/")
        whole = f"{folder.rstrip('/')}/{name}"
        return resolve_real_path(whole) if os.path.islink(whole) else whole

    def find_given(self, uri: str) -> RootPath | None:
        """Return the folder and the path that a URI names, without following links."""
        try:
            return self.find_root(uri_to_path(uri))
        except (PathRefused, UnicodeError):
            return None

    def is_file_link(self, uri: str) -> bool:
        """Return True if a URI that was given to `follow` names a link, and not a file in a folder behind a link."""
        target = self.resolve_uri(uri)
        if target is None or self.find_given(uri) == target:
            return False
        above, _, name = uri_to_path(uri).rpartition("/")
        return os.path.join(self._real_folders[above], name) != os.path.join(target[0].path, *target[1])

    def resolve_uri(self, uri: str) -> RootPath | None:
        try:
            return self.resolve_path(uri_to_path(uri))
        except (PathRefused, UnicodeError):
            return None

    def resolve_path(self, path: str) -> RootPath | None:
        """Return the innermost workspace folder that contains an absolute path, with the relative path in it, or
        None."""
        given = self.find_root(path)
        return self._through_links.get(_build_path(given, path), given) if self._through_links else given

    def find_root(self, path: str) -> RootPath | None:
        """Return the innermost workspace folder of a path, as `resolve_path` does, without following any link."""
        parts = _split(path)
        best: RootPath | None = None
        if ".." in parts:
            return None
        for root, above in self._bases:
            rest = parts[len(above) :]
            if parts[: len(above)] == above and (best is None or len(rest) < len(best[1])):
                best = (root, rest)
        return best

    def compute_key(self, uri: str) -> str:
        """Return a key that is the same for all spellings of a URI, including paths through links."""
        root_path = self.resolve_uri(uri)
        return normalize_uri(uri) if root_path is None else build_key(*root_path)


def _split(path: str) -> tuple[str, ...]:
    return tuple(filter(None, path.split("/")))


def _build_path(root_path: RootPath | None, path: str) -> str:
    """Return an absolute path in the spelling that all paths to the same folder share."""
    return path if root_path is None else os.path.join(root_path[0].path, *root_path[1])


def build_key(root: Root, parts: tuple[str, ...]) -> str:
    return path_to_uri(os.path.join(root.path, *parts))


def open_extra_roots(
    paths: Iterable[str], workspace: Iterable[Root], protected: ProtectedPaths, *, allow_wide: bool = False
) -> tuple[list[Root], list[str]]:
    """Open the folders that tools may only read, and return them with an error message for each unusable folder.

    Folders inside a workspace folder are skipped.
    """
    inside = [root.path for root in workspace]
    roots: list[Root] = []
    problems: list[str] = []
    for path in dict.fromkeys(resolve_real_path(os.path.expanduser(path)) for path in paths):
        if any(os.path.commonpath((path, outer)) == outer for outer in inside):
            continue
        try:
            roots.append(Root(path, protected=protected, allow_wide=allow_wide, read_only=True))
        except PathRefused as refused:
            problems.append(f"`extra_roots`: {refused}")
    return roots, problems
