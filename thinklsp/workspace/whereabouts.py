"""In which workspace folder a path lies, by its name alone or, for what the editor has open, by where it really is."""

from __future__ import annotations

import os
from collections.abc import Sequence

from thinklsp.core.errors import PathRefused
from thinklsp.workspace.paths import Root, real_path
from thinklsp.workspace.uri import path_to_uri, uri_key, uri_to_path

Found = tuple[Root, tuple[str, ...]]
"""A root, and the components below it."""


class Whereabouts:
    """Of one view. A document may be open under a path that leads into a folder through a link from outside: it is the
    file of that folder, under every spelling."""

    def __init__(self, roots: Sequence[Root]) -> None:
        self._roots = tuple(roots)
        self._through_links: dict[str, Found] = {}

    def add_document(self, uri: str) -> bool:
        """Whether it lies in a folder through a link alone. Looks at the disk where no folder is its own by name."""
        try:
            path = uri_to_path(uri)
            if self.of_path(path) is None and (found := self.of_path(real_path(path))) is not None:
                self._through_links[uri_key(uri)] = found
                return True
        except (PathRefused, UnicodeError, OSError):
            pass
        return False

    def of_uri(self, uri: str) -> Found | None:
        try:
            return self.of_path(uri_to_path(uri))
        except (PathRefused, UnicodeError):
            return None

    def of_path(self, path: str) -> Found | None:
        """The innermost root that holds an absolute path, compared by components."""
        parts = tuple(part for part in path.split("/") if part)
        best: Found | None = None
        if ".." in parts:
            return None
        for root in self._roots:
            for base in (root.path, root.written):
                above = tuple(part for part in base.split("/") if part)
                rest = parts[len(above) :]
                if parts[: len(above)] == above and (best is None or len(rest) < len(best[1])):
                    best = (root, rest)
        if best is None and self._through_links:
            return self._through_links.get(uri_key(path_to_uri(path)))
        return best

    def key(self, uri: str) -> str:
        """One key for every spelling, also of a folder that is reached through a link."""
        found = self.of_uri(uri)
        return uri_key(uri) if found is None else key_of(*found)


def key_of(root: Root, parts: tuple[str, ...]) -> str:
    return path_to_uri(os.path.join(root.path, *parts))
