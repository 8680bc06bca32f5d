"""Random steps of a session whose output is searched for canaries: one server with its editor."""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.client.actions import ResponseError
from tests.support.client.documents import range_of
from tests.support.client.raw import RawClient
from tests.support.outside import MODEL, Connect, Json, Outside, loose_files, named
from tests.support.services import WAYS, SeveralServices
from tests.support.signing_server import Cut, Failure, Hold, Redacted, Text, Thinking, Tool, answer, tool

Step = Callable[[], Awaitable[None]]
FILES = {"a.py": "def f():\n    return 1\n", "b.py": "b = 1\n", "deep/c.py": "# TODO\n", "AGENTS.md": "Be kind.\n"}
ELSEWHERE = [way for way in WAYS.values() if way.provider != "anthropic" and not way.learned]
_SAID = "{ tr '\\0' '\\n' < /proc/$$/environ; printf '%s\\n' \"$@\"; } >> '{place}'"


def with_watched_children(connect: Connect) -> Connect:
    """Let every program that the server starts write its arguments and environment to a file that is searched."""

    async def watched(root: Path, variables: Mapping[str, str]) -> RawClient:
        programs = Path(variables["HOME"]) / "bin"
        programs.mkdir(mode=0o700, exist_ok=True)
        for name in ("rg", "git"):
            real = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
            if real is not None and not (programs / name).exists():
                said = _SAID.replace("{place}", f"{programs}/started")
                (programs / name).write_text(f"#!/bin/sh\n{said}\nexec '{real}' \"$@\"\n")
                (programs / name).chmod(0o700)
        return await connect(root, {**variables, "PATH": f"{programs}{os.pathsep}{variables['PATH']}"})

    return watched


class Session:
    """The provider of `outside` is a `SeveralServices`."""

    def __init__(self, outside: Outside, chance: random.Random) -> None:
        self.outside = outside
        self.services: SeveralServices = outside.provider  # type: ignore[assignment] # see above
        self.chance = chance
        self.sessions: list[str] = []
        self.turns: list[str] = []
        self.documents = 0
        self.model = MODEL
        self.arrive()

    @property
    def client(self) -> RawClient:
        return self.outside.client

    def arrive(self) -> None:
        self.uri = self.outside.open("a.py")
        self.client.editor.handlers["window/showMessageRequest"] = self._choose

    def _choose(self, params: Json) -> Json:
        return self.chance.choice([None, *params["actions"]])

    def says(self, *answers: Any) -> None:
        self.services.here.script[:] = answers

    async def command(self, name: str, argument: Json = None, *, token: bool = True) -> Json:
        """Return the result, or None if the command failed."""
        try:
            result = await self.client.command(name, argument, token=self.outside.token() if token else None)
        except ResponseError:
            return None
        if isinstance(result, dict) and "turnId" in result:
            self.turns.append(result["turnId"])
            self.sessions.append(result["sessionId"])
        return result

    def known(self) -> Json:
        return {"sessionId": self.chance.choice(self.sessions)} if self.sessions else {}

    def prompt(self) -> Json:
        return {"prompt": "Say something."} | (self.known() if self.chance.random() < 0.7 else {})

    def partial(self) -> Json:
        return {"partialResultToken": f"partial-{len(self.turns)}-{self.chance.randrange(10**9)}"}

    async def chat(self) -> None:
        thinking = [Thinking("I weigh it. " * 5), Redacted()][: self.chance.randint(1, 2)]
        look = self.chance.choice([tool("read_file", path="b.py"), tool("search_text", pattern="return")])
        self.says(answer(*thinking, look), answer(*thinking, Text("Done.")))
        await self.command("thinklsp.chat", self.prompt() | self.partial())

    async def chat_document(self) -> None:
        self.says(answer(Thinking(), Redacted(), Text("In a document.")))
        await self.unwatched(self.prompt())

    async def send(self) -> None:
        self.documents += 1
        name = f"talk-{self.documents}.chat.md"
        uri = self.outside.open(name, f"## You\n\n{self.chance.choice(['', '/usage', '/sessions', '/help'])}\nGo.\n")
        self.says(answer(Thinking(), Redacted(), Text("Sent.")))
        await self.command("thinklsp.send", {"uri": uri})
        await self.client.lenses(uri)
        self.client.close_document(uri)

    async def unwatched(self, argument: Json) -> None:
        before = len(self.client.calls("window/workDoneProgress/create"))
        if await self.command("thinklsp.chat", argument, token=False) is not None:
            await self.client.wait_for(lambda: self.client.calls("window/workDoneProgress/create")[before:])
        await self.quiet()

    async def quiet(self) -> None:
        """Wait for the end of all progress with a token of the server. A failed command may leave its turn running."""
        await self.client.lenses(self.uri)

        def over() -> bool:
            """The server withdraws a progress if its turn fails before the editor has created it."""
            withdrawn = [call.params["id"] for call in self.client.calls("$/cancelRequest")]
            return all(
                "end" in self.client.progress_kinds(call.params["token"]) or call.message["id"] in withdrawn
                for call in self.client.calls("window/workDoneProgress/create")
            )

        await self.client.wait_for(over, what="the end of what has begun")

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
        key, issued = self.services.key, self.services.here.secrets()
        secret = self.chance.choice(list(issued.values()))
        return self.chance.choice(
            [
                f"invalid x-api-key: {secret}",
                f"invalid x-api-key: {key}",
                f'header {{"x-api-key": "{key}"}} and signature "{secret}"',
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
        """Change settings, some of which an editor may not set."""
        display = self.chance.choice(["status", "summary", "off", "everything"])
        change = {"model": self.model, "thinking": {"display": display}, "apiKey": self.services.key}
        self.client.editor.settings = change | {"baseUrl": f"http://{self.services.key}@localhost"}
        self.client.configure({"thinklsp": self.client.editor.settings})
        self.client.notify("$/setTrace", {"value": self.chance.choice(["verbose", "messages", "off"])})

    async def choice(self) -> None:
        self.model = self.chance.choice(["claude-opus-5-5", "claude-opus-4-6", "claude-sonnet-4-6"])
        session = self.known()
        await self.command("thinklsp.model", {"value": self.model} | session)
        await self.command("thinklsp.effort", {"value": self.chance.choice(["low", "high", "max"])} | session)
        await self.command("thinklsp.thinking", {"value": self.chance.choice(["auto", "off", "summary"])})

    async def look_back(self) -> None:
        session = self.known()
        for argument in ({"op": "list"}, {"op": "show"} | session, {"op": "export", "format": "json"} | session):
            await self.command("thinklsp.sessions", argument)
        await self.command("thinklsp.usage", session)

    async def look_around(self) -> None:
        text = self.client.text(self.uri) or ""
        place = {"textDocument": {"uri": self.uri}, "position": range_of(text, "return")["start"]}
        await self.client.request("textDocument/hover", place)
        await self.client.lenses(self.uri)
        uri = self.outside.open("asking.chat.md", "## You\n\n/ef\n@a\n")
        await self.client.complete(uri, self.chance.choice(["/ef", "@a"]))
        self.client.close_document(uri)

    async def keep(self) -> None:
        op = self.chance.choice(["fork", "repair", "delete", "attach"])
        known = self.known()
        if op != "delete" or len(self.sessions) > 5:
            await self.command("thinklsp.sessions", {"op": op} | known)
        if op == "delete" and known in ({"sessionId": each} for each in self.sessions[5:]):
            self.sessions.remove(known["sessionId"])

    async def compact(self) -> None:
        self.says(answer(Thinking(), Text("Much was said.")))
        await self.command("thinklsp.compact", self.known())

    async def undo(self) -> None:
        await self.command("thinklsp.undo", {"turnId": self.chance.choice(self.turns)} if self.turns else None)

    async def elsewhere(self) -> None:
        way = self.chance.choice(ELSEWHERE)
        # The model of the session takes precedence over settings.
        self.says(answer(Thinking(), Text("Still here.")))
        usual = self.client.editor.settings
        self.client.editor.settings = {"provider": way.provider, "model": way.model}
        await self._pulled()
        await self.command("thinklsp.chat", {"prompt": "Go on."} | self.known() | self.partial())
        self.client.editor.settings = usual
        await self._pulled()

    async def _pulled(self) -> None:
        before = len(self.client.calls("workspace/configuration"))
        self.client.configure(None)
        await self.client.wait_for(lambda: len(self.client.calls("workspace/configuration")) > before)

    async def restart(self) -> None:
        await self.renew(kill=self.chance.random() < 0.5, move=self.chance.random() < 0.5)

    async def renew(self, *, kill: bool = False, move: bool = False) -> None:
        if kill:
            await self.quiet()
            await self.outside.kill()
        else:
            assert await self.client.close() == 0
        assert self.client.checker.violations == []
        self.outside.told()
        if move:
            self.outside.variables.update(self.services.move())
        await self.outside.restart(kill=True)
        self.arrive()

    async def terminal(self) -> None:
        self.documents += 1
        place = self.outside.home / f"exported-{self.documents}"
        form = self.chance.choice(["markdown", "json"])
        argv = [sys.executable, "-m", "thinklsp", "sessions", "export", "last", "--format", form, "-o", str(place)]
        process = await asyncio.create_subprocess_exec(
            *argv, cwd=self.outside.root, env=self.outside.variables, umask=0,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        said, _ = await process.communicate()
        (self.outside.home / f"said-{self.documents}").write_bytes(said)
        (self.outside.home / f"said-{self.documents}").chmod(0o600)

    async def doctor(self) -> None:
        await self.command("thinklsp.doctor")

    async def apply(self) -> None:
        await self.command("thinklsp.apply", {"turnId": self.chance.choice(self.turns)} if self.turns else None)
        for offered in named(await self.client.code_actions(self.uri, "def"), "apply"):
            await self.command(offered["command"]["command"], offered["command"]["arguments"][0])

    async def bad_request(self) -> None:
        secret = self.services.key
        # Invalid requests with a secret: no error may repeat it.
        # Only the name of an unknown field may appear in an error.
        wrong = [{"prompt": [secret]}, {"prompt": "x", "effort": secret}, {"mode": secret}, secret]
        await self.command("thinklsp.chat", self.chance.choice(wrong))
        with pytest.raises(ResponseError):
            await self.client.request("textDocument/codeAction", {"textDocument": secret})
        self.client.notify("textDocument/didChange", {"textDocument": {"uri": secret}, "contentChanges": [secret]})

    def steps(self) -> list[Step]:
        return [
            self.chat, self.chat, self.chat_document, self.send, self.action, self.action, self.cancel, self.error,
            self.retry, self.refusal, self.settings, self.choice, self.look_back, self.look_around, self.keep,
            self.compact, self.undo, self.elsewhere, self.restart, self.doctor, self.apply, self.bad_request,
        ]  # fmt: skip


async def course(outside: Outside) -> Session:
    session = Session(outside, random.Random(0))
    steps = (
        session.chat, session.chat_document, session.look_around, session.error, session.bad_request, session.doctor,
        session.look_back, session.elsewhere,
    )  # fmt: skip
    await session.action("edit")
    for step in steps:
        await step()
    await session.renew(move=True)
    await session.chat()
    return session


async def leaks_after(outside: Outside, *, shut_down: bool = True) -> list[str]:
    """End the server and return all leaks, files that others can read included."""
    while_it_runs = loose_files(outside.home)
    if shut_down:
        assert await outside.client.close() == 0
    else:
        outside.client.notify("exit")
        assert await outside.client.gone() == 1
    services: SeveralServices = outside.provider  # type: ignore[assignment] # see Session
    leaks = [str(leak) for leak in (*outside.leaks(), *services.leaks())]
    return leaks + sorted({*while_it_runs, *loose_files(outside.home)})
