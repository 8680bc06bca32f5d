"""The tool calls of one message: how many run, how many at once, and how much their results hold together."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from thinklsp.agent.compaction import MAX_RESULTS_BYTES, cut_results
from thinklsp.agent.tool_runner import (
    MAX_CALLS,
    MAX_PARALLEL_CALLS,
    MAX_SHOWN_CHARACTERS,
    run_tool_calls,
)
from thinklsp.core.events import ToolFinished, ToolStarted, TurnEvent
from thinklsp.core.messages import ToolResultBlock, ToolUseBlock
from thinklsp.core.tool_type import ToolOutput
from thinklsp.tools.tool import Arguments, Tool, ToolContext
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.view import WorkspaceView


class TextArguments(Arguments):
    text: str
    times: int = 1


class Echo(Tool[TextArguments]):
    """Counts how many of its calls run at once."""

    name: ClassVar[str] = "echo"
    description: ClassVar[str] = "Echo."
    read_only: ClassVar[bool] = True
    arguments = TextArguments

    def __init__(self) -> None:
        self.running = self.most = self.total = 0

    def title(self, args: TextArguments) -> str:
        return "echo"

    async def run(self, args: TextArguments, context: ToolContext) -> ToolOutput:
        self.running += 1
        self.total += 1
        self.most = max(self.most, self.running)
        for _ in range(10):
            await asyncio.sleep(0)
        self.running -= 1
        return ToolOutput(args.text * args.times)


async def results(tool: Echo, *inputs: dict[str, Any]) -> tuple[list[TurnEvent], list[ToolResultBlock]]:
    async def ask(question: str, options: tuple[str, ...]) -> None:
        raise AssertionError(question)

    context = ToolContext(EditOverlay(WorkspaceView((), ())), ask)
    calls = [ToolUseBlock("same id", "echo", given) for given in inputs]
    events: list[TurnEvent] = []

    async def take(event: TurnEvent) -> None:
        events.append(event)

    message = await run_tool_calls(calls, (tool,), "agent", context, take)
    message = cut_results(calls, message, MAX_RESULTS_BYTES)
    return events, [block for block in message.blocks if isinstance(block, ToolResultBlock)]


async def test_a_message_runs_64_calls_8_at_once_and_answers_all() -> None:
    tool = Echo()
    events, blocks = await results(tool, *({"text": str(n)} for n in range(1_000)))
    assert [block.text for block in blocks[:MAX_CALLS]] == [str(n) for n in range(MAX_CALLS)]
    assert len(blocks) == 1_000
    assert all(block.is_error and "at most 64 calls" in block.text for block in blocks[MAX_CALLS:])
    assert (tool.total, tool.most) == (MAX_CALLS, MAX_PARALLEL_CALLS)
    assert sum(isinstance(event, ToolStarted) for event in events) == MAX_CALLS
    assert sum(isinstance(event, ToolFinished) for event in events) == MAX_CALLS


async def test_the_results_of_a_message_hold_a_megabyte_at_most() -> None:
    """The first ones whole, the one that does not fit cut, the others a note."""
    for text in ("x", "é", "中"):
        _, blocks = await results(Echo(), *({"text": text, "times": 49_000} for _ in range(MAX_CALLS)))
        contents = [block.text for block in blocks]
        assert sum(len(content.encode()) for content in contents) <= MAX_RESULTS_BYTES
        whole = sum(content == text * 49_000 for content in contents)
        assert (whole + 1) * 49_000 * len(text.encode()) > MAX_RESULTS_BYTES
        assert all("limited to 1 MB" in content for content in contents[whole:])


async def test_short_results_behind_the_limit_stay() -> None:
    long = ({"text": "x", "times": 50_000} for _ in range(21))
    _, blocks = await results(Echo(), *long, {"text": "short"})
    assert blocks[-1].text == "short"


async def test_events_show_arguments_and_result() -> None:
    key = "sk-ant-" + "x" * 40
    events, _ = await results(Echo(), {"text": f"hello {key}"}, {"text": "y" * (MAX_SHOWN_CHARACTERS - 30) + f" {key}"})
    started = [event for event in events if isinstance(event, ToolStarted)]
    finished = [event for event in events if isinstance(event, ToolFinished)]
    assert started[0].arguments == finished[0].arguments == '{\n  "text": "hello [hidden]"\n}'
    assert finished[0].result == "hello [hidden]"
    assert len(finished[1].result or "") <= MAX_SHOWN_CHARACTERS
    assert "sk-" not in f"{events}"
