"""Whole sessions as a state machine on the real server, with random actions of users, editors, services and crashes."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings, stateful
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.slow.mutating import CORPUS
from tests.slow.running import Tally
from tests.slow.session_services import KINDS, MODELS, NAMES
from tests.slow.session_world import EDITORS, World
from tests.support.client.actions import ResponseError
from tests.support.outside import Connect, Json
from tests.support.sizes import SEED, tries

STEPS = 30
MOST_RUNNING = 2
NOT_SERVED = -32601
OPS = ("list", "show", "export", "fork", "repair", "delete", "usage", "compact", "compact")
LOOKING = (
    *("textDocument/codeAction", "textDocument/hover", "textDocument/completion", "textDocument/definition"),
    *("textDocument/codeLens", "textDocument/semanticTokens/full", "codeAction/resolve", "$/setTrace"),
    "workspace/didChangeWatchedFiles",
)
LOOKS = [message for message in CORPUS if message.get("method") in LOOKING]
SETTINGS: list[Json] = [
    {"effort": "low"}, {"effort": "none such"}, {"thinking": {"display": "summary"}}, {"thinking": {"display": "off"}},
    {"maxSteps": 1}, {"maxSteps": 20}, {"maxSteps": -1}, {"actions": {"disabled": ["review"]}}, {"noSuch": 1}, {}, [1],
    {"apiKey": "sk-none"}, {"baseUrl": "http://127.0.0.1:1"},
]  # fmt: skip
SLASHES = (
    *("", "", "", "/effort low", "/usage", "/sessions", "/clear", "/compact", "/undo", "/model claude-opus-4-6", "/no"),
)

_names = st.sampled_from(NAMES)
_pieces = st.sampled_from(["word ", "🙂", "é", "𝒳y", "\n", "\r\n", "\tz\n", "x = 0\n", "last"])
_typed = st.lists(_pieces, min_size=1, max_size=3).map("".join)
_places = st.floats(0, 1)
_kinds = st.sampled_from(KINDS)
_models = st.sampled_from(MODELS)
_sessions = st.sampled_from(["new", "last", "known"])


class WholeSession(RuleBasedStateMachine):
    world: World

    def __init__(self, place: Path, connect: Connect, env: Mapping[str, str | None]) -> None:
        super().__init__()
        self.place, self.connect, self.env = place, connect, env
        self.loop = asyncio.new_event_loop()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    @initialize(encoding=st.sampled_from(["utf-16", "utf-8", "utf-32"]), editor=st.sampled_from([*EDITORS]))
    def begin(self, encoding: str, editor: str) -> None:
        self.world = self.run(World.begin(self.place, self.connect, encoding, editor, self.env))

    def teardown(self) -> None:
        try:
            if hasattr(self, "world"):
                self.run(self._finish(well=sys.exception() is None))
        finally:
            self.run(self.loop.shutdown_asyncgens())
            self.run(self.loop.shutdown_default_executor())
            self.loop.close()

    async def _finish(self, *, well: bool) -> None:
        try:
            if well:
                await self.world.finish()
        finally:
            await self.world.outside.stop()

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    @rule(name=_names, at=_places, length=st.integers(0, 6), new=_typed)
    def types(self, name: str, at: float, length: int, new: str) -> None:
        if not self.world.files.is_open(name):
            self.world.files.open(name)
        self.world.files.type(name, at, length, new)

    @rule(name=_names, how=st.sampled_from(["save", "close", "open", "note"]))
    def handles_files(self, name: str, how: str) -> None:
        is_open = self.world.files.is_open(name)
        match how:
            case "save" if is_open:
                self.world.files.save(name)
            case "close" if is_open:
                self.world.files.close(name)
            case "open" if not is_open:
                self.world.files.open(name)
            case _:
                self.world.note("🙂 to do, see @a.py\n")

    @precondition(lambda self: len(self.world.running) < MOST_RUNNING)
    @rule(kind=_kinds, name=_names, hold=st.booleans(), wish=_sessions)
    def asks(self, kind: str, name: str, hold: bool, wish: str) -> None:
        plan = self.world.plan(kind, name, hold=hold)
        self.run(self.world.starts(plan, "thinklsp.chat", {"prompt": plan.prompt} | self.world.session(wish)))

    @precondition(lambda self: len(self.world.running) < MOST_RUNNING)
    @rule(kind=_kinds, name=_names, hold=st.booleans())
    def takes_an_action(self, kind: str, name: str, hold: bool) -> None:
        plan = self.world.plan(kind, name, hold=hold)
        argument = {"name": "edit", "uri": self.world.uri(name), "instruction": plan.prompt}
        self.run(self.world.starts(plan, "thinklsp.action", argument))

    @precondition(lambda self: len(self.world.running) < MOST_RUNNING)
    @rule(kind=_kinds, name=_names, hold=st.booleans(), first=st.sampled_from(SLASHES))
    def sends(self, kind: str, name: str, hold: bool, first: str) -> None:
        self.run(self.world.sends(self.world.plan(kind, name, hold=hold), first))

    @precondition(lambda self: self.world.running)
    @rule(nth=st.integers(0, 1))
    def waits_for_the_end(self, nth: int) -> None:
        self.run(self.world.goes_on(self.world.running[-nth]))

    @precondition(lambda self: self.world.running)
    @rule(nth=st.integers(0, 1), way=st.sampled_from(["request", "progress", "command"]))
    def stops(self, nth: int, way: str) -> None:
        self.run(self.world.stops(self.world.running[-nth], way))

    @precondition(lambda self: self.world.turns)
    @rule(nth=st.integers(0, 9), undo=st.booleans())
    def takes_back_or_brings_in(self, nth: int, undo: bool) -> None:
        turns = [*(self.world.written if undo and self.world.written else self.world.turns)]
        turn = turns[nth % len(turns)]
        self.run(self.world.takes_back(turn) if turn in self.world.written else self.world.applies(turn))

    @rule(op=st.sampled_from(OPS), wish=_sessions)
    def looks_after_sessions(self, op: str, wish: str) -> None:
        self.run(self.world.looks_after(op, wish))

    @rule(change=st.sampled_from(SETTINGS) | _models.map(lambda model: {"model": model}))
    def configures(self, change: Json) -> None:
        self.world.client.configure({"thinklsp": change})

    @rule(wish=_sessions, model=_models)
    def chooses_a_model(self, wish: str, model: str) -> None:
        self.run(self.world.command("thinklsp.model", {"value": model} | self.world.session(wish)))

    @rule(look=st.none() | st.sampled_from(LOOKS))
    def the_editor_looks_or_will_refuse(self, look: Json) -> None:
        if look is None:
            self.world.refuse = 1
            return
        params = _with_root(look.get("params"), self.world.outside.root.as_uri())
        if "id" not in look:
            self.world.client.notify(look["method"], params)
            return
        result = self.run(self.world.asks(look["method"], params))
        assert not isinstance(result, ResponseError) or result.code == NOT_SERVED

    @rule(kill=st.booleans())
    def the_server_starts_anew(self, kill: bool) -> None:
        self.run(self.world.restarts(kill=kill))


def _with_root(value: Json, root: str) -> Json:
    if isinstance(value, str):
        return value.replace("file:///ws", root)
    if isinstance(value, dict):
        return {key: _with_root(item, root) for key, item in value.items()}
    return [_with_root(item, root) for item in value] if isinstance(value, list) else value


def test_whole_sessions(tmp_path: Path, servers: Connect, tally: Tally) -> None:
    total = tries("A-03")
    random_sessions(tmp_path, servers, total)
    tally("A-03", total)


def random_sessions(place: Path, connect: Connect, total: int, env: Mapping[str, str | None] | None = None) -> None:
    """Raise the failure of the first session that fails, as short as possible."""
    numbers = itertools.count()
    stateful.run_state_machine_as_test(
        seed(SEED)(lambda: WholeSession(place / str(next(numbers)), connect, env or {})),
        settings=settings(
            max_examples=total,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            # The session of a planted fault need not be shortened.
            phases=[Phase.generate] if env else [Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            print_blob=False,
        ),
    )
