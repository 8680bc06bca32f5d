"""A client of the ACP SDK for TypeScript in node, which drives `thinklsp acp`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.editors.programs import npm
from tests.editors.steps import Step
from tests.editors.trial import BROKEN, FILE, FIXED, Trial, effort_of, prompt_of
from tests.editors.web_client import run_client

_SOURCES = Path(__file__).parent / "acp_sdk_client"
_CANCEL_MS = 1_000


async def install(room: Path) -> str:
    return await npm(room, _SOURCES, "@agentclientprotocol/sdk")


async def drive(trial: Trial, room: Path) -> None:
    given = {"root": str(trial.workspace), "file": FILE, "broken": BROKEN}
    seen = await run_client(trial, room, given, trial.variables)
    with trial.check("every message satisfies the schemas of the SDK"):
        assert seen["invalid"] == []
    _judge_prompts(trial, seen)
    _judge_cancels(trial, seen["stopped"])
    _judge_options(trial, seen)
    _judge_sessions(trial, seen)
    with trial.check("the agent ends with its input"):
        assert seen["codes"] == [0, 0]


def _judge_prompts(trial: Trial, seen: Any) -> None:
    with trial.check("initializes, authenticates and begins a session"):
        assert seen["initialized"]["agentInfo"]["name"] == "thinklsp"
        assert seen["session"]["modes"]["currentModeId"] == "edit"
        greeted = seen["greeted"]
        assert greeted["stopReason"] == "end_turn"
        assert "heliotrope" in greeted["said"]
        assert "A greeting." in greeted["thought"]
    accepted, rejected = seen["fixed"]["accepted"], seen["fixed"]["rejected"]
    with trial.check("a prompt with tools shows each of them"):
        assert accepted["stopReason"] == "end_turn"
        read = accepted["calls"][0]
        assert (read["kind"], read["status"]) == ("read", "pending")
        assert accepted["ends"][:2] == ["in_progress", "completed"]
        assert "The parameter is called `values`" in accepted["said"]
    with trial.check(Step.EDIT):
        [question] = accepted["questions"]
        [diff], [location] = question["toolCall"]["content"], question["toolCall"]["locations"]
        assert diff["oldText"] == f"# not saved\n{BROKEN}"
        assert diff["newText"] == accepted["buffer"] == f"# not saved\n{FIXED}"
        assert (location["path"], location["line"]) == (str(trial.file), 3)
        assert accepted["ends"][-1] == "completed"
        # Only the client writes its files.
        assert trial.file.read_text() == BROKEN
    with trial.check("an edit that is rejected changes nothing"):
        assert len(rejected["questions"]) == 1
        assert (rejected["buffer"], rejected["ends"][-1]) == (BROKEN, "failed")


def _judge_cancels(trial: Trial, stopped: Any) -> None:
    for phase, result in stopped.items():
        with trial.check(f"cancels a turn: {phase}"):
            assert result["stopReason"] == "cancelled"
            assert result["milliseconds"] < _CANCEL_MS
            assert result["buffer"] == BROKEN


def _judge_options(trial: Trial, seen: Any) -> None:
    chosen = seen["chosen"]
    with trial.check("mode and effort of the client count from the next turn"):
        assert (chosen["current"]["mode"], chosen["current"]["effort"]) == ("ask", "high")
        assert chosen["wrong"]["code"] == -32602
        assert chosen["answered"]["questions"] == []
        efforts = [effort_of(request) for request in trial.requests]
        assert (efforts[0], efforts[-1]) == (None, "high")


def _judge_sessions(trial: Trial, seen: Any) -> None:
    name = seen["session"]["sessionId"]
    with trial.check("lists the session, and closes it"):
        assert [entry["sessionId"] for entry in seen["listed"]["sessions"]] == [name]
        assert seen["closed"]["code"] == -32002
    with trial.check("resumes the session without a replay"):
        replayed, answered = seen["resumed"]["replayed"], seen["resumed"]["answered"]
        assert replayed["said"] == replayed["asked"] == ""
        assert "You greeted me first" in answered["said"]
    with trial.check(Step.RESUME):
        replayed, answered = seen["loaded"]["replayed"], seen["loaded"]["answered"]
        assert replayed["asked"].startswith("hello")
        assert "heliotrope" in replayed["said"]
        assert {call["status"] for call in replayed["calls"]} <= {"completed", "failed"}
        assert "You greeted me first" in answered["said"]
        assert "hello" in str(trial.requests[-1].body["messages"][0])
        assert "what did I ask first?" in prompt_of(trial.requests[-1])
    with trial.check("an unknown session is refused, a deleted one is gone"):
        assert seen["unknown"]["code"] == -32002
        assert seen["left"]["sessions"] == []
