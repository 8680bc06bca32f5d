"""The code lenses for chat documents and for text that a turn wrote.

In a chat document, lenses send or stop a turn and show the settings for the next turn. In other documents, lenses offer
to undo the newest turn until the document is saved. Editors request lenses after each change, so all lenses are built
from memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from thinklsp.lsp.chats.chat_outline import find_prompt_section
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.server import ThinkLspServer

if TYPE_CHECKING:
    from thinklsp.lsp.edits.edit_ledger import UndoableTurn

_MAX_LENSES = 50


def register(server: ThinkLspServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_CODE_LENS, types.CodeLensOptions(resolve_provider=False))
    def answer_code_lens(params: types.CodeLensParams) -> list[types.CodeLens]:
        document, assistant = server.workspace.get(params.text_document.uri), server.assistant
        if document is None:
            return []
        if server.is_chat(document.uri):
            return build_lenses(document, _get_chat_state(server, document))
        newest = None if assistant is None else assistant.ledger.attribution.find_newest(document)
        return [] if newest is None else build_text_lenses(newest[0].turn, newest[1])


def _get_chat_state(server: ThinkLspServer, document: Document) -> ChatState:
    """Return the state of a chat document from memory.

    If its session is not cached, look it up and refresh the lenses.
    """
    assistant = server.assistant
    if assistant is None:
        return ChatState()
    assistant.look_up_session(document)
    session_id = assistant.chat.find_known_session(document)
    status = assistant.sessions.describe_status(session_id)
    settings_text = "no model: run `thinklsp doctor`"
    if status is not None:
        settings_text = f"{status.model} · effort {status.effort} · thinking {status.thinking}"
    return ChatState(assistant.turns.find_in_chat(document.uri, session_id), session_id, settings_text)


@dataclass(frozen=True, slots=True)
class ChatState:
    """The state of a chat document. `turn_id` is the id of its running turn.

    `settings_text` shows the model and effort of the next turn. It is None while the engine is loading.
    """

    turn_id: str | None = None
    session_id: str | None = None
    settings_text: str | None = None


def build_lenses(document: Document, state: ChatState) -> list[types.CodeLens]:
    section = find_prompt_section(document.text)
    line = section.begin if section.heading is None else section.heading
    line = min(line, document.line_count - 1)
    if state.turn_id is None:
        result = [_build_lens(line, "▶ send", "thinklsp.send", {"uri": document.uri})]
    else:
        result = [_build_lens(line, "■ stop", "thinklsp.cancel", {"turnId": state.turn_id})]
    if state.settings_text is not None:
        # Editors show only lenses with a command. This command only shows the setting.
        argument = {} if state.session_id is None else {"sessionId": state.session_id}
        result.append(_build_lens(line, state.settings_text, "thinklsp.effort", argument))
    return result


def build_text_lenses(turn: UndoableTurn, lines: Sequence[int]) -> list[types.CodeLens]:
    """Return an undo lens for each group of changes. Each lens undoes the entire turn."""
    title = f"thinklsp: {turn.undo_title}"
    return [_build_lens(line, title, "thinklsp.undo", {"turnId": turn.turn_id}) for line in lines[:_MAX_LENSES]]


def _build_lens(line: int, title: str, command: str, argument: dict[str, Any]) -> types.CodeLens:
    place = types.Position(line, 0)
    return types.CodeLens(types.Range(place, place), types.Command(title, command, arguments=[argument]))
