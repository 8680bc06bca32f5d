"""The tool runner, which runs the tool calls in a message.

Consecutive read-only calls run in parallel, up to 8 at a time. All other calls run one after the other. A message can
have up to 64 calls. If the model rereads an unchanged file, the result only refers to the earlier result.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from thinklsp.agent.budget import Emit
from thinklsp.agent.compaction_plan import split_turns
from thinklsp.agent.result_images import ResultImages
from thinklsp.core.events import ToolFinished, ToolStarted
from thinklsp.core.messages import (
    AssistantMessage,
    Conversation,
    ToolResultBlock,
    ToolUseBlock,
    UserBlock,
    UserMessage,
    find_compaction_origin,
)
from thinklsp.core.text_safety import escape_invisible, mask_keys
from thinklsp.core.tool_type import ToolOutput
from thinklsp.tools.registry import Mode, select_tools
from thinklsp.tools.tool import AnyTool, ToolContext, call, describe, find_location

MAX_CALLS = 64
MAX_PARALLEL_CALLS = 8
MAX_SHOWN_CHARACTERS = 4_000
_TOO_MANY_CALLS = f"Not run: a message can run at most {MAX_CALLS} calls. Repeat this call in your next message."
_READ_TOOL = "read_file"
# A reference to an earlier result saves nothing if the result is shorter than this.
_MIN_REPEATED_CHARACTERS = 2_000
_UNCHANGED_NOTE = "Unchanged since your earlier read_file call for these lines in this turn; use that result."


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
        running: dict[asyncio.Task[ToolOutput], int] = {}
        try:
            while waiting or running:
                while waiting and len(running) < MAX_PARALLEL_CALLS:
                    index = waiting.popleft()
                    await emit(_build_start(calls[index], tools))
                    running[asyncio.create_task(_run_call(calls[index], tools, mode, context))] = index
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in running if task in done]:
                    index = running.pop(task)
                    outputs[index] = task.result()
                    await emit(_build_event(calls[index], tools, outputs[index]))
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


def _build_event(tool_use: ToolUseBlock, tools: tuple[AnyTool, ...], output: ToolOutput) -> ToolFinished:
    title, arguments = describe(tool_use, tools), format_arguments(tool_use)
    result = format_shown_text(output.text)
    return ToolFinished(tool_use.id, tool_use.name, title, output.is_error, output.plan, arguments, result)


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


def refer_to_earlier_reads(answer: AssistantMessage, results: UserMessage, conversation: Conversation) -> UserMessage:
    """Replace repeated `read_file` results with references to the earlier result.

    `answer` and its `results` are not part of `conversation` yet. References stay within a turn, because a compaction
    may remove earlier turns.
    """
    reads = {call.id for call in answer.tool_uses if call.name == _READ_TOOL}
    if not reads or not any(_is_long_result(block) for block in results.blocks):
        return results
    turns = split_turns(conversation).turns
    earlier_texts = _collect_read_texts(_drop_compacted((*turns[-1], answer) if turns else ()))
    blocks: list[UserBlock] = []
    for block in results.blocks:
        if isinstance(block, ToolResultBlock) and block.tool_use_id in reads and _is_long_result(block):
            if block.text in earlier_texts:
                heading = block.text.partition("\n")[0]
                block = replace(block, text=f"{heading}\n{_UNCHANGED_NOTE}")
            else:
                earlier_texts.add(block.text)
        blocks.append(block)
    return UserMessage(tuple(blocks))


def _is_long_result(block: UserBlock) -> bool:
    return isinstance(block, ToolResultBlock) and len(block.text) >= _MIN_REPEATED_CHARACTERS


def _drop_compacted(turn: Conversation) -> Conversation:
    """Return the messages of a turn since the provider's last compaction."""
    compactions = [index for index, message in enumerate(turn) if find_compaction_origin(message) is not None]
    return turn[compactions[-1] :] if compactions else turn


def _collect_read_texts(turn: Conversation) -> set[str]:
    """Return the texts of all successful `read_file` results in a turn."""
    calls = {
        call.id
        for message in turn
        if isinstance(message, AssistantMessage)
        for call in message.tool_uses
        if call.name == _READ_TOOL
    }
    return {
        block.text
        for message in turn
        for block in message.blocks
        if isinstance(block, ToolResultBlock) and block.tool_use_id in calls and not block.is_error
    }
