"""The editor of a connection: its features, and the server's requests to it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import attrs
from lsprotocol import types
from pygls.lsp.server import LanguageServer

from thinklsp.core.choices import DECLINING
from thinklsp.core.text_safety import sanitize_message, to_one_line
from thinklsp.jsonrpc.rpc_messages import ClientError
from thinklsp.lsp.protocol.lsp_protocol import LspProtocol

_PROMPT_SECONDS = 120.0
_REQUEST_SECONDS = 30.0
_CONFIGURATION_SECONDS = 10.0
# The editor may have to wait for other language servers. thinklsp's own extensions wait for up to 1.5 seconds.
_BRIDGE_SECONDS = 3.0
_MAX_MESSAGE_CHARACTERS = 4_000

Level = Literal["error", "warning", "info"]
Token = str | int
WorkDoneProgress = types.WorkDoneProgressBegin | types.WorkDoneProgressReport | types.WorkDoneProgressEnd
T = TypeVar("T")


# VS Code and its forks.
_VS_CODE = re.compile(r"\b(?:Visual Studio Code|VSCodium|Code - OSS|code-server|Cursor|Windsurf|Positron)\b")


@dataclass(frozen=True, slots=True)
class ClientFeatures:
    """The client capabilities that thinklsp uses.

    `bridge_requests` contains the supported `thinklsp/editor/…` requests. `is_vs_code` is also True for its forks.
    """

    apply_edit: bool = False
    document_changes: bool = False
    resource_operations: frozenset[str] = frozenset()
    change_annotations: bool = False
    is_vs_code: bool = False
    is_neovim: bool = False
    work_done_progress: bool = False
    show_document: bool = False
    configuration: bool = False
    watch_configuration: bool = False
    code_action_literals: bool = False
    code_action_tags: frozenset[int] = frozenset()
    code_actions_disabled: bool = False
    refresh_lenses: bool = False
    bridge_requests: frozenset[str] = frozenset()
    hover_markdown: bool = False

    @property
    def accepts_edits(self) -> bool:
        """True if the editor accepts edits, from the server or in a code action."""
        return self.apply_edit or self.code_action_literals

    @property
    def has_own_review(self) -> bool:
        """True if the editor lets the user choose the hunks of an edit before the edit is sent."""
        return "review" in self.bridge_requests and self.document_changes

    @property
    def ends_new_files(self) -> bool:
        """True if the editor adds a line end to each new file: Neovim without the plugin.

        It inserts text in front of the line that an empty buffer has.
        """
        return self.is_neovim and not self.bridge_requests

    @property
    def file_operations(self) -> frozenset[str]:
        """The file operations that an edit may contain: `create`, `rename` and `delete`."""
        return self.resource_operations if self.document_changes else frozenset()

    @staticmethod
    def parse(capabilities: Mapping[str, object], client_name: object = None) -> ClientFeatures:
        """Parse the client's capabilities from plain JSON. A missing or invalid value is treated as unsupported."""

        def find_value(path: str) -> Any:
            value: Any = capabilities
            for part in path.split("."):
                value = value.get(part) if isinstance(value, Mapping) else None
            return value

        edit = "workspace.workspaceEdit"
        operations = _parse_names(find_value(f"{edit}.resourceOperations"))
        versioned = find_value(f"{edit}.documentChanges")
        tags = find_value("textDocument.codeAction.tagSupport.valueSet")
        tags = tags if isinstance(tags, list) else []
        hovers = find_value("textDocument.hover.contentFormat")
        is_neovim = client_name == "Neovim"
        return ClientFeatures(
            apply_edit=find_value("workspace.applyEdit") is True,
            # Neovim announces resource operations but not document changes. A resource operation is a kind of document
            # change, so Neovim supports both.
            document_changes=bool(operations) if versioned is None else versioned is True,
            resource_operations=operations,
            # Neovim 0.12 asks about annotations in messages that wait for Enter, and shows no diff.
            change_annotations=not is_neovim and find_value(f"{edit}.changeAnnotationSupport") is not None,
            is_vs_code=isinstance(client_name, str) and bool(_VS_CODE.search(client_name)),
            is_neovim=is_neovim,
            work_done_progress=find_value("window.workDoneProgress") is True,
            show_document=find_value("window.showDocument.support") is True,
            configuration=find_value("workspace.configuration") is True,
            watch_configuration=find_value("workspace.didChangeConfiguration.dynamicRegistration") is True,
            code_action_literals=find_value("textDocument.codeAction.codeActionLiteralSupport") is not None,
            code_action_tags=frozenset(tag for tag in tags if isinstance(tag, int)),
            code_actions_disabled=find_value("textDocument.codeAction.disabledSupport") is True,
            refresh_lenses=find_value("workspace.codeLens.refreshSupport") is True,
            bridge_requests=_parse_names(find_value("experimental.thinklsp.editor")),
            # Clients list the hover formats in order of preference.
            hover_markdown=isinstance(hovers, list) and hovers[:1] == ["markdown"],
        )


@dataclass(frozen=True, slots=True)
class ApplyReply:
    applied: bool
    reason: str | None = None


class Client:
    """The connected editor and the requests that the server sends to it.

    Configuration requests are numbered, so that an old answer cannot replace a newer answer. `bridge_seconds` is the
    time limit of a request to the editor bridge.
    """

    def __init__(self, server: LanguageServer, protocol: LspProtocol) -> None:
        self._server = server
        self._protocol = protocol
        self.features = ClientFeatures()
        self.bridge_seconds = _BRIDGE_SECONDS
        self._last_request = self._last_answer = 0
        self._has_announced = False

    def show_message(self, level: Level, text: str) -> None:
        kind = types.MessageType[level.capitalize()]
        self._server.window_show_message(types.ShowMessageParams(kind, sanitize_message(text)))

    def show_text(self, text: str) -> None:
        """Show a text of any length in as many messages as necessary, because the editor shows it nowhere else."""
        for start in range(0, len(text), _MAX_MESSAGE_CHARACTERS):
            self.show_message("info", text[start : start + _MAX_MESSAGE_CHARACTERS])

    def announce_new_text(self) -> None:
        """Tell the user once, before a turn can edit files, if the editor accepts no edits at all."""
        if not self.features.accepts_edits and not self._has_announced:
            self._has_announced = True
            self.show_message(
                "info",
                "Your editor does not accept edits from a server. If the answer changes files, it contains the new "
                "text for you to insert.",
            )

    def send_progress(self, token: Token, value: WorkDoneProgress | Mapping[str, object]) -> None:
        """Send a work-done progress value or a partial result of a turn."""
        if not isinstance(value, Mapping) and value.message is not None:
            value = attrs.evolve(value, message=sanitize_message(value.message))
        self._server.progress(types.ProgressParams(token, value))

    async def create_progress(self, token: Token) -> bool:
        """Create a progress token in the editor.

        Return False if the editor does not show progress or rejects the token. A rejected token must not be used.
        """
        if not self.features.work_done_progress:
            return False
        params = types.WorkDoneProgressCreateParams(token)
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                await self._server.window_work_done_progress_create_async(params)
        except (ClientError, TimeoutError):
            return False
        return True

    async def ask_user(self, text: str, options: Sequence[str]) -> str | None:
        """Ask the user and return the chosen option, or None if no valid answer arrives in time.

        The option that declines comes first, except in VS Code: in other editors, Enter chooses the first option.
        """
        if not self.features.is_vs_code:
            options = sorted(options, key=lambda option: option not in DECLINING)
        buttons = {to_one_line(option): option for option in options}
        actions = [types.MessageActionItem(title) for title in buttons]
        params = types.ShowMessageRequestParams(types.MessageType.Info, sanitize_message(text), actions)
        chosen = await _await_answer(self._server.window_show_message_request_async(params), _PROMPT_SECONDS)
        return None if chosen is None else buttons.get(chosen.title)

    async def ask_text(self, question: str) -> str | None:
        """Ask the user for a text, and return the text, or None if no valid answer arrives in time."""
        params = {"question": sanitize_message(question)}
        request = self._protocol.send_request_async("thinklsp/editor/input", params)
        answer = await _await_answer(request, _PROMPT_SECONDS)
        text = answer.get("text") if isinstance(answer, Mapping) else None
        return text if isinstance(text, str) else None

    async def apply_edit(
        self, label: str, edit: types.WorkspaceEdit, on_request_id: Callable[[int], None] = lambda _: None
    ) -> ApplyReply:
        """Send an edit and wait until the user has reviewed it.

        `on_request_id` receives the id for `cancel_request`.
        """
        on_request_id(number := self._protocol.issue_request_id())
        params = types.ApplyWorkspaceEditParams(edit, label)
        try:
            reply = await self._protocol.send_request_async(types.WORKSPACE_APPLY_EDIT, params, number)
        except ClientError:
            return ApplyReply(False, "the editor answered with an error")
        return ApplyReply(reply.applied, (reply.failure_reason or "")[:300] or None)

    def cancel_request(self, request_id: int) -> None:
        """Cancel a request, so that the editor can close a preview. The editor must still answer the request."""
        self._server.cancel_request(types.CancelParams(request_id))

    async def show_document(self, uri: str, *, take_focus: bool) -> bool:
        """Show a document, and return whether the editor reports success."""
        if not self.features.show_document:
            return False
        params = types.ShowDocumentParams(uri, take_focus=take_focus)
        reply = await _await_answer(self._server.window_show_document_async(params), _REQUEST_SECONDS)
        return reply is not None and reply.success

    async def refresh_lenses(self) -> None:
        """Ask the editor to refresh its code lenses, if it supports such requests."""
        if self.features.refresh_lenses:
            await _await_answer(self._server.workspace_code_lens_refresh_async(None), _REQUEST_SECONDS)

    async def query_bridge(self, method: str, params: Mapping[str, object]) -> object:
        """Send the bridge request `thinklsp/editor/<method>` and return its result.

        Raise ClientError or TimeoutError.
        """
        async with asyncio.timeout(self.bridge_seconds):
            return await self._protocol.send_request_async(f"thinklsp/editor/{method}", params)

    async def save(self, uris: Sequence[str]) -> bool:
        """Ask the editor to save documents. Return False if it cannot save documents or does not answer in time.

        The result does not show which documents were saved, so the caller must check the files on disk.
        """
        if "save" not in self.features.bridge_requests:
            return False
        try:
            await self.query_bridge("save", {"uris": list(uris)})
        except (ClientError, TimeoutError):
            return False
        return True

    async def review_edit(self, params: Mapping[str, object]) -> object:
        """Ask the user which hunks of an edit to keep. There is no time limit. Return None if the editor fails."""
        return await _await_answer(self._protocol.send_request_async("thinklsp/editor/review", params), None)

    async def fetch_configuration(self) -> object:
        """Return the editor's `thinklsp` section, or None if it is missing or a later request was answered first.

        Editors look up sections concurrently, so an earlier request may return the section as it was before a change.
        """
        self._last_request += 1
        number = self._last_request
        params = types.ConfigurationParams([types.ConfigurationItem(section="thinklsp")])
        reply = await _await_answer(self._server.workspace_configuration_async(params), _CONFIGURATION_SECONDS)
        if reply is None or number < self._last_answer:
            return None
        self._last_answer = number
        return reply[0] if reply else None

    async def watch_configuration(self) -> None:
        """Register for settings changes, because some editors report changes only to registered servers."""
        registration = types.Registration(
            "thinklsp-configuration", types.WORKSPACE_DID_CHANGE_CONFIGURATION, {"section": "thinklsp"}
        )
        params = types.RegistrationParams([registration])
        await _await_answer(self._server.client_register_capability_async(params), _REQUEST_SECONDS)


async def _await_answer(request: Awaitable[T], seconds: float | None) -> T | None:
    """Return the editor's answer, or None if the editor rejects the request or does not answer in time."""
    try:
        async with asyncio.timeout(seconds):
            return await request
    except (ClientError, TimeoutError):
        return None


def _parse_names(value: object) -> frozenset[str]:
    return frozenset(name for name in value if isinstance(name, str)) if isinstance(value, list) else frozenset()
