"""The demo's editor, which manages open documents, edits and progress.

All output goes through a `DemoScreen`. The editor changes files only in the demo's own project. Like a real editor, it
checks document versions and counts positions in UTF-16 code units.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, assert_never

from lsprotocol import types
from pygls.exceptions import JsonRpcInternalError

from thinklsp.cli.demo_client import DemoClient, DemoFailed
from thinklsp.cli.demo_screen import DemoScreen
from thinklsp.core.edits import EditSet, TextEdit, apply_edits
from thinklsp.core.errors import PathRefused, ThinkLspError
from thinklsp.core.lines import split_lines
from thinklsp.workspace.overlay import EditOverlay, apply_to_disk
from thinklsp.workspace.paths import Root
from thinklsp.workspace.uri import path_to_uri
from thinklsp.workspace.view import Place, WorkspaceFolder, WorkspaceView

_WORK_DONE_TOKEN, _PARTIAL_RESULT_TOKEN = "demo-work", "demo-partial"
_REFUSAL = "the demo only shows the change"

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


class DemoEditor:
    """An editor with one open folder and one server. `edits` contains all received edits, including rejected edits."""

    def __init__(self, root: Root, screen: DemoScreen, client: DemoClient, *, writes_files: bool) -> None:
        self._root = root
        self.screen = screen
        self._client = client
        self._writes_files = writes_files
        self._folder = WorkspaceFolder(path_to_uri(root.path), os.path.basename(root.path))
        self._versions: dict[str, int] = {}
        self._turns = 0
        self.edits: list[EditSet] = []
        self._register_features()

    async def initialize(self) -> str:
        """Initialize the server and return its name and version."""
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
            raise DemoFailed("The server did not report its name.")
        return f"{result.server_info.name} {result.server_info.version}"

    def open_document(self, name: str) -> str:
        """Open a file in the folder and return the URI of the file."""
        uri = path_to_uri(os.path.join(self._root.path, name))
        self._versions[uri] = 1
        document = types.TextDocumentItem(uri, types.LanguageKind.Python, 1, self._read_text(uri))
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
        """Run a command that starts a turn, and return the TurnResult. The screen shows the progress."""
        self._turns += 1
        work, partial = f"{_WORK_DONE_TOKEN}-{self._turns}", f"{_PARTIAL_RESULT_TOKEN}-{self._turns}"
        params = types.ExecuteCommandParams(command, [{**argument, "partialResultToken": partial}], work)
        try:
            result: Any = await self._client.wait_for(self._client.workspace_execute_command(params))
        finally:
            self.screen.finish_turn()
        for uri in self._list_changed_documents():
            self._send_change(uri)
        return dict(result)

    def _register_features(self) -> None:
        handlers: Mapping[str, Callable[[Any], object]] = {
            types.WORKSPACE_APPLY_EDIT: self._apply_edit,
            types.WINDOW_WORK_DONE_PROGRESS_CREATE: self._accept_request,
            types.CLIENT_REGISTER_CAPABILITY: self._accept_request,
            types.WINDOW_SHOW_MESSAGE_REQUEST: self._accept_request,
            types.WINDOW_SHOW_MESSAGE: self._show_message,
            types.PROGRESS: self._show_progress,
        }
        for method, handler in handlers.items():
            # pygls sets attributes on its handlers, which is not possible for bound methods.
            self._client.feature(method)(partial(handler))

    def _accept_request(self, _: object) -> None:
        """Accept a request from the server by responding with null."""

    def _show_message(self, params: types.ShowMessageParams) -> None:
        self.screen.print_note(params.message, warning=params.type <= types.MessageType.Warning)

    def _show_progress(self, params: types.ProgressParams) -> None:
        value: Any = params.value
        if not str(params.token).startswith(_WORK_DONE_TOKEN):
            self._show_partial(value)
        elif value["kind"] == "end":
            self.screen.finish_turn()
        else:
            self.screen.show_status(value.get("message") or "")

    def _show_partial(self, value: Mapping[str, Any]) -> None:
        match value["kind"]:
            case "text" | "thinking" as kind:
                self.screen.stream_text(kind, value["delta"])
            case "restart":
                self.screen.discard()
            case "tool":
                self.screen.show_tool(value["title"], value["status"])
            case "plan":
                self.screen.show_plan(value["entries"])
            case "notice":
                self.screen.print_note(value["text"], warning=value["level"] == "warning")
            case _:
                pass

    def _apply_edit(self, params: types.ApplyWorkspaceEditParams) -> types.ApplyWorkspaceEditResult:
        """Apply an edit from the server. The server receives an error if the edit is invalid."""
        try:
            return self._apply(params.edit)
        except ThinkLspError as refused:
            raise JsonRpcInternalError(str(refused)) from None

    def _apply(self, edit: types.WorkspaceEdit) -> types.ApplyWorkspaceEditResult:
        """Show the edit. Apply it only if the folder is the demo's own project."""
        view = self._create_view()
        edit_set = build_edit_set(edit, view, self._versions)
        self.edits.append(edit_set)
        self.screen.show_edit(edit_set, count_unconfirmed(edit), applied=self._writes_files)
        if not self._writes_files:
            return types.ApplyWorkspaceEditResult(applied=False, failure_reason=_REFUSAL)
        failed = [outcome.reason for outcome in apply_to_disk(edit_set, view) if outcome.reason is not None]
        return types.ApplyWorkspaceEditResult(applied=not failed, failure_reason=failed[0] if failed else None)

    def _create_view(self) -> WorkspaceView:
        return WorkspaceView([(self._folder, self._root)])

    def _read_text(self, uri: str) -> str:
        view = self._create_view()
        file = view.read(view.resolve(uri))
        if file is None:
            raise DemoFailed(f"The file {uri} does not exist.")
        return file.text

    def _list_changed_documents(self) -> list[str]:
        changed_uris = {file.uri for edit_set in self.edits for file in edit_set.files} if self._writes_files else set()
        return sorted(changed_uris & self._versions.keys())

    def _send_change(self, uri: str) -> None:
        self._versions[uri] += 1
        document = types.TextDocumentIdentifier(uri)
        try:
            change = types.TextDocumentContentChangeWholeDocument(self._read_text(uri))
        except (DemoFailed, PathRefused):
            del self._versions[uri]
            self._client.text_document_did_close(types.DidCloseTextDocumentParams(document))
            return
        identifier = types.VersionedTextDocumentIdentifier(self._versions[uri], uri)
        self._client.text_document_did_change(types.DidChangeTextDocumentParams(identifier, [change]))
        self._client.text_document_did_save(types.DidSaveTextDocumentParams(document))


_Change: TypeAlias = types.TextDocumentEdit | types.CreateFile | types.RenameFile | types.DeleteFile
_TextEdit: TypeAlias = types.TextEdit | types.AnnotatedTextEdit | types.SnippetTextEdit


class EditRefused(ThinkLspError):
    """An error for an edit that a real editor rejects. The server receives the error message."""


def build_edit_set(edit: types.WorkspaceEdit, view: WorkspaceView, versions: Mapping[str, int]) -> EditSet:
    """Apply all changes in the edit to the files in `view`. `versions` contains the versions of the open documents.

    Raises EditRefused for a stale or invalid edit, and PathRefused for a file that must not be changed.
    """
    overlay = EditOverlay(view)
    for change in _iterate_changes(edit):
        match change:
            case types.CreateFile():
                _create_file(overlay, view.resolve(change.uri), change.options or types.CreateFileOptions())
            case types.RenameFile():
                overlay.rename(view.resolve(change.old_uri), view.resolve(change.new_uri))
            case types.DeleteFile():
                overlay.delete(view.resolve(change.uri))
            case types.TextDocumentEdit():
                _edit_document(overlay, change, versions)
            case _:
                assert_never(change)
    return overlay.build_edit_set()


def count_unconfirmed(edit: types.WorkspaceEdit) -> int:
    """Count the changes that the user must confirm."""
    asking = {name for name, mark in (edit.change_annotations or {}).items() if mark.needs_confirmation}
    return sum(
        getattr(part, "annotation_id", None) in asking
        for change in edit.document_changes or ()
        for part in (change.edits if isinstance(change, types.TextDocumentEdit) else (change,))
    )


def find_offset(text: str, position: types.Position) -> int:
    """Convert an LSP position to a character offset. Positions after the end of a line are moved to its end."""
    lines = split_lines(text)
    if position.line >= len(lines):
        return len(text)
    at = sum(map(len, lines[: position.line]))
    units = position.character
    for char in lines[position.line].rstrip("\r\n"):
        units -= 2 if ord(char) > 0xFFFF else 1
        if units < 0:
            break
        at += 1
    return at


def _iterate_changes(edit: types.WorkspaceEdit) -> Iterator[_Change]:
    """Yield the changes of an edit. The older `changes` field is converted to the form of `documentChanges`."""
    if edit.document_changes is not None:
        yield from edit.document_changes
        return
    for uri, edits in (edit.changes or {}).items():
        yield types.TextDocumentEdit(types.OptionalVersionedTextDocumentIdentifier(uri), edits)


def _create_file(overlay: EditOverlay, place: Place, options: types.CreateFileOptions) -> None:
    if overlay.read(place) is None or options.overwrite:
        overlay.write(place, "")
    elif not options.ignore_if_exists:
        raise EditRefused(f"{place.label} already exists.")


def _edit_document(overlay: EditOverlay, change: types.TextDocumentEdit, versions: Mapping[str, int]) -> None:
    uri, version = change.text_document.uri, change.text_document.version
    if version is not None and versions.get(uri) != version:
        raise EditRefused(f"The edit is for version {version} of {uri}, but another version is open.")
    place = overlay.view.resolve(uri)
    file = overlay.read(place)
    if file is None:
        raise EditRefused(f"{place.label} does not exist.")
    overlay.write(place, _apply_text_edits(file.text, change.edits, place.label))


def _apply_text_edits(text: str, edits: Sequence[_TextEdit], path: str) -> str:
    text_edits = []
    for edit in edits:
        if isinstance(edit, types.SnippetTextEdit):
            raise EditRefused(f"The edit of {path} contains a snippet, which the demo does not support.")
        text_edits.append(
            TextEdit(find_offset(text, edit.range.start), find_offset(text, edit.range.end), edit.new_text)
        )
    try:
        return apply_edits(text, text_edits)
    except ValueError as error:
        raise EditRefused(f"The edit of {path} cannot be applied: {error}.") from None
