"""The tool calls of one message: neighbouring readers run side by side, everything else one after the other.

A message runs at most 64 calls, 8 of them at once, and its results hold at most 1 MB together. A second reading of an
unchanged file in one turn refers to the first reading.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from thinklsp.agent.user_turns import split_turns
from thinklsp.core.events import ToolFinished, ToolStarted
from thinklsp.core.messages import (
    AssistantMessage,
    Conversation,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
    shortened_by,
)
from thinklsp.tools.base import AnyTool, ToolContext, ToolOutput, call, describe
from thinklsp.tools.registry import Mode, tools_for

MAX_CALLS = 64
MAX_AT_ONCE = 8
MAX_RESULTS_BYTES = 1_000_000
_TOO_MANY = f"Not run: one message runs at most {MAX_CALLS} calls. Call again in the next."
_CUT = "\n[cut: the results of one message hold at most 1 MB; make this call again in your next message]"
# Bytes of a character in UTF-8.
_WIDEST = 4
_READ = "read_file"
# The model finds a shorter result no faster than it reads the result again.
_MIN_REPEATED_CHARACTERS = 2_000
_UNCHANGED = "Unchanged: the result of your earlier read_file of these lines, in this turn, still holds."


@dataclass(frozen=True, slots=True)
class ToolResults:
    """All results of one message, in the order of the calls."""

    message: UserMessage


async def run_tool_calls(
    calls: Sequence[ToolUseBlock], tools: tuple[AnyTool, ...], mode: Mode, context: ToolContext
) -> AsyncGenerator[ToolStarted | ToolFinished | ToolResults, None]:
    """Yields start and finish of every call and last the ToolResults. Closing it cancels what still runs."""
    outputs: list[ToolOutput] = [ToolOutput(_TOO_MANY, is_error=True)] * len(calls)
    for group in _groups(calls[:MAX_CALLS], tools):
        waiting = deque(group)
        running: dict[asyncio.Task[ToolOutput], int] = {}
        try:
            while waiting or running:
                while waiting and len(running) < MAX_AT_ONCE:
                    index = waiting.popleft()
                    yield ToolStarted(calls[index].id, calls[index].name, describe(calls[index], tools))
                    running[asyncio.create_task(_run(calls[index], tools, mode, context))] = index
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in running if task in done]:
                    index = running.pop(task)
                    outputs[index] = task.result()
                    yield _finished(calls[index], tools, outputs[index])
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
    yield ToolResults(UserMessage(tuple(_results(calls, outputs))))


def _results(calls: Sequence[ToolUseBlock], outputs: Sequence[ToolOutput]) -> Iterator[ToolResultBlock]:
    """Cut the results that no longer fit, in the order of the calls. Sentences about errors stay."""
    left = max(0, MAX_RESULTS_BYTES - len(calls) * len(_CUT))
    for tool_use, output in zip(calls, outputs, strict=True):
        text = output.text
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > left and size > len(_CUT):
            text = text[: left // _WIDEST] + _CUT
            size = len(text.encode("utf-8", "surrogatepass"))
        left = max(0, left - size)
        yield ToolResultBlock(tool_use.id, text, output.is_error)


_READS = "This turn only reads: describe the change in your answer instead."
_UNUSED = "This turn uses no tools: answer from what you were given."


async def _run(tool_use: ToolUseBlock, tools: tuple[AnyTool, ...], mode: Mode, context: ToolContext) -> ToolOutput:
    known = tool_use.name in {tool.name for tool in tools}
    if known and tool_use.name not in {tool.name for tool in tools_for(mode, tools)}:
        return ToolOutput(_UNUSED if mode == "none" else _READS, is_error=True)
    return await call(tool_use, tools, context)


def _finished(tool_use: ToolUseBlock, tools: tuple[AnyTool, ...], output: ToolOutput) -> ToolFinished:
    return ToolFinished(tool_use.id, tool_use.name, describe(tool_use, tools), output.is_error, output.plan)


def _groups(calls: Sequence[ToolUseBlock], tools: tuple[AnyTool, ...]) -> Iterator[list[int]]:
    """Positions of the calls. Readers that stand side by side share a group; a writer stands alone, so that order is
    what the model wrote."""
    readers = {tool.name for tool in tools if tool.read_only}
    for reads, group in groupby(range(len(calls)), key=lambda index: calls[index].name in readers):
        indexes = list(group)
        yield from [indexes] if reads else [[index] for index in indexes]


def refer_to_earlier_reads(answer: AssistantMessage, results: UserMessage, conversation: Conversation) -> UserMessage:
    """Replace repeated `read_file` results with a reference to the first one.

    `results` are those of `answer`; neither is part of `conversation` yet. A reference stays within one turn, because a
    turn is kept or summarised as a whole. If the service has shortened the conversation, only later results count.
    """
    reads = {call.id for call in answer.tool_uses if call.name == _READ}
    if not reads or all(len(block.text) < _MIN_REPEATED_CHARACTERS for block in results.blocks):
        return results
    turns = split_turns(conversation).turns
    seen = _collect_read_texts(_drop_shortened((*turns[-1], answer) if turns else ()))
    blocks: list[ToolResultBlock | TextBlock] = []
    for block in results.blocks:
        is_read = isinstance(block, ToolResultBlock) and block.tool_use_id in reads
        if is_read and len(block.text) >= _MIN_REPEATED_CHARACTERS:
            if block.text in seen:
                heading = block.text.partition("\n")[0]
                block = replace(block, text=f"{heading}\n{_UNCHANGED}")
            else:
                seen.add(block.text)
        blocks.append(block)
    return UserMessage(tuple(blocks))


def _drop_shortened(turn: Conversation) -> Conversation:
    """Return the messages of a turn that the service still reads in full."""
    notes = [index for index, message in enumerate(turn) if shortened_by(message) is not None]
    return turn[notes[-1] :] if notes else turn


def _collect_read_texts(turn: Conversation) -> set[str]:
    """Return the texts of all successful `read_file` results in a turn."""
    calls = {
        call.id
        for message in turn
        if isinstance(message, AssistantMessage)
        for call in message.tool_uses
        if call.name == _READ
    }
    return {
        block.text
        for message in turn
        for block in message.blocks
        if isinstance(block, ToolResultBlock) and block.tool_use_id in calls and not block.is_error
    }
