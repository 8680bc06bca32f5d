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
from tests.support.hosts import SseServer, answer
from tests.support.scripted_model import Answer, ScriptedModel, connect_to, run_to_end, says, thinking, tool
from thinklsp.agent.budget import DaySpending
from thinklsp.agent.model_call import CallEvent
from thinklsp.core.choices import BUDGET_ANSWERS
from thinklsp.core.errors import AuthenticationFailed, SettingsError
from thinklsp.core.usage import Usage
from thinklsp.engine import Engine, Turn
from thinklsp.engine.diagnosis import PROBE_SECONDS, build_report
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
    turns = [await engine.start_turn(spec(), PLAIN, {}) for _ in range(3)]
    assert not runs.exists()
    callers = await asyncio.gather(*(turn.connect(()) for turn in turns))
    assert runs.read_text() == "x\n"
    assert callers[0] is callers[1] is callers[2]
    found = await engine.connections.resolve_access("anthropic")
    assert found is not None
    assert found.api_key == "key"
    await engine.aclose()


async def test_a_turn_that_is_stopped_stops_its_key_command(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    engine = with_command(tmp_path, f"echo x > {tmp_path / 'begun'}; exec sleep 600")
    connecting = asyncio.ensure_future((await engine.start_turn(spec(), PLAIN, {})).connect(()))
    assert await asyncio.to_thread((tmp_path / "begun").read_text) == "x\n"
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    # The command is not waited for: ending the pool of threads takes no time.
    async with asyncio.timeout(60):
        await asyncio.get_running_loop().shutdown_default_executor()
    await engine.aclose()


async def test_failed_key_command_is_reported_and_retried(tmp_path: Path) -> None:
    engine = with_command(tmp_path, f"test -e {tmp_path / 'good'} && echo key")
    turn = await engine.start_turn(spec(), PLAIN, {})
    with pytest.raises(SettingsError, match="key command for anthropic failed"):
        await turn.connect(())
    (tmp_path / "good").touch()
    assert await turn.connect(())
    await engine.aclose()


async def test_the_key_of_a_command_is_not_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log masks only keys of the environment."""
    key = "sk-ant-canary-0123456789"
    refusal = answer(f'{{"error": {{"message": "invalid x-api-key {key}"}}}}'.encode(), 401)
    async with SseServer([refusal]) as server:
        engine = with_command(tmp_path, f"echo {key}", ANTHROPIC_BASE_URL=server.url, THINKLSP_LOG_LEVEL="debug")
        with pytest.raises(AuthenticationFailed, match="key command"):
            await run_to_end(await engine.start_turn(spec(), PLAIN, {}))
        await build_report(engine, PLAIN, {})
        await engine.aclose()
    assert server.received[0].headers["x-api-key"] == key
    assert "thinklsp.engine" in caplog.text
    assert key not in caplog.text


async def report_on_silence(folder: Path, limit: float) -> tuple[Any, float]:
    """Return the report on a host and a key command that never answer, and the seconds that the report took."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with aclosing(with_command(folder, "exec sleep 600", ANTHROPIC_BASE_URL=host)) as engine:
            begun = time.monotonic()
            found = await build_report(engine, PLAIN, {}, probe_seconds=limit)
            return found, time.monotonic() - begun


async def test_doctor_tells_which_key_command_did_not_finish(tmp_path: Path) -> None:
    found, _ = await report_on_silence(tmp_path, 0.5)
    assert (found["model"], found["reachable"], found["canRun"]) == (None, False, False)
    assert [said for said in found["problems"] if "key command for anthropic did not finish within" in said]


@pytest.mark.timing
async def test_doctor_waits_at_most_three_seconds(tmp_path: Path) -> None:
    _, seconds = await report_on_silence(tmp_path, PROBE_SECONDS)
    assert seconds < 3.9


def priced(*usd: float) -> list[Answer]:
    """Steps that call a tool, with what they cost; after them the model is done."""
    return [says(tool(str(n), *READ), usage=Usage(10, 5, cost_usd=cost)) for n, cost in enumerate(usd)]


async def ask_and_run(turn: Turn, *answers: str) -> tuple[list[str], str]:
    """Run the turn to its end. Return the questions about a budget, and why the turn ended."""
    questions: list[str] = []
    left = list(answers)

    async def ask(question: str, options: tuple[str, ...]) -> str | None:
        assert options == tuple(BUDGET_ANSWERS), question
        questions.append(question)
        answer = left.pop(0)
        return next(title for title, meaning in BUDGET_ANSWERS.items() if meaning == answer)

    return questions, (await run_to_end(turn, ask=ask)).stop_reason


async def test_the_budget_of_the_day_is_shared_by_turns_and_asks() -> None:
    engine = Engine(NO_FILE | {"ANTHROPIC_API_KEY": "k", "THINKLSP_BUDGET_USD_PER_DAY": "1", "THINKLSP_MODEL": MODEL})
    first, second, third = [await engine.start_turn(spec(), PLAIN, {}) for _ in range(3)]
    play(first, *priced(0.25, 0.5))
    assert await ask_and_run(first) == ([], "end_turn")
    play(second, *priced(0.5, 0.5, 0.5))
    questions = [
        "Today's turns have cost $1.25; the daily budget is $1.00.",
        "Today's turns have cost $2.25; the daily budget is $2.25.",
    ]
    assert await ask_and_run(second, "continue", "stop") == (questions, "budget")
    # What is spent already is asked about before the first call of the next turn.
    model = play(third)
    questions, reason = await ask_and_run(third, "stop")
    assert (len(questions), reason, model.requests) == (1, "budget", [])
    fourth = await engine.start_turn(spec(), PLAIN, {})
    play(fourth, *priced(5, 5))
    questions, reason = await ask_and_run(fourth, "raise")
    assert (len(questions), reason) == (1, "end_turn")
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
    turn = await engine.start_turn(spec(), PLAIN, {})
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

    model = Closing(script, closed)
    connect_to(turn, connect)
    working = asyncio.create_task(run_to_end(turn, ask=ask))
    await asyncio.wait([working])
    assert working.cancelled()
    assert turn.usage.total == turn.usage.stored_usage == whole
    stored = await engine.store.get(turn.session.id, "w")
    found = await engine.store.report_usage(turn.session.id)
    assert (stored.usage, stored.steps, stored.interrupted) == (whole, steps, steps > 0)
    assert found.total == found.by_turn[turn.id] == await engine.store.sum_day(DaySpending().day) == whole
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
    turn = await engine.start_turn(spec(), PLAIN.apply_configuration(settings)[0], {})
    play(turn)
    await ask_and_run(turn)
    told = [notice for notice in turn.output.notices if "price" in notice]
    assert len(told) == count
    assert all("unheard-of" in text and "has no effect" in text for text in told)
    await engine.aclose()
