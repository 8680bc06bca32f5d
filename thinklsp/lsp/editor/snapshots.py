"""Snapshots of the open documents and folders, which turns work on."""

from __future__ import annotations

from collections.abc import Iterable

from thinklsp.core.edits import FileEdit
from thinklsp.core.errors import PathRefused
from thinklsp.engine.merge_plan import FileState
from thinklsp.lsp.editor.connection_state import ConnectionState
from thinklsp.sandbox.bubblewrap import is_same_or_parent
from thinklsp.workspace.documents import open_extra_roots
from thinklsp.workspace.paths import Root, compute_workspace_key, resolve_real_path
from thinklsp.workspace.protected import ProtectedPaths
from thinklsp.workspace.uri import normalize_uri, uri_to_path
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceView


class Snapshots:
    """The open workspace folders, and workspace views that combine them with the open documents."""

    def __init__(
        self,
        state: ConnectionState,
        allow_protected: tuple[str, ...] = (),
        allow_home: bool = False,
        extra_roots: tuple[str, ...] = (),
    ) -> None:
        self._state = state
        self._protected = ProtectedPaths(allow_protected)
        self._allow_home = allow_home
        self._extra_roots = extra_roots
        # A cache of the extra roots, with the workspace roots to which they belong.
        self._extra_cache: tuple[tuple[Root, ...], list[Root]] | None = None
        self._roots: dict[str, Root] = {}
        self._reported_problems: set[str] = set()
        self._key: str | None = None

    def create_view(self) -> WorkspaceView:
        """Return the workspace view for a turn that starts now."""
        documents = [
            DocumentSnapshot(document.uri, document.version, document.text, document.language_id)
            for document in self._state.documents.list_documents()
        ]
        return self._build_view(documents)

    def create_disk_view(self, *, is_quiet: bool = False) -> WorkspaceView:
        """Return a view of the files on disk, ignoring the open documents.

        A quiet view shows no warnings about folders that cannot be used, because no turn is about to use them.
        """
        return self._build_view(is_quiet=is_quiet)

    def read_state(self, uri: str, view: WorkspaceView) -> FileState:
        """Return the current state of a file in `view`, which must be new.

        Protected files are refused, even if a tool has checked the file before. The version is that of the document
        with exactly this URI, because an edit names the URI and the version together.
        """
        document = self._state.documents.get(uri)
        try:
            place = view.resolve(uri)
            view.check_writable(place)
            if document is not None:
                return FileState(document.text, document.version, document.is_desynced)
            content = view.read(place)
        except PathRefused as refused:
            return FileState(None, refusal=str(refused))
        if content is None or (content.version is not None and place.stat() is None):
            return FileState(None)
        return FileState(content.text)

    def find_uri(self, file: FileEdit, view: WorkspaceView) -> str:
        """Return the URI under which the editor has the file of an edit now.

        A document may have been opened or closed since the edit was made, also through a link. Links are followed only
        for edits from the ledger, because the URI of an older edit may lead through a link.
        """
        try:
            place = view.resolve(file.key) if file.key else view.locate(file.uri)
        except PathRefused:
            return file.uri
        uri = view.find_operation_uri(place) if file.is_file_operation else place.uri
        if self._state.documents.get(uri) is None and normalize_uri(uri) == normalize_uri(file.uri):
            return file.uri
        return uri

    def read_text(self, uri: str, view: WorkspaceView) -> str | None:
        """Return the text of a file that the editor has changed, or None if the file cannot be read."""
        document = self._state.documents.get(uri)
        return self.read_disk(uri, view) if document is None else document.text

    def read_disk(self, uri: str, disk: WorkspaceView) -> str | None:
        """Return the text of a file in a view from `create_disk_view`, or None if the file cannot be read."""
        try:
            content = disk.peek(disk.locate(uri))
        except PathRefused:
            return None
        return None if content is None else content.text

    @property
    def key(self) -> str:
        """The key for this workspace's sessions, which is its first folder.

        The key stays the same if other folders are added or removed. A client without a folder list starts with its
        root folder as the key. The first folder that the client adds then becomes the key.
        """
        if self._key is None and (first := next(iter(self._state.documents.folders), None)) is not None:
            key = compute_workspace_key(first)
            if first == self._state.documents.root:
                return key
            self._key = key
        return self._key or "no folder"

    def _build_view(self, documents: Iterable[DocumentSnapshot] = (), *, is_quiet: bool = False) -> WorkspaceView:
        folders = self._open_folders(is_quiet=is_quiet)
        return WorkspaceView(folders, documents, protected=self._protected, extra=self._get_extra_roots(folders))

    def _get_extra_roots(self, folders: Iterable[Root]) -> list[Root]:
        workspace = tuple(folders)
        if self._extra_cache is None or self._extra_cache[0] != workspace:
            extra_roots, problems = open_extra_roots(
                self._extra_roots, workspace, self._protected, allow_wide=self._allow_home
            )
            self._extra_cache = workspace, extra_roots
            for problem in problems:
                self._warn(problem)
        return self._extra_cache[1]

    def _warn(self, problem: str) -> None:
        """Show a warning about a problem unless the same warning has already been shown."""
        if problem not in self._reported_problems:
            self._reported_problems.add(problem)
            self._state.client.show_message("warning", problem)

    def _open_folders(self, *, is_quiet: bool) -> list[Root]:
        folders: list[Root] = []
        for uri, folder in self._state.documents.folders.items():
            try:
                root = self._roots.get(uri)
                if root is None or root.name != folder.name:
                    root = self._open_root(uri, folder.name)
            except PathRefused as refused:
                if not is_quiet:
                    self._warn(f"{refused} Tools can only read open documents.")
                continue
            self._roots[uri] = root
            folders.append(root)
        for uri in self._roots.keys() - self._state.documents.folders.keys():
            self._roots.pop(uri).close()
        return folders

    def _open_root(self, uri: str, name: str) -> Root:
        """Open a workspace folder. Raises PathRefused, also for a folder with data of the server's other users."""
        root = Root(uri_to_path(uri), name=name, protected=self._protected, allow_wide=self._allow_home)
        for private in map(resolve_real_path, self._state.private_folders):
            if is_same_or_parent(root.path, private) or is_same_or_parent(private, root.path):
                root.close()
                raise PathRefused("This folder contains data of the server, so it cannot be opened.")
        return root
