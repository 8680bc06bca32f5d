"""Live documents and folders as the values that a turn works on."""

from __future__ import annotations

from collections.abc import Iterable

from thinklsp.core.errors import PathRefused
from thinklsp.lsp.editor.present import Present
from thinklsp.lsp.editor.state import State
from thinklsp.workspace.extra_roots import open_extra_roots
from thinklsp.workspace.paths import Root, workspace_key
from thinklsp.workspace.protected import ProtectedPaths
from thinklsp.workspace.uri import uri_to_path
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceFolder, WorkspaceView


class Snapshots:
    """The opened workspace folders, and views of them together with the open documents."""

    def __init__(
        self,
        state: State,
        allow_protected: tuple[str, ...] = (),
        allow_home: bool = False,
        extra_roots: tuple[str, ...] = (),
    ) -> None:
        self._state = state
        self._protected = ProtectedPaths(allow_protected)
        self._allow_home = allow_home
        self._extra_roots = extra_roots
        # Those beside the workspace, for the folders that it had when they were opened.
        self._beside: tuple[tuple[Root, ...], list[Root]] | None = None
        self._roots: dict[str, Root] = {}
        self._refused: set[str] = set()
        self._key: str | None = None

    def view(self) -> WorkspaceView:
        """What a turn that begins now may see."""
        documents = [
            DocumentSnapshot(document.uri, document.version, document.text, document.language_id)
            for document in self._state.documents.all()
        ]
        return self._view(documents)

    def disk(self) -> WorkspaceView:
        """The same without the open documents."""
        return self._view()

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

    def on_disk(self, uri: str, disk: WorkspaceView) -> str | None:
        """The text of a file in a view of `disk()`, None if there is none that can be read."""
        try:
            found = disk.peek(disk.resolve(uri))
        except PathRefused:
            return None
        return None if found is None else found.text

    @property
    def key(self) -> str:
        """What sessions of this workspace are found by: its first folder, kept when others come and go, unless it is a
        root that the first real folder replaces."""
        if self._key is None and (first := next(iter(self._state.folders), None)) is not None:
            key = workspace_key(first)
            if first == self._state.root:
                return key
            self._key = key
        return self._key or "no folder"

    def _view(self, documents: Iterable[DocumentSnapshot] = ()) -> WorkspaceView:
        folders = self._folders()
        return WorkspaceView(folders, documents, protected=self._protected, extra=self._extra(folders))

    def _extra(self, folders: Iterable[tuple[WorkspaceFolder, Root]]) -> list[Root]:
        workspace = tuple(root for _, root in folders)
        if self._beside is None or self._beside[0] != workspace:
            opened, problems = open_extra_roots(
                self._extra_roots, workspace, self._protected, allow_wide=self._allow_home
            )
            self._beside = workspace, opened
            for problem in problems:
                self._warn(problem)
        return self._beside[1]

    def _warn(self, problem: str) -> None:
        """Each problem once."""
        if problem not in self._refused:
            self._refused.add(problem)
            self._state.client.show_message("warning", problem)

    def _folders(self) -> list[tuple[WorkspaceFolder, Root]]:
        folders: list[tuple[WorkspaceFolder, Root]] = []
        for uri, name in self._state.folders.items():
            try:
                root = self._roots.get(uri) or Root(
                    uri_to_path(uri), protected=self._protected, allow_wide=self._allow_home
                )
            except PathRefused as refused:
                self._warn(f"{refused} Tools see open documents only.")
                continue
            self._roots[uri] = root
            folders.append((WorkspaceFolder(uri, name), root))
        for uri in self._roots.keys() - self._state.folders.keys():
            self._roots.pop(uri).close()
        return folders
