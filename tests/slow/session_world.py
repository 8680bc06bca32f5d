"""One workspace in a random session: the real server, an editor, the services, and the invariants."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.slow.session_services import MODELS, NAMES, Files, Plan, Services, Side
from tests.support.client.actions import Request, ResponseError
from tests.support.client.editor import capabilities
from tests.support.client.raw import RawClient
from tests.support.outside import Connect, Json, Outside, check_sentence, check_turn_result, start
from tests.support.signing_server import Hold

CHAT = "notes.chat.md"
# Capabilities of editors that change the course.
EDITORS: dict[str, Json] = {
    "all": capabilities(),
    "no versions": capabilities(
        workspace__workspaceEdit={"documentChanges": False}, workspace__configuration=None, window__showDocument=None
    ),
    "no progress": capabilities(window__workDoneProgress=None, workspace__codeLens=None),
}
CANCELLED, FAILED, INVALID = -32800, -32803, -32602


async def outcome(request: Request) -> Json | ResponseError:
    try:
        return await request
    except ResponseError as error:
        return error


@dataclass
class Turn:
    plan: Plan
    command: str
    request: Request
    token: str
    text: str


@dataclass
class World:
    """`sessions` can continue, `kept` must be in the store. The edits of the turns `written` are applied. `marks` are
    texts that must stay in the chat document. `refuse`: how many edits the editor rejects next."""

    outside: Outside
    services: Services
    announce: Json
    files: Files
    running: list[Turn] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)
    turns: dict[str, Plan] = field(default_factory=dict)
    written: dict[str, Plan] = field(default_factory=dict)
    marks: list[str] = field(default_factory=list)
    refuse: int = 0
    count: int = 0

    @classmethod
    async def begin(
        cls, place: Path, connect: Connect, encoding: str, editor: str, env: Mapping[str, str | None]
    ) -> World:
        announce = {**EDITORS[editor], "general": {"positionEncodings": [encoding]}}
        services = Services()
        texts = dict.fromkeys(NAMES, Side().text)
        outside = await start(place, files=texts, announce=announce, provider=services, connect=connect, env=dict(env))
        world = cls(outside, services, announce, Files(outside))
        world._watch_edits()
        for name in NAMES:
            world.files.open(name)
        outside.open(CHAT, "")
        return world

    @property
    def client(self) -> RawClient:
        return self.outside.client

    def uri(self, name: str) -> str:
        return self.outside.uri(name)

    def _watch_edits(self) -> None:
        def apply(params: Json) -> Json:
            if self.refuse:
                self.refuse -= 1
                return {"applied": False, "failureReason": "not now"}
            return self.client.editor.apply_edit(params)

        self.client.editor.handlers["workspace/applyEdit"] = apply

    def plan(self, kind: str, name: str, *, hold: bool) -> Plan:
        self.count += 1
        old = self.files.now(name).first
        plan = Plan(self.count, kind, name, old, f"x = {self.count}", Hold() if hold else None)
        self.services.plans[plan.number] = plan
        return plan

    async def starts(self, plan: Plan, command: str, argument: Json) -> None:
        token = f"plan-{plan.number}"
        partial = {} if command == "thinklsp.send" else {"partialResultToken": f"partial-{plan.number}"}
        text = self.files.now(plan.name).text
        request = self.client.command(command, argument | partial, token=token)
        turn = Turn(plan, command, request, token, text)
        if plan.hold is None:
            await self.ends(turn)
            return
        self.running.append(turn)
        hold = plan.hold
        await self.client.wait_for(lambda: request.answered or hold.reached.is_set(), within=60, what=plan.prompt)
        if request.answered:
            self.running.remove(turn)
            await self.ends(turn)

    async def goes_on(self, turn: Turn) -> None:
        self.running.remove(turn)
        assert turn.plan.hold is not None
        turn.plan.hold.release()
        await self.ends(turn)

    async def ends(self, turn: Turn) -> Json:
        """Wait for the answer and take over what it says about the files."""
        result = await outcome(turn.request)
        if isinstance(result, ResponseError):
            assert result.code in (CANCELLED, FAILED), result
            check_sentence(result.message)
            if result.data is not None:
                self._know(turn.plan, result.data)
            return None
        check_turn_result(result)
        self._know(turn.plan, result)
        if result["text"] in turn.plan.answers:
            self.kept.add(result["sessionId"])
            self._check_read(turn)
        if result["edits"] is not None:
            self._believe(turn.plan, result["edits"]["files"], result["turnId"])
        return result

    def _know(self, plan: Plan, result: Json) -> None:
        self.turns[result["turnId"]] = plan
        if result["sessionId"] not in self.sessions:
            self.sessions.append(result["sessionId"])

    def _check_read(self, turn: Turn) -> None:
        if turn.plan.kind == "read" and turn.plan.results:
            lines = turn.text.replace("\r\n", "\n").split("\n")
            missed = [line for line in lines if json.dumps(line, ensure_ascii=False)[1:-1] not in turn.plan.results]
            assert not missed, f"the model was not shown {missed}"

    def _believe(self, plan: Plan, files: Json, turn_id: str) -> None:
        for file in files:
            if file["status"] == "applied" and plan.kind == "edit":
                assert file["uri"] == self.uri(plan.name)
                now = self.files.now(plan.name)
                assert now.first == plan.old, "an edit was made over another one"
                now.first = plan.new
                self.written[turn_id] = plan

    async def stops(self, turn: Turn, way: str) -> None:
        if way == "progress" and not self.announce["window"].get("workDoneProgress"):
            way = "command"
        if way == "command":
            turn = self.running[-1]
        self.running.remove(turn)
        match way:
            case "request":
                self.client.cancel(turn.request)
            case "progress":
                self.client.notify("window/workDoneProgress/cancel", {"token": turn.token})
            case _:
                assert len((await self.client.command("thinklsp.cancel"))["cancelled"]) == 1
        result = await self.ends(turn)
        assert result is None or result["stopReason"] == "cancelled"

    async def takes_back(self, turn_id: str) -> None:
        plan = self.written[turn_id]
        result = await self.command("thinklsp.undo", {"turnId": turn_id})
        # A document that was closed unsaved has already lost the edit, and nothing is left to undo.
        is_lost = result is None and self.files.now(plan.name).first == plan.old
        if is_lost or (result is not None and result["applied"] == "all"):
            self._unwrite(turn_id, plan)

    def _unwrite(self, turn_id: str, plan: Plan) -> None:
        now = self.files.now(plan.name)
        assert now.first in (plan.new, plan.old), "an undo went over another edit"
        now.first = plan.old
        del self.written[turn_id]

    async def applies(self, turn_id: str) -> None:
        result = await self.command("thinklsp.apply", {"turnId": turn_id})
        if result is not None:
            self._believe(self.turns[turn_id], result["files"], turn_id)

    async def sends(self, plan: Plan, first: str) -> None:
        self.writes(f"{first}\n{plan.prompt}\n" if first else plan.prompt)
        await self.starts(plan, "thinklsp.send", {"uri": self.uri(CHAT)})
        if first == "/undo":
            self._see_undone()

    def writes(self, text: str) -> None:
        document = self.client.desk.open[self.uri(CHAT)]
        self.client.replace(document.uri, len(document.text), len(document.text), text)
        self.marks.append(text)

    def note(self, text: str) -> None:
        self.count += 1
        self.writes(f"<{self.count}> {text}")

    def _see_undone(self) -> None:
        """Only the file shows which turn was undone."""
        for turn_id, plan in [*self.written.items()]:
            text = self.client.text(self.uri(plan.name)) or ""
            if self.files.now(plan.name).first == plan.new and text.startswith(f"{plan.old}\n"):
                self._unwrite(turn_id, plan)

    async def asks(self, method: str, params: Json) -> Json | ResponseError:
        return await outcome(self.client.request(method, params))

    async def command(self, name: str, argument: Json = None, *, token: bool = False) -> Json:
        """Return the result, or None if the command was refused with a sentence."""
        result = await outcome(self.client.command(name, argument, token=self.outside.token() if token else None))
        if not isinstance(result, ResponseError):
            return result
        assert result.code in (FAILED, INVALID), result
        check_sentence(result.message)
        return None

    def session(self, wish: str) -> dict[str, str]:
        if wish == "known" and self.sessions:
            return {"sessionId": self.sessions[self.count % len(self.sessions)]}
        return {"sessionId": "last"} if wish == "last" and self.sessions else {}

    async def looks_after(self, op: str, wish: str) -> None:
        named = self.session("known" if op == "delete" else wish)
        if op == "usage":
            await self.command("thinklsp.usage", named)
        elif op == "compact":
            await self._compacts(named)
        elif named or op != "delete":
            more = {"format": "json"} if op == "export" else {}
            result = await self.command("thinklsp.sessions", {"op": op} | named | more)
            match op, result:
                case "fork", {"sessionId": forked}:
                    self.sessions.append(forked)
                case "delete", {"sessionId": deleted}:
                    self.sessions.remove(deleted)
                    self.kept.discard(deleted)
                case "repair", {"findings": findings}:
                    assert not findings, findings
                case _:
                    pass

    async def _compacts(self, named: dict[str, str]) -> None:
        result = await self.command("thinklsp.compact", named, token=True)
        if result is not None and result["archiveId"] is not None:
            given = {"op": "show", "archiveId": result["archiveId"]} | (named or {"sessionId": "last"})
            assert await self.command("thinklsp.sessions", given) is not None

    async def restarts(self, *, kill: bool) -> None:
        old, outside = self.client, self.outside
        self.check()
        if kill:
            await outside.kill()
            self.running.clear()
        else:
            assert await old.close() == 0
            for turn in [*self.running]:
                self.running.remove(turn)
                await self.ends(turn)
            self.check()
        await outside.reopen(announce=self.announce)
        self._watch_edits()
        for uri, document in old.desk.open.items():
            self.client.open(uri, document.text, language=document.language)
        listed = await self.client.command("thinklsp.sessions", {"op": "list"})
        lost = self.kept - {entry["sessionId"] for entry in listed}
        assert not lost, f"lost: {lost}"

    async def finish(self) -> None:
        self.refuse = 0
        for turn in [*self.running]:
            await self.goes_on(turn)
        self.client.configure({"thinklsp": {"model": MODELS[0]}})
        # The engine reports invalid settings before it answers.
        await self.client.command("thinklsp.effort")
        for session in sorted(self.kept)[-3:]:
            plan = self.plan("say", NAMES[0], hold=False)
            result = await self.outside.turn("thinklsp.chat", {"prompt": plan.prompt, "sessionId": session})
            assert (result["sessionId"], result["stopReason"]) == (session, "end_turn")
            assert result["text"] in plan.answers
        self.check()
        await self.outside.finish()

    def check(self) -> None:
        for text in self.outside.told():
            check_sentence(text)
        wrong = self.client.checker.violations + self.services.violations
        assert not wrong, wrong
        assert b"Traceback" not in self.client.stderr, self.client.stderr.decode()
        self.files.check()
        chat = self.client.text(self.uri(CHAT)) or ""
        assert [mark for mark in self.marks if mark.strip() not in chat] == []
