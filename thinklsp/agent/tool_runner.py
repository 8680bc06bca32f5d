"""Runs the tool calls of one message: neighbouring readers together, everything else one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass

from thinklsp.core.events import ToolFinished, ToolStarted
from thinklsp.core.messages import ToolResultBlock, ToolUseBlock, UserMessage
from thinklsp.tools.base import AnyTool, ToolContext, ToolOutput, call, describe
from thinklsp.tools.registry import Mode, tools_for


@dataclass(frozen=True, slots=True)
class ToolResults:
    """All results of one message, in the order of the calls."""

    message: UserMessage


async def run_tool_calls(
    calls: Sequence[ToolUseBlock], tools: tuple[AnyTool, ...], mode: Mode, context: ToolContext
) -> AsyncGenerator[ToolStarted | ToolFinished | ToolResults, None]:
    """Yields start and finish of every call and last the ToolResults. Closing it cancels what still runs."""
    outputs: dict[str, ToolOutput] = {}
    for group in _groups(calls, tools):
        running: dict[asyncio.Task[ToolOutput], ToolUseBlock] = {}
        try:
            for tool_use in group:
                yield ToolStarted(tool_use.id, tool_use.name, describe(tool_use, tools))
                running[asyncio.create_task(_run(tool_use, tools, mode, context))] = tool_use
            while running:
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in running if task in done]:
                    tool_use = running.pop(task)
                    output = outputs[tool_use.id] = task.result()
                    yield _finished(tool_use, tools, output)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
    results = (ToolResultBlock(c.id, outputs[c.id].text, outputs[c.id].is_error) for c in calls)
    yield ToolResults(UserMessage(tuple(results)))


_READS = "This turn only reads: describe the change in your answer instead."
_UNUSED = "This turn uses no tools: answer from what you were given."


async def _run(tool_use: ToolUseBlock, tools: tuple[AnyTool, ...], mode: Mode, context: ToolContext) -> ToolOutput:
    known = tool_use.name in {tool.name for tool in tools}
    if known and tool_use.name not in {tool.name for tool in tools_for(mode, tools)}:
        return ToolOutput(_UNUSED if mode == "none" else _READS, is_error=True)
    return await call(tool_use, tools, context)


def _finished(tool_use: ToolUseBlock, tools: tuple[AnyTool, ...], output: ToolOutput) -> ToolFinished:
    return ToolFinished(tool_use.id, tool_use.name, describe(tool_use, tools), output.is_error, output.plan)


def _groups(calls: Sequence[ToolUseBlock], tools: tuple[AnyTool, ...]) -> Iterator[list[ToolUseBlock]]:
    """Readers that stand side by side share a group; a writer stands alone, so that order is what the model wrote."""
    readers = {tool.name for tool in tools if tool.read_only}
    group: list[ToolUseBlock] = []
    for tool_use in calls:
        if tool_use.name not in readers:
            if group:
                yield group
            yield [tool_use]
            group = []
        else:
            group.append(tool_use)
    if group:
        yield group
