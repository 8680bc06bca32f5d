"""The updates that show a stored session again: the user's words, the answers and one line per tool call.

Thinking is not shown again. A long session begins with a note, because a client gets at most 10,000 updates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from thinklsp.acp.updates import Update, build_chunks, build_tool_call, find_tool_kind
from thinklsp.agent.compaction_plan import is_summary_message
from thinklsp.core.images import format_placeholder
from thinklsp.core.messages import AssistantMessage, ImageBlock, Message, TextBlock, ToolResultBlock, ToolUseBlock
from thinklsp.core.secrets import format_call_id
from thinklsp.engine.user_words import show_user_words
from thinklsp.sessions.session import Session, UnansweredPrompt
from thinklsp.tools.registry import TOOLS_WITH_COMMANDS
from thinklsp.tools.tool import describe

MAX_UPDATES = 10_000
_PLAN_TOOL = "plan"


def build_replay(session: Session) -> list[Update]:
    """Return the updates of a session in the order of the conversation."""
    updates = list(_list_updates(show_user_words(session)))
    folded = len(updates) - MAX_UPDATES + 1
    if folded <= 1:
        return updates
    note = f"*The first {folded:,} entries of this session are not shown.*"
    return [*build_chunks("agent_message_chunk", note, "folded"), *updates[folded:]]


def _list_updates(session: Session) -> Iterator[Update]:
    unanswered: defaultdict[int, list[UnansweredPrompt]] = defaultdict(list)
    for at, prompt in session.list_placed_prompts():
        unanswered[at].append(prompt)
    failed = _list_failed_calls(session)
    for at in range(len(session.conversation) + 1):
        for number, prompt in enumerate(unanswered[at]):
            yield from build_chunks("user_message_chunk", prompt.text, f"unanswered-{at}-{number}")
            text = "\n\n".join(filter(None, (prompt.partial_text, f"*{prompt.reason or prompt.explanation}*")))
            yield from build_chunks("agent_message_chunk", text, f"unfinished-{at}-{number}")
        if at < len(session.conversation):
            yield from _replay_message(session.conversation[at], at, failed)


def _replay_message(message: Message, at: int, failed: Mapping[str, bool]) -> Iterator[Update]:
    if isinstance(message, AssistantMessage):
        yield from build_chunks("agent_message_chunk", message.text, f"answer-{at}")
        for call in message.tool_uses:
            if call.name != _PLAN_TOOL:
                yield _replay_call(call, is_failed=failed.get(call.id, False))
        return
    kind: Any = "agent_message_chunk" if is_summary_message(message) else "user_message_chunk"
    shown = message.blocks[len(message.result_images) :]
    for number, block in enumerate(shown):
        if isinstance(block, TextBlock):
            yield from build_chunks(kind, block.text, f"prompt-{at}-{number}")
        elif isinstance(block, ImageBlock):
            yield from build_chunks(kind, f"{format_placeholder(block)}\n\n", f"prompt-{at}-{number}")


def _replay_call(call: ToolUseBlock, *, is_failed: bool) -> Update:
    title, kind = describe(call, TOOLS_WITH_COMMANDS), find_tool_kind(call.name)
    return build_tool_call(format_call_id(call.id), title, kind, "failed" if is_failed else "completed")


def _list_failed_calls(session: Session) -> dict[str, bool]:
    blocks = (block for message in session.conversation for block in message.blocks)
    return {block.tool_use_id: block.is_error for block in blocks if isinstance(block, ToolResultBlock)}
