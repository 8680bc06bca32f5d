"""From live documents and folders to the values that a turn works on."""

from __future__ import annotations

from dataclasses import dataclass

from thinklsp.core.errors import PathRefused
from thinklsp.lsp.editor.present import Present
from thinklsp.lsp.editor.state import State
from thinklsp.workspace.paths import Root, workspace_key
from thinklsp.workspace.protected import ProtectedPaths
from thinklsp.workspace.uri import uri_key, uri_to_path
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceFolder, WorkspaceView


class Snapshots:
    """Owns the opened workspace folders and the texts that the editor has applied without saving.

    Such a text counts until its file is opened, or disk no longer holds what it held when the edit was applied: then
    it has been saved, perhaps formatted on the way, or somebody else has written the file.
    """

    def __init__(self, state: State, allow_protected: tuple[str, ...] = (), allow_home: bool = False) -> None:
        self._state = state
        self._protected = ProtectedPaths(allow_protected)
        self._allow_home = allow_home
        self._roots: dict[str, Root] = {}
        self._settled: dict[str, _Settled] = {}
        self._refused: set[str] = set()
        self._key: str | None = None
        state.documents.on_open.append(self.forget)

    def view(self) -> WorkspaceView:
        """What a turn that begins now may see."""
        documents = [
            DocumentSnapshot(document.uri, document.version, document.text, document.language_id)
            for document in self._state.documents.all()
        ]
        folders = self._folders()
        disk = WorkspaceView(folders, protected=self._protected)
        self._settled = {
            uri: settled for uri, settled in self._settled.items() if _text_of(disk, uri) == settled.on_disk
        }
        settled = {uri: settled.text for uri, settled in self._settled.items()}
        return WorkspaceView(folders, documents, settled=settled, protected=self._protected)

    def present(self, uri: str, view: WorkspaceView) -> Present:
        """The file as it is in `view`, which should be fresh. Tools have asked whether it may be written, too; whatever
        let them, nothing that is protected leaves here."""
        document = self._state.documents.get(uri)
        try:
            place = view.resolve(uri)
            view.check_writable(place)
            if document is not None:
                return Present(document.text, document.version, document.desynced)
            found = view.read(place)
        except PathRefused as refused:
            return Present(None, refusal=str(refused))
        if found is None:
            return Present(None)
        return Present(found.text, found.version)

    def settle(self, uri: str, text: str | None) -> None:
        """The editor has made this edit. Where the file is not open, tools read the text until disk has moved on."""
        self._settled.pop(uri, None)
        if text is None or self._state.documents.get(uri) is not None:
            return
        disk = WorkspaceView(self._folders(), protected=self._protected)
        on_disk = _text_of(disk, uri)
        if on_disk != text and _in_folder(disk, uri):
            self._settled[uri] = _Settled(text, on_disk)

    def unsaved(self) -> tuple[str, ...]:
        """Paths of files whose new text only the editor holds."""
        view = self.view()
        return tuple(view.resolve(uri).shown for uri in self._settled)

    def forget(self, uri: str) -> None:
        """The file has been opened: from now on the document says what it holds."""
        key = uri_key(uri)
        self._settled = {other: settled for other, settled in self._settled.items() if uri_key(other) != key}

    @property
    def key(self) -> str:
        """What sessions of this workspace are found by: its first folder, kept when others come and go."""
        if self._key is None and (first := next(iter(self._state.folders), None)) is not None:
            self._key = workspace_key(first)
        return self._key or "no folder"

    def _folders(self) -> list[tuple[WorkspaceFolder, Root]]:
        folders: list[tuple[WorkspaceFolder, Root]] = []
        for uri, name in self._state.folders.items():
            try:
                root = self._roots.get(uri) or Root(
                    uri_to_path(uri), protected=self._protected, allow_wide=self._allow_home
                )
            except PathRefused as refused:
                if uri not in self._refused:
                    self._refused.add(uri)
                    self._state.client.show_message("warning", f"{refused} Tools see open documents only.")
                continue
            self._roots[uri] = root
            folders.append((WorkspaceFolder(uri, name), root))
        for uri in self._roots.keys() - self._state.folders.keys():
            self._roots.pop(uri).close()
        return folders


@dataclass(frozen=True, slots=True)
class _Settled:
    """`on_disk`: what the file held when the edit was applied, None where there was none."""

    text: str
    on_disk: str | None


def _text_of(view: WorkspaceView, uri: str) -> str | None:
    try:
        found = view.peek(view.resolve(uri))
    except PathRefused:
        return None
    return None if found is None else found.text


def _in_folder(view: WorkspaceView, uri: str) -> bool:
    try:
        return view.resolve(uri).root is not None
    except PathRefused:
        return False
