"""The editor that the demo plays: what it announces, which documents it has open, what it does with edits and progress.

Whatever is shown goes through a `Screen`; files are changed only in the demo's own project.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from thinklsp.cli.demo_client import DemoFailed, ServerProcess
from thinklsp.cli.demo_edits import edit_set_of, to_be_confirmed
from thinklsp.cli.demo_screen import Screen
from thinklsp.core.edits import EditSet
from thinklsp.core.errors import PathRefused
from thinklsp.workspace.apply import apply_to_disk
from thinklsp.workspace.paths import Root
from thinklsp.workspace.uri import path_to_uri
from thinklsp.workspace.view import WorkspaceFolder, WorkspaceView

_WORK, _PARTIAL = "demo-work", "demo-partial"
_REFUSAL = "the demo shows the change and writes nothing"

_CAPABILITIES: Mapping[str, Any] = {
    "general": {"positionEncodings": ["utf-16"]},
    "window": {"workDoneProgress": True},
    "workspace": {
        "applyEdit": True,
        "workspaceFolders": True,
        "workspaceEdit": {
            "documentChanges": True,
            "resourceOperations": ["create", "rename", "delete"],
            "changeAnnotationSupport": {},
        },
    },
    "textDocument": {
        "synchronization": {"didSave": True},
        "codeAction": {"codeActionLiteralSupport": {"codeActionKind": {"valueSet": ["quickfix", "refactor.rewrite"]}}},
    },
}


class Editor:
    """One folder, opened in one server. `edits` are the edit sets that have arrived, applied or not."""

    def __init__(self, root: Root, screen: Screen, *, writes: bool) -> None:
        self._root = root
        self._screen = screen
        self._writes = writes
        self._folder = WorkspaceFolder(path_to_uri(root.path), os.path.basename(root.path))
        self._versions: dict[str, int] = {}
        self._turns = 0
        self.edits: list[EditSet] = []

    # --- what the demo does ------------------------------------------------------------------------------------

    async def initialize(self, server: ServerProcess) -> str:
        """The handshake. Returns the server's name and version."""
        folders = [{"uri": self._folder.uri, "name": self._folder.name}]
        params = {
            "processId": os.getpid(),
            "clientInfo": {"name": "thinklsp demo"},
            "rootUri": self._folder.uri,
            "workspaceFolders": folders,
            "capabilities": _CAPABILITIES,
        }
        result = await server.request("initialize", params)
        server.notify("initialized", {})
        info = result["serverInfo"]
        return f"{info['name']} {info['version']}"

    def open(self, server: ServerProcess, name: str) -> str:
        """Opens a file of the folder, as it is on disk. Returns its URI."""
        uri = self.uri(name)
        self._versions[uri] = 1
        document = {"uri": uri, "languageId": "python", "version": 1, "text": self._text(uri)}
        server.notify("textDocument/didOpen", {"textDocument": document})
        return uri

    def uri(self, name: str) -> str:
        return path_to_uri(os.path.join(self._root.path, name))

    async def turn(self, server: ServerProcess, command: str, argument: Mapping[str, Any]) -> Mapping[str, Any]:
        """Runs a command that is a turn, with both progress tokens. Returns its TurnResult."""
        self._turns += 1
        work, partial = f"{_WORK}-{self._turns}", f"{_PARTIAL}-{self._turns}"
        given = {**argument, "partialResultToken": partial}
        params = {"command": command, "arguments": [given], "workDoneToken": work}
        try:
            result: Mapping[str, Any] = await server.request("workspace/executeCommand", params)
        finally:
            self._screen.quiet()
        for uri in self._changed_documents():
            self._tell_change(server, uri)
        return result

    # --- what the server sends ---------------------------------------------------------------------------------

    def requested(self, method: str) -> Callable[[Any], Any] | None:
        match method:
            case "workspace/applyEdit":
                return self._apply
            case "window/workDoneProgress/create" | "client/registerCapability" | "window/showMessageRequest":
                return lambda _: None
            case _:
                return None

    def notified(self, method: str, params: Any) -> None:
        if method == "window/showMessage":
            self._screen.note(params["message"], warning=params["type"] <= 2)
        elif method == "$/progress":
            self._progress(str(params["token"]), params["value"])

    def _progress(self, token: str, value: Mapping[str, Any]) -> None:
        if token.startswith(_WORK):
            if value["kind"] == "end":
                self._screen.quiet()
            else:
                self._screen.status(value.get("message") or "")
            return
        match value["kind"]:
            case "text" | "thinking" as kind:
                self._screen.stream(kind, value["delta"])
            case "restart":
                self._screen.discard()
            case "tool":
                self._screen.tool(value["title"], value["status"])
            case "plan":
                self._screen.plan(value["entries"])
            case "notice":
                self._screen.note(value["text"], warning=value["level"] == "warning")
            case _:
                pass

    def _apply(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Shows the edit and makes it, if this folder is ours to change."""
        edit = params["edit"]
        view = self._view()
        edit_set = edit_set_of(edit, view, self._versions)
        self.edits.append(edit_set)
        self._screen.edit(edit_set, to_be_confirmed(edit), applied=self._writes)
        if not self._writes:
            return {"applied": False, "failureReason": _REFUSAL}
        failed = [outcome.reason for outcome in apply_to_disk(edit_set, view) if outcome.reason is not None]
        return {"applied": False, "failureReason": failed[0]} if failed else {"applied": True}

    def _view(self) -> WorkspaceView:
        return WorkspaceView([(self._folder, self._root)])

    def _text(self, uri: str) -> str:
        view = self._view()
        found = view.read(view.resolve(uri))
        if found is None:
            raise DemoFailed(f"The file {uri} is not there.")
        return found.text

    def _changed_documents(self) -> list[str]:
        changed = {file.uri for edit_set in self.edits for file in edit_set.files} if self._writes else set()
        return sorted(changed & self._versions.keys())

    def _tell_change(self, server: ServerProcess, uri: str) -> None:
        self._versions[uri] += 1
        try:
            text = self._text(uri)
        except (DemoFailed, PathRefused):
            del self._versions[uri]
            server.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
            return
        identifier = {"uri": uri, "version": self._versions[uri]}
        server.notify("textDocument/didChange", {"textDocument": identifier, "contentChanges": [{"text": text}]})
        server.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
