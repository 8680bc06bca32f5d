"""Commands from outside: who is asked, what each answer is good for, and edits that are tested before they are offered.

They run where they always do, in the sandbox.
"""

from __future__ import annotations

import asyncio
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Begin
from tests.support.outside import Outside, said
from tests.support.sandboxed import needs_sandbox
from tests.support.signing_script import Text, Thinking, answer, tool

Json = Any

pytestmark = needs_sandbox

ONCE, SESSION, DENY = "Run once", "Allow in this session", "Don't run"
EXACTLY = "Always allow exactly this command"
APP, REPAIRED = "def add(a, b):\n    return a - b\n", "def add(a, b):\n    return a + b\n"
TESTS = """\
import unittest
from app import add

class T(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(1, 1), 2)
"""
UNITTEST = ["python3", "-m", "unittest"]


def runs(*argv: str, **more: Any) -> Any:
    return answer(tool("run_command", argv=list(argv), **more))


@pytest.fixture
def enabled() -> str:
    return "true"


@pytest.fixture
def own() -> str:
    """What else stands in the user's file."""
    return ""


@pytest.fixture
def config(tmp_path: Path, enabled: str, own: str) -> Path:
    path = tmp_path / "own" / "config.toml"
    path.parent.mkdir()
    path.write_text(f"[commands]\nenabled = {enabled}\n{own}")
    return path


async def started(begin: Begin, config: Path, *script: Any, options: Json = None, **files: str) -> Outside:
    """The names of files are given without their ending."""
    named = {f"{name}.py": text for name, text in files.items()}
    env = {"THINKLSP_CONFIG": str(config)}
    return await begin(*script, files=named, env=env, options=options)


def disk(outside: Outside) -> tuple[str, int]:
    file = outside.root / "app.py"
    return file.read_text(), file.stat().st_mtime_ns


def prompts(outside: Outside) -> list[Json]:
    return [call.params for call in outside.client.calls("window/showMessageRequest")]


async def test_each_answer_is_good_for_what_it_says(begin: Begin, config: Path) -> None:
    script = [
        entry for argv in (["a"], ["a"], ["a"], ["a"], ["b"]) for entry in (runs("echo", *argv), answer(Text("Ran.")))
    ]
    outside = await started(begin, config, *script)
    editor = outside.client.editor
    session = None
    # The answer, and what the model is told of the run.
    course = [(ONCE, "exit status 0"), (SESSION, "exit status 0"), (None, "exit status 0"), (None, "did not permit")]
    for number, (title, expected) in enumerate(course):
        editor.message_answers = [title]
        again = {} if session is None or number == 3 else {"sessionId": session}
        result = await outside.turn("thinklsp.chat", {"prompt": f"run {number}", **again})
        session = session or result["sessionId"]
        told = outside.provider.requests[-1].body["messages"][-1]
        assert expected in json.dumps(told), number
    # The third ran by the grant of its session; the fourth was in another one.
    assert len(prompts(outside)) == 3
    editor.message_answers = [DENY]
    await outside.turn("thinklsp.chat", {"prompt": "another", "sessionId": session})
    [*_, last] = prompts(outside)
    assert last["message"].startswith('Run this command?\n\n"echo" "b"\n\nFolder: the workspace folder.')
    assert [action["title"] for action in last["actions"]] == [ONCE, SESSION, EXACTLY, DENY]
    assert "did not permit" in said(outside.provider.requests[-1].body)
    assert not config.with_name("permissions.toml").exists()


async def test_always_is_kept_in_a_file_of_the_users(begin: Begin, config: Path) -> None:
    script = [
        entry
        for argv in (["echo", "a"], ["echo", "a"], [*UNITTEST, "-v"], UNITTEST)
        for entry in (runs(*argv), answer(Text("Ran.")))
    ]
    outside = await started(begin, config, *script, test_app="import unittest\n")
    editor = outside.client.editor
    for number in range(4):
        editor.message_answers = [EXACTLY] if number == 0 else ["Always allow python3 -m unittest"]
        await outside.turn("thinklsp.chat", {"prompt": str(number)})
    assert len(prompts(outside)) == 2
    kept = tomllib.loads(config.with_name("permissions.toml").read_text())
    assert kept == {"commands": {"exact": [["echo", "a"]], "allow": [UNITTEST]}}
    await outside.restart()


async def test_what_is_no_answer_is_a_no(begin: Begin, config: Path) -> None:
    titles: list[Any] = [None, "Run once ", "Always allow everything", 7]
    script = [entry for _ in titles for entry in (runs("echo", "a"), answer(Text("Not run.")))]
    outside = await started(begin, config, *script)
    for title in titles:
        reply = None if title is None else {"title": title}
        outside.client.editor.handlers["window/showMessageRequest"] = lambda _, reply=reply: reply
        await outside.turn("thinklsp.chat", {"prompt": "go"})
        assert "did not permit" in said(outside.provider.requests[-1].body)


async def test_a_prompt_that_is_never_answered_ends_with_its_turn(begin: Begin, config: Path) -> None:
    outside = await started(begin, config, runs("echo", "a"))
    asked = asyncio.Event()

    async def never(_params: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    outside.client.editor.handlers["window/showMessageRequest"] = never
    turn = outside.client.command("thinklsp.chat", {"prompt": "go"}, token="asking")
    await asked.wait()
    await outside.client.wait_for(
        lambda: "waiting for you" in json.dumps([r.params for r in outside.client.calls("$/progress")])
    )
    outside.client.notify("window/workDoneProgress/cancel", {"token": "asking"})
    assert (await outside.result(turn))["stopReason"] == "cancelled"


@pytest.mark.parametrize("enabled", ["false"])
async def test_without_the_users_word_no_command_is_offered(begin: Begin, config: Path) -> None:
    outside = await started(begin, config, runs("echo", "a"), answer(Text("There is none.")))
    await outside.turn("thinklsp.chat", {"prompt": "go"})
    assert "run_command" not in [each["name"] for each in outside.provider.requests[0].body["tools"]]
    assert "There is no tool `run_command`" in said(outside.provider.requests[-1].body)
    assert prompts(outside) == []


@pytest.mark.parametrize("own", [f"[permissions]\nallow = [{json.dumps(UNITTEST)}]\n"])
async def test_an_edit_is_tested_before_it_is_offered(begin: Begin, config: Path) -> None:
    broken = tool("write_file", path="app.py", content="def add(a, b):\n    return 7\n")
    outside = await started(
        begin, config,
        answer(Thinking(), broken), answer(Text("Done.")),
        answer(Thinking(), tool("write_file", path="app.py", content=REPAIRED)), answer(Text("Now it adds.")),
        app=APP, test_app=TESTS,
    )  # fmt: skip
    uri = outside.open("app.py", "# unsaved\n" + APP)
    before = disk(outside)
    result = await outside.turn("thinklsp.action", {"name": "edit", "uri": uri, "instruction": "Repair it."})
    assert result["verified"] == {"command": "python3 -m unittest", "passed": 1, "failed": 0}
    assert result["text"] == "Now it adds."
    assert [
        notice for notice in result["notices"] if notice.startswith("Verified: `python3 -m unittest` – 1 passed in ")
    ]
    assert result["edits"]["applied"] == "all"
    assert outside.client.text(uri) == REPAIRED
    assert disk(outside) == before == (APP, before[1])
    assert "AssertionError: 7 != 2" in said(outside.provider.requests[2].body)
    # What the model was told stands in the session, and the next prompt goes on behind it.
    assert prompts(outside) == []


async def test_failing_tests_are_offered_with_what_is_known(begin: Begin, config: Path) -> None:
    outside = await started(
        begin, config,
        answer(tool("write_file", path="app.py", content="def add(a, b):\n    return 7\n")), answer(Text("Done.")),
        answer(Text("I leave it so.")), options={"verify": "always"}, app=APP, test_app=TESTS,
    )  # fmt: skip
    outside.client.editor.message_answers = [ONCE]
    result = await outside.turn("thinklsp.chat", {"prompt": "Repair it."})
    assert result["verified"] == {"command": "python3 -m unittest", "passed": 0, "failed": 1}
    assert result["stopReason"] == "end_turn"
    assert any(notice.startswith("Not verified: `python3 -m unittest` – 1 failed in ") for notice in result["notices"])
    assert len(prompts(outside)) == 1
