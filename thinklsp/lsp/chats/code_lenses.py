"""The lenses above the prompt of a chat document: send or stop, and what the next turn will use. Those above text that
the newest turn has written, until the document is saved: its name, and the way back.

A pure look at memory, asked for at every change of a document: no I/O, no model, nothing to resolve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from thinklsp.lsp.chats.chat_outline import prompt_section
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.edits.standing import Written
from thinklsp.tools.shown import one_line

_LONGEST, _MOST = 60, 50


@dataclass(frozen=True, slots=True)
class ChatState:
    """What is known of a chat document beside its text. `running`: the turn that works for it. `using`: model and
    effort of its next turn in words; None while the engine is still loading."""

    running: str | None = None
    session_id: str | None = None
    using: str | None = None


def lenses(document: Document, state: ChatState) -> list[dict[str, Any]]:
    section = prompt_section(document.text)
    line = section.begin if section.heading is None else section.heading
    line = min(line, document.line_count - 1)
    if state.running is None:
        found = [_lens(line, "▶ send", "thinklsp.send", {"uri": document.uri})]
    else:
        found = [_lens(line, "■ stop", "thinklsp.cancel", {"turnId": state.running})]
    if state.using is not None:
        # A lens needs a command to be shown; this one only tells.
        argument = {} if state.session_id is None else {"sessionId": state.session_id}
        found.append(_lens(line, state.using, "thinklsp.effort", argument))
    return found


def lenses_of_text(turn: Written, lines: Sequence[int]) -> list[dict[str, Any]]:
    """One for each group of changes; any of them takes back the whole turn."""
    title = one_line(turn.title)
    title = title if len(title) <= _LONGEST else title[: _LONGEST - 1] + "…"
    shown = lines[:_MOST]
    return [_lens(line, f"thinklsp: undo: {title}", "thinklsp.undo", {"turnId": turn.turn_id}) for line in shown]


def _lens(line: int, title: str, command: str, argument: dict[str, Any]) -> dict[str, Any]:
    place = {"line": line, "character": 0}
    return {
        "range": {"start": place, "end": place},
        "command": {"title": title, "command": command, "arguments": [argument]},
    }
