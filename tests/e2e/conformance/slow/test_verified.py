"""Commands: how the user is asked, and work that is tested before it is offered, in the real sandbox.

What the tests are run on exists nowhere but in buffers and in the model's edits; disk and its times stay what they are.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.acting import chat, edit_file, never_answer, read_file, say, start_chat, stop_waiting, write_file
from tests.e2e.conftest import Begin
from tests.support.client.lsp import diagnostic, named
from tests.support.outside import Outside, said
from tests.support.shadowing import needs_sandbox
from tests.support.signing_server import Thinking, answer, tool

pytestmark = [needs_sandbox, pytest.mark.kernel]

DISK = "def add(a, b):\n    return a + b\n"
TESTS_ON_DISK = """\
import unittest
from app import add

class T(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(1, 1), 2)
"""
# Typed and not saved: a new function with a mistake, and a test that shows it.
BUFFER = DISK + "\n\ndef double(a):\n    return add(a, 1)\n"
TESTS = TESTS_ON_DISK.replace("import add", "import add, double") + (
    "\n    def test_double(self):\n        self.assertEqual(double(3), 6)\n"
)
UNITTEST = ["python3", "-m", "unittest"]
MOVED = "from helper import add\n\n\ndef double(a):\n    return add(a, a)\n"
EDIT = edit_file("app.py", "add(a, 1)", "add(a, a)")


def config(tmp_path: Path) -> Path:
    path = tmp_path / "own" / "config.toml"
    path.parent.mkdir()
    path.write_text(f"[commands]\nenabled = true\n\n[permissions]\nallow = [{json.dumps(UNITTEST)}]\n")
    return path


def state(root: Path) -> dict[str, Any]:
    """Every file and folder with what tells whether anybody has touched it."""
    found = {}
    for path in (root, *root.rglob("*")):
        status = path.stat()
        found[str(path)] = (status.st_mtime_ns, status.st_mode, path.read_bytes() if path.is_file() else None)
    return found


async def opened(begin: Begin, tmp_path: Path, *script: Any) -> tuple[Outside, str]:
    files = {"app.py": DISK, "test_app.py": TESTS_ON_DISK}
    outside = await begin(*script, files=files, env={"THINKLSP_CONFIG": str(config(tmp_path))})
    uri = outside.open("app.py", BUFFER)
    outside.open("test_app.py", TESTS)
    return outside, uri


WRONG = edit_file("app.py", "add(a, 1)", "add(a, 2)")
MENDED = edit_file("app.py", "add(a, 2)", "add(a, a)")
RUN = tool("run_command", argv=UNITTEST)
# The answers, and the number of the request that tells of the failure.
COURSES: dict[str, tuple[list[Any], int | None]] = {
    "the model tests": (
        [answer(Thinking(), RUN), answer(Thinking("I see."), EDIT), answer(RUN), say("Doubled.")], 1,
    ),
    "it is tested for the model": ([answer(Thinking(), EDIT), say("Doubled.")], None),
    "it is mended": ([answer(Thinking(), WRONG), say("Done."), answer(Thinking(), MENDED), say("Doubled.")], 2),
}  # fmt: skip


@pytest.mark.parametrize("course", COURSES)
async def test_failing_test_in_unsaved_document_is_fixed(begin: Begin, tmp_path: Path, course: str) -> None:
    script, failed = COURSES[course]
    outside, uri = await opened(begin, tmp_path, *script)
    before = state(outside.root)
    problem = diagnostic(BUFFER, "add(a, 1)", "wrong")
    [fix] = named(await outside.client.code_actions(uri, "add(a, 1)", diagnostics=[problem]), "fix")
    result = await outside.result(outside.client.run_action(fix, token="fix"))
    assert result["verified"] == {"command": "python3 -m unittest", "passed": 2, "failed": 0}
    assert outside.client.text(uri) == BUFFER.replace("add(a, 1)", "add(a, a)")
    assert any(notice.startswith("Verified: `python3 -m unittest` – 2 passed in ") for notice in result["notices"])
    assert state(outside.root) == before
    if failed is not None:
        told = json.dumps(outside.provider.requests[failed].body["messages"][-1])
        assert "test_double" in told
        assert "FAILED (failures=1)" in told
    # Nobody was asked: the user's own file permits it.
    assert outside.client.calls("window/showMessageRequest") == []
    assert {path.name for path in (outside.home / "state" / "shadow").rglob("*")} <= {"lock"}


@pytest.mark.parametrize("tests_itself", [True, False])
async def test_what_a_command_has_made_verifies_nothing(begin: Begin, tmp_path: Path, tests_itself: bool) -> None:
    """The user would have the edit without it. The model may still make it a part of its edits."""
    helper = "def add(a, b):\n    return a + b\n"
    outside, uri = await opened(
        begin,
        tmp_path,
        answer(tool("run_command", argv=["sh", "-c", f"printf '%s' '{helper}' > helper.py"])),
        answer(Thinking(), read_file("app.py")),
        answer(Thinking(), write_file("app.py", MOVED)),
        *([answer(tool("run_command", argv=UNITTEST))] if tests_itself else []),
        say("Doubled."),
        answer(write_file("helper.py", helper)),
        say("Now it is there."),
    )
    outside.client.editor.message_answers = ["Run once"]
    result = await chat(outside, "Make it double.", uri=uri)
    told = json.dumps([request.body["messages"][-1] for request in outside.provider.requests])
    assert "No module named 'helper'" in told
    assert "Changes made by commands were removed" in told
    assert result["verified"] == {"command": "python3 -m unittest", "passed": 2, "failed": 0}
    assert outside.client.text(outside.uri("helper.py")) == helper


async def test_failing_edits_are_reported_and_offered_as_failing(begin: Begin, tmp_path: Path) -> None:
    outside, uri = await opened(begin, tmp_path, answer(Thinking(), WRONG), say("Doubled."), say("I cannot do better."))
    before = state(outside.root)
    result = await chat(outside, "Make it double.", uri=uri)
    assert result["verified"] == {"command": "python3 -m unittest", "passed": 1, "failed": 1}
    notices = " ".join(result["notices"])
    assert "Not verified: `python3 -m unittest` – 1 failed, 1 passed in " in notices
    assert "test_double" in json.dumps(outside.provider.requests[2].body["messages"][-1])
    assert outside.client.text(uri) == BUFFER.replace("add(a, 1)", "add(a, 2)")
    assert state(outside.root) == before


Json = Any


ECHO = answer(tool("run_command", argv=["echo", "a"]))
ANSWERS = ["Run once", "Allow for this session", "Always allow exactly this command", "Don't run"]
QUESTION = "window/showMessageRequest"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "own" / "config.toml"
    path.parent.mkdir()
    path.write_text("[commands]\nenabled = true\n")
    return {"THINKLSP_CONFIG": str(path)}


async def test_the_question_shows_the_command_and_its_answers(begin: Begin, env: dict[str, str]) -> None:
    outside = await begin(ECHO, say("Ran."), ECHO, say("Not run."), env=env)
    for title, told in (("Run once", "exited with status 0"), ("Don't run", "did not allow")):
        outside.client.editor.message_answers = [title]
        await chat(outside, "Go.")
        assert told in said(outside.provider.requests[-1].body)
    for question in outside.client.calls(QUESTION):
        assert question.params.message.startswith('Run this command?\n\n"echo" "a"\n\nFolder: the workspace folder.')
        assert [action.title for action in question.params.actions] == ANSWERS


async def test_what_is_no_answer_is_a_no(begin: Begin, env: dict[str, str]) -> None:
    titles: list[Any] = [None, "Run once ", "Always allow everything", 7]
    outside = await begin(*[ECHO, say("Not run.")] * len(titles), env=env)
    for title in titles:
        reply = None if title is None else {"title": title}
        outside.client.editor.handlers[QUESTION] = lambda _, reply=reply: reply
        await chat(outside, "go")
        assert "did not allow" in said(outside.provider.requests[-1].body)


async def test_a_prompt_that_is_never_answered_ends_with_its_turn(begin: Begin, env: dict[str, str]) -> None:
    outside = await begin(ECHO, env=env)
    outside.client.editor.handlers[QUESTION] = never_answer
    await stop_waiting(outside, start_chat(outside, "go", token="asking"), "asking")
