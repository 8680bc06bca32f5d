"""kill -9 of the real server at random points of running turns, many of them."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.slow.running import Tally, running, say, spread
from tests.support.client.actions import Request
from tests.support.outside import Connect, Outside, said
from tests.support.signing_server import Answer, Redacted, Text, Thinking, answer, tool
from tests.support.sizes import SEED, lots, tries

Json = Any
MOMENTS = ("begun", "asked", "streaming", "answered", "tool", "told", "edit")
WORDS = "The quick brown fox jumps over the lazy dog, and then it reads the file again. "
STEPS = 3
_SPINS = (0, 0, 1, 3, 10, 40, 150)


@dataclass
class Killing:
    """One session that all turns go to. `steps`: those that were there at the last look."""

    outside: Outside
    session: str = ""
    steps: int = 0
    moments: Counter[str] = field(default_factory=Counter)
    reopened: list[float] = field(default_factory=list)

    def play(self, body: Json) -> Answer:
        """Answers by what the request says: nobody knows how often the model was asked before a kill."""
        users = [str(m["content"]) for m in body["messages"] if m["role"] == "user"]
        asked = max(n for n, text in enumerate(users) if "Round <" in text or "Go on <" in text)
        latest = users[asked]
        if latest.rfind("Go on <") > latest.rfind("Round <"):
            return answer(Thinking(), Redacted(), Text("Here I am."))
        number = int(latest.rpartition("Round <")[2].partition(">")[0])
        done = len(users) - 1 - asked
        if done >= STEPS:
            return answer(Thinking(), Text(WORDS))
        edit = tool("edit_file", path="a.py", old_text=f"x = {number}", new_text=f"x = {number + 1}")
        calls = [edit] if done == 0 else [tool("read_file", path="a.py"), tool("search_text", pattern="x")]
        return answer(Thinking(), Redacted(), Text(WORDS), *calls)

    async def begin(self) -> None:
        self.outside.provider.say(*[self.play] * 5000)  # type: ignore[attr-defined] # a signing server
        result = await self.outside.turn("thinklsp.chat", {"prompt": "Go on <0>."})
        self.session, self.steps = result["sessionId"], 1

    async def round(self, number: int, chance: random.Random) -> None:
        moment = chance.choice(MOMENTS)
        await self.round_at(moment, chance.randint(1, STEPS), number, spins=chance.choice(_SPINS))

    async def round_at(self, moment: str, nth: int, number: int, *, spins: int = 0) -> None:
        outside, client, provider = self.outside, self.outside.client, self.outside.provider
        (outside.root / "a.py").write_text(f"x = {number}\n")
        before = len(provider.requests)  # type: ignore[attr-defined] # a signing server
        argument = {"prompt": f"Round <{number}>.", "sessionId": self.session, "partialResultToken": "p"}
        turn = client.command("thinklsp.chat", argument, token="w")
        await self._moment(moment, nth, before, turn)
        for _ in range(spins):
            await asyncio.sleep(0)
        edits = len(client.edits())
        await outside.kill()
        told = sum(value["kind"] == "usage" for value in client.progress("p"))
        assert edits <= 1
        self._heard()
        await outside.restart(kill=True)
        self.moments[moment] += 1
        await self._goes_on(number, told, sure=moment != "begun")

    def _heard(self) -> None:
        """Check that the only messages are about edits that were being applied when the server was killed."""
        expected = "thinklsp stopped while the edit from "
        assert [text for text in self.outside.told() if not text.startswith(expected)] == []

    async def _moment(self, moment: str, nth: int, before: int, turn: Request) -> None:
        client, provider = self.outside.client, self.outside.provider
        requests = provider.requests  # type: ignore[attr-defined] # a signing server

        def kinds(kind: str) -> int:
            return sum(value["kind"] == kind for value in client.progress("p"))

        seen: Any = {
            "begun": lambda: client.progress("w"),
            "streaming": lambda: len(client.progress("p")) >= nth,
            "tool": lambda: kinds("tool") >= nth,
            "told": lambda: kinds("usage") >= nth,
            "edit": client.edits,
            "asked": lambda: len(requests) >= before + nth,
            "answered": lambda: sum(request.finished for request in requests[before:]) >= nth,
        }
        watched: Any = provider if moment in ("asked", "answered") else client
        await watched.wait_for(lambda: turn.answered or seen[moment](), what=f"{moment} {nth}")

    async def _goes_on(self, number: int, told: int, *, sure: bool) -> None:
        """Check that no reported step is lost and the service takes all. `sure`: the prompt was stored before."""
        outside, client = self.outside, self.outside.client
        # The engine is loaded first: the time is that of the store.
        await client.command("thinklsp.effort")
        at = time.monotonic()
        [entry] = await client.command("thinklsp.sessions", {"op": "list"})
        shown = await client.command("thinklsp.sessions", {"op": "show", "sessionId": "last"})
        self.reopened.append(time.monotonic() - at)
        assert entry["busy"] is False
        assert self.steps + told <= entry["steps"] <= self.steps + STEPS + 1, (number, self.steps, told, entry)
        kept = entry["steps"] - self.steps
        repair = await client.command("thinklsp.sessions", {"op": "repair", "sessionId": self.session})
        assert repair["findings"] == []

        provider: Any = outside.provider
        asked = len(provider.requests)
        result = await outside.turn("thinklsp.chat", {"prompt": f"Go on <{number}>.", "sessionId": "last"})
        assert (result["sessionId"], result["text"]) == (self.session, "Here I am.")
        assert provider.violations == []
        [request] = provider.requests[asked:]
        # A prompt stays with its steps; one that no step has answered is quoted with the next prompt.
        stays = f"Round <{number}>." in said(request.body)
        assert stays or not (sure or kept), (number, kept)
        assert (f"Round <{number}>." in shown["text"]) is stays
        assert client.edits() == []
        self._heard()
        self.steps = entry["steps"] + 1


PER_SESSION = 20


@pytest.mark.timing
@pytest.mark.parametrize(("lot", "count"), list(enumerate(lots(tries("A-15"), PER_SESSION))))
async def test_kills_at_random_points(tmp_path: Path, lot: int, count: int, servers: Connect, tally: Tally) -> None:
    chance = random.Random(f"{SEED} {lot}")
    async with running(tmp_path, files={"a.py": "x = 1\n"}, connect=servers) as outside:
        killing = Killing(outside)
        await killing.begin()
        for number in range(1, count + 1):
            await killing.round(number, chance)
    say(f"{dict(killing.moments)}, looks at the store: {spread(killing.reopened)}")
    assert max(killing.reopened) < 1.0
    assert len(killing.moments) >= min(count // 2, 5)
    tally("A-15", count)


async def test_a_store_that_falls_back_is_noticed(tmp_path: Path, servers: Connect) -> None:
    """The store of the server is the one from before the acknowledged turn."""
    async with running(tmp_path, files={"a.py": "x = 1\n"}, connect=servers, finish=False) as outside:
        killing = Killing(outside)
        await killing.begin()
        await outside.restart()
        shutil.copytree(outside.home / "state", tmp_path / "before")
        kill = outside.kill

        async def kill_and_fall_back() -> None:
            await kill()
            shutil.rmtree(outside.home / "state")
            shutil.copytree(tmp_path / "before", outside.home / "state")

        outside.kill = kill_and_fall_back  # type: ignore[method-assign] # this is the fault
        with pytest.raises(AssertionError, match=r"^\(1, 1, "):
            await killing.round_at("told", 2, 1)
