"""Makes documents of our own in a folder of `.thinklsp/` beside a `.gitignore`: by edit, like all changes of files."""

from __future__ import annotations

import asyncio
from itertools import chain, count
from typing import Any

from thinklsp.core.errors import PathRefused
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.editor.state import State
from thinklsp.lsp.edits.workspace_edits import CREATE_OPTIONS
from thinklsp.tools.shown import visible
from thinklsp.workspace.relpath import RelPath
from thinklsp.workspace.uri import path_to_uri

_IGNORE = "*\n"


class MadeFiles:
    """`folder`: relative to the first workspace folder. `what`: what one of them is called in the editor."""

    def __init__(self, state: State, snapshots: Snapshots, folder: str, what: str) -> None:
        self._state = state
        self._snapshots = snapshots
        self._folder = tuple(folder.split("/"))
        self._what = what
        self._making = asyncio.Lock()

    @property
    def possible(self) -> bool:
        can = self._state.client.can
        creates = can.apply_edit and can.document_changes and "create" in can.resource_operations
        return creates and bool(self._state.folders)

    async def show(self, uri: str, *, take_focus: bool) -> None:
        """Where the editor does not show it, the user is told where it is."""
        if await self._state.client.show_document(uri, take_focus=take_focus):
            return
        try:
            name = self._snapshots.view().resolve(uri).shown
        except PathRefused:
            # Its folder, or the document, was closed meanwhile.
            name = uri.rpartition("/")[2]
        self._state.client.show_message("info", f"The {self._what} is {visible(name)}: open it there.")

    async def make(self, name: str, suffix: str, text: str) -> str | None:
        """The URI of a new document; None where the client can create no file or there is no folder to create it in."""
        # One after the other: two that look for a free name at once would find the same.
        async with self._making:
            return await self._make_alone(name, suffix, text)

    async def _make_alone(self, name: str, suffix: str, text: str) -> str | None:
        place = self._free_place(name, suffix) if self.possible else None
        if place is None:
            return None
        uri, ignore_uri = place
        files = {uri: text} if ignore_uri is None else {ignore_uri: _IGNORE, uri: text}
        # In two edits: within one, lsp-mode of Emacs writes the text before it has made folder and file.
        for changes in ([_creation(file) for file in files], [_first_text(file, files[file]) for file in files]):
            reply = await self._state.client.apply_edit(f"thinklsp: {self._what}", {"documentChanges": changes})
            if not reply.applied:
                return None
        return uri

    def _free_place(self, name: str, suffix: str) -> tuple[str, str | None] | None:
        """URI of a new document in the first folder, and of the ignore file where that is missing."""
        folder = next(iter(self._snapshots.view().folders), None)
        if folder is None:
            return None
        root, parts = folder.root, self._folder

        def taken(file: str) -> bool:
            uri = path_to_uri("/".join((root.written, *parts, file)))
            path = RelPath.of((*parts, file), file)
            return self._state.documents.get(uri) is not None or root.stat(path) is not None

        names = chain([f"{name}{suffix}"], (f"{name}-{number}{suffix}" for number in count(2)))
        try:
            # There may be hundreds: those that the folder names need no look at each.
            listing = root.list(RelPath.of(parts))
            known = frozenset() if listing is None else frozenset(listing.files)
            file = next(file for file in names if file not in known and not taken(file))
            ignore = None if taken(".gitignore") else path_to_uri("/".join((root.written, *parts, ".gitignore")))
        except PathRefused:
            return None
        return path_to_uri("/".join((root.written, *parts, file))), ignore


def _creation(uri: str) -> dict[str, Any]:
    return {"kind": "create", "uri": uri, "options": dict(CREATE_OPTIONS)}


def _first_text(uri: str, text: str) -> dict[str, Any]:
    start = {"line": 0, "character": 0}
    edits = [{"range": {"start": start, "end": start}, "newText": text}]
    return {"textDocument": {"uri": uri, "version": None}, "edits": edits}
