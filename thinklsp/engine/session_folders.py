"""The folders of a session in a terminal or of an agent, opened for tools."""

from __future__ import annotations

import os
from collections.abc import Sequence

from thinklsp.core.errors import PathRefused
from thinklsp.settings.user_file import UserSettings
from thinklsp.workspace.documents import open_extra_roots
from thinklsp.workspace.paths import Root, compute_workspace_key
from thinklsp.workspace.protected import ProtectedPaths
from thinklsp.workspace.uri import path_to_uri
from thinklsp.workspace.view import Place, WorkspaceView


class SessionFolders:
    """The folders of a session. `key` identifies the workspace of stored sessions.

    The folders are opened again after `close` if they are used, so that an idle session needs no file descriptors.
    """

    def __init__(self, cwd: str, user: UserSettings, additional: Sequence[str] = ()) -> None:
        self.key = compute_workspace_key(path_to_uri(cwd))
        self.problems: list[str] = []
        self._paths = tuple(dict.fromkeys((cwd, *additional)))
        self._settings = user.file.workspace
        self._protected = ProtectedPaths(self._settings.allow_protected)
        self._is_open = False
        self._folders: list[Root] = []
        self._extra: Sequence[Root] = ()
        self._open()

    def _open(self) -> None:
        allow_wide, problems = self._settings.allow_home, []
        self._folders, self._is_open = [], True
        for path in self._paths:
            try:
                root = Root(path, protected=self._protected, allow_wide=allow_wide)
            except PathRefused as refused:
                problems.append(f"The model cannot use files in {path}. {refused}")
            else:
                self._folders.append(root)
        self._extra, more = open_extra_roots(
            self._settings.extra_roots, self._folders, self._protected, allow_wide=allow_wide
        )
        self.problems = [*problems, *more]

    @property
    def is_empty(self) -> bool:
        """True if tools may use none of the folders."""
        return not self._folders

    def create_view(self) -> WorkspaceView:
        if not self._is_open:
            self._open()
        return WorkspaceView(self._folders, protected=self._protected, extra=self._extra)

    def find_path(self, uri: str) -> str | None:
        """Return the path of a file as the client spells it, or None for a file that tools may not use."""
        try:
            return find_absolute_path(self.create_view().resolve(uri))
        except PathRefused:
            return None

    def close(self) -> None:
        self._is_open = False
        for root in (*self._folders, *self._extra):
            root.close()


def find_absolute_path(place: Place) -> str | None:
    """Return the path of a file as the client spells it, or None for a place outside all folders."""
    if place.root is None or place.path is None:
        return None
    return os.path.join(place.root.given_path, *place.path.parts)
