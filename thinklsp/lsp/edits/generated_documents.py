"""Documents that the server creates in a `.thinklsp/` folder, using workspace edits.

The server itself writes the `.gitignore` of the folder, so that no editor keeps that file open or unsaved.
"""

from __future__ import annotations

import asyncio
from itertools import chain, count

from lsprotocol.types import CreateFile, DeleteFile, Position, Range, TextDocumentEdit, TextEdit, WorkspaceEdit

from thinklsp.core.errors import PathRefused
from thinklsp.core.text_safety import escape_invisible
from thinklsp.lsp.editor.connection_state import ConnectionState
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.edits.workspace_edits import CREATE_OPTIONS, build_document_edit
from thinklsp.workspace.uri import RelPath, path_to_uri

_IMPOSSIBLE = "it requires an open folder and an editor that can create files."


class GeneratedDocuments:
    """A generator for documents in `folder`, a path relative to the first workspace folder.

    `label` is the name shown to the user. `problem` is the reason why the latest document could not be created.
    """

    def __init__(self, state: ConnectionState, snapshots: Snapshots, folder: str, label: str) -> None:
        self._state = state
        self._snapshots = snapshots
        self._folder = tuple(folder.split("/"))
        self._label = label
        self.problem = ""
        self._create_lock = asyncio.Lock()

    @property
    def is_possible(self) -> bool:
        can = self._state.client.features
        creates = can.apply_edit and "create" in can.file_operations
        return creates and bool(self._state.documents.folders)

    async def show(self, uri: str, *, take_focus: bool) -> None:
        """Show a document in the editor, or tell the user its path if the editor cannot show documents."""
        if await self._state.client.show_document(uri, take_focus=take_focus):
            return
        try:
            name = self._snapshots.create_view().resolve(uri).label
        except PathRefused:
            # The document or its folder has been closed since the document was created.
            name = uri.rpartition("/")[2]
        self._state.client.show_message(
            "info", f"The {self._label} is in {escape_invisible(name)}. Open that file to see it."
        )

    async def create(self, name: str, suffix: str, text: str) -> str | None:
        """Create a document and return its URI, or None with a `problem` if it could not be created."""
        # Create one document at a time, because two concurrent calls might choose the same name.
        async with self._create_lock:
            return await self._create_locked(name, suffix, text)

    async def _create_locked(self, name: str, suffix: str, text: str) -> str | None:
        self.problem = _IMPOSSIBLE
        uri = self._find_free_uri(name, suffix) if self.is_possible else None
        if uri is None:
            return None
        # Use two edits. Within one edit, Emacs lsp-mode writes the text before it creates the folder and the file.
        if not await self._apply(CreateFile(uri, options=CREATE_OPTIONS)):
            return None
        if await self._apply(_build_first_text(uri, text)):
            return uri
        problem = self.problem
        if "delete" in self._state.client.features.resource_operations:
            await self._apply(DeleteFile(uri))
        self.problem = problem
        return None

    async def _apply(self, change: CreateFile | DeleteFile | TextDocumentEdit) -> bool:
        edit = WorkspaceEdit(document_changes=[change])
        reply = await self._state.client.apply_edit(f"thinklsp: {self._label}", edit)
        self.problem = "" if reply.applied else f"the editor refused it: {reply.reason or 'no reason given'}."
        return reply.applied

    def _find_free_uri(self, name: str, suffix: str) -> str | None:
        """Return the URI of a new document in the first folder, which git ignores."""
        folder = next(iter(self._snapshots.create_view().folders), None)
        if folder is None:
            return None
        root, parts = folder.root, self._folder

        def is_taken(file: str) -> bool:
            uri = path_to_uri("/".join((root.given_path, *parts, file)))
            path = RelPath.build((*parts, file), file)
            return self._state.documents.get(uri) is not None or root.stat(path) is not None

        names = chain([f"{name}{suffix}"], (f"{name}-{number}{suffix}" for number in count(2)))
        try:
            # The folder may contain hundreds of documents, so list it once instead of checking each name.
            listing = root.list(RelPath.build(parts))
            listed_names = frozenset() if listing is None else frozenset(listing.files)
            file = next(file for file in names if file not in listed_names and not is_taken(file))
            root.ignore_folder(parts)
        except PathRefused as error:
            self.problem = str(error)
            return None
        return path_to_uri("/".join((root.given_path, *parts, file)))


def _build_first_text(uri: str, text: str) -> TextDocumentEdit:
    start = Position(0, 0)
    return build_document_edit(uri, None, [TextEdit(Range(start, start), text)])
