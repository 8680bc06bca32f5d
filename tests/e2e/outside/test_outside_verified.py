"""Work that is tested before it is offered: on a shadow of the workspace, in the real sandbox, from outside.

What the tests are run on exists nowhere but in buffers and in the model's edits; disk and its times stay what they are.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Begin
from tests.support.outside import Outside, diagnostic, named
from tests.support.sandboxed import needs_sandbox
from tests.support.signing_script import Text, Thinking, answer, tool

pytestmark = needs_sandbox

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
EDIT = tool("edit_file", path="app.py", old_text="add(a, 1)", new_text="add(a, a)")


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


COURSES = {
    "the model tests": [
        answer(Thinking(), tool("run_command", argv=UNITTEST)),
        answer(Thinking("I see."), EDIT),
        answer(tool("run_command", argv=UNITTEST)),
        answer(Text("Doubled.")),
    ],
    "it is tested for the model": [answer(Thinking(), EDIT), answer(Text("Doubled."))],
}


@pytest.mark.parametrize("script", COURSES.values(), ids=COURSES)
async def test_a_failing_test_in_an_unsaved_buffer_is_fixed_and_verified(
    begin: Begin, tmp_path: Path, script: list[Any]
) -> None:
    outside, uri = await opened(begin, tmp_path, *script)
    before = state(outside.root)
    [fix] = named(
        await outside.client.code_actions(uri, "add(a, 1)", diagnostics=[diagnostic(BUFFER, "add(a, 1)", "wrong")]),
        "fix",
    )
    result = await outside.result(outside.client.run_action(fix, token="fix"))
    assert result["verified"] == {"command": "python3 -m unittest", "passed": 2, "failed": 0}
    assert outside.client.text(uri) == BUFFER.replace("add(a, 1)", "add(a, a)")
    assert any("python3 -m unittest" in notice and "2" in notice for notice in result["notices"])
    assert state(outside.root) == before
    if len(script) == 4:
        told = json.dumps(outside.provider.requests[1].body["messages"][-1])
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
        answer(Thinking(), tool("write_file", path="app.py", content=MOVED)),
        *([answer(tool("run_command", argv=UNITTEST))] if tests_itself else []),
        answer(Text("Doubled.")),
        answer(tool("write_file", path="helper.py", content=helper)),
        answer(Text("Now it is there.")),
    )
    outside.client.editor.message_answers = ["Run once"]
    result = await outside.turn("thinklsp.chat", {"prompt": "Make it double.", "uri": uri})
    told = json.dumps([request.body["messages"][-1] for request in outside.provider.requests])
    assert "No module named 'helper'" in told
    assert "without what commands have made" in told
    assert result["verified"] == {"command": "python3 -m unittest", "passed": 2, "failed": 0}
    assert outside.client.text(outside.uri("helper.py")) == helper


async def test_edits_that_fail_are_told_to_the_model_and_offered_as_what_they_are(begin: Begin, tmp_path: Path) -> None:
    wrong = tool("edit_file", path="app.py", old_text="add(a, 1)", new_text="add(a, 2)")
    outside, uri = await opened(
        begin, tmp_path, answer(Thinking(), wrong), answer(Text("Doubled.")), answer(Text("I cannot do better."))
    )
    before = state(outside.root)
    result = await outside.turn("thinklsp.chat", {"prompt": "Make it double.", "uri": uri})
    assert result["verified"] == {"command": "python3 -m unittest", "passed": 1, "failed": 1}
    assert "test_double" in json.dumps(outside.provider.requests[2].body["messages"][-1])
    assert outside.client.text(uri) == BUFFER.replace("add(a, 1)", "add(a, 2)")
    assert state(outside.root) == before
