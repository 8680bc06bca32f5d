"""What a running turn looks like: one begin and one end, a heartbeat while nothing comes, never too much at once."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import selectors
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from thinklsp.core.events import (
    CompactionStarted,
    ContextCompacted,
    DataReceived,
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
from thinklsp.lsp.editor.turn_progress import TurnProgress
from thinklsp.lsp.transport.connection import create_server


class _Skipping(selectors.DefaultSelector):  # type: ignore[misc,valid-type] # the platform's own class
    """Where a loop would wait, its clock jumps ahead instead. If there is nothing to wait for, the loop is idle."""

    loop: FastLoop

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout is None:
            self.loop.idle.set_result(None)
        elif not ready and timeout:
            self.loop.now += timeout
            assert self.loop.now < _END, "something is left that never ends"
        return ready


_START, _END = 1000.0, 10_000.0


class FastLoop(asyncio.SelectorEventLoop):
    """An event loop on a clock of its own: hours pass at once. `idle` is done when nothing else can happen."""

    def __init__(self) -> None:
        self.now = _START
        selector = _Skipping()
        selector.loop = self
        super().__init__(selector)
        self.idle: asyncio.Future[None] = self.create_future()

    def time(self) -> float:
        return self.now


class Screen:
    """The writer of a real server: keeps what is sent to the client, and when."""

    is_full = False

    def __init__(self) -> None:
        self.told: list[tuple[float, Any, dict[str, Any]]] = []
        server = create_server()
        server.protocol.connect(self)
        self.client = server.state.client

    def write(self, body: bytes, *, coalesce_key: object = None) -> None:
        message = json.loads(body)
        assert message["method"] == "$/progress"
        params = message["params"]
        self.told.append((asyncio.get_running_loop().time(), params["token"], params["value"]))

    def on(self, token: Any, kind: str | None = None) -> list[dict[str, Any]]:
        return [value for _, name, value in self.told if name == token and kind in (None, value["kind"])]

    def times(self, token: Any) -> list[float]:
        return [at for at, name, value in self.told if name == token and value["kind"] not in ("begin", "end")]


def fast(*course: Any) -> Screen:
    """Play a turn on the fast clock: events, seconds in which nothing comes, and what else happens to the progress.

    The progress has begun on the work token `w`.
    """
    screen = Screen()

    async def run() -> None:
        progress = TurnProgress(screen.client, "chat", "w")
        progress.begin()
        progress.use("p", "summary")
        await play(progress, course)
        progress.end("done")
        progress.end("again")

    with asyncio.Runner(loop_factory=FastLoop) as runner:
        runner.run(run())
    return screen


async def play(progress: TurnProgress, course: Iterable[Any]) -> None:
    for step in course:
        if isinstance(step, int | float):
            await asyncio.sleep(step)
        elif callable(step):
            step(progress)
        else:
            progress.show(step)


def check_pace(times: list[float]) -> None:
    """At least every two seconds, and never more than ten in a second."""
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert max(gaps) <= 2.0
    assert not [at for index, at in enumerate(times[:-10]) if times[index + 10] - at < 1.0]


def test_progress_has_heartbeat_while_model_is_silent() -> None:
    screen = fast(StepStarted(1), 125)
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


def list_silences(screen: Screen) -> list[int]:
    """Return the silence in each report, in seconds. It is 0 in a report without one."""
    matches = [
        re.search(r" · no data for (?:(\d+) min )?(\d+) s", value["message"]) for value in screen.on("w", "report")
    ]
    return [int(match[1] or 0) * 60 + int(match[2]) if match else 0 for match in matches]


def test_the_silence_of_the_provider_is_shown() -> None:
    silences = list_silences(fast(StepStarted(1), 75))
    assert min(silence for silence in silences if silence) in (10, 11)
    assert max(silences) in (73, 74)
    assert silences == sorted(silences)


SOUNDS = [DataReceived(), TextStreamed("a"), ThinkingStreamed("a"), ThinkingTick(5)]


@pytest.mark.parametrize("sound", SOUNDS, ids=lambda sound: type(sound).__name__)
def test_data_ends_the_silence(sound: Any) -> None:
    assert set(list_silences(fast(StepStarted(1), *[9, sound] * 5))) == {0}
    silences = list_silences(fast(StepStarted(1), 20, sound, 5, sound, 20))
    assert [silence > 0 for silence, _ in itertools.groupby(bool(silence) for silence in silences)] == [0, 1, 0, 1]


QUIET = {
    "a tool": (ToolStarted("t", "run_command", "run make"),),
    "a tool that writes": (ToolStarted("t", "write_file", "write a.py"),),
    "the user": (StepStarted(1), TurnProgress.show_waiting),
    "a retry": (StepStarted(1), RetryScheduled(60.0, "The service is busy.")),
    "a compaction": (CompactionStarted(),),
}


@pytest.mark.parametrize("name", QUIET)
def test_other_waits_are_no_silence_of_the_provider(name: str) -> None:
    assert set(list_silences(fast(*QUIET[name], 55))) == {0}


def test_fast_model_does_not_flood_the_editor() -> None:
    pieces = [f"{number} " for number in range(3000)]
    screen = fast(*itertools.chain(*((TextStreamed(piece), 0.001) for piece in pieces)))
    check_pace(screen.times("w"))
    check_pace(screen.times("p"))
    assert "".join(value["delta"] for value in screen.on("p", "text")) == "".join(pieces)


EVERYTHING = (
    StepStarted(1),
    ThinkingTick(100),
    ThinkingStreamed("Hm, "),
    ThinkingStreamed("well."),
    TextStreamed("I "),
    TextStreamed("look."),
    ToolStarted("t1", "read_file", "read a.py", "{}"),
    ToolFinished("t1", "read_file", "read a.py", False, None, "{}", "x = 1"),
    ToolStarted("t2", "plan", "plan"),
    ToolFinished("t2", "plan", "plan", False, (PlanEntry("look", "completed"),)),
    ToolFinished("t3", "edit_file", "edit a.py", True),
    StepCommitted(AssistantMessage(()), None, Usage(input_tokens=5, output_tokens=7)),
    Notice("info", "By the way."),
    RetryScheduled(8.0, "The service is busy (529). It says: Later.", attempt=2, max_attempts=4),
    5,
    TextStreamed("Done."),
    TurnFinished("end_turn", "Done.", "", Usage()),
    lambda progress: progress.send_result({"turnId": "t"}),
)


def test_partial_results_tell_everything_in_order() -> None:
    assert [(value["kind"], *(v for k, v in value.items() if k != "kind")) for value in fast(*EVERYTHING).on("p")] == [
        ("thinking", "Hm, well."),
        ("text", "I look."),
        ("tool", "t1", "read_file", "read a.py", "in_progress", "{}", None),
        ("tool", "t1", "read_file", "read a.py", "completed", "{}", "x = 1"),
        ("tool", "t2", "plan", "plan", "in_progress", None, None),
        ("tool", "t2", "plan", "plan", "completed", None, None),
        ("plan", [{"text": "look", "status": "completed"}]),
        ("tool", "t3", "edit_file", "edit a.py", "failed", None, None),
        ("usage", 5, 7, None, None, None, None),
        ("notice", "info", "By the way."),
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
    st.just(0.2),  # The next beat.
)
ATTEMPT = st.lists(PIECE, max_size=5)


@given(steps=st.lists(st.lists(ATTEMPT, min_size=1, max_size=3), max_size=4), attached_at=st.integers(0, 40))
@example(steps=[[[TextStreamed("a"), 0.2, TextStreamed("b"), 0.2]]], attached_at=4)
def test_text_with_its_restarts_is_the_text_of_the_last_attempts(steps: list[Any], attached_at: int) -> None:
    """In each step all attempts but the last break off; a client may attach at any time."""
    broken, step = RetryScheduled(1.0, "It broke.", restart=True), StepCommitted(AssistantMessage(()), None, Usage())
    events: list[Any] = []
    for attempts in steps:
        events += [event for attempt in attempts for event in (*attempt, broken)]
        events[-1:] = [step]

    attached = [lambda progress: progress.attach("late")] if attached_at < len(events) else []
    screen = fast(*events[:attached_at], *attached, *events[attached_at:])
    for kind, piece in (("text", TextStreamed), ("thinking", ThinkingStreamed)):
        last = [event for attempts in steps for event in attempts[-1]]
        expected = "".join(event.delta for event in last if isinstance(event, piece))
        assert standing(screen.on("p"), kind) == expected
        if attached_at < len(events):
            assert standing(screen.on("late"), kind) == expected


def test_a_compaction_shows_and_says_what_it_did() -> None:
    compacted = ContextCompacted((), (), 90, 9, Usage(output_tokens=7), "It is shorter.")
    screen = fast(CompactionStarted(), 5, compacted, StepStarted(1), 3)
    phases = [value["message"].split(" · ")[0] for value in screen.on("w", "report")]
    assert list(dict.fromkeys(phases)) == ["compacting", "thinking"]
    assert "7 tokens" in screen.on("w", "report")[-1]["message"]
    assert [value["kind"] for value in screen.on("p")] == ["usage", "notice"]
    assert screen.on("p")[-1]["text"] == "It is shorter."


def test_a_retry_counts_down() -> None:
    messages = [value["message"] for value in fast(*EVERYTHING).on("w", "report")]
    retries = [message for message in messages if message.startswith("retrying")]
    pattern = re.compile(r"retrying, 2 of 4, in (\d+) s · \d+ s · The service is busy \(529\) · 7 tokens")
    seconds = [match[1] for match in map(pattern.fullmatch, retries) if match]
    assert len(seconds) == len(retries)
    assert seconds == sorted(seconds, key=int, reverse=True)
    assert len(set(seconds)) > 1


@pytest.mark.parametrize(
    ("display", "summary", "tokens"), [("status", False, True), ("summary", True, True), ("off", False, False)]
)
def test_what_of_thinking_is_shown(display: Any, summary: bool, tokens: bool) -> None:
    thought = ThinkingTick(1234), ThinkingStreamed("secret plans")
    screen = fast(lambda progress: progress.use("p", display), *thought, 3)
    messages = " ".join(value["message"] for value in screen.on("w", "report"))
    assert "thinking" in messages
    assert ("secret plans" in messages) is summary
    assert ("1,234 tokens" in messages) is tokens
    assert bool(screen.on("p", "thinking")) is summary


def test_the_end_of_a_long_summary_begins_with_a_whole_word() -> None:
    """N28: it began in the middle of a word."""
    screen = fast(StepStarted(1), *(ThinkingStreamed(f"thought{number} ") for number in range(100)), 3)
    shown = screen.on("w", "report")[-1]["message"].rpartition(" · ")[2].split()
    assert shown[0] == "…"
    assert shown[1:] == [f"thought{number}" for number in range(100 - len(shown[1:]), 100)]


def test_long_ids_of_calls_are_shown_as_digests() -> None:
    """LiteLLM writes the signature of Gemini's thinking into the ids, and no editor may see that."""
    sealed = "call_1__thought__" + "Sig1" * 100

    title = "read_file", "read a.py"
    calls = ((ToolStarted(name, *title), ToolFinished(name, *title, False)) for name in ("call_1", sealed))
    first, same, other, again = [value["toolCallId"] for value in fast(*itertools.chain(*calls)).on("p", "tool")]
    assert first == same == "call_1"
    assert other == again != first
    assert len(other) < 64
    assert "Sig1" not in other


def test_waiting_for_the_user_is_said() -> None:
    started = ToolStarted("c", "run_command", "run pytest -q")
    screen = fast(started, TurnProgress.show_waiting, 200, TurnProgress.show_resumed, 1)
    messages = [value["message"] for value in screen.on("w", "report")]
    assert "waiting for you" in messages[0]
    # What was going on goes on.
    assert messages[-1].startswith("running pytest -q · ")
    check_pace(screen.times("w"))


def test_nothing_follows_the_end_and_no_task_is_left() -> None:
    loop = FastLoop()

    async def run() -> None:
        screen = Screen()
        progress = TurnProgress(screen.client, "chat", "w")
        progress.begin()
        progress.end("done")
        progress.show(StepStarted(1))
        await loop.idle
        assert [value["kind"] for value in screen.on("w")] == ["begin", "end"]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(run())


def test_without_tokens_nothing_is_sent() -> None:
    async def run() -> None:
        screen = Screen()
        progress = TurnProgress(screen.client, "chat")
        await progress.offer()
        await play(progress, EVERYTHING)
        progress.end("done")
        assert screen.told == []

    with asyncio.Runner(loop_factory=FastLoop) as runner:
        runner.run(run())
