"""The steps of a soak test, in random order and one at a time: those of `canary_sessions`, with a few sessions only."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

from tests.slow.canary_sessions import FILES, Session, Step
from tests.support.outside import Json, Outside
from tests.support.services import SeveralServices

__all__ = ["FILES", "Course", "ForgetfulServices"]
# The number of turns in a session before the next session starts, and the number of sessions that are kept.
_TURNS, _KEPT = 10, 12
_CANCELS = 0.05
# The number of newest messages whose signatures are checked when they come back.
_REMEMBERED = 300
_LARGE = "".join(f"value_{n} = {n}  # some words about it\n" for n in range(400))


class ForgetfulServices(SeveralServices):
    """Services for a long run. Call `forget` regularly to limit their memory; it also clears the violations."""

    def __init__(self) -> None:
        super().__init__()
        self._cleared = 0
        # Conversations go on after a compaction and with other providers.
        self.first.conversations.elsewhere = True

    def forget(self) -> None:
        """Forget the signatures that were issued before the last call."""
        service = self.first
        for name in list(service.signer.issued)[: self._cleared]:
            del service.signer.issued[name]
        self._cleared = len(service.signer.issued)
        del service.conversations.issued[:-_REMEMBERED]
        del service.conversations.refused[:-_REMEMBERED]
        del service.requests[:-1]
        for each in self.services:
            each.violations.clear()


class Course(Session):
    """`done` counts the steps and outcomes by kind; `wrong` lists the failures as sentences."""

    def __init__(self, outside: Outside, chance: random.Random, faults: float) -> None:
        super().__init__(outside, chance)
        self.faults = faults
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.actions: list[float] = []
        self._refuses = False
        self.client.editor.handlers["workspace/applyEdit"] = self._apply

    async def step(self) -> None:
        """Run one random step, in most cases a chat."""
        steps, weights = zip(*self._weighted_steps(), strict=True)
        [run] = self.chance.choices(steps, weights)
        self.done[run.__name__] += 1
        self._refuses = self.chance.random() < 0.05
        try:
            await run()
        except TimeoutError:
            self.wrong.append(f"{run.__name__} was not answered in time")
        for uri in {*self.client.desk.open} - {self.uri}:
            # An answer in a chat document, which the user has read.
            self.client.close_document(uri)
        del self.turns[:-_KEPT]
        self.outside.told()

    def _weighted_steps(self) -> list[tuple[Step, int]]:
        return [
            (self._chat_or_fail, 50), (self.action, 15), (self.elsewhere, 6), (self.settings, 3), (self.doctor, 2),
            (self.open_documents, 5), (self.compact, 3), (self.look_back, 6), (self.undo, 2), (self.apply, 2),
            (self.type, 3), (self.send, 3),
        ]  # fmt: skip

    async def act(self) -> None:
        """Request code actions, a hover and code lenses, as an editor does all the time."""
        loop = asyncio.get_running_loop()
        at = loop.time()
        await self.client.code_actions(self.uri, "return")
        self.actions.append(loop.time() - at)
        await self.client.hover(self.uri, "return")
        await self.client.lenses(self.uri)

    async def _chat_or_fail(self) -> None:
        self.done["chat"] += 1
        roll = self.chance.random()
        if roll < self.faults:
            self.done["fault"] += 1
            await self.chance.choice((self.error, self.retry, self.refusal))()
        elif roll < self.faults + _CANCELS:
            await self.cancel()
        else:
            await self.chat()

    async def open_documents(self) -> None:
        for number in range(10):
            uri = self.client.open(self.outside.uri(f"d{number}.py"), _LARGE)
            self.client.change(uri, "value_1 ", "other_1 ")
            await self.client.code_actions(uri, "value_2 ")
            self.client.close_document(uri)

    async def type(self) -> None:
        for _ in range(20):
            self.client.change(self.uri, "def f", "def ff")
            self.client.change(self.uri, "def ff", "def f")

    async def look_back(self) -> None:
        listed = await self.client.command("thinklsp.sessions", {"op": "list"})
        for old in listed[_KEPT:]:
            await self.client.command("thinklsp.sessions", {"op": "delete", "sessionId": old["sessionId"]})
        await super().look_back()

    async def command(self, name: str, argument: Json = None, *, token: bool = True) -> Json:
        result = await super().command(name, argument, token=token)
        outcome = result.get("stopReason") if isinstance(result, dict) else None
        self.done[str(outcome or ("refused" if result is None else "answered"))] += 1
        return result

    def known(self) -> Json:
        """Return the last session, if it is short."""
        if len(self.sessions) >= _TURNS:
            self.sessions.clear()
        return {"sessionId": self.sessions[-1]} if self.sessions else {}

    def _apply(self, params: Json) -> Any:
        if self._refuses:
            return {"applied": False, "failureReason": "not now"}
        return self.client.editor.apply_edit(params)
