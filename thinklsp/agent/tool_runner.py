"""The tool runner, which runs the tool calls in a message and fits their results into the context window.

Consecutive read-only calls run in parallel, up to 8 at a time. All other calls run one after the other. A message can
have up to 64 calls. The next model call must hold all results of a message. A result that does not fit is cut, and its
last line says how to read the rest.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from thinklsp.agent.budget import Emit, measure_messages
from thinklsp.agent.compaction import (
    MAX_RESULTS_BYTES,
    MIN_RESULTS_BYTES,
    REPEAT_NOTE,
    TARGET_SHARE,
    CompactionAttempt,
    build_task,
    cut_results,
)
from thinklsp.agent.summary import split_turns
from thinklsp.core.events import ToolFinished, ToolStarted
from thinklsp.core.images import (
    MAX_CONVERSATION_IMAGE_BYTES,
    MAX_CONVERSATION_IMAGES,
    MAX_PROMPT_IMAGES,
    list_images,
)
from thinklsp.core.messages import (
    AssistantMessage,
    Conversation,
    ImageBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserBlock,
    UserMessage,
)
from thinklsp.core.text_safety import escape_invisible, mask_keys
from thinklsp.core.tool_type import TextKeeper, ToolOutput
from thinklsp.tools.read import ReadFile
from thinklsp.tools.registry import Mode, select_tools
from thinklsp.tools.tool import AnyTool, ToolContext, call, describe, find_location

_UNREADABLE = "this model cannot read it"
_TOO_MANY = f"the results of one message can have {MAX_PROMPT_IMAGES} images"
_FULL = "the session already has as many images as a request can contain"


class ResultImages:
    """The images that the results of one message may add to the conversation. `accepted` are the model's types."""

    def __init__(self, conversation: Conversation, accepted: Collection[str]) -> None:
        self._conversation = conversation
        self._accepted = accepted
        self._added: list[ImageBlock] = []

    def admit(self, output: ToolOutput) -> ToolOutput:
        """Return an output without the images that cannot be sent. Its text then says why."""
        images: list[ImageBlock] = []
        notes: list[str] = []
        for image in output.images:
            reason = self._find_reason(image)
            if reason is not None:
                notes.append(f"\n[{image.name} was left out, because {reason}]")
                continue
            self._added.append(image)
            images.append(image)
        return replace(output, text=output.text + "".join(notes), images=tuple(images)) if notes else output

    def _find_reason(self, image: ImageBlock) -> str | None:
        if image.media_type not in self._accepted:
            return _UNREADABLE
        if len(self._added) >= MAX_PROMPT_IMAGES:
            return _TOO_MANY
        images = (*list_images(self._conversation), *self._added, image)
        size = sum(len(each.data) for each in images)
        return _FULL if len(images) > MAX_CONVERSATION_IMAGES or size > MAX_CONVERSATION_IMAGE_BYTES else None


MAX_CALLS = 64
MAX_PARALLEL_CALLS = 8
MAX_SHOWN_CHARACTERS = 4_000
_TOO_MANY_CALLS = f"Not run: a message can run at most {MAX_CALLS} calls. Repeat this call in your next message."


async def run_tool_calls(
    calls: Sequence[ToolUseBlock],
    tools: tuple[AnyTool, ...],
    mode: Mode,
    context: ToolContext,
    emit: Emit,
    images: ResultImages | None = None,
) -> UserMessage:
    """Run the tool calls and return their results in the same order, after the images that belong to them.

    `images` decides which images of results are sent. Without it, none are. If this coroutine is cancelled, all running
    calls are stopped.
    """
    outputs: list[ToolOutput] = [ToolOutput(_TOO_MANY_CALLS, is_error=True)] * len(calls)
    for group in _group_calls(calls[:MAX_CALLS], tools):
        waiting = deque(group)
        running: dict[asyncio.Task[ToolOutput], tuple[int, ToolStarted]] = {}
        try:
            while waiting or running:
                while waiting and len(running) < MAX_PARALLEL_CALLS:
                    index = waiting.popleft()
                    started = _build_start(calls[index], tools)
                    await emit(started)
                    running[asyncio.create_task(_run_call(calls[index], tools, mode, context))] = index, started
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in running if task in done]:
                    index, started = running.pop(task)
                    outputs[index] = task.result()
                    await emit(_build_end(started, outputs[index]))
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
    images = images or ResultImages((), ())
    outputs = [images.admit(output) for output in outputs]
    shown = [image for output in outputs for image in output.images]
    blocks = (
        ToolResultBlock(tool_use.id, output.text, output.is_error, sight=output.sight)
        for tool_use, output in zip(calls, outputs, strict=True)
    )
    return UserMessage((*shown, *blocks))


_READ_ONLY_ERROR = "This turn is read-only: describe the change in your answer instead."
_NO_TOOLS_ERROR = "This turn uses no tools: answer from the information that you have."


async def _run_call(tool_use: ToolUseBlock, tools: tuple[AnyTool, ...], mode: Mode, context: ToolContext) -> ToolOutput:
    is_known = tool_use.name in {tool.name for tool in tools}
    if is_known and tool_use.name not in {tool.name for tool in select_tools(mode, tools)}:
        return ToolOutput(_NO_TOOLS_ERROR if mode == "none" else _READ_ONLY_ERROR, is_error=True)
    return await call(tool_use, tools, context)


def _build_start(tool_use: ToolUseBlock, tools: tuple[AnyTool, ...]) -> ToolStarted:
    title, location = describe(tool_use, tools), find_location(tool_use, tools)
    return ToolStarted(tool_use.id, tool_use.name, title, format_arguments(tool_use), location)


def _build_end(started: ToolStarted, output: ToolOutput) -> ToolFinished:
    call_id, name, title, arguments = started.call_id, started.name, started.title, started.arguments
    result = format_shown_text(output.text)
    return ToolFinished(call_id, name, title, output.is_error, output.plan, arguments, result)


def format_arguments(tool_use: ToolUseBlock) -> str | None:
    """Return the arguments of a tool call as text for the user, or None if they could not be parsed."""
    if tool_use.input is None:
        return None
    return format_shown_text(json.dumps(dict(tool_use.input), indent=2, ensure_ascii=False))


def format_shown_text(text: str) -> str:
    """Return the first 4,000 characters of a text for the user, with masked keys."""
    # Mask before truncating, so that no part of a key remains unmasked.
    shown = mask_keys(escape_invisible(text[: 2 * MAX_SHOWN_CHARACTERS]))
    return shown if len(shown) <= MAX_SHOWN_CHARACTERS else shown[: MAX_SHOWN_CHARACTERS - 1] + "…"


def _group_calls(calls: Sequence[ToolUseBlock], tools: tuple[AnyTool, ...]) -> Iterator[list[int]]:
    """Yield groups of indexes into `calls`.

    Consecutive read-only calls form one group. Every other call is a group of its own.
    """
    readers = {tool.name for tool in tools if tool.read_only}
    for reads, group in groupby(range(len(calls)), key=lambda index: calls[index].name in readers):
        indexes = list(group)
        yield from [indexes] if reads else [[index] for index in indexes]


# Without a compaction of its own, thinklsp fills this share of the context window.
_FULL_SHARE = 0.95


async def fit_results(attempt: CompactionAttempt, results: UserMessage, keeper: TextKeeper | None) -> UserMessage:
    """Cut the results so that the next model call can hold them.

    The conversation of `attempt` ends with the answer that made the calls. `keeper` keeps the whole text of a result
    that is cut. The results get the room of a compaction of the earlier messages if there is little room without it.
    """
    answer = attempt.request.conversation[-1]
    if not isinstance(answer, AssistantMessage):
        return results
    room = _measure_room(attempt)
    if measure_messages([results]) <= room:
        return results
    if attempt.window is not None and attempt.may_start:
        after_compaction = max(_limit_room(room), _measure_room_after_compaction(attempt))
        room = room if room >= after_compaction // 2 else after_compaction
    return await _limit_results(answer.tool_uses, results, room, keeper)


def _measure_room(attempt: CompactionAttempt) -> int:
    """Return the maximum size of the results of a message in bytes, if they cause no compaction."""
    if attempt.window is None:
        return MAX_RESULTS_BYTES
    request, limits = attempt.request, attempt.compute_limits()
    # A compaction starts at the limit, and both sizes are rounded.
    tokens = limits.limit - 2
    if not attempt.may_start:
        window = request.model.context_window or attempt.window
        tokens = round(_FULL_SHARE * min(attempt.window, window - min(request.max_tokens or 0, window // 4)))
    return _limit_room(attempt.meter.convert_to_bytes(tokens - limits.present), least=0)


def _measure_room_after_compaction(attempt: CompactionAttempt) -> int:
    conversation, limits = attempt.request.conversation, attempt.compute_limits()
    kept = conversation[-1:]
    if turns := split_turns(conversation):
        kept = (build_task(turns[-1]), *kept)
    left = round(TARGET_SHARE * limits.limit) - limits.fixed - attempt.meter.count_tokens(kept)
    return _limit_room(attempt.meter.convert_to_bytes(left))


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
