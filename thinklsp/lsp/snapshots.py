"""From live documents and folders to the values that a turn works on."""

from __future__ import annotations

from collections.abc import Mapping

from thinklsp.core.edits import FileEdit
from thinklsp.core.errors import PathRefused
from thinklsp.lsp.edits import Present
from thinklsp.lsp.state import State
from thinklsp.workspace.paths import Root
from thinklsp.workspace.protected import ProtectedPaths
from thinklsp.workspace.uri import uri_to_path
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceFolder, WorkspaceView


class Snapshots:
    """Owns the opened workspace folders and the texts that the editor has applied without saving."""

    def __init__(self, state: State, allow_protected: tuple[str, ...] = (), allow_home: bool = False) -> None:
        self._state = state
        self._protected = ProtectedPaths(allow_protected)
        self._allow_home = allow_home
        self._roots: dict[str, Root] = {}
        self._settled: dict[str, str] = {}
        self.refused_folders: dict[str, str] = {}

    def view(self) -> WorkspaceView:
        """What a turn that begins now may see."""
        documents = [
            DocumentSnapshot(document.uri, document.version, document.text, document.language_id)
            for document in self._state.documents.all()
        ]
        self._forget_opened()
        view = WorkspaceView(self._folders(), documents, settled=self._settled, protected=self._protected)
        self._settled = view.unsaved()
        return view

    def present(self, file: FileEdit, view: WorkspaceView) -> Present:
        """The file as it is in `view`, which should be fresh."""
        document = self._state.documents.get(file.uri)
        if document is not None:
            return Present(document.text, document.version, document.desynced)
        try:
            place = view.resolve(file.uri)
            view.check_writable(place)
            found = view.read(place)
        except PathRefused as refused:
            return Present(None, refusal=str(refused))
        if found is None:
            return Present(None)
        return Present(found.text, found.version)

    def settle(self, uri: str, text: str | None) -> None:
        """The editor has this text for a file that is not open; tools read it until disk agrees."""
        if self._state.documents.get(uri) is not None:
            return
        if text is None:
            self._settled.pop(uri, None)
        else:
            self._settled[uri] = text

    @property
    def key(self) -> str:
        """What sessions of this workspace are found by."""
        return "\n".join(sorted(self._state.folders)) or "no folder"

    def _folders(self) -> list[tuple[WorkspaceFolder, Root]]:
        folders: list[tuple[WorkspaceFolder, Root]] = []
        for uri, name in self._state.folders.items():
            try:
                root = self._roots.get(uri) or Root(
                    uri_to_path(uri), protected=self._protected, allow_wide=self._allow_home
                )
            except PathRefused as refused:
                self.refused_folders[uri] = str(refused)
                continue
            self._roots[uri] = root
            folders.append((WorkspaceFolder(uri, name), root))
        for uri in self._roots.keys() - self._state.folders.keys():
            self._roots.pop(uri).close()
        return folders

    def _forget_opened(self) -> None:
        settled: Mapping[str, str] = self._settled
        self._settled = {uri: text for uri, text in settled.items() if self._state.documents.get(uri) is None}
