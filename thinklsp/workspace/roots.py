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
    link outside the folder. The resolver recognizes that both paths lead to the same file."""

    def __init__(self, roots: Sequence[Root]) -> None:
        self._roots = tuple(roots)
        self._through_links: dict[str, RootPath] = {}

    def add_document(self, uri: str) -> bool:
        """Return True if a document is in a workspace folder only through a link.

        The disk is read only if the document's own path is in no folder.
        """
        try:
            path = uri_to_path(uri)
            if self.resolve_path(path) is None and (target := self.resolve_path(resolve_real_path(path))) is not None:
                self._through_links[normalize_uri(uri)] = target
                return True
        except (PathRefused, UnicodeError, OSError):
            pass
        return False

    def resolve_uri(self, uri: str) -> RootPath | None:
        try:
            return self.resolve_path(uri_to_path(uri))
        except (PathRefused, UnicodeError):
            return None

    def resolve_path(self, path: str) -> RootPath | None:
        """Return the innermost workspace folder that contains an absolute path, with the relative path in it, or
        None."""
        parts = tuple(part for part in path.split("/") if part)
        best: RootPath | None = None
        if ".." in parts:
            return None
        for root in self._roots:
            for base in (root.path, root.given_path):
                above = tuple(part for part in base.split("/") if part)
                rest = parts[len(above) :]
                if parts[: len(above)] == above and (best is None or len(rest) < len(best[1])):
                    best = (root, rest)
        if best is None and self._through_links:
            return self._through_links.get(normalize_uri(path_to_uri(path)))
        return best

    def compute_key(self, uri: str) -> str:
        """Return a key that is the same for all spellings of a URI, including paths through links."""
        root_path = self.resolve_uri(uri)
        return normalize_uri(uri) if root_path is None else build_key(*root_path)


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
