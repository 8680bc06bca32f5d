"""The editor that the demo plays: what it announces, which documents it has open, what it does with edits and progress.

Whatever is shown goes through a `Screen`; files are changed only in the demo's own project.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcInternalError

from thinklsp.cli.demo_client import DemoClient, DemoFailed
from thinklsp.cli.demo_edits import count_unconfirmed, edit_set_of
from thinklsp.cli.demo_screen import Screen
from thinklsp.core.edits import EditSet
from thinklsp.core.errors import PathRefused, ThinkLspError
from thinklsp.workspace.apply import apply_to_disk
from thinklsp.workspace.paths import Root
from thinklsp.workspace.uri import path_to_uri
from thinklsp.workspace.view import WorkspaceFolder, WorkspaceView

_WORK, _PARTIAL = "demo-work", "demo-partial"
_REFUSAL = "the demo shows the change and writes nothing"

_CAPABILITIES = types.ClientCapabilities(
    general=types.GeneralClientCapabilities(position_encodings=[types.PositionEncodingKind.Utf16]),
    window=types.WindowClientCapabilities(work_done_progress=True),
    workspace=types.WorkspaceClientCapabilities(
        apply_edit=True,
        workspace_folders=True,
        workspace_edit=types.WorkspaceEditClientCapabilities(
            document_changes=True,
            resource_operations=list(types.ResourceOperationKind),
            change_annotation_support=types.ChangeAnnotationsSupportOptions(),
        ),
    ),
    text_document=types.TextDocumentClientCapabilities(
        synchronization=types.TextDocumentSyncClientCapabilities(did_save=True),
        code_action=types.CodeActionClientCapabilities(
            code_action_literal_support=types.ClientCodeActionLiteralOptions(
                types.ClientCodeActionKindOptions([types.CodeActionKind.QuickFix, types.CodeActionKind.RefactorRewrite])
            )
        ),
    ),
)


class Editor:
    """One folder, opened in one server. `edits` are the edit sets that have arrived, applied or not."""

    def __init__(self, root: Root, screen: Screen, client: DemoClient, *, writes: bool) -> None:
        self._root = root
        self._screen = screen
        self._client = client
        self._writes = writes
        self._folder = WorkspaceFolder(path_to_uri(root.path), os.path.basename(root.path))
        self._versions: dict[str, int] = {}
        self._turns = 0
        self.edits: list[EditSet] = []
        self._register_features()

    # --- what the demo does ------------------------------------------------------------------------------------

    async def initialize(self) -> str:
        """Initialize the server. Return its name and version."""
        params = types.InitializeParams(
            process_id=os.getpid(),
            client_info=types.ClientInfo(self._client.name),
            root_uri=self._folder.uri,
            workspace_folders=[types.WorkspaceFolder(self._folder.uri, self._folder.name)],
            capabilities=_CAPABILITIES,
        )
        result = await self._client.wait_for(self._client.initialize(params))
        self._client.initialized(types.InitializedParams())
        if result.server_info is None:
            raise DemoFailed("The server did not give its name.")
        return f"{result.server_info.name} {result.server_info.version}"

    def open(self, name: str) -> str:
        """Open a file of the folder, as it is on disk. Return its URI."""
        uri = path_to_uri(os.path.join(self._root.path, name))
        self._versions[uri] = 1
        document = types.TextDocumentItem(uri, types.LanguageKind.Python, 1, self._text(uri))
        self._client.text_document_did_open(types.DidOpenTextDocumentParams(document))
        return uri

    async def request_actions(
        self, uri: str, diagnostic: types.Diagnostic
    ) -> Sequence[types.Command | types.CodeAction]:
        """Return the code actions that the server offers for a diagnostic."""
        context = types.CodeActionContext([diagnostic], trigger_kind=types.CodeActionTriggerKind.Invoked)
        params = types.CodeActionParams(types.TextDocumentIdentifier(uri), diagnostic.range, context)
        return await self._client.wait_for(self._client.text_document_code_action(params)) or ()

    async def run_turn(self, command: str, argument: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run a command that is a turn, with both progress tokens. Return its TurnResult."""
        self._turns += 1
        work, partial = f"{_WORK}-{self._turns}", f"{_PARTIAL}-{self._turns}"
        params = types.ExecuteCommandParams(command, [{**argument, "partialResultToken": partial}], work)
        try:
            result: Any = await self._client.wait_for(self._client.workspace_execute_command(params))
        finally:
            self._screen.quiet()
        for uri in self._changed_documents():
            self._send_change(uri)
        return dict(result)

    # --- what the server sends ---------------------------------------------------------------------------------

    def _register_features(self) -> None:
        handlers: Mapping[str, Callable[[Any], object]] = {
            types.WORKSPACE_APPLY_EDIT: self._apply_edit,
            types.WINDOW_WORK_DONE_PROGRESS_CREATE: self._accept,
            types.CLIENT_REGISTER_CAPABILITY: self._accept,
            types.WINDOW_SHOW_MESSAGE_REQUEST: self._accept,
            types.WINDOW_SHOW_MESSAGE: self._show_message,
            types.PROGRESS: self._show_progress,
        }
        for method, handler in handlers.items():
            # pygls sets attributes of the handler, which a bound method does not allow.
            self._client.feature(method)(partial(handler))

    def _accept(self, _: object) -> None:
        """Answer with null."""

    def _show_message(self, params: types.ShowMessageParams) -> None:
        self._screen.note(params.message, warning=params.type <= types.MessageType.Warning)

    def _show_progress(self, params: types.ProgressParams) -> None:
        value: Any = params.value
        if str(params.token).startswith(_WORK):
            self._show_work(value)
        else:
            self._show_partial(value)

    def _show_work(self, value: Mapping[str, Any]) -> None:
        if value["kind"] == "end":
            self._screen.quiet()
        else:
            self._screen.status(value.get("message") or "")

    def _show_partial(self, value: Mapping[str, Any]) -> None:
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

    def _apply_edit(self, params: types.ApplyWorkspaceEditParams) -> types.ApplyWorkspaceEditResult:
        """Apply the edit. A refusal goes back to the server as an error."""
        try:
            return self._apply(params.edit)
        except ThinkLspError as refused:
            raise JsonRpcInternalError(str(refused)) from None

    def _apply(self, edit: types.WorkspaceEdit) -> types.ApplyWorkspaceEditResult:
        """Show the edit, and apply it in the demo's own project."""
        view = self._view()
        edit_set = edit_set_of(edit, view, self._versions)
        self.edits.append(edit_set)
        self._screen.edit(edit_set, count_unconfirmed(edit), applied=self._writes)
        if not self._writes:
            return types.ApplyWorkspaceEditResult(applied=False, failure_reason=_REFUSAL)
        failed = [outcome.reason for outcome in apply_to_disk(edit_set, view) if outcome.reason is not None]
        return types.ApplyWorkspaceEditResult(applied=not failed, failure_reason=failed[0] if failed else None)

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

    def _send_change(self, uri: str) -> None:
        self._versions[uri] += 1
        document = types.TextDocumentIdentifier(uri)
        try:
            change = types.TextDocumentContentChangeWholeDocument(self._text(uri))
        except (DemoFailed, PathRefused):
            del self._versions[uri]
            self._client.text_document_did_close(types.DidCloseTextDocumentParams(document))
            return
        identifier = types.VersionedTextDocumentIdentifier(self._versions[uri], uri)
        self._client.text_document_did_change(types.DidChangeTextDocumentParams(identifier, [change]))
        self._client.text_document_did_save(types.DidSaveTextDocumentParams(document))
