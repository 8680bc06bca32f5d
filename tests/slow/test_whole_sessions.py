"""Whole sessions as a state machine on the real server: whatever people, editors, services and crashes do, and when.

The server is a process, the editor and the service that signs share no code with it. After each step the traffic is
well-formed, every file holds what was typed and turned, and in the end what is stored can be sent.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.support.mutating import CORPUS
from tests.support.outside import Connect
from tests.support.raw_client import ResponseError
from tests.support.session_services import ELSEWHERE, KINDS, MODELS, chosen
from tests.support.session_world import EDITORS, NAMES, World
from tests.support.sizes import SEED, tries

Json = Any
STEPS = 30
NOT_SERVED = -32601
LOOKING = (
    "textDocument/codeAction", "textDocument/hover", "textDocument/completion", "textDocument/definition",
    "textDocument/codeLens", "textDocument/semanticTokens/full", "codeAction/resolve", "$/setTrace",
    "workspace/didChangeWatchedFiles",
)  # fmt: skip
# What real editors look at, as it was recorded.
LOOKS = [message for message in CORPUS if message.get("method") in LOOKING]
SETTINGS: list[Json] = [
    {"effort": "low"}, {"effort": "none such"}, {"thinking": {"display": "summary"}}, {"thinking": {"display": "off"}},
    {"maxSteps": 1}, {"maxSteps": 20}, {"maxSteps": -1}, {"actions": {"disabled": ["review"]}}, {"noSuch": 1}, {}, [1],
    {"apiKey": "sk-none"}, {"baseUrl": "http://127.0.0.1:1"},
]  # fmt: skip
SLASHES = (
    "",
    "",
    "",
    "/effort low",
    "/usage",
    "/sessions",
    "/clear",
    "/compact",
    "/undo",
    "/model claude-opus-4-6",
    "/no",
)

_names = st.sampled_from(NAMES)
_pieces = st.sampled_from(["word ", "🙂", "é", "𝒳y", "\n", "\r\n", "\tz\n", "x = 0\n", "last"])
_typed = st.lists(_pieces, min_size=1, max_size=3).map("".join)
_places = st.floats(0, 1)
_sessions = st.sampled_from(["new", "last", "known"])


class WholeSession(RuleBasedStateMachine):
    world: World

    def __init__(self, place: Path, connect: Connect) -> None:
        super().__init__()
        self.place, self.connect = place, connect
        self.loop = asyncio.new_event_loop()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    @initialize(encoding=st.sampled_from(["utf-16", "utf-8", "utf-32"]), editor=st.sampled_from([*EDITORS]))
    def begin(self, encoding: str, editor: str) -> None:
        self.world = self.run(World.begin(self.place, self.connect, encoding, editor))

    def teardown(self) -> None:
        try:
            if hasattr(self, "world"):
                self.run(self._finish(well=sys.exception() is None))
        finally:
            self.run(self.loop.shutdown_asyncgens())
            self.run(self.loop.shutdown_default_executor())
            self.loop.close()

    async def _finish(self, *, well: bool) -> None:
        """After a step that failed there is nothing more to check."""
        try:
            if well:
                await self.world.finish()
        finally:
            await self.world.outside.stop()

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    # The person

    @rule(name=_names, at=_places, length=st.integers(0, 6), new=_typed)
    def types(self, name: str, at: float, length: int, new: str) -> None:
        side = self.world.files[name].buffer
        if side is None:
            return
        start = _between(side.below, round(at * len(side.below)))
        self.world.type(name, start, _between(side.below, min(len(side.below), start + length)), new)

    @rule(name=_names)
    def saves(self, name: str) -> None:
        if self.world.files[name].buffer is not None:
            self.world.save(name)

    @rule(name=_names)
    def closes_or_opens(self, name: str) -> None:
        if self.world.files[name].buffer is None:
            self.world.open(name)
        else:
            self.world.close(name)

    @rule(text=st.sampled_from(["note", "🙂 to do\n", "@a.py ", "`x`"]))
    def writes_a_note(self, text: str) -> None:
        self.world.count += 1
        self.world.writes(f"<{self.world.count}> {text}")

    @precondition(lambda self: len(self.world.running) < 2)
    @rule(kind=st.sampled_from(KINDS), name=_names, hold=st.booleans(), session=_sessions, action=st.booleans())
    def asks(self, kind: str, name: str, hold: bool, session: str, action: bool) -> None:
        plan = self.world.plan(kind, name, hold=hold)
        if action:
            argument = {"name": "edit", "uri": self.world.uri(name), "instruction": plan.prompt}
            self.run(self.world.starts(plan, "thinklsp.action", argument))
            return
        self.run(self.world.starts(plan, "thinklsp.chat", {"prompt": plan.prompt} | self._session(session)))

    @precondition(lambda self: len(self.world.running) < 2)
    @rule(kind=st.sampled_from(KINDS), name=_names, hold=st.booleans(), first=st.sampled_from(SLASHES))
    def sends(self, kind: str, name: str, hold: bool, first: str) -> None:
        self.run(self.world.sends(self.world.plan(kind, name, hold=hold), first))

    @precondition(lambda self: self.world.running)
    @rule(first=st.booleans())
    def waits_for_the_end(self, first: bool) -> None:
        self.run(self.world.goes_on(self.world.running[0 if first else -1]))

    @precondition(lambda self: self.world.running)
    @rule(first=st.booleans(), way=st.sampled_from(["request", "progress", "command"]))
    def stops(self, first: bool, way: str) -> None:
        self.run(self.world.stops(self.world.running[0 if first else -1], way))

    @rule(nth=st.integers(0, 9))
    def undoes(self, nth: int) -> None:
        if written := [*self.world.written]:
            self.run(self.world.takes_back(written[nth % len(written)]))

    @rule(nth=st.integers(0, 9))
    def applies(self, nth: int) -> None:
        if turns := [*self.world.turns]:
            self.run(self.world.applies(turns[nth % len(turns)]))

    # Sessions and choices

    def _session(self, wish: str) -> dict[str, str]:
        known = self.world.sessions
        if wish == "known" and known:
            return {"sessionId": known[self.world.count % len(known)]}
        return {"sessionId": "last"} if wish == "last" and known else {}

    @rule(wish=_sessions, op=st.sampled_from(["list", "show", "export", "fork", "fork", "repair", "delete"]))
    def looks_after_sessions(self, wish: str, op: str) -> None:
        session = self._session("known" if op == "delete" else wish)
        if op == "delete" and not session:
            return
        more = {"format": "json"} if op == "export" else {}
        result = self.run(self.world.command("thinklsp.sessions", {"op": op} | session | more))
        if result is not None and op == "fork":
            self.world.sessions.append(result["sessionId"])
        elif result is not None and op == "delete":
            self.world.sessions.remove(result["sessionId"])
            self.world.kept.discard(result["sessionId"])
        elif result is not None and op == "repair":
            assert result["findings"] == []

    @rule(wish=_sessions)
    def compacts(self, wish: str) -> None:
        result = self.run(self.world.command("thinklsp.compact", self._session(wish), token=True))
        if result is not None and result["archiveId"] is not None:
            shown = {"op": "show", "archiveId": result["archiveId"]} | self._session(wish)
            self.run(self.world.command("thinklsp.sessions", shown))

    @rule(wish=_sessions)
    def counts(self, wish: str) -> None:
        self.run(self.world.command("thinklsp.usage", self._session(wish)))

    @rule(change=st.sampled_from(SETTINGS))
    def configures(self, change: Json) -> None:
        self.world.client.configure({"thinklsp": change})

    @rule(service=st.sampled_from([*MODELS, *ELSEWHERE]))
    def goes_to_another_service(self, service: str) -> None:
        self.world.client.configure({"thinklsp": chosen(service)})

    @rule(wish=_sessions, model=st.sampled_from(MODELS))
    def chooses_a_model(self, wish: str, model: str) -> None:
        self.run(self.world.command("thinklsp.model", {"value": model} | self._session(wish)))

    # The editor and the process

    @rule()
    def the_editor_will_refuse(self) -> None:
        self.world.refuse = 1

    @rule(nth=st.integers(0, len(LOOKS) - 1))
    def the_editor_looks(self, nth: int) -> None:
        text = _with_root(LOOKS[nth].get("params"), self.world.outside.root.as_uri())
        if "id" not in LOOKS[nth]:
            self.world.client.notify(LOOKS[nth]["method"], text)
            return
        result = self.run(self.world.asks(LOOKS[nth]["method"], text))
        assert not isinstance(result, ResponseError) or result.code == NOT_SERVED

    @rule(kill=st.booleans())
    def the_server_starts_anew(self, kill: bool) -> None:
        self.run(self.world.restarts(kill=kill))


def _between(text: str, place: int) -> int:
    """Not inside of a line end: such a place is none."""
    return place - 1 if text[place - 1 : place + 1] == "\r\n" else place


def _with_root(value: Json, root: str) -> Json:
    if isinstance(value, str):
        return value.replace("file:///ws", root)
    if isinstance(value, dict):
        return {key: _with_root(item, root) for key, item in value.items()}
    return [_with_root(item, root) for item in value] if isinstance(value, list) else value


def test_whole_sessions(tmp_path: Path, servers: Connect, tally: Callable[[str, int], None]) -> None:
    numbers = itertools.count()
    made = 0

    def session() -> WholeSession:
        nonlocal made
        made += 1
        return WholeSession(tmp_path / str(next(numbers)), servers)

    run_state_machine_as_test(
        seed(SEED)(session),
        settings=settings(
            max_examples=tries("A-03"),
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            print_blob=False,
        ),
    )
    tally("A-03", made)
