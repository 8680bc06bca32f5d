"""Nothing secret leaves: random sessions in which it could, and servers that leak on purpose and must be caught.

The secrets are the key, every signature and all redacted data that the service has issued; they are searched, in every
dress, in all that was written to the editor, to stderr, and into state, settings, temporary and workspace folders.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.slow.running import running, say
from tests.support.outside import Outside, loose_files, named
from tests.support.raw_client import ResponseError
from tests.support.signing_script import Cut, Failure, Hold, Redacted, Text, Thinking, Tool, answer, tool
from tests.support.sizes import SEED, lots, sized

Json = Any
PER_TEST = 10
STEPS = 14
FILES = {"a.py": "def f():\n    return 1\n", "b.py": "b = 1\n", "deep/c.py": "# TODO\n"}
LEAKING = Path(__file__).parent / "leaking"
SINKS = re.findall(
    r'^    "(.+?)": ', (LEAKING / "sitecustomize.py").read_text("utf-8").partition("SINKS")[2], re.MULTILINE
)


class Session:
    """One server and what has happened on it. Every step ends with the answer of its command."""

    def __init__(self, outside: Outside, chance: random.Random) -> None:
        self.outside = outside
        self.client, self.provider = outside.pair
        self.chance = chance
        self.uri = outside.open("a.py")
        self.sessions: list[str] = []
        self.turns: list[str] = []
        self.model = "claude-opus-5-5"

    def says(self, *answers: Any) -> None:
        """What is left of a turn that ended early is nobody's answer."""
        self.provider.script[:] = answers

    async def command(self, name: str, argument: Json = None, *, token: bool = True) -> Json:
        """The result, or None where the command failed, as it may."""
        try:
            result = await self.client.command(name, argument, token=self.outside.token() if token else None)
        except ResponseError:
            return None
        if isinstance(result, dict) and "turnId" in result:
            self.turns.append(result["turnId"])
            self.sessions.append(result["sessionId"])
        return result

    def prompt(self) -> Json:
        known = self.sessions and self.chance.random() < 0.7
        return {"prompt": "Say something."} | ({"sessionId": self.chance.choice(self.sessions)} if known else {})

    def partial(self) -> Json:
        return {"partialResultToken": f"partial-{len(self.turns)}-{self.chance.randrange(10**9)}"}

    async def chat(self) -> None:
        thinking = [Thinking("I weigh it. " * 5), Redacted()][: self.chance.randint(1, 2)]
        self.says(answer(*thinking, tool("read_file", path="b.py")), answer(*thinking, Text("Done.")))
        await self.command("thinklsp.chat", self.prompt() | self.partial())

    async def chat_document(self) -> None:
        self.says(answer(Thinking(), Redacted(), Text("In a document.")))
        await self.unwatched(self.prompt())

    async def unwatched(self, argument: Json) -> None:
        """A turn that reports under a token of the server, to its end."""
        before = len(self.client.calls("window/workDoneProgress/create"))
        if await self.command("thinklsp.chat", argument, token=False) is None:
            return
        created = await self.client.wait_for(lambda: self.client.calls("window/workDoneProgress/create")[before:])
        token = created[0].params["token"]
        await self.client.wait_for(lambda: "end" in self.client.progress_kinds(token), what="the end of a chat")

    async def action(self, *names: str) -> None:
        old = self.client.text(self.uri) or ""
        new = f"return {self.chance.randrange(1000)}"
        found = re.search(r"return \d+", old)
        edit = tool("edit_file", path="a.py", old_text=found[0] if found else "x", new_text=new)
        self.says(answer(Thinking(), Redacted(), edit), answer(Thinking(), Text("Edited.")))
        name = self.chance.choice(names or ("edit", "document", "explain", "review"))
        await self.command("thinklsp.action", {"name": name, "uri": self.uri, "instruction": "Change it."})
        await self.client.code_actions(self.uri, "def")

    async def cancel(self) -> None:
        hold = Hold()
        edit = tool("write_file", path="new.py", content="x = 1\n")
        self.says(answer(Thinking(), Redacted(), edit), answer(Thinking(), Text("Half"), hold, Redacted(), Text("x")))
        turn = asyncio.create_task(self.command("thinklsp.chat", self.prompt()))
        reached = asyncio.create_task(hold.reached.wait())
        await asyncio.wait([turn, reached], return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()
        await self.client.command("thinklsp.cancel")
        await turn

    def echoed(self) -> str:
        """What a careless service may repeat: the key, or what it has issued itself."""
        secret = self.chance.choice(list(self.provider.secrets().values()))
        return self.chance.choice(
            [
                f"invalid x-api-key: {secret}",
                f"invalid x-api-key: {self.provider.key}",
                f'header {{"x-api-key": "{self.provider.key}"}} and signature "{secret}"',
                f"messages.1.content.0: Invalid `signature` in `thinking` block: {secret}",
                f"bearer {secret[:48]} was not taken",
            ]
        )

    async def error(self) -> None:
        status, kind = self.chance.choice([(401, "authentication_error"), (400, "invalid_request_error"), (403, "x")])
        self.says(*[Failure(status, kind, self.echoed())] * 4)
        if self.chance.random() < 0.3:
            await self.unwatched(self.prompt())
        else:
            await self.command("thinklsp.chat", self.prompt() | self.partial())

    async def retry(self) -> None:
        failure = Failure(529, "overloaded_error", self.echoed(), {"retry-after-ms": "5"})
        broken = answer(Thinking(), Redacted(), Text("Half"), Cut())
        self.says(failure, broken, failure, answer(Thinking(), Text("At last.")))
        await self.command("thinklsp.chat", self.prompt() | self.partial())

    async def refusal(self) -> None:
        torn = Tool("write_file", {"path": "d.py", "content": "x"}, cut=True)
        items = [Thinking(), Redacted(), Text("I will ")]
        stop = self.chance.choice(["refusal", "max_tokens"])
        self.says(answer(*items, *([torn] if stop == "max_tokens" else []), stop_reason=stop))
        await self.command("thinklsp.chat", self.prompt() | self.partial())

    async def settings(self) -> None:
        display = self.chance.choice(["status", "summary", "off", "everything"])
        change = {"model": self.model, "thinking": {"display": display}, "apiKey": self.provider.key}
        self.client.configure({"thinklsp": change | {"baseUrl": f"http://{self.provider.key}@localhost"}})
        self.client.notify("$/setTrace", {"value": "verbose"})

    async def choice(self) -> None:
        self.model = self.chance.choice(["claude-opus-5-5", "claude-opus-4-6", "claude-sonnet-4-6"])
        session = {"sessionId": self.chance.choice(self.sessions)} if self.sessions else {}
        await self.command("thinklsp.model", {"value": self.model} | session)
        await self.command("thinklsp.effort", {"value": self.chance.choice(["low", "high", "max"])} | session)
        await self.command("thinklsp.thinking", {"value": self.chance.choice(["auto", "off", "summary"])})

    async def look_back(self) -> None:
        session = {"sessionId": self.chance.choice(self.sessions)} if self.sessions else {}
        for argument in ({"op": "list"}, {"op": "show"} | session, {"op": "export", "format": "json"} | session):
            await self.command("thinklsp.sessions", argument)
        await self.command("thinklsp.usage", session)

    async def doctor(self) -> None:
        await self.command("thinklsp.doctor")

    async def apply(self) -> None:
        await self.command("thinklsp.apply", {"turnId": self.chance.choice(self.turns)} if self.turns else None)
        for offered in named(await self.client.code_actions(self.uri, "def"), "apply"):
            await self.command(offered["command"]["command"], offered["command"]["arguments"][0])

    async def bad_request(self) -> None:
        secret = self.provider.key
        # Wrong in its form, with a secret inside: no error text may repeat it.
        # The name of an unknown field is told, as it is what the caller has to mend.
        wrong = [{"prompt": [secret]}, {"prompt": "x", "effort": secret}, {"mode": secret}, secret]
        await self.command("thinklsp.chat", self.chance.choice(wrong))
        with pytest.raises(ResponseError):
            await self.client.request("textDocument/codeAction", {"textDocument": secret})
        self.client.notify("textDocument/didChange", {"textDocument": {"uri": secret}, "contentChanges": [secret]})

    def steps(self) -> list[Callable[[], Awaitable[None]]]:
        return [
            self.chat, self.chat, self.chat_document, self.action, self.cancel, self.error, self.retry,
            self.refusal, self.settings, self.choice, self.doctor, self.apply, self.bad_request,
            self.look_back,
        ]  # fmt: skip


async def course(outside: Outside) -> None:
    """What brings every sink to write something."""
    session = Session(outside, random.Random(0))
    await session.chat()
    await session.chat_document()
    await session.action("edit")
    await session.error()
    await session.doctor()


async def leaks_after(outside: Outside, *, shut_down: bool = True) -> list[str]:
    if shut_down:
        assert await outside.client.close() == 0
    else:
        outside.client.notify("exit")
        assert await outside.client.gone() == 1
    assert loose_files(outside.home / "state") == []
    return [str(leak) for leak in outside.leaks()]


@pytest.mark.parametrize(("lot", "count"), list(enumerate(lots(sized(commit=20, nightly=100), PER_TEST))))
async def test_random_sessions_leak_nothing(tmp_path: Path, lot: int, count: int) -> None:
    taken: Counter[str] = Counter()
    searched = 0
    for number in range(count):
        chance = random.Random(f"{SEED} {lot} {number}")
        async with running(tmp_path / str(number), files=FILES, finish=False) as outside:
            session = Session(outside, chance)
            await session.chat()
            for _ in range(STEPS):
                step = chance.choice(session.steps())
                taken[step.__name__] += 1
                await step()
            assert await leaks_after(outside, shut_down=chance.random() < 0.8) == [], f"session {number}: {taken}"
            searched += len(outside.provider.secrets())
    say(f"{count} sessions, {searched} secrets, {dict(taken)}")
    assert searched > 10 * count


@pytest.mark.parametrize("sink", SINKS)
async def test_a_leak_that_was_planted_is_found(tmp_path: Path, sink: str) -> None:
    """The search above can fail: a server with one leaking sink is caught, whichever it is."""
    path = f"{LEAKING}:{Path(__file__).parents[2]}"
    async with running(tmp_path, files=FILES, finish=False, env={"LEAK": sink, "PYTHONPATH": path}) as outside:
        await course(outside)
        assert await leaks_after(outside) != []


async def test_the_same_course_without_a_leak_is_clean(tmp_path: Path) -> None:
    path = f"{LEAKING}:{Path(__file__).parents[2]}"
    async with running(tmp_path, files=FILES, finish=False, env={"PYTHONPATH": path}) as outside:
        await course(outside)
        assert await leaks_after(outside) == []
