"""What a running turn looks like: one begin and one end, a heartbeat while nothing comes, never too much at once."""

from __future__ import annotations

import asyncio
import itertools
import selectors
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinklsp.core.events import (
    CompactionStarted,
    ContextCompacted,
    Notice,
    PlanEntry,
    RetryScheduled,
    StepCommitted,
    StepStarted,
    TextStreamed,
    ThinkingStreamed,
    ThinkingTick,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)
from thinklsp.core.messages import AssistantMessage
from thinklsp.core.usage import Usage
from thinklsp.lsp.editor.client import Client
from thinklsp.lsp.editor.progress import TurnProgress
from thinklsp.lsp.editor.work_done import WorkDone


class _Skipping(selectors.DefaultSelector):  # type: ignore[misc,valid-type] # the platform's own class
    """Where a loop would wait, its clock jumps ahead instead."""

    loop: FastLoop

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout:
            self.loop.now += timeout
        return ready


class FastLoop(asyncio.SelectorEventLoop):
    """An event loop on a clock of its own: hours pass at once."""

    def __init__(self) -> None:
        self.now = 1000.0
        selector = _Skipping()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now


class Screen:
    """Stands where the connection would: keeps what is told to the client, and when."""

    def __init__(self) -> None:
        self.told: list[tuple[float, Any, dict[str, Any]]] = []

    def tell(self, method: str, params: dict[str, Any], *, replaces: object = None) -> None:
        assert method == "$/progress"
        self.told.append((asyncio.get_running_loop().time(), params["token"], params["value"]))

    def on(self, token: Any, kind: str | None = None) -> list[dict[str, Any]]:
        return [value for _, name, value in self.told if name == token and kind in (None, value["kind"])]

    def times(self, token: Any) -> list[float]:
        return [at for at, name, value in self.told if name == token and value["kind"] not in ("begin", "end")]


def fast(test: Callable[[Screen, TurnProgress], Awaitable[None]]) -> Screen:
    """Runs a test on the fast clock; the progress has begun on the work token `w`."""
    screen = Screen()

    async def run() -> None:
        progress = TurnProgress(WorkDone(Client(screen), "chat", "w"))  # type: ignore[arg-type] # it uses `tell` alone
        progress.work_done.begin()
        progress.use("p", "summary")
        await test(screen, progress)
        progress.end("done")
        progress.end("again")

    with asyncio.Runner(loop_factory=FastLoop) as runner:
        runner.run(run())
    return screen


def check_pace(times: list[float]) -> None:
    """At least every two seconds, and never more than ten in a second."""
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert max(gaps) <= 2.0
    assert not [at for index, at in enumerate(times[:-10]) if times[index + 10] - at < 1.0]


def test_one_begin_and_one_end_and_a_heartbeat_while_the_model_is_silent() -> None:
    async def silence(screen: Screen, progress: TurnProgress) -> None:
        progress.show(StepStarted(1))
        await asyncio.sleep(125)

    screen = fast(silence)
    values = screen.on("w")
    assert [value["kind"] for value in values[:1] + values[-1:]] == ["begin", "end"]
    assert {value["kind"] for value in values[1:-1]} == {"report"}
    assert values[0] == {"kind": "begin", "title": "thinklsp", "message": "chat", "cancellable": True}
    assert values[-1] == {"kind": "end", "message": "done"}
    assert "thinking" in values[-2]["message"]
    assert "2 min" in values[-2]["message"]
    assert not any("percentage" in value for value in values)
    check_pace(screen.times("w"))
    assert screen.on("p") == []


def test_a_fast_model_does_not_flood_the_editor_and_no_text_is_lost() -> None:
    pieces = [f"{number} " for number in range(3000)]

    async def flood(screen: Screen, progress: TurnProgress) -> None:
        for piece in pieces:
            progress.show(TextStreamed(piece))
            await asyncio.sleep(0.001)

    screen = fast(flood)
    check_pace(screen.times("w"))
    check_pace(screen.times("p"))
    assert "".join(value["delta"] for value in screen.on("p", "text")) == "".join(pieces)


async def everything(screen: Screen, progress: TurnProgress) -> None:
    for event in (
        StepStarted(1),
        ThinkingTick(100),
        ThinkingStreamed("Hm, "),
        ThinkingStreamed("well."),
        TextStreamed("I "),
        TextStreamed("look."),
        ToolStarted("t1", "read_file", "read a.py"),
        ToolFinished("t1", "read_file", "read a.py", False),
        ToolStarted("t2", "plan", "plan"),
        ToolFinished("t2", "plan", "plan", False, (PlanEntry("look", "completed"),)),
        ToolFinished("t3", "edit_file", "edit a.py", True),
        StepCommitted(AssistantMessage(()), None, Usage(input_tokens=5, output_tokens=7)),
        Notice("info", "By the way."),
        RetryScheduled(8.0, "The service is busy."),
    ):
        progress.show(event)
    await asyncio.sleep(5)
    progress.show(TextStreamed("Done."))
    progress.show(TurnFinished("end_turn", "Done.", "", Usage()))
    progress.finished({"turnId": "t"})


def test_partial_results_tell_everything_in_order() -> None:
    assert [(value["kind"], *(v for k, v in value.items() if k != "kind")) for value in fast(everything).on("p")] == [
        ("thinking", "Hm, well."),
        ("text", "I look."),
        ("tool", "t1", "read_file", "read a.py", "in_progress"),
        ("tool", "t1", "read_file", "read a.py", "completed"),
        ("tool", "t2", "plan", "plan", "in_progress"),
        ("tool", "t2", "plan", "plan", "completed"),
        ("plan", [{"text": "look", "status": "completed"}]),
        ("tool", "t3", "edit_file", "edit a.py", "failed"),
        ("usage", 5, 7, None, None, None, None),
        ("notice", "info", "By the way."),
        ("notice", "warning", "The service is busy."),
        ("text", "Done."),
        ("finished", {"turnId": "t"}),
    ]


def standing(values: list[dict[str, Any]], kind: str) -> str:
    """What a client holds of the text or the thinking that obeys each `restart`."""
    done = now = ""
    for value in values:
        if value["kind"] == kind:
            now += value["delta"]
        elif value["kind"] == "restart":
            now = ""
        elif value["kind"] == "usage":
            done, now = done + now, ""
    return done + now


TEXT = st.text("ab", min_size=1, max_size=3)
PIECE = st.one_of(
    st.builds(TextStreamed, TEXT),
    st.builds(ThinkingStreamed, TEXT),
    st.just(ThinkingTick(5)),
    st.just(Notice("info", "By the way.")),
    st.just(RetryScheduled(0.0, "The service is busy.")),
    st.none(),  # The next beat.
)
ATTEMPT = st.lists(PIECE, max_size=5)


@given(steps=st.lists(st.lists(ATTEMPT, min_size=1, max_size=3), max_size=4), attached_at=st.integers(0, 40))
def test_text_with_its_restarts_is_the_text_of_the_last_attempts(steps: list[Any], attached_at: int) -> None:
    """A-5: in each step all attempts but the last break off; a client may attach at any time."""
    broken, step = RetryScheduled(1.0, "It broke.", restart=True), StepCommitted(AssistantMessage(()), None, Usage())
    events: list[Any] = []
    for attempts in steps:
        events += [event for attempt in attempts for event in (*attempt, broken)]
        events[-1:] = [step]

    async def play(screen: Screen, progress: TurnProgress) -> None:
        for number, event in enumerate(events):
            if number == attached_at:
                progress.attach("late")
            if event is None:
                await asyncio.sleep(0.2)
            else:
                progress.show(event)

    screen = fast(play)
    for kind, piece in (("text", TextStreamed), ("thinking", ThinkingStreamed)):
        last = [event for attempts in steps for event in attempts[-1]]
        expected = "".join(event.delta for event in last if isinstance(event, piece))
        assert standing(screen.on("p"), kind) == expected
        if attached_at < len(events):
            assert standing(screen.on("late"), kind) == expected


async def compaction(screen: Screen, progress: TurnProgress) -> None:
    progress.show(CompactionStarted())
    await asyncio.sleep(5)
    progress.show(ContextCompacted((), (), 90, 9, Usage(output_tokens=7), "It is shorter."))
    progress.show(StepStarted(1))
    await asyncio.sleep(3)


def test_a_compaction_shows_and_says_what_it_did() -> None:
    screen = fast(compaction)
    phases = [value["message"].split(" · ")[0] for value in screen.on("w", "report")]
    assert list(dict.fromkeys(phases)) == ["compacting", "thinking"]
    assert "7 tokens" in screen.on("w", "report")[-1]["message"]
    assert [value["kind"] for value in screen.on("p")] == ["usage", "notice"]
    assert screen.on("p")[-1]["text"] == "It is shorter."


def test_a_retry_counts_down() -> None:
    messages = [value["message"] for value in fast(everything).on("w", "report")]
    seconds = [message.split("retrying in ")[1].split(" s")[0] for message in messages if "retrying" in message]
    assert seconds == sorted(seconds, key=int, reverse=True)
    assert len(set(seconds)) > 1


@pytest.mark.parametrize(
    ("display", "summary", "tokens"), [("status", False, True), ("summary", True, True), ("off", False, False)]
)
def test_what_of_thinking_is_shown(display: Any, summary: bool, tokens: bool) -> None:
    async def think(screen: Screen, progress: TurnProgress) -> None:
        progress.use("p", display)
        progress.show(ThinkingTick(1234))
        progress.show(ThinkingStreamed("secret plans"))
        await asyncio.sleep(3)

    screen = fast(think)
    messages = " ".join(value["message"] for value in screen.on("w", "report"))
    assert "thinking" in messages
    assert ("secret plans" in messages) is summary
    assert ("1,234 tokens" in messages) is tokens
    assert bool(screen.on("p", "thinking")) is summary


def test_long_ids_of_calls_are_shown_as_digests() -> None:
    """LiteLLM writes the signature of Gemini's thinking into the ids, and no editor may see that."""
    sealed = "call_1__thought__" + "Sig1" * 100

    async def call(screen: Screen, progress: TurnProgress) -> None:
        for call_id in ("call_1", sealed):
            progress.show(ToolStarted(call_id, "read_file", "read a.py"))
            progress.show(ToolFinished(call_id, "read_file", "read a.py", False))

    first, same, other, again = [value["toolCallId"] for value in fast(call).on("p", "tool")]
    assert first == same == "call_1"
    assert other == again != first
    assert len(other) < 64
    assert "Sig1" not in other


def test_waiting_for_the_user_is_said() -> None:
    async def wait(screen: Screen, progress: TurnProgress) -> None:
        progress.show(ToolStarted("c", "run_command", "run pytest -q"))
        progress.waiting()
        await asyncio.sleep(200)
        progress.resumed()
        await asyncio.sleep(1)

    screen = fast(wait)
    messages = [value["message"] for value in screen.on("w", "report")]
    assert "waiting for you" in messages[0]
    # What was going on goes on.
    assert messages[-1].startswith("running pytest -q · ")
    check_pace(screen.times("w"))


def test_nothing_follows_the_end_and_no_task_is_left() -> None:
    async def run() -> None:
        screen = Screen()
        progress = TurnProgress(WorkDone(Client(screen), "chat", "w"))  # type: ignore[arg-type] # it uses `tell` alone
        progress.work_done.begin()
        progress.end("done")
        progress.show(StepStarted(1))
        await asyncio.sleep(10)
        assert [value["kind"] for value in screen.on("w")] == ["begin", "end"]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with asyncio.Runner(loop_factory=FastLoop) as runner:
        runner.run(run())


def test_without_tokens_nothing_is_sent() -> None:
    async def run() -> None:
        screen = Screen()
        progress = TurnProgress(WorkDone(Client(screen), "chat"))  # type: ignore[arg-type] # it uses `tell` alone
        await progress.work_done.offer()
        await everything(screen, progress)
        progress.end("done")
        assert screen.told == []

    with asyncio.Runner(loop_factory=FastLoop) as runner:
        runner.run(run())
