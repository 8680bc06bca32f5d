"""The limits of tool results, which depend on the room in the context window.

The next model call must hold all results of a message. A result that does not fit is cut, and its last line says how to
read the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from thinklsp.agent.compaction_plan import TARGET_SHARE, build_task, split_turns
from thinklsp.agent.compactor import CompactionAttempt
from thinklsp.agent.context_meter import measure_messages
from thinklsp.agent.result_cutting import MAX_RESULTS_BYTES, MIN_RESULTS_BYTES, REPEAT_NOTE, cut_results
from thinklsp.agent.tool_runner import refer_to_earlier_reads
from thinklsp.core.messages import AssistantMessage, ToolResultBlock, ToolUseBlock, UserBlock, UserMessage
from thinklsp.core.tool_type import TextKeeper
from thinklsp.tools.read import ReadFile

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
        return await _limit_results(answer.tool_uses, referred, room.now, keeper)
    return await _limit_results(answer.tool_uses, results, room.after_compaction, keeper)


def _measure_room(attempt: CompactionAttempt) -> _Room:
    request, meter, limits = attempt.request, attempt.meter, attempt.compute_limits()
    if attempt.window is None:
        return _Room(MAX_RESULTS_BYTES, MAX_RESULTS_BYTES)
    if not attempt.may_start:
        window = request.model.context_window or attempt.window
        limit = min(attempt.window, window - min(request.max_tokens or 0, window // 4))
        now = _limit_room(meter.convert_to_bytes(round(_FULL_SHARE * limit) - limits.present), least=0)
        return _Room(now, now)
    kept = request.conversation[-1:]
    if turns := split_turns(request.conversation).turns:
        kept = (build_task(turns[-1]), *kept)
    # A compaction starts at the limit, and both sizes are rounded.
    now = limits.limit - limits.present - 2
    after = max(now, round(TARGET_SHARE * limits.limit) - limits.fixed - meter.count_tokens(kept))
    return _Room(_limit_room(meter.convert_to_bytes(now), least=0), _limit_room(meter.convert_to_bytes(after)))


def _limit_room(size: int, *, least: int = MIN_RESULTS_BYTES) -> int:
    return max(least, min(MAX_RESULTS_BYTES, size))


async def _limit_results(
    calls: Sequence[ToolUseBlock], message: UserMessage, room: int, keeper: TextKeeper | None
) -> UserMessage:
    """Cut the results, and keep the whole text of those that the model could only get by a repeated call."""
    if keeper is None:
        return cut_results(calls, message, room)
    blocks: list[UserBlock] = []
    names = iter([call.name for call in calls])
    for whole, cut in zip(message.blocks, cut_results(calls, message, room).blocks, strict=True):
        blocks.append(cut)
        if isinstance(whole, ToolResultBlock) and isinstance(cut, ToolResultBlock):
            is_reading = next(names) == ReadFile.name
            if cut is not whole and not is_reading:
                blocks[-1] = replace(cut, text=await _name_rest(whole.text, cut.text, keeper))
    return UserMessage(tuple(blocks))


async def _name_rest(whole: str, cut: str, keeper: TextKeeper) -> str:
    """Return the cut text with the place of its rest, if the session can keep the whole text."""
    path = await keeper.keep(whole)
    if path is None:
        return cut
    shown = cut.rpartition("\n")[0]
    start = shown.count("\n") + 2 if shown and whole.startswith(f"{shown}\n") else 1
    return f"{cut.removesuffix(REPEAT_NOTE)}read the rest with {ReadFile.name}: path {path}, start_line {start}]"
