"""The loop of one turn against a model that plays a script: what is told, what is committed, what is sent next."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.scripted_model import (
    SCRIPTED,
    Answer,
    redacted,
    says,
    text,
    thinking,
    tool,
)
from tests.support.scripted_turn import ScriptedTurn
from tests.support.sizes import examples
from thinklsp.agent.budget import BudgetLimits
from thinklsp.core.errors import Overloaded, ProviderError
from thinklsp.core.events import (
    Notice,
    RetryScheduled,
    StepCommitted,
    StepStarted,
    TextStreamed,
    ThinkingStreamed,
    ThinkingTick,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnFinished,
)
from thinklsp.core.messages import (
    AssistantMessage,
    UserMessage,
    collect_sight,
)
from thinklsp.core.usage import Usage
from thinklsp.providers.catalogue import ModelInfo
from thinklsp.tools.registry import Mode

A, B = "untitled:a.py", "untitled:b.py"
TEXTS = {A: "one\ntwo\n", B: "three\n"}

Choice = Literal["continue", "raise", "stop"]


def make_turn(script: Sequence[Answer | Exception], **options: Any) -> ScriptedTurn:
    return ScriptedTurn(script, **{"documents": TEXTS, **options})


WORDS: dict[type, Callable[[Any], str]] = {
    StepStarted: lambda event: f"step {event.number}",
    TextStreamed: lambda event: f"text {event.delta}",
    ThinkingStreamed: lambda event: f"thinking {event.delta}",
    ThinkingTick: lambda _: "tick",
    ToolStarted: lambda event: f"start {event.call_id}",
    ToolFinished: lambda event: f"{'failed' if event.is_error else 'done'} {event.call_id}",
    StepCommitted: lambda _: "commit",
    RetryScheduled: lambda _: "retry",
    Notice: lambda event: f"notice {event.level}",
    TurnFinished: lambda event: f"end {event.stop_reason}",
}


def told(events: Sequence[TurnEvent]) -> list[str]:
    return [WORDS[type(event)](event) for event in events]


async def check_turn(
    script: Sequence[Answer | Exception], workspace: dict[str, str], events: list[str]
) -> ScriptedTurn:
    """Plays the script and compares what was told; what was sent and what is stored must always be sendable."""
    played = make_turn(script, documents=workspace)
    await played.play()
    assert told(played.events) == events
    played.check_next()
    assert played.caller.open == 0
    return played


async def play(script: Sequence[Answer | Exception], **options: Any) -> ScriptedTurn:
    """Play a script to its end; what is stored can be continued."""
    played = make_turn(script, **options)
    await played.play()
    played.check_next()
    return played


async def test_an_answer() -> None:
    played = await check_turn(
        [says(thinking("Hm."), "Hello.")],
        {},
        ["step 1", "tick", "thinking Hm.", "text Hello.", "commit", "end end_turn"],
    )
    assert played.finished == TurnFinished("end_turn", "Hello.", "Hm.", Usage(input_tokens=10, output_tokens=5))


async def test_readers_run_together_and_writers_in_order() -> None:
    read_a = tool("r1", "read_file", {"path": A})
    read_b = tool("r2", "read_file", {"path": B})
    first = tool("w1", "edit_file", {"path": A, "old_text": "one", "new_text": "1"})
    second = tool("w2", "edit_file", {"path": A, "old_text": "1\n", "new_text": "uno\n"})
    again = tool("r3", "read_file", {"path": A})
    played = await check_turn(
        [says("Go.", read_a, read_b, first, second, again), says("Done.")],
        TEXTS,
        [
            *("step 1", "text Go.", "start r1", "start r2", "done r1", "done r2"),
            *("start w1", "done w1", "start w2", "done w2", "start r3", "done r3", "commit"),
            *("step 2", "text Done.", "commit", "end end_turn"),
        ],
    )
    [file] = played.overlay.build_edit_set().files
    assert (file.uri, file.version, file.after) == (A, 1, "uno\ntwo\n")
    # Results come back in the order of the calls, and a reader after a writer sees what it wrote.
    read = [result for result, _ in played.results]
    assert ("one" in read[0], "three" in read[1], "uno" in read[4]) == (True, True, True)


async def test_a_tool_that_fails_tells_the_model_and_the_turn_goes_on() -> None:
    calls = [
        tool("t1", "read_file", broken=True),
        tool("t2", "no_such_tool", {"x": 1}),
        tool("t3", "read_file", {"path": A, "colour": "red"}),
        tool("t4", "edit_file", {"path": A, "old_text": "nowhere", "new_text": "x"}),
        tool("t5", "read_file", {"path": "untitled:none"}),
    ]
    played = await check_turn(
        [says(*calls), says("I see.")],
        TEXTS,
        [
            *("step 1", "start t1", "failed t1", "start t2", "failed t2", "start t3", "failed t3"),
            *("start t4", "failed t4", "start t5", "failed t5", "commit"),
            *("step 2", "text I see.", "commit", "end end_turn"),
        ],
    )
    assert all(failed and said.strip() for said, failed in played.results)
    assert not played.overlay.build_edit_set()


# Names as local models write them, and the tool that is meant. None: no tool, or more than one.
NAMES: dict[str, str | None] = {
    "read_file": "read_file",
    "Read_File": "read_file",
    "functions.read_file": "read_file",
    "functions.read_file:0": "read_file",
    "default_api:read_file": "read_file",
    "tools/read_file": "read_file",
    "read_file<|channel|>commentary": "read_file",
    "to=functions.read_file": "read_file",
    " read_file\n": "read_file",
    '"read_file"': "read_file",
    "read_file()": "read_file",
    "read": None,
    "read_files": None,
    "mcp__disk__read_file": None,
    "read_file.edit_file": None,
    "": None,
}


@pytest.mark.parametrize("name", NAMES)
async def test_a_name_with_residue_is_the_only_tool_that_it_equals(name: str) -> None:
    """In the session, too: what a file's reading proves is found by the name of the tool."""
    played = await play([says(tool("t1", name, {"path": A})), says("Done.")])
    [(text, failed)] = played.results
    assert (failed, "one" in text) == ((False, True) if NAMES[name] else (True, False))
    messages = played.session.conversation
    stored = [call.name for message in messages if message.role == "assistant" for call in message.tool_uses]
    assert stored == [NAMES[name] or name]


@pytest.mark.parametrize("mode", ["ask", "plan"])
async def test_modes_that_only_read_refuse_writers(mode: Mode) -> None:
    played = await play(
        [
            says(
                tool("t1", "read_file", {"path": A}),
                tool("t2", "edit_file", {"path": A, "old_text": "one", "new_text": "1"}),
                tool("t3", "write_file", {"path": "new.py", "content": ""}),
                tool("t4", "delete_file", {"path": A}),
            )
        ],
        mode=mode,
    )
    assert [failed for _, failed in played.results] == [False, True, True, True]
    assert not played.overlay.build_edit_set()
    # The tools that are offered stay the same bytes in every mode.
    agent = await play([])
    assert played.caller.requests[0].tools == agent.caller.requests[0].tools
    assert played.finished.stop_reason == "end_turn"


async def test_a_refusal_keeps_nothing_of_the_answer_and_runs_no_tool() -> None:
    edit = tool("w", "edit_file", {"path": A, "old_text": "one", "new_text": "1"})
    played = await check_turn(
        [says("I will", edit, stop="refusal", explanation="That is not allowed.")],
        TEXTS,
        ["step 1", "text I will", "end refusal"],
    )
    assert played.finished.text == "That is not allowed."
    assert not played.overlay.build_edit_set()
    assert played.session.conversation == (UserMessage.from_text("Do it."),)


@pytest.mark.parametrize("stop", ["max_tokens", "context_window"])
@pytest.mark.parametrize(
    ("blocks", "kept"),
    [
        ((thinking("Hm."), text("Half a"), tool("w", "edit_file", broken=True)), True),
        ((thinking("Hm."), text("Half a"), thinking("more"), redacted()), True),
        ((thinking("Hm."), tool("w", "edit_file", {"path": A, "old_text": "one", "new_text": "1"})), False),
        ((thinking("Hm."), redacted()), False),
        ((text("  "),), False),
        ((), False),
    ],
)
async def test_a_cut_answer_keeps_its_text_and_runs_no_tool(
    stop: Literal["max_tokens", "context_window"], blocks: tuple[Any, ...], kept: bool
) -> None:
    played = await play([says(*blocks, stop=stop)])
    assert played.finished.stop_reason == stop
    answers = played.session.conversation[1:]
    assert [[block.kind for block in answer.blocks] for answer in answers] == ([["thinking", "text"]] if kept else [])
    assert not any(isinstance(event, ToolStarted) for event in played.events)
    assert not played.overlay.build_edit_set()


UNKNOWN = replace(SCRIPTED, context_window=None, output_cap=None)
LOCAL = replace(UNKNOWN, context_window=8_192)
CAPPED = replace(SCRIPTED, output_cap=64_000)
RAISE = "Raise `maxTokens`"
# The model, `maxTokens`, the usage of the answer, and words of the notice; None if the window was full.
LIMITS: list[tuple[ModelInfo, int | None, Usage, str | None]] = [
    (CAPPED, 4_096, Usage(500, 4_096), RAISE),
    (CAPPED, 4_096, Usage(500, 4_090), RAISE),
    (CAPPED, 4_096, Usage(500, None), RAISE),
    (UNKNOWN, 4_096, Usage(500, 4_096), RAISE),
    (CAPPED, 64_000, Usage(500, 64_000), "m writes at most"),
    (CAPPED, 4_096, Usage(500, 700), "at its own limit"),
    (UNKNOWN, None, Usage(500, 700), "at its own limit"),
    (UNKNOWN, None, Usage(), "at its own limit"),
    (LOCAL, 4_096, Usage(6_000, 2_192), None),
    (LOCAL, 4_096, Usage(6_000, 2_150), None),
    (LOCAL, 4_096, Usage(6_000, 1_000), "at its own limit"),
    (UNKNOWN, 4_096, Usage(6_000, 2_192), "at its own limit"),
]


@pytest.mark.parametrize(("model", "limit", "usage", "said"), LIMITS)
async def test_truncated_answer_names_its_cause(
    model: ModelInfo, limit: int | None, usage: Usage, said: str | None
) -> None:
    played = await play([says("Half a", stop="max_tokens", usage=usage)], model=model, max_tokens=limit)
    assert played.finished.stop_reason == ("context_window" if said is None else "max_tokens")
    assert [said in notice for notice in played.notices] == [True] * (said is not None)
    assert (RAISE in "".join(played.notices)) is (said == RAISE)


async def test_thinking_alone_is_asked_to_go_on_once() -> None:
    played = await check_turn(
        [says(thinking("Hm.")), says("So.")],
        {},
        ["step 1", "tick", "thinking Hm.", "commit", "step 2", "text So.", "commit", "end end_turn"],
    )
    assert played.finished.text == "So."
    again = await check_turn(
        [says(thinking("Hm.")), says()],
        {},
        ["step 1", "tick", "thinking Hm.", "commit", "step 2", "commit", "notice warning", "end end_turn"],
    )
    assert again.finished.text.strip()


async def test_a_pause_is_sent_back_as_it_is() -> None:
    played = await check_turn(
        [says("Searching", stop="pause_turn"), says(", found.")],
        {},
        ["step 1", "text Searching", "commit", "step 2", "text , found.", "commit", "end end_turn"],
    )
    assert isinstance(played.caller.requests[1].conversation[-1], AssistantMessage)


PIECES = [says(thinking("I lo"), stop="pause_turn"), says(thinking("ok."), "Hello ", stop="pause_turn")]
CALLS = says("wor", tool("r", "read_file", {"path": A}))


@pytest.mark.parametrize(
    ("script", "text", "thought"),
    [
        ([*PIECES, says("wor", stop="pause_turn"), says("ld.")], "Hello world.", "I look."),
        ([*PIECES, says(thinking("More."), "world.")], "Hello world.", "I look.\n\nMore."),
        ([*PIECES, CALLS, says(thinking("So."), "Done.")], "Done.", "I look.\n\nSo."),
        ([*PIECES, CALLS, says(tool("s", "read_file", {"path": A})), says(stop="max_tokens")], "Hello wor", "I look."),
        ([*PIECES, says("wor", stop="max_tokens")], "Hello wor", "I look."),
        ([*PIECES, says(), says("Anew.")], "Anew.", "I look."),
        ([*PIECES, says(), says()], "Hello ", "I look."),
        ([*PIECES, says("No", stop="refusal", explanation="Not allowed.")], "Not allowed.", "I look."),
    ],
)
async def test_the_pieces_of_a_paused_answer_are_told_as_one(script: list[Answer], text: str, thought: str) -> None:
    played = await play(script)
    assert (played.finished.text, played.finished.thinking) == (text, thought)


async def test_a_turn_that_ends_between_the_pieces_tells_them() -> None:
    played = await play([*PIECES, says("world.")], limits=BudgetLimits(max_steps=2))
    assert (played.finished.stop_reason, played.finished.text) == ("max_steps", "Hello ")


@pytest.mark.parametrize("blocks", [(tool("r", "read_file", {"path": A}),), (), (thinking(),)])
async def test_a_pause_with_calls_or_without_anything_stays_sendable(blocks: tuple[Any, ...]) -> None:
    played = await play([says(*blocks, stop="pause_turn")])
    assert played.finished.text == "Done."
    assert len(played.results) == sum(block.kind == "tool_use" for block in blocks)


async def test_steps_are_limited() -> None:
    calls = [says(tool(f"t{number}", "read_file", {"path": A})) for number in range(20)]
    played = await play(calls, limits=BudgetLimits(max_steps=3))
    assert played.finished.stop_reason == "max_steps"
    assert len(played.caller.requests) == 3


async def test_the_first_call_is_asked_for_too_with_all_that_it_reads() -> None:
    """System prompt and tools are most of it."""
    played = await play([says("Done.")], limits=BudgetLimits(20, tokens=1_000))
    assert (played.finished.stop_reason, played.caller.requests) == ("budget", [])
    [question] = played.budget_questions
    told = re.fullmatch(r"This turn has used 0 tokens, .* about ([\d,]+) tokens; its budget is 1,000\.", question)
    assert told is not None
    assert int(told[1].replace(",", "")) > 1_500


async def test_model_error_ends_the_turn_and_keeps_its_steps() -> None:
    played = make_turn([says(tool("r", "read_file", {"path": A})), Overloaded("The service is busy.")])
    with pytest.raises(ProviderError, match="busy"):
        await played.play()
    assert played.session.steps == 1
    assert played.caller.open == 0
    played.check_next()


async def test_thinking_is_constant_within_one_tool_loop() -> None:
    calls = [says(thinking(), tool(f"t{number}", "read_file", {"path": A})) for number in range(4)]
    played = await play(calls)
    requests = played.caller.requests
    assert len({(r.thinking, r.system, r.max_tokens, r.model) for r in requests}) == 1
    assert all(r.tools == requests[0].tools for r in requests)
    for earlier, later in itertools.pairwise(requests):
        assert later.conversation[: len(earlier.conversation)] == earlier.conversation


_arguments = st.sampled_from(
    [
        ("read_file", {"path": A}),
        ("read_file", {"path": "untitled:none"}),
        ("edit_file", {"path": A, "old_text": "one", "new_text": "1"}),
        ("write_file", {"path": B, "content": "x"}),
        ("ask_user", {"question": "?", "options": ["yes", "no"]}),
        ("plan", {"entries": []}),
        ("no_such_tool", {}),
        ("read_file", None),
    ]
)
_block_kinds = st.sampled_from(["text", "empty", "thinking", "redacted", "tool", "tool", "tool"])
_stops = st.sampled_from(
    [None] * 6 + ["max_tokens", "context_window", "refusal", "pause_turn", "stop_sequence", "other"]
)


@st.composite
def scripts(draw: st.DrawFn) -> list[Answer | Exception]:
    script: list[Answer | Exception] = []
    for number in range(draw(st.integers(1, 4))):
        if draw(st.integers(0, 11)) == 0:
            script.append(Overloaded("busy"))
            continue
        blocks: list[Any] = []
        for index, kind in enumerate(draw(st.lists(_block_kinds, max_size=4))):
            match kind:
                case "text":
                    blocks.append(text("Words."))
                case "empty":
                    blocks.append(text(" "))
                case "thinking":
                    blocks.append(thinking("Hm."))
                case "redacted":
                    blocks.append(redacted())
                case _:
                    name, arguments = draw(_arguments)
                    blocks.append(tool(f"t{number}-{index}", name, arguments, broken=arguments is None))
        script.append(says(*blocks, stop=draw(_stops)))
    return script


@settings(max_examples=examples(150), deadline=None)
@given(scripts(), st.sampled_from(["agent", "ask"]))
def test_a_stored_conversation_can_always_be_sent(script: list[Answer | Exception], mode: Mode) -> None:
    """Whatever the model says: each request is checked by the model itself, the stored conversation here."""

    async def run() -> None:
        played = make_turn(script, mode=mode, limits=BudgetLimits(max_steps=5))
        try:
            await played.play()
        except Overloaded:
            pass
        else:
            assert isinstance(played.events[-1], TurnFinished)
        played.check_next()

    asyncio.run(run())


@settings(max_examples=examples(100), deadline=None)
@given(scripts(), st.integers(0, 60), st.booleans())
def test_turn_cancelled_anywhere_leaves_valid_conversation(
    script: list[Answer | Exception], moment: int, hold: bool
) -> None:
    async def run() -> None:
        played = make_turn(script, limits=BudgetLimits(max_steps=5), hold_asking=hold)
        task = asyncio.create_task(played.play())
        for _ in range(moment):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        # Nothing of it runs on: neither a stream nor a tool.
        assert played.caller.open == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}
        played.check_next()
        committed = [event for event in played.events if isinstance(event, StepCommitted)]
        assert played.session.steps == len(committed)

    asyncio.run(run())


async def test_every_await_of_a_turn_is_a_place_to_cancel() -> None:
    """The same exhaustively for one turn that has everything: as many moments as it has."""
    script = [
        says(thinking("Hm."), "Go.", tool("r1", "read_file", {"path": A}), tool("r2", "read_file", {"path": B})),
        says(
            tool("q", "ask_user", {"question": "?", "options": ["yes"]}),
            tool("w", "write_file", {"path": B, "content": ""}),
        ),
        says("Done."),
    ]
    ends: set[str] = set()
    for moment in range(200):
        played = make_turn(script)
        task = asyncio.create_task(played.play())
        for _ in range(moment):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert played.caller.open == 0
        played.check_next()
        ends.add(told(played.events)[-1] if played.events else "nothing")
        if not task.cancelled():
            break
    assert task.result().stop_reason == "end_turn"
    assert ends >= {"nothing", "step 1", "text Go.", "step 2", "start q", "step 3", "end end_turn"}


async def test_a_file_read_in_the_same_message_is_not_seen() -> None:
    """The model wrote the second call before it had the result of the first."""
    read, write = tool("r", "read_file", {"path": A}), {"path": A, "content": "mine\n"}
    played = await play(
        [says(read, tool("w", "write_file", write)), says(tool("w", "write_file", write)), says("Done.")]
    )
    assert [failed for _, failed in played.results] == [False, True, False]
    assert "in your next message" in played.results[1][0]
    assert collect_sight(played.session.conversation).knows_whole(A, "mine\n")
