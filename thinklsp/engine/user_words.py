"""A session as the user saw it: without the text that thinklsp adds for the model, and with the facts of each turn."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from thinklsp.agent.prompts import extract_user_text, list_excerpts
from thinklsp.agent.summary import extract_prompt, is_summary_message
from thinklsp.core.messages import ImageBlock, Message, TextBlock, ToolResultBlock, UserBlock, UserMessage
from thinklsp.core.usage import Usage, serialize_usage
from thinklsp.sessions.session import Session
from thinklsp.sessions.store import SessionStore


def show_user_words(session: Session) -> Session:
    """Return the session with the user's own words in its prompts.

    Excerpts, instruction files, notes and reminders are removed.
    """
    shown = (_show_words(message) for message in session.conversation)
    return replace(session, conversation=tuple(message for message in shown if message is not None))


def _show_words(message: Message) -> Message | None:
    if not isinstance(message, UserMessage) or is_summary_message(message):
        return message
    # Messages that were stored without the user's words must be parsed.
    parsed = () if message.prompts else extract_prompt(message)
    blocks: list[UserBlock] = []
    for block in message.blocks:
        if isinstance(block, ToolResultBlock | ImageBlock):
            blocks.append(block)
        elif block.prompt is not None:
            blocks.append(replace(block, text=block.prompt.words))
        elif block in parsed:
            blocks.append(replace(block, text=extract_user_text(block.text)))
    return replace(message, blocks=tuple(blocks)) if blocks else None


async def describe_turns(store: SessionStore, session: Session) -> list[dict[str, Any]]:
    """Describe the usage, the files and the excerpts of each turn, for clients that show the session again.

    `session` still has the excerpts in its prompts.
    """
    references = {
        block.prompt.turn_id: list_excerpts(block.text)
        for message in session.conversation
        for block in message.blocks
        if isinstance(block, TextBlock) and block.prompt is not None
    }
    usage = (await store.report_usage(session.id)).by_turn
    written = await store.list_written_files(session.workspace, datetime.fromtimestamp(0, UTC))
    turns = []
    for turn_id in {**usage, **references}:
        files = dict.fromkeys(file.uri for file in written if file.turn_id == turn_id and not file.is_undone)
        undone = dict.fromkeys(file.uri for file in written if file.turn_id == turn_id and file.is_undone)
        turns.append(
            {
                "turnId": turn_id,
                "usage": serialize_usage(usage.get(turn_id, Usage())),
                "files": list(files),
                "undone": [uri for uri in undone if uri not in files],
                "references": references.get(turn_id, []),
            }
        )
    return turns
