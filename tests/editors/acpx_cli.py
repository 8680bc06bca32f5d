"""acpx, a client for the command line, with `thinklsp acp` as its agent. It reads and writes files on the disk."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.editors.programs import npm
from tests.editors.steps import Step
from tests.editors.trial import BROKEN, FIXED, Trial, effort_of

_SOURCES = Path(__file__).parent / "acpx"
_AGENT = ("--agent", "thinklsp acp")
# The exit code of acpx if it denied every permission that the agent asked for.
_DENIED = 5
_FIX = "fix the undefined name"
# acpx keeps the agent of a session in a process of its own, which ends after so many seconds without a prompt.
_IDLE, _IDLE_AT_THE_END = ("--ttl", "6"), ("--ttl", "1")


async def install(room: Path) -> str:
    return await npm(room, _SOURCES, "acpx")


async def drive(trial: Trial, room: Path) -> None:
    acpx = _Acpx(trial, room)
    await _prompts_once(acpx)
    await _cancels(acpx)
    await _resumes(acpx)


@dataclass(frozen=True)
class _Run:
    """What a run of acpx printed. `messages` are the messages that it sent and received, in order."""

    code: int | None
    said: str
    complained: str

    @property
    def messages(self) -> list[Any]:
        return [json.loads(line) for line in self.said.splitlines()]

    def params(self, method: str) -> list[Any]:
        return [message["params"] for message in self.messages if message.get("method") == method]

    def updates(self, kind: str) -> list[Any]:
        updates = [params["update"] for params in self.params("session/update")]
        return [update for update in updates if update["sessionUpdate"] == kind]

    def text(self) -> str:
        return "".join(update["content"]["text"] for update in self.updates("agent_message_chunk"))

    def stop_reason(self) -> str:
        results = [message["result"] for message in self.messages if isinstance(message.get("result"), Mapping)]
        return ", ".join(result["stopReason"] for result in results if "stopReason" in result)

    def is_clean(self) -> bool:
        """Return whether no request was answered with an error, and acpx printed no complaint."""
        errors = [message for message in self.messages if "error" in message]
        return errors == [] and re.search(r"error|invalid|fail", self.complained, re.IGNORECASE) is None


@dataclass(frozen=True)
class _Acpx:
    trial: Trial
    room: Path

    async def run(self, *words: str, output: str = "json", idle: tuple[str, str] = _IDLE) -> _Run:
        argv = (str(self.room / "bin" / "node"), str(self.room / "node_modules/acpx/dist/cli.js"))
        # It starts itself once more, by the first `node` on the PATH.
        variables = {**self.trial.variables, "PATH": f"{self.room / 'bin'}:{self.trial.variables['PATH']}"}
        process = await asyncio.create_subprocess_exec(
            *argv, *_AGENT, *idle, "--format", output, *words, cwd=self.trial.workspace, env=variables,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            said, complained = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        self.trial.searched(said + complained, f"acpx {' '.join(words)}")
        return _Run(process.returncode, said.decode(), complained.decode())


async def _prompts_once(acpx: _Acpx) -> None:
    trial = acpx.trial
    with trial.check("shows thinking and answer as text"):
        greeted = await acpx.run("exec", "hello", output="text")
        assert greeted.code == 0, greeted
        assert "[thinking] A greeting." in greeted.said
        assert "heliotrope" in greeted.said
        assert "[done] end_turn" in greeted.said
    with trial.check("a prompt with tools shows each of them"):
        fixed = await acpx.run("--approve-all", "exec", _FIX)
        assert (fixed.code, fixed.stop_reason()) == (0, "end_turn"), fixed
        assert fixed.is_clean(), fixed
        assert [call["kind"] for call in fixed.updates("tool_call")] == ["read", "edit", "edit"], fixed
        assert {update["status"] for update in fixed.updates("tool_call_update")} == {"in_progress", "completed"}
        assert "The parameter is called `values`" in fixed.text()
    with trial.check("the edit arrives in the file"):
        [question] = fixed.params("session/request_permission")
        [diff] = question["toolCall"]["content"]
        assert (diff["path"], diff["oldText"], diff["newText"]) == (str(trial.file), BROKEN, FIXED)
        assert [params["content"] for params in fixed.params("fs/write_text_file")] == [FIXED]
        assert trial.file.read_text() == FIXED
    with trial.check("an edit that is denied changes nothing"):
        trial.file.write_text(BROKEN)
        denied = await acpx.run("--deny-all", "exec", _FIX)
        assert (denied.code, denied.stop_reason()) == (_DENIED, "end_turn"), denied
        assert denied.updates("tool_call_update")[-1]["status"] == "failed"
        assert denied.params("fs/write_text_file") == []
        assert trial.file.read_text() == BROKEN


async def _cancels(acpx: _Acpx) -> None:
    trial = acpx.trial
    with trial.check("cancels a turn by its own command"):
        created = await acpx.run("sessions", "new", output="quiet")
        assert created.code == 0, created
        before = len(trial.requests)
        running = asyncio.create_task(acpx.run("prompt", "think forever"))
        await trial.until(lambda: len(trial.requests) > before, "the model's call")
        assert "cancel requested" in (await acpx.run("cancel", output="text")).said
        cancelled = await running
        assert cancelled.stop_reason() == "cancelled", cancelled
        assert cancelled.is_clean(), cancelled
        await trial.until(lambda: trial.requests[before].closed_by_client, "the connection closed")


async def _resumes(acpx: _Acpx) -> None:
    trial = acpx.trial
    with trial.check("mode and effort of the client count from the next turn"):
        await acpx.run("set", "effort", "high", output="text")
        greeted = await acpx.run("prompt", "hello")
        assert (greeted.code, greeted.stop_reason()) == (0, "end_turn"), greeted
        assert effort_of(trial.requests[-1]) == "high"
    with trial.check(Step.RESUME):
        # The agent of the session ends with the process that keeps it.
        await trial.ended()
        resumed = await acpx.run("prompt", "what did I ask first?", idle=_IDLE_AT_THE_END)
        assert resumed.is_clean(), resumed
        assert len(resumed.params("session/resume")) == 1
        assert "You greeted me first" in resumed.text()
        assert "hello" in str(trial.requests[-1].body["messages"][0]), trial.requests[-1].body["messages"]
    with trial.check("lists the sessions of the agent"):
        listed = await acpx.run("sessions", "list", output="text")
        assert all(title in listed.said for title in ("hello", _FIX, "think forever")), listed
