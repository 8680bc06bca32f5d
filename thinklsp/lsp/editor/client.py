"""What the server asks of the editor, and what the editor said it can do. Messages are plain JSON values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from thinklsp.lsp.protocol.dispatch import Protocol
from thinklsp.lsp.protocol.errors import ClientError
from thinklsp.tools.shown import one_line, told

_PROMPT_SECONDS = 120.0
_REQUEST_SECONDS = 30.0
_CONFIGURATION_SECONDS = 10.0
# An editor may wait for its other servers, for a second and a half as ours do.
_KNOWLEDGE_SECONDS = 3.0

Level = Literal["error", "warning", "info"]
_LEVELS: dict[Level, int] = {"error": 1, "warning": 2, "info": 3}


@dataclass(frozen=True, slots=True)
class Abilities:
    """The client capabilities that decide something here. `editor`: what it answers of `thinklsp/editor/…`."""

    apply_edit: bool = False
    document_changes: bool = False
    resource_operations: frozenset[str] = frozenset()
    change_annotations: bool = False
    work_done_progress: bool = False
    show_document: bool = False
    configuration: bool = False
    watch_configuration: bool = False
    code_action_literals: bool = False
    code_action_tags: frozenset[int] = frozenset()
    code_actions_disabled: bool = False
    refresh_lenses: bool = False
    editor: frozenset[str] = frozenset()
    hover_markdown: bool = False

    @staticmethod
    def of(capabilities: Mapping[str, Any]) -> Abilities:
        """Reads the client's capabilities as plain JSON; what is absent or odd counts as not announced."""

        def at(path: str) -> Any:
            value: Any = capabilities
            for part in path.split("."):
                value = value.get(part) if isinstance(value, Mapping) else None
            return value

        edit = "workspace.workspaceEdit"
        operations = _names(at(f"{edit}.resourceOperations"))
        versioned = at(f"{edit}.documentChanges")
        tags = at("textDocument.codeAction.tagSupport.valueSet")
        tags = tags if isinstance(tags, list) else []
        hovers = at("textDocument.hover.contentFormat")
        return Abilities(
            apply_edit=at("workspace.applyEdit") is True,
            # Neovim announces operations alone; they exist within document changes only, so it takes these too.
            document_changes=bool(operations) if versioned is None else versioned is True,
            resource_operations=operations,
            change_annotations=at(f"{edit}.changeAnnotationSupport") is not None,
            work_done_progress=at("window.workDoneProgress") is True,
            show_document=at("window.showDocument.support") is True,
            configuration=at("workspace.configuration") is True,
            watch_configuration=at("workspace.didChangeConfiguration.dynamicRegistration") is True,
            code_action_literals=at("textDocument.codeAction.codeActionLiteralSupport") is not None,
            code_action_tags=frozenset(tag for tag in tags if isinstance(tag, int)),
            code_actions_disabled=at("textDocument.codeAction.disabledSupport") is True,
            refresh_lenses=at("workspace.codeLens.refreshSupport") is True,
            editor=_names(at("experimental.thinklsp.editor")),
            # In the order of preference.
            hover_markdown=isinstance(hovers, list) and hovers[:1] == ["markdown"],
        )


@dataclass(frozen=True, slots=True)
class ApplyReply:
    applied: bool
    reason: str | None = None


class Client:
    """The editor as seen from the server. Counts how often it was asked for its configuration, and which of these
    questions is the latest one that it has answered."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self.can = Abilities()
        self._asked = self._answered = 0

    def show_message(self, level: Level, text: str) -> None:
        self._protocol.tell("window/showMessage", {"type": _LEVELS[level], "message": told(text)})

    def progress(self, token: str | int, value: Mapping[str, Any]) -> None:
        report = ("report", token) if value["kind"] == "report" else None
        if "message" in value:
            value = {**value, "message": told(value["message"])}
        self._protocol.tell("$/progress", {"token": token, "value": value}, replaces=report)

    async def create_progress(self, token: str | int) -> bool:
        """False when the editor shows no progress or refuses this one: the token must not be used then."""
        if not self.can.work_done_progress:
            return False
        try:
            await self._protocol.ask("window/workDoneProgress/create", {"token": token}, _REQUEST_SECONDS)
        except (ClientError, TimeoutError):
            return False
        return True

    async def question(self, text: str, options: Sequence[str]) -> str | None:
        """The chosen option; None when dismissed, late, or answered with something else."""
        buttons = {one_line(option): option for option in options}
        params = {"type": _LEVELS["info"], "message": told(text), "actions": [{"title": title} for title in buttons]}
        try:
            reply = await self._protocol.ask("window/showMessageRequest", params, _PROMPT_SECONDS)
        except (ClientError, TimeoutError):
            return None
        title = reply.get("title") if isinstance(reply, Mapping) else None
        return buttons.get(title) if isinstance(title, str) else None

    async def apply_edit(
        self, label: str, edit: Mapping[str, Any], numbered: Callable[[int], None] = lambda _: None
    ) -> ApplyReply:
        """Waits as long as the user reviews the edit. `numbered` is told what to call it when it is withdrawn."""
        params = {"label": label, "edit": edit}
        try:
            reply = await self._protocol.ask("workspace/applyEdit", params, None, numbered)
        except ClientError:
            return ApplyReply(False, "the editor answered with an error")
        if not isinstance(reply, Mapping) or reply.get("applied") is not True:
            reason = reply.get("failureReason") if isinstance(reply, Mapping) else None
            return ApplyReply(False, str(reason)[:300] if reason else None)
        return ApplyReply(True)

    def withdraw(self, number: int) -> None:
        """The editor may take a preview away. Its answer is awaited all the same."""
        self._protocol.tell("$/cancelRequest", {"id": number})

    async def show_document(self, uri: str, *, take_focus: bool) -> bool:
        """Whether the editor says that it does."""
        if not self.can.show_document:
            return False
        params = {"uri": uri, "takeFocus": take_focus}
        try:
            reply = await self._protocol.ask("window/showDocument", params, _REQUEST_SECONDS)
        except (ClientError, TimeoutError):
            return False
        return isinstance(reply, Mapping) and reply.get("success") is True

    async def refresh_lenses(self) -> None:
        """Asks the editor to ask again, where it says that it does so."""
        if self.can.refresh_lenses:
            try:
                await self._protocol.ask("workspace/codeLens/refresh", None, _REQUEST_SECONDS)
            except (ClientError, TimeoutError):
                return

    async def knows(self, what: str, params: Mapping[str, Any]) -> Any:
        """What the editor answers to `thinklsp/editor/<what>`. Raises ClientError or TimeoutError where it does not."""
        return await self._protocol.ask(f"thinklsp/editor/{what}", params, _KNOWLEDGE_SECONDS)

    async def save(self, uris: Sequence[str]) -> bool:
        """Ask the editor to save documents. False if it was not asked or did not answer in time; what it has saved, the
        disk shows.
        """
        if "save" not in self.can.editor:
            return False
        try:
            await self.knows("save", {"uris": list(uris)})
        except (ClientError, TimeoutError):
            return False
        return True

    async def configuration(self) -> object:
        """The `thinklsp` section as the editor has it now; None when it does not say, and when it has answered a later
        question already: editors look things up side by side, and this may be what was there before a change."""
        self._asked += 1
        number = self._asked
        try:
            params = {"items": [{"section": "thinklsp"}]}
            reply = await self._protocol.ask("workspace/configuration", params, _CONFIGURATION_SECONDS)
        except (ClientError, TimeoutError):
            return None
        if number < self._answered:
            return None
        self._answered = number
        return reply[0] if isinstance(reply, list) and reply else None

    async def watch_configuration(self) -> None:
        """Some editors tell of changed settings only when asked to."""
        registration = {
            "id": "thinklsp-configuration",
            "method": "workspace/didChangeConfiguration",
            "registerOptions": {"section": "thinklsp"},
        }
        try:
            await self._protocol.ask("client/registerCapability", {"registrations": [registration]}, _REQUEST_SECONDS)
        except (ClientError, TimeoutError):
            return


def _names(value: object) -> frozenset[str]:
    return frozenset(name for name in value if isinstance(name, str)) if isinstance(value, list) else frozenset()
