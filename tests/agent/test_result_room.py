"""What the results of a message may take of the context window, and that a model sees them before they are folded.

The models here are functions of the request that they get: what a compaction takes away, they have forgotten.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.support.scripted_model import SCRIPTED, Answer, check_sendable, says, tool
from tests.support.scripted_turn import ScriptedTurn
from thinklsp.agent.budget import BudgetLimits, CompactionRules
from thinklsp.agent.model_call import CallEvent, CallFinished
from thinklsp.agent.summary import Summary, build_summary
from thinklsp.core.errors import ContextWindowExceeded
from thinklsp.core.messages import (
    Conversation,
    TextBlock,
    ToolResultBlock,
    UserMessage,
    collect_sight,
    count_held_messages,
)
from thinklsp.core.text_safety import find_cut_mark
from thinklsp.core.tool_type import ToolOutput
from thinklsp.core.usage import Usage
from thinklsp.providers.base import ModelRequest
from thinklsp.sessions.store_folder import KeptTexts, SessionTexts
from thinklsp.tools.registry import TOOLS
from thinklsp.tools.tool import AnyTool, Arguments, Tool, ToolContext

WORD = "xyzzy"
A, B = "untitled:a.py", "untitled:b.py"
READING = re.compile(
    r"^(?:- |RESULT of read_file: )?(untitled:\S+?)(?:, lines |:)(\d+)-(\d+)(?: of \d+)?$", re.MULTILINE
)
Choose = Callable[[str], Answer]


def text_of(conversation: Conversation) -> str:
    texts = (TextBlock, ToolResultBlock)
    return "\n".join(b.text for message in conversation for b in message.blocks if isinstance(b, texts))


@dataclass
class Reader:
    """A model that decides by the text of the request. It counts tokens as the service does: `bytes_per_token`."""

    choose: Choose
    bytes_per_token: float = 4.0
    window: int | None = None
    seen: list[str] = field(default_factory=list)
    summaries: int = 0
    refused: int = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[CallEvent, None]:
        check_sendable(request.conversation)
        shown = text_of(request.conversation)
        tools = "".join(spec.description + json.dumps(spec.input_schema) for spec in request.tools)
        tokens = round(len(request.system + tools + shown) / self.bytes_per_token)
        assert tokens <= (request.model.input_window or tokens), "the service refuses this"
        if self.window is not None and tokens > self.window:
            self.refused += 1
            raise ContextWindowExceeded("Too long.")
        if not request.tools:
            self.summaries += 1
            answer = says(json.dumps({"decisions_done": ["Read some files."], "next_action": "Read on."}))
        else:
            self.seen.append(shown)
            answer = self.choose(shown)
        yield CallFinished(answer.message, Usage(tokens, 50), None)


async def run_turn(
    model: Reader,
    texts: dict[str, str],
    *,
    window: int | None,
    bound: bool = False,
    auto: bool = True,
    max_steps: int = 200,
    kept: SessionTexts | None = None,
    tools: tuple[AnyTool, ...] = TOOLS,
    **facts: Any,
) -> ScriptedTurn:
    turn = ScriptedTurn(
        documents=texts,
        prompt="Find the word.",
        model=replace(SCRIPTED, context_window=window, prefix_bound=bound, **facts),
        limits=BudgetLimits(max_steps),
        rules=CompactionRules(auto=auto),
        tools=tools,
        texts=kept,
        caller=model,
    )
    await turn.play()
    return turn


def make_files(count: int, width: int, lines: int = 1_500) -> dict[str, str]:
    """Files of short lines. The word is at the end of the last one."""
    texts = {f"untitled:f{n}.py": f"{'x' * width}\n" * lines for n in range(count)}
    texts[f"untitled:f{count - 1}.py"] += WORD + "\n"
    return texts


def read_on(texts: dict[str, str]) -> Choose:
    """Read all files at once, then what the request does not show as read, until the word was seen."""
    numbers = (f"call_{n}" for n in range(10_000))

    def choose(shown: str) -> Answer:
        if WORD in shown:
            return says(f"It is {WORD}.")
        after = dict.fromkeys(texts, 1)
        for name, first, last in READING.findall(shown):
            after[name] = max(after[name], int(last) + 1) if int(first) <= after[name] else after[name]
        left = {name: line for name, line in after.items() if line <= len(texts[name].splitlines())}
        calls = (
            tool(next(numbers), "read_file", {"path": name} | ({"start_line": line} if line > 1 else {}))
            for name, line in left.items()
        )
        return says(*calls) if left else says("I have read all of it and never saw the word.")

    return choose


WINDOWS = [(16_000, 2, 8), (32_768, 2, 20), (200_000, 14, 26)]
# The window, the number of files and the width of their lines, whether thinking is bound, and the bytes per token.
READINGS = [(*row, bound, size) for row, bound, size in product(WINDOWS, (False, True), (3.0, 4.0))]


@pytest.mark.parametrize(
    ("window", "count", "width", "bound", "bytes_per_token"), [*READINGS, (1_000_000, 60, 26, True, 4.0)]
)
async def test_a_reader_sees_the_word(window: int, count: int, width: int, bound: bool, bytes_per_token: float) -> None:
    texts = make_files(count, width)
    model = Reader(read_on(texts), bytes_per_token)
    turn = await run_turn(model, texts, window=window, bound=bound)
    assert (turn.finished.stop_reason, turn.finished.text) == ("end_turn", f"It is {WORD}.")
    assert len(model.seen) <= 3 * count
    assert model.summaries <= 1


@pytest.mark.parametrize("bound", [False, True])
async def test_a_window_that_only_the_service_knows(bound: bool) -> None:
    """What it refused as too long is the window from then on."""
    texts = make_files(2, 16)
    model = Reader(read_on(texts), window=16_000)
    turn = await run_turn(model, texts, window=None, bound=bound)
    assert turn.finished.text == f"It is {WORD}."
    assert (len(model.seen) <= 6, model.summaries <= 2, model.refused) == (True, True, 1)


class LogArguments(Arguments):
    lines: int


class Log(Tool[LogArguments]):
    """A tool with a long result that is not a file."""

    name: ClassVar[str] = "log"
    description: ClassVar[str] = "Show a log."
    title_template: ClassVar[str] = "log"
    arguments = LogArguments

    async def run(self, args: LogArguments, context: ToolContext) -> ToolOutput:
        return ToolOutput("\n".join(f"entry {n}: é" for n in range(1, args.lines + 1)))


async def test_a_cut_result_says_how_to_read_the_rest(tmp_path: Path) -> None:
    kept = SessionTexts(KeptTexts(str(tmp_path)), "s")
    log, small = tool("a", "log", {"lines": 3_000}), tool("b", "log", {"lines": 3})
    for keeper in (kept, None):
        script = iter([says(log, small), says("Done.")])
        turn = await run_turn(
            Reader(lambda _, script=script: next(script)), {}, window=8_192, tools=(*TOOLS, Log()), kept=keeper
        )
        cut, whole = [text for text, _ in turn.results]
        assert whole.splitlines()[-1] == "entry 3: é"
        *shown, note = cut.splitlines()
        assert shown[-1] == f"entry {len(shown)}: é"
        assert find_cut_mark(note) == note
        if keeper is None:
            assert note.endswith("; repeat this call in your next message]")
            continue
        found = re.fullmatch(r".*; read the rest with read_file: path (result:\w+), start_line (\d+)\]", note)
        assert found is not None, note
        lines = (await kept.read(found[1]) or "").split("\n")
        assert (lines[int(found[2]) - 1], len(lines)) == (f"entry {len(shown) + 1}: é", 3_000)


async def test_a_reading_that_was_cut_is_no_sight_of_the_whole() -> None:
    texts = {A: "x" * 20 + "\n", B: "é" * 20 + "\n"}
    texts = {uri: line * 1_500 for uri, line in texts.items()}
    script = iter([says(*(tool(uri, "read_file", {"path": uri}) for uri in texts)), says("Done.")])
    turn = await run_turn(Reader(lambda _: next(script)), texts, window=24_000)
    sight = collect_sight(turn.session.conversation)
    shown = [re.search(r"lines 1-(\d+) of 1500\n", text) for text in [text for text, _ in turn.results]]
    counts = [int(found[1]) for found in shown if found]
    assert (counts[0], counts[1] < 1_500) == (1_500, True)
    assert [sight.knows_whole(uri, text) for uri, text in texts.items()] == [True, False]
    cut = [text for text, _ in turn.results][1]
    assert cut.endswith(
        f"{counts[1]:>5}\t{'é' * 20}\n[cut at the length limit; continue with start_line {counts[1] + 1}]"
    )


@pytest.mark.parametrize("auto", [True, False])
async def test_results_fit_into_the_window_without_a_compaction(auto: bool) -> None:
    """Where the model refuses what is longer: here the reader does."""
    texts = make_files(2, 26)
    reads = [says(*(tool(f"{n}{uri}", "read_file", {"path": uri}) for uri in texts)) for n in range(2)]
    script = iter([*reads, says("Done.")])
    model = Reader(lambda _: next(script), 3.0)
    turn = await run_turn(model, texts, window=40_000, auto=auto, input_limit=30_000)
    assert turn.finished.text == "Done."
    assert model.summaries == int(auto)


async def test_only_what_was_sent_counts_as_read() -> None:
    """Of a turn that ended at its step limit, no call has held the last results."""
    texts = {A: "x\n" * 700, B: "y\n" * 700}
    script = iter([says(tool(uri, "read_file", {"path": uri})) for uri in texts])
    turn = await run_turn(Reader(lambda _: next(script)), texts, window=200_000, max_steps=2)
    assert turn.finished.stop_reason == "max_steps"
    history: Conversation = tuple(
        message for n in range(20) for message in (UserMessage.from_text(f"ask {n} " * 200), says("Yes.").message)
    )
    conversation = (*history, *turn.session.conversation)
    summary = build_summary(conversation, Summary(), None, unseen=conversation[count_held_messages(conversation) :])
    assert [entry.partition(":1-")[0] for entry in summary.files_read] == [A]
