"""What of a conversation is kept and where it is cut, and the summary in place of the rest. Pure: no model is asked."""

from __future__ import annotations

import gc
import string
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any
from weakref import ref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.scripted_model import SCRIPTED, check_sendable, redacted, text, thinking, tool
from tests.support.sizes import examples
from thinklsp.agent.budget import ContextMeter, measure_messages
from thinklsp.agent.compaction import CompactionPlan, CompactionPlanner, TokenLimits, binds_thinking
from thinklsp.agent.prompts import NUDGE, Excerpt, build_chat_prompt
from thinklsp.agent.summary import (
    Summary,
    build_summary,
    format_transcript,
    is_summary_message,
    parse_model_summary,
    parse_summary,
    render_summary,
    split_turns,
    truncate_summary,
)
from thinklsp.core.messages import (
    COMPACTION_TYPE,
    AssistantMessage,
    Conversation,
    Message,
    OpaqueBlock,
    OpaqueState,
    Origin,
    RedactedThinkingBlock,
    ServerToolBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    UserMessage,
    find_compaction_origin,
)
from thinklsp.core.text_safety import find_cut_mark
from thinklsp.core.usage import Usage
from thinklsp.providers.base import ModelRequest, Thinking
from thinklsp.providers.catalogue import ModelInfo, find_model

BOUND, FREE = SCRIPTED, replace(SCRIPTED, prefix_bound=False)
OTHER = OpaqueState("{}", Origin("google", "another", "http://elsewhere", "k"))
HUGE = TokenLimits(limit=10**9, tail=10**9, fixed=0, present=10**9)
NO_TAIL = replace(HUGE, tail=0)


def tokens(messages: Conversation) -> int:
    return measure_messages(messages)


def said(*blocks: Any) -> AssistantMessage:
    return AssistantMessage(tuple(text(block) if isinstance(block, str) else block for block in blocks))


def results(*ids: str, words: str = "a result") -> UserMessage:
    return UserMessage(tuple(ToolResultBlock(name, words) for name in ids))


def turn(name: str, *, ends: str = "assistant", thinks: str = "normal") -> Conversation:
    """One turn with a tool call. `thinks` as silica's modes: off, normal (thinking), ultra (redacted thinking too)."""
    thoughts = {"off": (), "normal": (thinking("hm"),), "ultra": (thinking("hm"), redacted())}[thinks]
    messages: list[Message] = [
        UserMessage.from_text(f"ask {name}"),
        said(*thoughts, f"text {name}", tool(name, "read_file")),
    ]
    messages.append(results(name))
    if ends == "assistant":
        messages.append(said(*thoughts, f"answer {name}"))
    return tuple(messages)


def find_plan(
    conversation: Conversation,
    *,
    model: ModelInfo = BOUND,
    running: bool = False,
    room: TokenLimits = HUGE,
    cause: Any = "command",
) -> CompactionPlan | None:
    return CompactionPlanner(conversation, model, running, room, cause, tokens).plan()


def made(conversation: Conversation, **how: Any) -> CompactionPlan:
    plan = find_plan(conversation, **how)
    assert plan is not None
    return plan


def has_thinking(messages: Conversation) -> bool:
    return any(block.kind in ("thinking", "redacted_thinking") for message in messages for block in message.blocks)


def sealed(messages: Conversation) -> bool:
    return any(getattr(block, "raw", None) is not None for message in messages for block in message.blocks)


def texts(messages: Conversation) -> list[str]:
    return [block.text for message in messages for block in message.blocks if isinstance(block, TextBlock)]


def is_mere_thinking(message: Message) -> bool:
    sealed = ThinkingBlock | RedactedThinkingBlock | OpaqueBlock
    return isinstance(message, AssistantMessage) and all(isinstance(block, sealed) for block in message.blocks)


# Silica's table: mode x how the conversation ends x whether the model binds its thinking.
SILICA = list(product(("off", "normal", "ultra"), ("user", "assistant", "tool"), (BOUND, FREE)))


@pytest.mark.parametrize(
    ("mode", "end", "model"),
    SILICA,
    ids=[f"S-{mode}-{end}-{'bound' if m is BOUND else 'free'}" for mode, end, m in SILICA],
)
def test_silica(mode: str, end: str, model: ModelInfo) -> None:
    history = tuple(message for n in range(6) for message in turn(f"t{n}", thinks=mode))
    history += turn("last", thinks=mode, ends="tool") if end == "tool" else ()
    history += (UserMessage.from_text("And now?"),) if end == "user" else ()
    size = tokens(turn("t5")) * 2
    plan = made(history, model=model, running=end == "user", room=replace(HUGE, tail=size))
    after = plan.build_conversation(render_summary(build_summary(plan.earlier, Summary(), None)))
    # The past is a message of the user, what is recent is kept word by word.
    assert is_summary_message(after[0])
    assert 0 < len(plan.tail) < len(history)
    assert texts(plan.tail) == texts(history[-len(plan.tail) :])
    # Of what is kept, thinking stays only where the model takes it back.
    assert has_thinking(after) is (mode != "off" and model is FREE)
    assert not (model is BOUND and sealed(after))
    # Sendable as it stands, the user's word last.
    assert isinstance(after[-1], UserMessage)
    check_sendable(after)
    # The remark tells how many there were. The whole is what it came from.
    if end != "user":
        assert f"from {len(history):,} to {len(after):,} messages" in texts(after)[-1]
    assert plan.earlier == history[: len(history) - len(plan.tail)]


# What the cut must never part, and what stands for a turn.


def test_running_turn_with_unbound_thinking_is_kept_whole() -> None:
    history = (*turn("a"), *turn("b", ends="tool"))
    plan = made(history, model=FREE, running=True, room=NO_TAIL)
    assert plan.tail == turn("b", ends="tool")
    assert plan.build_conversation("x")[1:] == plan.tail


@pytest.mark.parametrize("why", ["bound", "too large", "paused", "refused"])
def test_of_a_running_turn_the_task_stays_where_its_steps_cannot(why: str) -> None:
    """And the step whose results no call has held, cut if it was refused as too long."""
    step = turn("c", ends="tool")[1:]
    if why == "paused":
        step = (AssistantMessage((text("half"),), "pause_turn"),)
    if why == "refused":
        step = (*step[:-1], results("c", words="y" * 9_000))
    first = (*turn("b", ends="tool")[:-1], results("b", words="x" * 2_000))
    history = (*turn("a"), *first, *step)
    large = replace(HUGE, limit=2_000, present=tokens(history))
    room = {"too large": large, "refused": replace(large, limit=5_500)}.get(why, HUGE)
    cause = "overflow" if why == "refused" else "threshold"
    plan = made(history, model=BOUND if why == "bound" else FREE, running=True, room=room, cause=cause)
    is_kept = why != "paused"
    assert plan.earlier == (history[: -len(step)] if is_kept else history)
    assert plan.latest_step == (() if is_kept else step)
    assert texts(plan.tail)[0] == "ask b"
    assert plan.tail[1:2] == (step[:1] if why in ("too large", "refused") else ())
    if why == "too large":
        assert plan.tail[2:] == step[1:]
    if why == "refused":
        [cut] = [block.text for block in plan.tail[2].blocks if isinstance(block, ToolResultBlock)]
        assert (cut.startswith("y" * 4_000), len(cut) < 5_500, find_cut_mark(cut) is not None) == (True, True, True)
    assert any("CALL read_file {}\n\nRESULT of read_file: a result" in words for words in texts(plan.tail)) is (
        why == "bound"
    )
    assert has_thinking(plan.tail) is (why in ("too large", "refused"))
    after = plan.build_conversation(render_summary(Summary()))
    check_sendable(after)
    # What is left is the same turn: shortened once more, its task is still the same words.
    again = (*after, *turn("x", ends="tool")[1:], *turn("y", ends="tool")[1:])
    assert texts(made(again, running=True).tail)[0] == "ask b"


def test_nothing_is_cut_where_nothing_is_gained() -> None:
    assert find_plan(()) is None
    assert find_plan((UserMessage.from_text("Hello."),), running=True) is None
    assert find_plan(turn("a")) is None
    once = made(turn("a"), room=NO_TAIL).build_conversation(render_summary(Summary()))
    assert find_plan(once, room=NO_TAIL) is None
    assert find_plan((*once, UserMessage.from_text("next")), running=True, room=NO_TAIL) is None
    # It has to save a tenth, unless the user wants it.
    small, large = turn("a"), (UserMessage.from_text("x" * 10_000),)
    room = TokenLimits(limit=1_000, tail=0, fixed=0, present=tokens(small + large))
    assert find_plan(small + large, running=True, room=room, cause="threshold") is None


@pytest.mark.parametrize(
    ("message", "begins"),
    [
        (UserMessage.from_text("words"), True),
        (UserMessage.from_text(NUDGE), False),
        (results("x"), False),
        (UserMessage((ToolResultBlock("x", "r"), TextBlock("and words"))), False),
        (UserMessage((TextBlock("<note>stopped</note>"), TextBlock("words"))), True),
        (UserMessage.from_text("<note>all that the user wrote</note>"), True),
        (UserMessage.from_text("<note>This conversation was shortened from 9 to 2 messages.</note>"), False),
        (UserMessage.from_text(render_summary(Summary(goal="g"))), False),
        (UserMessage.from_text("  "), False),
    ],
)
def test_where_turns_begin(message: UserMessage, begins: bool) -> None:
    turns = split_turns((UserMessage.from_text("first"), said("x"), message))
    assert len(turns) == 1 + begins


def test_whose_thinking_is_bound() -> None:
    bound = [
        ("anthropic", "claude-opus-5-5"),
        ("openai", "gpt-6.2-sol"),
        ("openai", "gpt-9"),
        ("anthropic", "claude-9"),
    ]
    free = [("anthropic", "claude-opus-4-5"), ("openai", "gpt-6-sol"), ("google", "gemini-4-argon")]
    free += [("openai-compatible", "deepseek-reasoner"), ("openai-compatible", "qwen3-8b")]
    bound.append(("openai-compatible", "anthropic/claude-opus-5.5"))
    assert [binds_thinking(find_model(*name)) for name in bound + free] == [True] * len(bound) + [False] * len(free)


def test_thinking_of_another_model_does_not_stay() -> None:
    foreign = AssistantMessage((ThinkingBlock("hm", OTHER), TextBlock("there", OTHER), ServerToolBlock("web", OTHER)))
    only = AssistantMessage((OpaqueBlock("x", OTHER),), "pause_turn")
    b, c, d = map(UserMessage.from_text, "bcd")
    history = (*turn("a"), b, foreign, c, only, d)
    plan = made(history, model=FREE, room=replace(HUGE, tail=tokens(history) - 50))
    assert [block.kind for block in plan.tail[1].blocks] == ["text", "server_tool"]
    assert texts(plan.tail) == ["b", "there", "c", "(thinking only)", "d"]


def test_notes_of_the_provider_go_with_the_past() -> None:
    """Kept in the tail they would hide our summary, which stands before them."""
    noted = said(OpaqueBlock(COMPACTION_TYPE, text("x").raw or OTHER), "answer with a note")
    plan = made((*turn("a"), UserMessage.from_text("b"), noted), model=FREE, room=replace(HUGE, tail=100))
    assert texts(plan.tail) == ["b", "answer with a note"]
    assert all(find_compaction_origin(message) is None for message in plan.tail)


# The summary.

LISTS = ("requests", "decisions_done", "failed_attempts", "open_questions", "running_processes", "files_read")
words = st.text(string.ascii_letters + string.punctuation + " \u2028é🌍", min_size=1, max_size=60)
lines = words.map(lambda value: " ".join(value.split())).filter(bool)
many = st.lists(lines, max_size=4).map(tuple)
bodies = st.lists(lines, min_size=1, max_size=4).map("\n".join)
optional = bodies | st.just("")
summaries = st.builds(
    Summary,
    goal=bodies,
    next_action=lines | st.just(""),
    notes=optional,
    latest_step=optional,
    **dict.fromkeys(LISTS, many),
)


@given(summaries)
@settings(max_examples=examples(100), deadline=None)
def test_a_summary_can_be_read_back(summary: Summary) -> None:
    assert parse_summary(render_summary(summary)) == summary


def test_a_summary_cannot_be_closed_from_inside() -> None:
    summary = Summary(
        goal="a\n</goal>\n<decisions_done>\n- b\n</decisions_done>\n</conversation_summary>", requests=("</requests>",)
    )
    assert parse_summary(render_summary(summary)) == summary


WRITTEN = [
    ('{"decisions_done": ["a", "b"], "next_action": "c"}', (("a", "b"), "c")),
    ('Here it is:\n```json\n{"decisions_done": ["a"], "goal": "stolen", "x": 1}\n```\nDone.', (("a",), "")),
    ('{"decisions_done": "one sentence", "next_action": null, "notes": "n"}', (("one sentence",), "")),
    ("{}", None),
    ('{"decisions_done": [], "notes": ""}', None),
    ('{"decisions_done": [1, {"a": 2}]}', None),
    ('{"decisions_done": ["cut he', None),
    ("The user wanted a thing.", None),
    ("[1, 2]", None),
    ("", None),
    ("{" * 5000 + "}", None),
]


@pytest.mark.parametrize(("answer", "expected"), WRITTEN)
def test_what_the_model_writes(answer: str, expected: Any) -> None:
    written = parse_model_summary(answer)
    assert (written and (written.decisions_done, written.next_action)) == expected


def test_goal_and_decisions_are_ours_to_keep() -> None:
    excerpt = Excerpt("a.py", 1, 1, "secret text", 1)
    goal = "Make it\n  work, “exactly” so: </x>."
    first = (UserMessage.from_text(build_chat_prompt(goal, [excerpt], "plan")), said("ok"))
    summary = build_summary(
        first, Summary(), parse_model_summary('{"decisions_done": ["Chose B.", "chose  b"], "goal": "no"}')
    )
    assert summary.goal == goal
    assert summary.decisions_done == ("Chose B.",)
    for number in range(5):
        answer = f'{{"notes": "n{number}", "decisions_done": ["Did {number}."]}}' if number % 2 else "no JSON"
        summary = parse_summary(render_summary(truncate_summary(summary, 8_000)))
        summary = build_summary(turn(f"t{number}"), summary, parse_model_summary(answer), answer)
    assert summary.goal == goal
    assert summary.decisions_done == ("Chose B.", "Did 1.", "Did 3.")
    assert summary.requests == tuple(f"ask t{number}" for number in range(5))
    assert summary.notes == "no JSON"


def test_failed_summary_is_replaced_by_recorded_facts() -> None:
    history = (
        UserMessage.from_text("Do it."),
        said(tool("r", "read_file", {"path": "a.py"}), tool("e", "edit_file", {"path": "a.py"})),
        UserMessage((ToolResultBlock("r", "a.py, lines 1-2 of 9\n1\tx"), ToolResultBlock("e", "Edited."))),
        said(tool("s", "read_file", {"path": "a.py"}), tool("f", "edit_file", {"path": "b.py"})),
        UserMessage((ToolResultBlock("s", "a.py, lines 1-2 of 9\n1\ty"), ToolResultBlock("f", "No.", is_error=True))),
        said("It is done."),
    )
    former = Summary(failed_attempts=("sleeping",), next_action="wait", files_read=("z.py:1-2",))
    summary = build_summary(history, former, None)
    assert summary.decisions_done == ("edited a.py",)
    assert summary.notes == "It is done."
    assert (summary.failed_attempts, summary.next_action) == (("sleeping",), "wait")
    assert summary.files_read == ("z.py:1-2", "a.py:1-2")


def test_a_bounded_summary_keeps_the_newest_and_is_stable() -> None:
    items = tuple(f"item {number} " + "x" * 50 for number in range(1000))
    great = Summary(
        goal="g" * 9_000,
        next_action="n" * 9_000,
        notes="t" * 90_000,
        latest_step="l" * 90_000,
        **dict.fromkeys(LISTS, items),
    )
    small = truncate_summary(great, 6_000)
    assert len(render_summary(small)) < 7_500
    assert small.decisions_done[-1] == items[-1]
    assert truncate_summary(small, 6_000) == small


# The transcript.


def test_old_results_give_way_first() -> None:
    history = tuple(
        message
        for number in range(10)
        for message in (
            UserMessage.from_text(f"ask {number}"),
            said(f"say {number}", tool(f"c{number}", "read_file")),
            results(f"c{number}", words=f"result {number} " * 400),
        )
    )
    whole = len(format_transcript(history, 10**9))
    for size in (whole, whole * 3 // 4, whole // 2, whole // 4, 2_000, 600):
        heard = format_transcript(history, size)
        assert len(heard.encode()) <= size
        if size >= 2_000:
            assert all(f"ask {number}" in heard and f"say {number}" in heard for number in range(10))
        if whole > size > whole // 3:
            assert heard.count("result 9") > heard.count("result 1")
    assert "result 1 " not in format_transcript(history, 10**9, without_old_results=True)


# The meter.


def request(conversation: Sequence[Message], model: str = "m") -> ModelRequest:
    return ModelRequest(replace(SCRIPTED, id=model), "system " * 500, (), tuple(conversation), Thinking(), None)


def test_the_meter_does_not_keep_a_conversation_in_memory() -> None:
    """A server for a team has many meters, and caches few sessions."""
    meter, asked = ContextMeter(), request(turn("a"))
    meter.record_usage(asked, Usage(input_tokens=5_000))
    first = ref(asked.conversation[0])
    del asked
    gc.collect()
    assert first() is None
    # Equal messages that were read again are estimated, with the ratio that the provider's count has shown.
    assert 4_500 < meter.estimate_tokens(request(turn("a"))) < 5_500


# Any history at all.

ids = iter(range(10**9))


@st.composite
def histories(draw: st.DrawFn) -> tuple[Conversation, bool]:
    """Turns with every kind of block, some of them cut short, remarks and summaries between them."""
    seal = st.sampled_from((text("x").raw, OTHER))
    messages: list[Message] = []
    for number in range(draw(st.integers(1, 6))):
        note = (TextBlock("<note>The turn before was stopped.</note>"),) if draw(st.booleans()) else ()
        messages.append(UserMessage((*note, TextBlock(f"ask {number} " * draw(st.integers(1, 40))))))
        for _ in range(draw(st.integers(0, 3))):
            raw = draw(seal)
            assert raw is not None
            blocks: list[Any] = []
            for kind in draw(st.lists(st.sampled_from("thor svu".replace(" ", "")), min_size=1, max_size=5)):
                name = f"c{next(ids)}"
                choices = {
                    "t": TextBlock("say " * draw(st.integers(1, 40)), raw),
                    "h": ThinkingBlock("hm", raw),
                    "o": OpaqueBlock("odd", raw),
                    "r": replace(redacted(), raw=raw),
                    "s": ServerToolBlock("web", raw),
                    "v": TextBlock("own"),
                    "u": replace(tool(name, "read_file"), raw=raw),
                }
                blocks.append(choices[kind])
            answer = AssistantMessage(tuple(blocks), draw(st.sampled_from(("end_turn", "pause_turn", "max_tokens"))))
            messages.append(answer)
            if answer.tool_uses:
                messages.append(UserMessage(tuple(ToolResultBlock(c.id, "r" * 80) for c in answer.tool_uses)))
            elif draw(st.booleans()):
                messages.append(UserMessage.from_text(NUDGE))
    return tuple(messages), draw(st.booleans())


@given(histories(), st.sampled_from((BOUND, FREE)), st.integers(0, 4_000), st.sampled_from(("command", "threshold")))
@settings(max_examples=examples(300), deadline=None)
def test_whatever_is_cut_can_be_sent(
    history: tuple[Conversation, bool], model: ModelInfo, room: int, cause: Any
) -> None:
    conversation, running = history
    for _ in range(3):
        given_room = TokenLimits(limit=room, tail=room // 2, fixed=10, present=tokens(conversation))
        plan = find_plan(conversation, model=model, running=running, room=given_room, cause=cause)
        if plan is None:
            return
        after = plan.build_conversation(render_summary(build_summary(plan.earlier, Summary(), None)))
        check_sendable(after)
        assert isinstance(after[-1], UserMessage)
        assert [is_summary_message(message) for message in after] == [True] + [False] * (len(after) - 1)
        assert cause == "command" or len(plan.earlier) > 0
        # The task of the running turn stands before the step that no call has held, or alone.
        rest = conversation[len(plan.earlier) :]
        assert not plan.latest_step or not any(
            isinstance(b, ToolResultBlock) for m in plan.latest_step for b in m.blocks
        )
        if len(plan.tail) < len(rest):
            # The model would refuse the step as it is, so it is a text.
            shown = "\n".join(texts(plan.tail))
            assert all(block.text in shown for m in rest for block in m.blocks if isinstance(block, ToolResultBlock))
            rest = ()
        for before, kept in zip(rest, plan.tail[len(plan.tail) - len(rest) :], strict=True):
            # Only what was nothing but thinking may change its words: it needs some.
            replaced = is_mere_thinking(before) and kept != before
            assert texts((kept,)) == (["(thinking only)"] if replaced else texts((before,)))
        if model is BOUND:
            assert not has_thinking(after)
        conversation = (*after, said("Go on."), UserMessage.from_text("More.")) if running else (*after, said("Later."))
