"""Cancels at random moments in every way: one reply, one end, a closed connection, and the session continues.

A moment is an event and never a time, such as the nth progress, the start of a tool, or the wait before a retry.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.slow.running import SLACK, Tally, running, say, spread
from tests.support.client.actions import Request, ResponseError
from tests.support.outside import Connect, Json, Outside, check_turn_result, server_with
from tests.support.signing_server import Answer, Failure, Hold, Redacted, Text, Thinking, answer, tool
from tests.support.sizes import SEED, lots, tries

pytestmark = pytest.mark.timing
PER_SERVER = 20
ANSWERED, CLOSED = 0.1, 1.0
WORDS = "The quick brown fox jumps over the lazy dog; 🙂 then it reads the file again. " * 2

MOMENTS = ("begin", "progress", "partial", "stream", "held stream", "tool", "edit", "prompt", "no byte", "retry")
WAYS = ("request", "progress", "command")


@dataclass
class Round:
    """A turn that will be cancelled. `ready` is set at its moment; `hold` stops it there."""

    number: int
    moment: str
    way: str
    watched: bool
    nth: int
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    hold: Hold = field(default_factory=Hold)

    @property
    def name(self) -> str:
        return f"f{self.number}.py"

    @property
    def prompt(self) -> str:
        return f"Round <{self.number}>."

    def steps(self) -> list[Answer]:
        edit = tool("edit_file", path=self.name, old_text="x = 1", new_text="x = 2")
        before = self.hold if self.moment == "no byte" else None
        words: list[Any] = [Text(WORDS)]
        if self.moment in ("stream", "held stream"):
            if self.moment == "stream":
                self.hold.release()
            cut = self.nth * 7 % len(WORDS)
            words = [Text(WORDS[:cut] or "."), self.hold, Text(WORDS[cut:] or ".")]
        calls = [tool("read_file", path=self.name), tool("search_text", pattern="x"), edit]
        if self.moment == "prompt":
            calls = [edit, tool("ask_user", question="Which one?", options=["a", "b"])]
        pace = 0.001 if self.moment in ("partial", "progress") else 0.0
        return [
            answer(Thinking(WORDS), Redacted(), *calls, before=before if self.nth % 2 else None, pace=pace),
            answer(Thinking(), *words, before=before, pace=pace),
        ]


@dataclass
class Course:
    outside: Outside
    session: str = ""
    rounds: dict[int, Round] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)
    closed: list[float] = field(default_factory=list)

    def play(self, body: Json) -> Answer:
        """Answer by the content of the request, so that a late request cannot take the answer of another one."""
        users = [m for m in body["messages"] if m["role"] == "user"]
        asked = [n for n, m in enumerate(users) if "Round <" in str(m["content"])]
        if not asked or "Go on <" in str(users[asked[-1] :]):
            return answer(Thinking(), Redacted(), Text("Here I am."))
        number = int(str(users[asked[-1]]["content"]).rpartition("Round <")[2].partition(">")[0])
        steps = self.rounds[number].steps()
        return steps[min(len(users) - 1 - asked[-1], len(steps) - 1)]

    async def begin(self) -> None:
        self.outside.provider.say(*[self.play] * 5000)
        handlers = self.outside.client.editor.handlers
        handlers["workspace/applyEdit"] = self._apply
        handlers["window/showMessageRequest"] = self._prompt
        self.session = (await self.outside.turn("thinklsp.chat", {"prompt": "Go on <0>."}))["sessionId"]

    def _at(self, moment: str) -> Round | None:
        last = self.rounds[max(self.rounds)] if self.rounds else None
        return last if last is not None and last.moment == moment else None

    async def _apply(self, params: Json) -> Json:
        """Leave an edit under review alone, or apply it after the server has given up."""
        if (now := self._at("edit")) is not None:
            now.ready.set()
            await now.hold.wait()
            if now.nth % 2:
                return {"applied": False}
        return self.outside.client.editor.apply_edit(params)

    async def _prompt(self, params: Json) -> Json:
        if (now := self._at("prompt")) is not None:
            now.ready.set()
            await now.hold.wait()
        return None

    async def run(self, now: Round) -> None:
        outside, (client, provider) = self.outside, self.outside.pair
        (outside.root / now.name).write_text("x = 1\n")
        uri = outside.open(now.name)
        self.rounds[now.number] = now
        if now.moment == "retry":
            provider.script.insert(0, Failure(529, "overloaded_error", "Overloaded", {"retry-after": "60"}))
        first_request, first_received = len(provider.requests), len(client.received)
        token, partial = outside.token(), f"partial-{now.number}"
        argument = {"prompt": now.prompt, "sessionId": self.session, "uri": uri, "partialResultToken": partial}
        turn = client.command("thinklsp.chat", argument, token=token if now.watched else None)
        if not now.watched:
            started = await turn
            token = f"thinklsp-{started['turnId']}"
            # The request of the server names its token.
            created = await client.wait_for(lambda: client.calls("window/workDoneProgress/create")[-1:], what="a token")
            token = created[0].params["token"]

        await self._moment(now, token, partial, turn)
        at = time.monotonic()
        stopped = self._cancel(now, turn, token)
        self.outcomes[await self._outcome(now, turn, token, partial)] += 1
        self.waits.append(time.monotonic() - at)
        edits_then = len(client.edits())
        if stopped is not None:
            await stopped

        # Before the hold is released: on an open connection the answer would end by itself.
        def closed() -> bool:
            return all(r.finished or r.closed_at or r.status != 200 for r in provider.requests[first_request:])

        await provider.wait_for(closed, within=CLOSED * SLACK, what="the provider's connections closed")
        now.hold.release()
        self.closed += [r.closed_at - at for r in provider.requests[first_request:] if r.closed_at]
        kinds = client.progress_kinds(token)
        assert (kinds.count("begin"), kinds.count("end"), kinds[-1]) == (1, 1, "end"), (now, kinds)

        asked = len(provider.requests)
        await self._goes_on(now)
        assert len(client.edits()) == edits_then, f"an edit after the answer to a cancel: {now}"
        assert len(provider.requests) == asked + 1, f"a request of a cancelled turn: {now}"
        answers = [
            r for r in client.received[first_received:] if r.message.get("id") == turn.id and "method" not in r.message
        ]
        assert len(answers) == 1, now
        client.close_document(uri)

    async def _moment(self, now: Round, token: str, partial: str, turn: Request) -> None:
        client = self.outside.client

        def over() -> bool:
            return "end" in client.progress_kinds(token)

        def tools() -> list[Json]:
            return [value for value in client.progress(partial) if value["kind"] == "tool"]

        seen: dict[str, Callable[[], Any]] = {
            "begin": lambda: client.progress(token),
            "progress": lambda: len(client.progress(token)) >= 2 + now.nth % 4,
            "partial": lambda: len(client.progress(partial)) >= 1 + now.nth % 9,
            "tool": lambda: len(tools()) >= 1 + now.nth % 6,
            "retry": lambda: any("retrying" in v.get("message", "") for v in client.progress(token)),
        }
        if now.moment in seen:
            await client.wait_for(lambda: over() or seen[now.moment](), what=str(now))
            return
        ready = now.ready if now.moment in ("edit", "prompt") else now.hold.reached
        waiting = asyncio.create_task(ready.wait())
        ended = asyncio.create_task(client.wait_for(over, within=60, what=str(now)))
        await asyncio.wait([waiting, ended], return_when=asyncio.FIRST_COMPLETED)
        for task in (waiting, ended):
            task.cancel()
        await asyncio.gather(waiting, ended, return_exceptions=True)

    def _cancel(self, now: Round, turn: Request, token: str) -> Request | None:
        client = self.outside.client
        match now.way:
            case "request":
                client.cancel(turn)
            case "progress":
                client.notify("window/workDoneProgress/cancel", {"token": token})
            case _:
                return client.command("thinklsp.cancel")
        return None

    async def _outcome(self, now: Round, turn: Request, token: str, partial: str) -> str:
        """Return the outcome. A turn may be quicker than its cancel."""
        client = self.outside.client
        if not now.watched:
            await client.wait_for(lambda: "end" in client.progress_kinds(token), what=f"the end of {now}")
            [last] = [v for v in client.progress(partial) if v["kind"] == "finished"]
            result = last["result"]
        else:
            try:
                result = await turn
            except ResponseError as error:
                if (now.way, error.code) == ("request", -32800):
                    return "cancelled"
                raise
        check_turn_result(result)
        assert result["stopReason"] in ("cancelled", "end_turn"), (now, result)
        assert result["sessionId"] == self.session
        return str(result["stopReason"])

    async def _goes_on(self, now: Round) -> None:
        argument = {"prompt": f"Go on <{now.number}>.", "sessionId": self.session}
        result = await self.outside.turn("thinklsp.chat", argument)
        assert (result["stopReason"], result["text"]) == ("end_turn", "Here I am."), (now, result)
        assert self.outside.provider.violations == [], now


def rounds(lot: int, count: int) -> list[Round]:
    chance = random.Random(f"{SEED} {lot}")
    made = []
    for number in range(1, count + 1):
        way = chance.choice(WAYS)
        # Without a token the command is answered at once, so its request cannot be cancelled.
        watched = way == "request" or chance.random() < 0.7
        made.append(Round(number, chance.choice(MOMENTS), way, watched, chance.randrange(1000)))
    return made


async def cancels(place: Path, course_of: Sequence[Round], connect: Connect) -> Course:
    async with running(place, connect=connect) as outside:
        course = Course(outside)
        await course.begin()
        for now in course_of:
            await course.run(now)
        # An editor may apply an edit after the cancel, which the server reports.
        heard = outside.told()
        assert [text for text in heard if "after it was cancelled" not in text] == [], heard
    # The limit is a p99, so one cancel of a lot may exceed it.
    *most, longest = sorted(course.waits)
    assert most[-1] < ANSWERED * SLACK, spread(course.waits)
    assert longest < CLOSED * SLACK, spread(course.waits)
    return course


@pytest.mark.parametrize(("lot", "count"), list(enumerate(lots(tries("A-05"), PER_SERVER))))
async def test_cancels_at_random_moments(tmp_path: Path, lot: int, count: int, servers: Connect, tally: Tally) -> None:
    course = await cancels(tmp_path, rounds(lot, count), servers)
    say(f"{dict(course.outcomes)}, answered: {spread(course.waits)}; closed: {spread(course.closed)}")
    # With fewer cancels the moments were too late.
    assert course.outcomes["cancelled"] >= count * 0.8, course.outcomes
    tally("A-05", count)


LATE = """
import asyncio
from thinklsp.lsp.protocol.lsp_protocol import LspProtocol
receive = LspProtocol.receive
def late(self, frame):
    if any(word in frame for word in (b'"$/cancelRequest"', b'workDoneProgress/cancel"', b'"thinklsp.cancel"')):
        asyncio.get_running_loop().call_later(2, receive, self, frame)
    else:
        receive(self, frame)
LspProtocol.receive = late
"""
TWICE = """
from thinklsp.jsonrpc.writer import FrameWriter
write = FrameWriter.write
def twice(self, body, **more):
    write(self, body, **more)
    if b"-32800" in body:
        write(self, body, **more)
FrameWriter.write = twice
"""
OPEN = """
from asyncio.selector_events import _SelectorSocketTransport
kept = []
keep = lambda self: kept.append(self)
_SelectorSocketTransport.close = _SelectorSocketTransport.abort = _SelectorSocketTransport.write_eof = keep
"""


@pytest.mark.parametrize("program", [LATE, TWICE, OPEN], ids=["late", "answered twice", "left open"])
async def test_a_server_that_cancels_wrongly_is_noticed(tmp_path: Path, program: str) -> None:
    held = [Round(number, "held stream", way, watched=True, nth=3) for number, way in enumerate(WAYS, 1)]
    with pytest.raises((AssertionError, TimeoutError)):
        await cancels(tmp_path, held, server_with(program))
