"""Runs the tool calls of one message: neighbouring readers side by side, everything else one after the other.

A message runs at most 64 calls, 8 of them at once, and its results hold at most 1 MB together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from thinklsp.core.events import ToolFinished, ToolStarted
from thinklsp.core.messages import ToolResultBlock, ToolUseBlock, UserMessage
from thinklsp.tools.base import AnyTool, ToolContext, ToolOutput, call, describe
from thinklsp.tools.registry import Mode, tools_for

MAX_CALLS = 64
MAX_AT_ONCE = 8
MAX_RESULTS_BYTES = 1_000_000
_TOO_MANY = f"Not run: one message runs at most {MAX_CALLS} calls. Call again in the next."
_CUT = "\n[cut: the results of one message hold at most 1 MB; make this call again in your next message]"
# Bytes of a character in UTF-8.
_WIDEST = 4


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
