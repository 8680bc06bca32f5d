"""The steps of a soak test, in random order and one at a time: chats, edits, faults, cancellations, switches."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from tests.support.client.actions import ResponseError
from tests.support.outside import MODEL, Json, Outside, check_turn_result
from tests.support.services import WAYS, BothServices
from tests.support.signing_server import Cut, Failure, Hold, Redacted, Text, Thinking, answer, tool

LINES = 400
FILES = {"a.py": "".join(f"value_{n} = {n}  # some words about it\n" for n in range(LINES)), "b.py": "b = 1\n"}
WORDS = "The quick brown fox jumps over the lazy dog; 🙂 then it reads the file again.\n" * 6
# The number of turns in a session before the next session starts, and the number of sessions that are kept.
_TURNS, _KEPT = 10, 12
_CANCELS = 0.05
_PATIENCE = 120.0
# The providers that the simulator plays. A conversation switches to them from time to time.
ELSEWHERE = [WAYS[name] for name in ("openai", "google", "openrouter")]
# The number of newest messages whose signatures are checked when they come back.
_REMEMBERED = 300

STATUSES = [(429, "rate_limit_error"), (500, "api_error"), (529, "overloaded_error"), (503, "api_error")]
BROKEN: list[Callable[[], list[Any]]] = [
    lambda: [Failure(*random.choice(STATUSES), "later", {"retry-after-ms": "5"})],
    lambda: [Failure(*random.choice(STATUSES), "later", {"retry-after-ms": "5"})] * 4,
    lambda: [Failure(401, "authentication_error", "invalid x-api-key")],
    # After this error, thinklsp repeats the request once without earlier thinking, if it contains any.
    lambda: [Failure(400, "invalid_request_error", "no", of_thinking=True)],
    lambda: [answer(Thinking(), Text(WORDS), Cut("reset"))],
    lambda: [answer(Thinking(), Text(WORDS), Cut("close"))],
    lambda: [answer(Thinking(), Text(WORDS), Cut("end"))],
    lambda: [answer(Thinking(), Text("Half"), Cut())] * 3,
    lambda: [answer(Thinking(), Text(WORDS), cut_behind=random.randrange(1500))],
    lambda: [answer(Thinking(), Text("I will not."), stop_reason="refusal")],
    lambda: [answer(Thinking(), Text(WORDS), stop_reason="max_tokens")],
]  # fmt: skip


class Both(BothServices):
    """Both services. Call `forget` regularly to limit their memory; it also clears the violations."""

    def __init__(self) -> None:
        super().__init__()
        self._cleared = 0

    def secrets(self) -> dict[str, str]:
        """Return the keys, and the signatures issued since the last but one `forget`."""
        keys = {name: value for name, value in self.others.secrets().items() if name != "anthropic key"}
        return keys | self.signing.secrets()

    def say(self, *script: Any) -> None:
        """Script the next answers of the signing server, and drop those that are left of a turn that ended early."""
        self.signing.script[:] = script

    def forget(self) -> None:
        issued = self.signing.signer.issued
        for name in list(issued)[: self._cleared]:
            del issued[name]
        self._cleared = len(issued)
        del self.signing.conversations.issued[:-_REMEMBERED]
        del self.signing.conversations.refused[:-_REMEMBERED]
        del self.signing.requests[:-1]
        self.signing.violations.clear()
        self.others.violations.clear()


class Course:
    """The steps of one soak test. `done` counts the steps by kind; `wrong` lists the failures as sentences."""

    def __init__(self, outside: Outside, both: Both, chance: random.Random, faults: float) -> None:
        self.outside, self.both = outside, both
        self.client = outside.client
        self.chance, self.faults = chance, faults
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.actions: list[float] = []
        self._session: Json = {}
        self._other: Json = {}
        self._turns = 0
        self._refuses = False
        self._tokens = 0

    def begin(self) -> None:
        self.uri = self.outside.open("a.py")
        self.client.editor.handlers["workspace/applyEdit"] = self._apply

    async def step(self) -> None:
        """Run one random step, in most cases a chat."""
        name, run = self.chance.choices(self._steps, self._weights)[0]
        self.done[name] += 1
        try:
            await run()
        except TimeoutError:
            self.wrong.append(f"{name} was not answered in time")
        self.outside.told()

    @property
    def _steps(self) -> list[tuple[str, Callable[[], Awaitable[Any]]]]:
        return [
            ("chat", self._chat), ("edit", self._edit), ("elsewhere", self._elsewhere), ("settings", self._settings),
            ("documents", self._documents), ("compaction", self._compact), ("look back", self._look_back),
            ("undo", self._undo), ("typing", self._type), ("chat document", self._chat_document),
        ]  # fmt: skip

    _weights = (50, 15, 6, 5, 5, 3, 6, 4, 3, 3)

    async def act(self) -> None:
        """Request code actions, a hover and code lenses, as an editor does all the time."""
        loop = asyncio.get_running_loop()
        at = loop.time()
        await self.client.code_actions(self.uri, f"value_{self.chance.randrange(10)} ")
        self.actions.append(loop.time() - at)
        place = {"line": self.chance.randrange(LINES), "character": 2}
        await self.client.request("textDocument/hover", {"textDocument": {"uri": self.uri}, "position": place})
        await self.client.lenses(self.uri)

    async def _chat(self) -> None:
        look = [tool("read_file", path="a.py", end_line=40), tool("search_text", pattern="value_1")]
        good = [answer(Thinking(WORDS), Redacted(), *look), answer(Thinking(), Text(WORDS))]
        roll = self.chance.random()
        if roll < self.faults:
            self.done["fault"] += 1
            await self._turn("thinklsp.chat", self._prompt(), *self.chance.choice(BROKEN)(), *good)
        elif roll < self.faults + _CANCELS:
            await self._cancelled()
        else:
            await self._turn("thinklsp.chat", self._prompt(), *good)

    async def _cancelled(self) -> None:
        self.done["cancel"] += 1
        hold = Hold()
        turn = asyncio.ensure_future(
            self._turn("thinklsp.chat", self._prompt(), answer(Thinking(), Redacted(), Text("Half"), hold, Text("."))
        ))  # fmt: skip
        reached = asyncio.ensure_future(hold.reached.wait())
        await asyncio.wait([turn, reached], return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()
        await self.client.command("thinklsp.cancel")
        await turn

    async def _edit(self) -> None:
        """Change one line of a.py. The editor refuses some of the edits."""
        number = self.chance.randrange(10)
        line = next(x for x in (self.client.text(self.uri) or "").splitlines() if x.startswith(f"value_{number} "))
        change = tool("edit_file", path="a.py", old_text=line, new_text=f"value_{number} = {self._number()}")
        self._refuses = self.chance.random() < 0.2
        argument = {"name": "edit", "uri": self.uri, "instruction": "Change it."}
        await self._turn("thinklsp.action", argument, answer(Thinking(), change), answer(Thinking(), Text("Done.")))

    async def _elsewhere(self) -> None:
        """Continue a separate session with other providers: the signing server accepts only its own thinking."""
        here, self._session = self._session, self._other
        for _ in range(2):
            way = self.chance.choice(ELSEWHERE)
            self._configure({"provider": way.provider, "model": way.model})
            await self._turn("thinklsp.chat", {"prompt": "Go on, please."} | self._session)
        self._other = self._session if self.chance.random() < 0.9 else {}
        self._session = here
        self._configure({"provider": "anthropic", "model": MODEL})

    async def _settings(self) -> None:
        self._configure(
            {
                "provider": "anthropic",
                "model": MODEL,
                "thinking": {"display": self.chance.choice(["status", "summary", "off"])},
                "effort": self.chance.choice(["low", "high", "max"]),
            }
        )
        await self.client.command("thinklsp.effort", {"value": self.chance.choice(["low", "high"])})
        await self.client.command("thinklsp.doctor")

    async def _documents(self) -> None:
        for number in range(10):
            uri = self.client.open(self.outside.uri(f"d{number}.py"), FILES["a.py"])
            self.client.change(uri, "value_1 ", "other_1 ")
            await self.client.code_actions(uri, "value_2 ")
            self.client.close_document(uri)

    async def _chat_document(self) -> None:
        uri = self.client.open(self.outside.uri(f"talk{self._number()}.chat.md"), "Say something.\n")
        self.both.say(answer(Thinking(), Text(WORDS)))
        await self._result(self.client.command("thinklsp.send", {"uri": uri}, token=self._token()))
        self.client.close_document(uri)

    async def _type(self) -> None:
        for _ in range(20):
            self.client.change(self.uri, "some words", "some more words", nth=self.chance.randrange(20))
            self.client.change(self.uri, "some more words", "some words")

    async def _compact(self) -> None:
        if self._session:
            summary = answer(Text("They talked about values. " * 10))
            self.both.say(summary, summary)
            with suppress(ResponseError):
                await self.client.command("thinklsp.compact", self._session, token=self._token())
            # The kept messages lose their thinking, and the signing server rejects that. So start a new session.
            self._session = {}

    async def _look_back(self) -> None:
        listed = await self.client.command("thinklsp.sessions", {"op": "list"})
        for old in listed[_KEPT:]:
            await self.client.command("thinklsp.sessions", {"op": "delete", "sessionId": old["sessionId"]})
        for op in ({"op": "show"}, {"op": "export", "format": "json"}, {"op": "fork"}):
            with suppress(ResponseError):
                await self.client.command("thinklsp.sessions", op)
        await self.client.command("thinklsp.usage")

    async def _undo(self) -> None:
        for name in ("thinklsp.undo", "thinklsp.apply"):
            with suppress(ResponseError):
                await self.client.command(name)

    def _prompt(self, text: str = "Look at the values.") -> Json:
        self._turns += 1
        if self._turns > _TURNS:
            self._turns, self._session = 0, {}
        partial = {"partialResultToken": f"partial-{self._number()}"} if self.chance.random() < 0.5 else {}
        return {"prompt": text} | self._session | partial

    async def _turn(self, command: str, argument: Json, *script: Any) -> None:
        self.both.say(*script)
        token = self._token()
        watched = self.chance.random() < 0.7
        request = self.client.command(command, argument, token=token if watched else None)
        if watched:
            await self._result(request)
            return
        with suppress(ResponseError):
            started = await request
            token = f"thinklsp-{started['turnId']}"
            await self.client.wait_for(
                lambda: "end" in self.client.progress_kinds(token), within=_PATIENCE, what=f"the end of {token}"
            )

    async def _result(self, request: Any) -> None:
        try:
            # The server retries some faults for a while.
            await self.client.wait_for(lambda: request.answered, within=_PATIENCE, what="the end of a turn")
            result = await request
        except ResponseError as error:
            self.done[f"refused: {error.message[:60]}"] += 1
            return
        check_turn_result(result)
        self.done[result["stopReason"]] += 1
        self._session = {"sessionId": result["sessionId"]}

    def _apply(self, params: Json) -> Json:
        if self._refuses:
            self._refuses = False
            self.done["edit refused"] += 1
            return {"applied": False, "failureReason": "not now"}
        self.done["edit applied"] += 1
        return self.client.editor.apply_edit(params)

    def _configure(self, settings: Json) -> None:
        self.client.editor.settings = settings
        self.client.configure({"thinklsp": settings})

    def _token(self) -> str:
        return f"soak-{self._number()}"

    def _number(self) -> int:
        self._tokens += 1
        return self._tokens
