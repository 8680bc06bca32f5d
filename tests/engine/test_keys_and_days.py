"""Key commands run when a turn connects and not before, once; what the day has cost is booked and asked about."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.engine.test_engine import PLAIN, play, spec
from tests.settings.test_sources import NO_FILE
from tests.support.scripted_model import Answer, ScriptedModel, says, thinking, tool
from thinklsp.agent.budget import DaySpending
from thinklsp.agent.model_call import CallEvent
from thinklsp.core.errors import SettingsError
from thinklsp.core.events import Notice, TurnEvent, TurnFinished
from thinklsp.core.usage import Usage
from thinklsp.engine import Engine, Turn
from thinklsp.engine.doctor import report
from thinklsp.providers.base import ModelRequest
from thinklsp.sessions.sqlite_store import SqliteStore

MODEL = "claude-opus-4-6"
READ = ("read_file", {"path": "untitled:a.py"})


def with_command(folder: Path, script: str, **environment: str) -> Engine:
    path = folder / "config.toml"
    path.write_text(f"[providers.anthropic]\napi_key_command = ['sh', '-c', {script!r}]")
    path.chmod(0o600)
    return Engine({"THINKLSP_CONFIG": str(path)} | environment)


async def test_a_key_command_runs_when_a_turn_connects_and_once(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    engine = with_command(tmp_path, f"echo x >> {runs}; echo key")
    turns = [await engine.begin(spec(), PLAIN, {}) for _ in range(3)]
    assert not runs.exists()
    callers = await asyncio.gather(*(turn.connect(()) for turn in turns))
    assert runs.read_text() == "x\n"
    assert callers[0] is callers[1] is callers[2]
    found = await engine.access("anthropic")
    assert found is not None
    assert found.api_key == "key"
    await engine.aclose()


async def test_a_turn_that_is_stopped_stops_its_key_command(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    engine = with_command(tmp_path, f"echo x > {tmp_path / 'begun'}; exec sleep 60")
    connecting = asyncio.ensure_future((await engine.begin(spec(), PLAIN, {})).connect(()))
    assert await asyncio.to_thread((tmp_path / "begun").read_text) == "x\n"
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    # The command is not waited for: ending the pool of threads takes no time.
    async with asyncio.timeout(5):
        await asyncio.get_running_loop().shutdown_default_executor()
    await engine.aclose()


async def test_a_key_command_that_fails_is_told_by_the_turn_and_tried_again(tmp_path: Path) -> None:
    engine = with_command(tmp_path, f"test -e {tmp_path / 'good'} && echo key")
    turn = await engine.begin(spec(), PLAIN, {})
    with pytest.raises(SettingsError, match="key command for anthropic failed"):
        await turn.connect(())
    (tmp_path / "good").touch()
    assert await turn.connect(())
    await engine.aclose()


async def test_the_doctor_waits_for_a_key_command_and_a_host_three_seconds_in_all(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"http://127.0.0.1:{silent.getsockname()[1]}"
        engine = with_command(tmp_path, "exec sleep 60", ANTHROPIC_BASE_URL=host)
        begun = time.monotonic()
        found = await report(engine, PLAIN, {})
        assert time.monotonic() - begun < 3.9
    assert (found["model"], found["reachable"], found["canRun"]) == (None, False, False)
    assert [said for said in found["problems"] if "key command for anthropic did not end within 3 seconds" in said]
    await engine.aclose()


def priced(*usd: float) -> list[Answer]:
    """Steps that call a tool, with what they cost; after them the model is done."""
    return [says(tool(str(n), *READ), usage=Usage(10, 5, cost_usd=cost)) for n, cost in enumerate(usd)]


async def asked(turn: Turn, *answers: str) -> tuple[list[str], list[TurnEvent]]:
    questions: list[str] = []
    left = list(answers)

    async def ask(question: str, options: tuple[str, ...]) -> str | None:
        raise AssertionError(question)

    async def budget(said: str) -> Any:
        questions.append(said)
        return left.pop(0)

    with turn:
        async with aclosing(turn.events(ask, budget)) as events:
            return questions, [event async for event in events]


def reason(events: list[TurnEvent]) -> str:
    last = events[-1]
    assert isinstance(last, TurnFinished)
    return last.stop_reason


async def test_the_budget_of_the_day_is_shared_by_turns_and_asks() -> None:
    engine = Engine(NO_FILE | {"ANTHROPIC_API_KEY": "k", "THINKLSP_BUDGET_USD_PER_DAY": "1", "THINKLSP_MODEL": MODEL})
    first, second, third = [await engine.begin(spec(), PLAIN, {}) for _ in range(3)]
    play(first, *priced(0.25, 0.5))
    questions, events = await asked(first)
    assert (questions, reason(events)) == ([], "end_turn")
    play(second, *priced(0.5, 0.5, 0.5))
    questions, events = await asked(second, "continue", "stop")
    assert questions == [
        "Today's turns have cost $1.25; the budget of the day is $1.00.",
        "Today's turns have cost $2.25; the budget of the day is $2.25.",
    ]
    assert reason(events) == "budget"
    # What is spent already is asked about before the first call of the next turn.
    model = play(third)
    questions, events = await asked(third, "stop")
    assert (len(questions), reason(events), model.requests) == (1, "budget", [])
    fourth = await engine.begin(spec(), PLAIN, {})
    play(fourth, *priced(5, 5))
    questions, events = await asked(fourth, "raise")
    assert (len(questions), reason(events)) == (1, "end_turn")
    await engine.aclose()


class Closing(ScriptedModel):
    """Tells when a call has handed out its whole answer."""

    def __init__(self, script: Iterable[Answer], closed: Callable[[], object]) -> None:
        super().__init__(script)
        self._closed = closed

    async def stream(self, request: ModelRequest) -> AsyncGenerator[CallEvent, None]:
        async with aclosing(super().stream(request)) as events:
            async for event in events:
                yield event
        self._closed()


ASKS = tool("q", "ask_user", {"question": "Which?", "options": ["a", "b"]})
# The answers until the cancel, and how many of them are kept as steps.
CANCELLED: dict[str, tuple[list[Answer], int]] = {
    "while a tool of the first answer runs": ([says(thinking(), ASKS, usage=Usage(100_000, 9, cost_usd=0.4))], 0),
    "while a tool of a later answer runs": ([*priced(0.25), says(ASKS, usage=Usage(7, 3, cost_usd=0.5))], 1),
    "while the last step is stored": ([*priced(0.25), says("Done.", usage=Usage(7, 3, cost_usd=0.5))], 2),
}


@pytest.mark.parametrize("when", CANCELLED)
@pytest.mark.parametrize("times", [1, 2])
async def test_what_was_answered_before_a_cancel_is_booked_once(tmp_path: Path, when: str, times: int) -> None:
    script, steps = CANCELLED[when]
    engine = Engine(NO_FILE | {"ANTHROPIC_API_KEY": "k"}, SqliteStore(str(tmp_path)))
    turn = await engine.begin(spec(), PLAIN, {})
    whole = sum((answer.usage for answer in script), Usage())

    def cancel() -> None:
        working.cancel()
        if times == 2:
            # A shutdown, say, while what was answered is being booked.
            asyncio.get_running_loop().call_soon(asyncio.get_running_loop().call_soon, working.cancel)

    def closed() -> None:
        if when == "while the last step is stored" and len(model.requests) == len(script):
            cancel()

    async def connect(_known: object) -> Closing:
        return model

    async def ask(question: str, options: tuple[str, ...]) -> str | None:
        cancel()
        await asyncio.get_running_loop().create_future()
        return None

    async def budget(said: str) -> Any:
        raise AssertionError(said)

    async def work() -> None:
        with turn:
            async with aclosing(turn.events(ask, budget)) as events:
                async for _ in events:
                    pass

    model = Closing(script, closed)
    turn.connect = connect
    working = asyncio.create_task(work())
    await asyncio.wait([working])
    assert working.cancelled()
    assert turn.usage == whole
    stored = await engine.store.get(turn.session.id, "w")
    found = await engine.store.usage(turn.session.id)
    assert (stored.usage, stored.steps, stored.interrupted) == (whole, steps, steps > 0)
    assert found.total == found.by_turn[turn.id] == await engine.store.spent_on(DaySpending().day) == whole
    await engine.aclose()


async def test_a_budget_of_the_turn_and_one_of_the_day_are_both_asked_about() -> None:
    environment = {"ANTHROPIC_API_KEY": "k", "THINKLSP_BUDGET_USD_PER_DAY": "1", "THINKLSP_BUDGET_USD_PER_TURN": "1"}
    engine = Engine(NO_FILE | environment)
    turn = await engine.begin(spec(), PLAIN, {})
    model = play(turn, *priced(1.5))
    questions, events = await asked(turn, "continue", "stop")
    assert ["This turn" in question for question in questions] == [True, False]
    assert (reason(events), len(model.requests)) == ("budget", 1)
    await engine.aclose()


def test_a_day_ends_at_midnight() -> None:
    days = [date(2030, 1, 1)]
    spending = DaySpending(lambda: days[-1])
    spending.add(1.5)
    spending.add(None)
    assert spending.usd == 1.5
    days.append(date(2030, 1, 2))
    assert spending.usd == 0.0
    spending.add(0.5)
    assert spending.usd == 0.5


UNPRICED: list[tuple[dict[str, Any], int]] = [
    ({"model": "unheard-of", "budget": {"usdPerTurn": 1, "usdPerDay": 1}}, 1),
    ({"model": "unheard-of", "budget": {"usdPerDay": 1}}, 1),
    ({"model": "unheard-of", "budget": {"tokensPerTurn": 1_000_000}}, 0),
    ({"model": MODEL, "budget": {"usdPerDay": 1}}, 0),
    ({"provider": "simulator", "budget": {"usdPerDay": 1}}, 0),
]


@pytest.mark.parametrize(("settings", "count"), UNPRICED)
async def test_a_budget_that_cannot_be_kept_is_told(settings: dict[str, Any], count: int) -> None:
    engine = Engine(NO_FILE | {"ANTHROPIC_API_KEY": "k"})
    turn = await engine.begin(spec(), PLAIN.updated(settings)[0], {})
    play(turn)
    _, events = await asked(turn)
    told = [event.text for event in events if isinstance(event, Notice) and "price" in event.text]
    assert len(told) == count
    assert all("unheard-of" in text and "cannot be kept" in text for text in told)
    await engine.aclose()
