"""Cuts of tool results, whose last line says how to read the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from thinklsp.agent.context_meter import BLOCK_OVERHEAD_BYTES, measure_messages, measure_text
from thinklsp.core.messages import ToolResultBlock, ToolUseBlock, UserBlock, UserMessage
from thinklsp.tools.read import ReadFile, cut_reading

MAX_RESULTS_BYTES = 1_000_000
# The minimum size of the results of a message. With less, the model could not do anything.
MIN_RESULTS_BYTES = 4_000
REPEAT_NOTE = "repeat this call in your next message]"
# The size of the last line of a cut result.
_NOTE_BYTES = 250


def cut_results(calls: Sequence[ToolUseBlock], message: UserMessage, room: int) -> UserMessage:
    """Cut the results of the calls to `room` bytes, together with the rest of the message.

    The shortest results stay whole. The first result that does not fit gets the room that is left.
    """
    if measure_messages([message]) <= room:
        return message
    blocks: list[UserBlock] = list(message.blocks)
    results = {at: block for at, block in enumerate(blocks) if isinstance(block, ToolResultBlock)}
    others = UserMessage(tuple(block for block in blocks if not isinstance(block, ToolResultBlock)))
    left = room - measure_messages([others]) - (_NOTE_BYTES + BLOCK_OVERHEAD_BYTES) * len(results)
    called = dict(zip(results, calls, strict=True))
    for at, block in sorted(results.items(), key=lambda item: measure_text(item[1].text)):
        size = measure_text(block.text)
        if size > max(left, _NOTE_BYTES):
            blocks[at] = _cut_result(called[at], block, max(0, left), room)
            size = left
        left -= size
    return UserMessage(tuple(blocks))


def _cut_result(call: ToolUseBlock, block: ToolResultBlock, size: int, room: int) -> ToolResultBlock:
    """Cut a result to about `size` bytes. The model's knowledge of files shrinks with the text."""
    if call.name == ReadFile.name and (shown := cut_reading(block.text, size)):
        return replace(block, text=shown, sight=tuple(replace(known, is_whole=False) for known in block.sight))
    shown = block.text.encode("utf-8", "surrogatepass")[:size].decode("utf-8", "ignore")
    # Only a text whose first line does not fit is cut in the middle of a line.
    shown = shown.rpartition("\n")[0] or shown
    limit = "1 MB" if room == MAX_RESULTS_BYTES else f"{room:,} bytes, because the context window has no more room"
    note = f"[truncated: the results of one message are limited to {limit}; {REPEAT_NOTE}"
    sight = tuple(known for known in block.sight if known.is_own)
    return replace(block, text=f"{shown}\n{note}" if shown else note, sight=sight)
