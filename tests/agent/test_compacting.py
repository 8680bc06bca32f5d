"""Compaction while a turn runs, and by command, against a model that plays a script: what is asked, told and kept.

`F-n` are rows of the table of thinking, tool loops and compaction that other assistants broke on.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.support.scripted_model import (
    SCRIPTED,
    SEALED,
    Answer,
    ScriptedModel,
    check_sendable,
    metered,
    redacted,
    says,
    thinking,
    tool,
)
from tests.support.scripted_turn import ScriptedTurn
from thinklsp.agent.budget import BudgetLimits, CompactionRules, ContextMeter, TurnConfig, UsageLedger
from thinklsp.agent.compaction import compact_now
from thinklsp.agent.model_call import CallEvent
from thinklsp.agent.summary import is_summary_message
from thinklsp.core.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextWindowExceeded,
    Overloaded,
    ProviderError,
    TurnRefused,
)
from thinklsp.core.events import (
    CompactionStarted,
    ContextCompacted,
    RetryScheduled,
    StepCommitted,
    StepStarted,
    TextStreamed,
    TurnFinished,
)
from thinklsp.core.messages import (
    COMPACTION_TYPE,
    Conversation,
    OpaqueBlock,
    TextBlock,
    ToolResultBlock,
    UserMessage,
    collect_sight,
    describe_text,
)
from thinklsp.core.usage import Usage
from thinklsp.providers.base import ModelRequest, Thinking
from thinklsp.providers.catalogue import find_model
from thinklsp.sessions.session import Session

A = "untitled:a.py"
WINDOW = 20_000
SMALL = replace(SCRIPTED, context_window=WINDOW, prefix_bound=False)
BOUND = replace(SMALL, prefix_bound=True)
SUMMARY = '{"decisions_done": ["Chose the second way."], "next_action": "Write the test."}'
FULL = Usage(input_tokens=14_000, output_tokens=1_500)
TOO_LONG = ContextWindowExceeded("The conversation is too long for the model.")


class Model(ScriptedModel):
    """A scripted model with a script of its own for summaries, which it knows by their having no tools."""

    def __init__(self, script: Iterable[Answer | Exception], summaries: Sequence[Answer | Exception]) -> None:
        super().__init__(script)
        self.summariser = ScriptedModel(summaries)
        self.hold = False
        self.first_words = ""
        self.held = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[CallEvent, None]:
        if not request.tools and self.hold:
            self.held.set()
            await asyncio.get_running_loop().create_future()
        if request.tools and self.first_words:
            yield TextStreamed(self.first_words)
            self.first_words = ""
        source = super() if request.tools else self.summariser
        async with aclosing(source.stream(request)) as events:
            async for event in events:
                yield event


def long_session(turns: int = 6, size: int = 8_000) -> Session:
    """Finished turns of about `size` bytes each, with thinking and a call."""
    session = Session("s", "w")
    for number in range(turns):
        session = session.add_user_message(f"ask {number}: " + "please " * (size // 14))
        call = says(thinking("hm"), tool(f"c{number}", "read_file", {"path": A}), redacted())
        results = UserMessage((ToolResultBlock(f"c{number}", "line\n" * (size // 10)),))
        session = session.add_step(call.message, results, Usage())
        session = session.add_step(says(thinking("so"), f"answer {number}").message, None, Usage())
    return session


@dataclass
class Run(ScriptedTurn):
    """A turn after a long session."""

    summaries: Sequence[Answer | Exception] = (says(SUMMARY),)
    session: Session = field(default_factory=long_session, kw_only=True)
    model: Any = field(default=SMALL, kw_only=True)
    thinking: Thinking = field(default_factory=lambda: Thinking("adaptive", effort="high"), kw_only=True)
    prompt: str = field(default="And now this.", kw_only=True)
    document: str = field(default="one\ntwo\n", kw_only=True)
    hold: bool = field(default=False, kw_only=True)
    budget: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self.documents = {A: self.document}
        self.caller = Model(self.script, self.summaries)
        self.caller.hold = self.hold
        self.limits = BudgetLimits(12, tokens=self.budget)
        super().__post_init__()

    async def play(self) -> TurnFinished:
        finished = await super().play()
        self.check_next()
        return finished

    @property
    def compactions(self) -> list[ContextCompacted]:
        return [event for event in self.events if isinstance(event, ContextCompacted)]

    def order(self) -> list[str]:
        kinds = (StepStarted, CompactionStarted, ContextCompacted, TurnFinished, StepCommitted)
        return [type(event).__name__ for event in self.events if isinstance(event, kinds)]


async def play(
    script: Sequence[Answer | Exception] = (),
    summaries: Sequence[Answer | Exception] = (says(SUMMARY),),
    *,
    stop: str = "end_turn",
    **how: Any,
) -> Run:
    """Play a turn that ends for this reason."""
    run = Run(script, summaries, **how)
    assert (await run.play()).stop_reason == stop
    return run


def text_of(conversation: Conversation) -> str:
    blocks = (block for message in conversation for block in message.blocks)
    return "\n".join(block.text for block in blocks if isinstance(block, TextBlock))


async def test_full_window_is_compacted_before_the_call() -> None:
    run = Run([says("Done.", usage=FULL)], [says(SUMMARY, usage=Usage(6_000, 200, cost_usd=0.5))])
    finished = await run.play()
    assert finished.stop_reason == "end_turn"
    assert run.order() == ["CompactionStarted", "ContextCompacted", "StepStarted", "StepCommitted", "TurnFinished"]
    [event] = run.compactions
    assert event.before == (*long_session().conversation, UserMessage.from_text(run.prompt))
    assert event.tokens_before > 0.75 * WINDOW > event.tokens_after
    assert f"from {len(event.before)} to {len(event.after)} messages" in event.text
    # The tail is what it was, thinking included, and the prompt is the last word.
    assert event.after[1:] == event.before[len(event.before) - len(event.after) + 1 :]
    assert event.after[-1] == UserMessage.from_text(run.prompt)
    assert is_summary_message(event.after[0])
    for words in ("ask 0: please", "Chose the second way.", "Write the test."):
        assert words in text_of(event.after[:1])
    assert run.caller.requests[0].conversation == event.after
    # The summary's call counts, but not as the answer.
    assert finished.usage == Usage(20_000, 1_700, cost_usd=0.5) == run.session.usage
    assert run.usage.spending.usd == 0.5
    assert not any(isinstance(event, TextStreamed) and "Chose" in event.delta for event in run.events)


async def test_a_summary_is_asked_for_like_any_other_call() -> None:
    """Under a budget that the summary's call would pass; stopped there, nothing has been sent and nothing changed."""
    run = Run(budget=1_000)
    before = run.session
    finished = await run.play()
    assert (finished.stop_reason, finished.usage) == ("budget", Usage())
    assert run.order() == ["CompactionStarted", "TurnFinished"]
    assert (run.caller.requests, run.caller.summariser.requests) == ([], [])
    assert "the input of its next model call is about" in run.budget_questions[0]
    assert run.session == before
    assert run.meter.failures == 0
    # Let go on, the summary counts: the call behind it is asked for with what was used.
    again = await play(
        budget=1_000, choices=["continue", "stop"], summaries=[says(SUMMARY, usage=Usage(6_000, 200))], stop="budget"
    )
    assert again.order() == ["CompactionStarted", "ContextCompacted", "StepStarted", "TurnFinished"]
    assert again.budget_questions[1].startswith("This turn has used 6,200 tokens")
    raised = await play(budget=1_000, choices=["raise"])
    assert len(raised.budget_questions) == 1


async def test_f15_summary_request_has_no_thinking_and_no_tools() -> None:
    run = await play()
    [asked] = run.caller.summariser.requests
    assert asked.tools == ()
    assert len(asked.conversation) == 1
    assert (asked.thinking.form, asked.thinking.effort) == ("adaptive", "low")
    assert [block.kind for block in asked.conversation[0].blocks] == ["text"]
    heard = text_of(asked.conversation)
    assert "ASSISTANT: answer 0" in heard
    assert "hm" not in heard.split()
    [event] = run.compactions
    assert event.after[1].blocks[0] in [message.blocks[0] for message in event.before if message.role == "user"]
    assert text_of((event.after[1],)).startswith("ask ")


@pytest.mark.parametrize(
    ("name", "form", "effort"),
    [("claude-opus-4-5", "off", None), ("claude-haiku-5-5", "off", "low"), ("claude-opus-5-5", "adaptive", "low")],
)
async def test_summary_uses_the_least_thinking_possible(name: str, form: str, effort: str) -> None:
    model = replace(find_model("anthropic", name), context_window=WINDOW, provider="scripted", id="m")
    run = await play(model=model)
    [asked] = run.caller.summariser.requests
    assert asked.thinking.form == form
    assert asked.thinking.effort in (effort, "low")
    assert asked.max_tokens == WINDOW // 4


async def test_f6_f13_compaction_keeps_opaque_state_in_use() -> None:
    """Thinking and tools together survive; of old signed blocks only those of the tail are replayed."""
    run = await play([says(thinking("new"), tool("r", "read_file", {"path": A})), says("Done.")])
    first, second = (request.conversation for request in run.caller.requests)
    count = sum(block.kind == "thinking" for message in first for block in message.blocks)
    assert 0 < count < 12
    assert second[: len(first)] == first
    assert "thinking" in [block.kind for block in second[len(first)].blocks]


async def test_models_that_bind_thinking_get_none_back_at_all() -> None:
    run = await play([says(thinking("new"), tool("r", "read_file", {"path": A})), says("Done.")], model=BOUND)
    [event] = run.compactions
    assert len(event.after) > 2
    assert all(getattr(block, "raw", None) is None for message in event.after for block in message.blocks)
    # What was thought is lost with what it was bound to.
    thoughtful = [m for m in event.before if any(block.kind == "thinking" for block in m.blocks)]
    assert f" Thinking from {len(thoughtful)} answers is no longer sent." in event.text
    # Thinking is still on.
    assert {request.thinking.form for request in run.caller.requests} == {"adaptive"}


async def test_f16_cancel_during_summary_keeps_the_history() -> None:
    run = Run(hold=True)
    before = run.session
    task = asyncio.create_task(run.play())
    await run.caller.held.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert run.order() == ["CompactionStarted"]
    assert run.session == before
    assert run.meter.failures == 0
    check_sendable(run.session.cut_short().add_user_message("Again.").conversation)


async def test_turn_larger_than_window_is_compacted_and_continues() -> None:
    """Its task stands word by word, its edits stay, and it may happen again."""
    step = [says(f"step {n}", tool(f"r{n}", "read_file", {"path": A, "start_line": n + 1})) for n in range(1, 4)]
    edit = says(tool("e", "edit_file", {"path": A, "old_text": "one\n", "new_text": "1\n"}))
    run = Run(
        [edit, *step, says("All done.")],
        [says(SUMMARY)] * 9,
        session=Session("s", "w"),
        prompt="Do “this” exactly.",
        document="one\n" + "a line of text\n" * 3_000,
    )
    finished = await run.play()
    assert (finished.stop_reason, finished.text) == ("end_turn", "All done.")
    assert len(run.compactions) == 2
    for number, event in enumerate(run.compactions, 2):
        assert is_summary_message(event.after[0])
        # The step whose results no call has held stays as it is.
        assert event.after[2:] == event.before[-2:]
        assert text_of(event.after[2:]) == f"step {number}"
        last = event.after[1].blocks
        assert [getattr(block, "text", "")[:18] for block in last] == ["Do “this” exactly.", "<note>Your steps s"]
        assert "Chose the second way." in text_of(event.after)
    assert run.overlay.read(run.overlay.view.resolve(A)).text.startswith("1\n")  # type: ignore[union-attr]  # It is there.


async def test_a_prompt_larger_than_the_window_ends_the_turn() -> None:
    run = await play([TOO_LONG] * 3, session=Session("s", "w"), prompt="word " * 30_000, stop="context_window")
    assert run.compactions == []
    assert run.notices == [str(TOO_LONG)]


async def test_overflow_after_first_text_discards_that_text() -> None:
    """The `usage` of the compaction must not make them part of a completed step."""
    run = Run([TOO_LONG, says("Done.")], model=replace(SMALL, context_window=None))
    run.caller.first_words = "Do"
    assert (await run.play()).stop_reason == "end_turn"
    shown = [event for event in run.events if not isinstance(event, StepStarted)]
    assert shown[:3] == [TextStreamed("Do"), RetryScheduled(0.0, str(TOO_LONG), restart=True), CompactionStarted()]
    assert isinstance(shown[3], ContextCompacted)
    assert shown[4] == TextStreamed("Done.")


async def test_reported_overflow_causes_one_compaction_and_retry() -> None:
    unknown = replace(SMALL, context_window=None)
    run = await play([TOO_LONG, says("Done.")], model=unknown)
    assert run.order() == ["StepStarted", "CompactionStarted", "ContextCompacted", "StepCommitted", "TurnFinished"]
    [asked] = run.caller.summariser.requests
    # The oldest bulky output does not go into the summary's input.
    assert "RESULT of read_file: [4,000 characters left out]" in text_of(asked.conversation)
    twice = await play([TOO_LONG, TOO_LONG, says("Never.")], model=unknown, stop="context_window")
    assert len(twice.compactions) == 1
    assert len(twice.caller.requests) == 2


async def test_overflow_with_provider_down_keeps_the_session() -> None:
    run = await play([TOO_LONG, says("Done.")], [Overloaded("Busy.")], model=replace(SMALL, context_window=None))
    [event] = run.compactions
    assert "answer 3" in text_of(event.after[:1])


async def test_a_summary_call_that_is_too_long_itself_is_halved() -> None:
    run = await play(summaries=[TOO_LONG, TOO_LONG, says(SUMMARY)])
    sizes = [len(text_of(request.conversation)) for request in run.caller.summariser.requests]
    assert sizes[0] > sizes[1] > sizes[2]
    assert "Chose the second way." in text_of(run.compactions[0].after)
    never = await play(summaries=[TOO_LONG] * 9)
    assert "The model wrote no summary" in never.compactions[0].text


async def test_rejected_summary_request_is_sent_without_extras() -> None:
    run = await play(summaries=[BadRequest("unknown variant"), says(SUMMARY)])
    assert [request.thinking for request in run.caller.summariser.requests][1] == Thinking()
    assert len(run.compactions) == 1
    never = await play(summaries=[BadRequest("unknown variant")] * 9)
    assert len(never.caller.summariser.requests) == 2


USELESS = {
    "refused": says("I can't help with that.", stop="refusal"),
    "empty": says(),
    "blank": says(" \n"),
    "thinking only": says(thinking("hm")),
    "a call": says(tool("x", "read_file")),
}


@pytest.mark.parametrize("answer", USELESS.values(), ids=USELESS.keys())
async def test_without_a_summary_the_program_writes_one(answer: Answer) -> None:
    run = await play(summaries=[answer])
    [event] = run.compactions
    assert "The model wrote no summary" in event.text
    kept = text_of(event.after[:1])
    assert "ask 0: please" in kept
    assert "answer 2" in kept
    assert "can't help" not in kept


async def test_three_failures_in_a_row_and_none_is_tried_by_itself() -> None:
    meter = ContextMeter()
    asked = 0
    for number in range(5):
        run = Run([says("Fine.")], [Overloaded("Busy.")], meter=meter)
        assert (await run.play()).stop_reason == "end_turn"
        asked += len(run.caller.summariser.requests)
        told = " ".join(run.notices)
        assert ("Compaction failed: Busy." in told) is (number < 3)
        assert ("automatic compaction is off" in told) is (number == 2)
    assert asked == 3
    overflow = await play([TOO_LONG], meter=meter, stop="context_window")
    assert overflow.compactions == []
    # The user's word counts, and begins anew.
    await by_command(overflow.session.cut_short().conversation, meter=meter)
    assert not meter.has_given_up
    again = await play(meter=meter)
    assert len(again.compactions) == 1


async def test_it_can_be_switched_off() -> None:
    run = await play([TOO_LONG], rules=CompactionRules(auto=False), stop="context_window")
    assert run.caller.summariser.requests == []


@pytest.mark.parametrize("threshold", [0.3, 0.95])
async def test_the_threshold_is_the_users(threshold: float) -> None:
    run = await play(rules=CompactionRules(threshold=threshold), session=long_session(4))
    assert len(run.compactions) == (threshold == 0.3)


async def test_the_input_limit_of_a_model_counts_if_it_is_shorter() -> None:
    model = replace(SMALL, context_window=10 * WINDOW)
    assert (await play(model=model)).compactions == []
    assert len((await play(model=replace(model, input_limit=WINDOW))).compactions) == 1
    by_service = await play(model=replace(model, input_limit=WINDOW, compacts=True), rules=BY_SERVICE)
    assert [request.compact_at for request in by_service.caller.requests] == [round(0.75 * WINDOW)]


async def test_thinking_goes_on_or_is_switched_off_as_the_user_wants() -> None:
    model = replace(SMALL, off="off", effort_when_off=False)
    calls = [says(tool("r", "read_file", {"path": A})), says("Done.")]
    keep = await play(calls, model=model)
    assert {request.thinking for request in keep.caller.requests} == {Thinking("adaptive", effort="high")}
    assert not keep.compactions[0].thinking_off
    off = await play(calls, model=model, rules=CompactionRules(thinking_after="off"))
    assert {request.thinking.form for request in off.caller.requests} == {"off"}
    assert off.compactions[0].thinking_off
    assert "Thinking is now off" in off.compactions[0].text


async def by_command(conversation: Conversation, *, model: Any = SMALL, **how: Any) -> list[Any]:
    config = TurnConfig(model, "system", Thinking("adaptive"), 1000, BudgetLimits(5, tokens=how.pop("budget", None)))
    caller = how.pop("caller", None) or Model([], [says(SUMMARY)])

    async def ask(*_: Any) -> Any:
        return "stop"

    events: list[Any] = []

    async def take(event: Any) -> None:
        events.append(event)

    caller = metered(caller, config, ask, meter=how.pop("meter", None), usage=how.pop("usage", None))
    await compact_now(conversation, config, caller=caller, emit=take, **how)
    return events


async def test_by_command() -> None:
    conversation = long_session().conversation
    caller = Model([], [says(SUMMARY)])
    events = await by_command(conversation, caller=caller, instructions="Keep the file names.")
    assert [type(event) for event in events] == [CompactionStarted, ContextCompacted]
    done = events[-1]
    check_sendable(done.after)
    assert text_of(done.after[-1:]) == (
        f"<note>This conversation was shortened from {len(conversation)} to {len(done.after)} messages.</note>"
    )
    assert "Keep the file names." in text_of(caller.summariser.requests[0].conversation)
    assert (done.before, done.tokens_after < done.tokens_before) == (conversation, True)


async def test_by_command_there_may_be_nothing_to_do_or_no_service() -> None:
    for conversation in ((), Session("s", "w").add_user_message("x").conversation):
        with pytest.raises(TurnRefused, match="Nothing to compact"):
            await by_command(conversation)
    done = (await by_command(long_session().conversation))[-1]
    again = (await by_command(done.after))[-1]
    with pytest.raises(TurnRefused):
        await by_command(again.after)
    for error in (AuthenticationFailed("The key is wrong."), Overloaded("Busy.")):
        with pytest.raises(ProviderError, match=str(error)):
            await by_command(long_session().conversation, caller=Model([], [error]))


async def test_by_command_a_budget_may_forbid_it() -> None:
    caller, meter = Model([], [says(SUMMARY)]), ContextMeter()
    with pytest.raises(TurnRefused, match="summary would exceed the budget"):
        await by_command(long_session().conversation, caller=caller, meter=meter, budget=100)
    assert (caller.summariser.requests, meter.failures) == ([], 0)


# The service itself.


OFFERED = replace(SMALL, compacts=True)
BY_SERVICE = CompactionRules(compactor="provider")


async def test_provider_compaction_leaves_messages_unchanged() -> None:
    run = Run([says("Done.", usage=FULL)], model=OFFERED, rules=BY_SERVICE)
    before = run.session
    assert (await run.play()).stop_reason == "end_turn"
    assert [request.compact_at for request in run.caller.requests] == [round(0.75 * WINDOW)]
    assert (run.compactions, run.caller.summariser.requests) == ([], [])
    assert run.session.conversation[: len(before.conversation)] == before.conversation


@pytest.mark.parametrize(
    ("model", "rules"),
    [(SMALL, BY_SERVICE), (OFFERED, CompactionRules()), (replace(OFFERED, context_window=None), BY_SERVICE)],
)
async def test_without_provider_compaction_the_loop_compacts(model: Any, rules: CompactionRules) -> None:
    run = await play(model=model, rules=rules)
    assert {request.compact_at for request in run.caller.requests} == {None}
    assert len(run.compactions) == (model.context_window is not None)


async def test_nothing_is_replaced_where_nothing_is_gained() -> None:
    """Told before the summary is paid if no summary can be shorter, or else afterwards. The session stays as it is."""
    short = Session("s", "w")
    for number in range(3):
        short = short.add_user_message(f"ask {number}").add_step(says(f"answer {number}").message, None, Usage())
    noted = long_session(5).add_user_message("Once more.")
    noted = noted.add_step(says(OpaqueBlock(COMPACTION_TYPE, SEALED), "with a note").message, None, Usage())
    for session in (short, noted):
        caller = Model([], [says(SUMMARY)])
        with pytest.raises(TurnRefused, match=r"^Nothing to compact in this session yet\.$"):
            await by_command(session.conversation, caller=caller)
        assert caller.summariser.requests == []
    words = json.dumps({"notes": "word " * 400, "decisions_done": [f"Chose {n}: " + "word " * 50 for n in range(20)]})
    wordy = says(words, usage=Usage(1_000, 4_000, cost_usd=0.5))
    session, caller, usage = long_session(2, 2_000), Model([], [wordy]), UsageLedger()
    with pytest.raises(TurnRefused, match=r"its summary is not shorter: about [\d,]+ instead of [\d,]+ tokens\.$"):
        await by_command(session.conversation, caller=caller, usage=usage)
    assert (len(caller.summariser.requests), usage.total.cost_usd) == (1, 0.5)
    # The same conversation is compacted if its summary is short.
    assert len(await by_command(session.conversation)) == 2


# When the compaction comes -> whether the model may replace the file that it read before.
READ_FIRST = says(tool("r", "read_file", {"path": A}), usage=Usage())
MOMENTS: dict[str, tuple[list[Answer | Exception], bool]] = {
    "a call has held the reading": ([READ_FIRST, says(tool("p", "plan", {"entries": []}), usage=FULL)], True),
    "no call has held it": ([READ_FIRST, TOO_LONG], False),
}


@pytest.mark.parametrize("moment", MOMENTS)
async def test_sight_of_a_file_survives_if_a_call_has_held_it(moment: str) -> None:
    script, is_seen = MOMENTS[moment]
    run = await play(
        [*script, says(tool("w", "write_file", {"path": A, "content": "mine\n"})), says("Done.")],
        model=BOUND,
        session=Session("s", "w"),
        document="a line of a file that is almost too long\n" * 600,
    )
    assert len(run.compactions) == 1
    assert bool(run.overlay.build_edit_set()) == is_seen
    known = collect_sight(run.session.conversation).find(A)
    assert known is not None
    assert known.is_whole is is_seen
    assert not is_seen or known == describe_text(A, "mine\n", is_whole=True, is_own=True)
