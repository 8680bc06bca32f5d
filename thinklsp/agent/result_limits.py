"""The limits of tool results, which depend on the room in the context window.

The next model call must hold all results of a message. A result that does not fit is cut, and its last line says how to
read the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from thinklsp.agent.compaction_plan import TARGET_SHARE, build_task, split_turns
from thinklsp.agent.compactor import CompactionAttempt
from thinklsp.agent.context_meter import BLOCK_OVERHEAD_BYTES, measure_messages, measure_text
from thinklsp.agent.tool_runner import READ_TOOL, refer_to_earlier_reads
from thinklsp.core.messages import AssistantMessage, ToolResultBlock, ToolUseBlock, UserBlock, UserMessage
from thinklsp.core.tool_type import TextKeeper
from thinklsp.tools.read import cut_reading

MAX_RESULTS_BYTES = 1_000_000
# The minimum size of the results of a message. With less, the model could not do anything.
_MIN_RESULTS_BYTES = 4_000
# The size of the last line of a cut result.
_NOTE_BYTES = 250
_REPEAT = "repeat this call in your next message"
# Without a compaction of its own, thinklsp fills this share of the context window.
_FULL_SHARE = 0.95


@dataclass(frozen=True, slots=True)
class _Room:
    """The maximum size of the results of a message in bytes. `after_compaction` is the size if the results cause a
    compaction of the earlier messages."""

    now: int
    after_compaction: int


async def fit_results(attempt: CompactionAttempt, results: UserMessage, keeper: TextKeeper | None) -> UserMessage:
    """Cut the results so that the next model call can hold them.

    The conversation of `attempt` ends with the answer that made the calls. `keeper` keeps the whole text of a result
    that is cut. Repeated reads of a file become references, except if the next compaction removes the earlier results.
    """
    *earlier, answer = attempt.request.conversation
    if not isinstance(answer, AssistantMessage):
        return results
    room = _measure_room(attempt)
    referred = refer_to_earlier_reads(answer, results, tuple(earlier))
    if measure_messages([referred]) <= room.now or room.now >= room.after_compaction // 2:
        return await limit_results(answer.tool_uses, referred, room.now, keeper)
    return await limit_results(answer.tool_uses, results, room.after_compaction, keeper)


def _measure_room(attempt: CompactionAttempt) -> _Room:
    request, meter, limits = attempt.request, attempt.meter, attempt.compute_limits()
    model = request.model
    if model.input_window is None:
        return _Room(MAX_RESULTS_BYTES, MAX_RESULTS_BYTES)
    if not attempt.may_start:
        window = model.context_window or model.input_window
        limit = min(model.input_window, window - min(request.max_tokens or 0, window // 4))
        now = _limit_room(meter.convert_to_bytes(round(_FULL_SHARE * limit) - limits.present), least=0)
        return _Room(now, now)
    kept = request.conversation[-1:]
    if turns := split_turns(request.conversation).turns:
        kept = (build_task(turns[-1]), *kept)
    now = limits.limit - limits.present
    after = max(now, round(TARGET_SHARE * limits.limit) - limits.fixed - meter.count_tokens(kept))
    return _Room(_limit_room(meter.convert_to_bytes(now), least=0), _limit_room(meter.convert_to_bytes(after)))


def _limit_room(size: int, *, least: int = _MIN_RESULTS_BYTES) -> int:
    return max(least, min(MAX_RESULTS_BYTES, size))


async def limit_results(
    calls: Sequence[ToolUseBlock], message: UserMessage, room: int, keeper: TextKeeper | None = None
) -> UserMessage:
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
            blocks[at] = await _cut_result(called[at], block, max(0, left), room, keeper)
            size = left
        left -= size
    return UserMessage(tuple(blocks))


async def _cut_result(
    call: ToolUseBlock, block: ToolResultBlock, size: int, room: int, keeper: TextKeeper | None
) -> ToolResultBlock:
    """Cut a result to about `size` bytes. The model's knowledge of files shrinks with the text."""
    is_reading = call.name == READ_TOOL
    if is_reading and (shown := cut_reading(block.text, size)):
        return replace(block, text=shown, sight=tuple(replace(known, is_whole=False) for known in block.sight))
    shown, start = _cut_text(block.text, size)
    path = None if is_reading or keeper is None else await keeper.keep(block.text)
    rest = f"read the rest with {READ_TOOL}: path {path}, start_line {start}" if path else _REPEAT
    limit = "1 MB" if room == MAX_RESULTS_BYTES else f"{room:,} bytes, because the context window has no more room"
    note = f"[truncated: the results of one message are limited to {limit}; {rest}]"
    sight = tuple(known for known in block.sight if known.is_own)
    return replace(block, text=f"{shown}\n{note}" if shown else note, sight=sight)


def _cut_text(text: str, size: int) -> tuple[str, int]:
    """Return the lines of a text that fit into `size` bytes, and the number of the next line.

    If not even the first line fits, the result is a part of it.
    """
    shown = text.encode("utf-8", "surrogatepass")[:size].decode("utf-8", "ignore")
    lines, end, _ = shown.rpartition("\n")
    return (lines, lines.count("\n") + 2) if end else (shown, 1)
