"""A review by the model: of a file and its uncommitted changes, of the working tree, in a hostile repository."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Begin
from tests.support.outside import Outside, named, said
from tests.support.raw_client import ResponseError
from tests.support.signing_script import Text, answer, tool

GIT = shutil.which("git")
FINDINGS = "- app.py:2: error: it subtracts; add instead.\n\nOne mistake, otherwise fine."
pytestmark = pytest.mark.skipif(GIT is None, reason="git is not installed")


def commit(root: Path) -> Path:
    """Everything is committed; then the repository is told to run a trap wherever git would."""
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    sprung, trap = root.parent / "sprung", root.parent / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {sprung}\ncat\n")
    trap.chmod(0o755)
    steps = [("init", "-q"), ("add", "-A"), (*who, "commit", "-q", "-m", "one")]
    names = ("core.fsmonitor", "filter.evil.clean", "diff.external", "core.pager", "diff.evil.textconv")
    steps += [("config", name, str(trap)) for name in names]
    for step in steps:
        subprocess.run([str(GIT), *step], cwd=root, check=True, capture_output=True)
    (root / ".git/info/attributes").write_text("* filter=evil diff=evil\n")
    return sprung


async def reviewing(begin: Begin) -> tuple[Outside, str, Path]:
    files = {"app.py": "def add(a, b):\n    return a + b\n", "other.py": "o = 1\n", "same.py": "s = 1\n"}
    # A review only reads: what the model tries to change is refused.
    tries = tool("write_file", path="app.py", content="gone")
    outside = await begin(answer(tries), answer(Text(FINDINGS)), files=files)
    sprung = commit(outside.root)
    (outside.root / "other.py").write_text("o = 2\n")
    (outside.root / "new.py").write_text("n = 1\n")
    uri = outside.open("app.py")
    outside.client.change(uri, "a + b", "a - b")
    return outside, uri, sprung


def asked(outside: Outside) -> str:
    return said(outside.provider.requests[0].body)


async def test_a_file_with_what_was_not_committed(begin: Begin) -> None:
    outside, uri, sprung = await reviewing(begin)
    client = outside.client
    [action] = named(await client.code_actions(uri, "add"), "review")
    assert action["kind"] == "refactor.rewrite.thinklsp.review"
    started = await client.run_action(action)
    shown = await client.wait_for(lambda: client.calls("window/showDocument"), what="the answer")
    chat = client.text(shown[0].params["uri"]) or ""
    assert started["sessionId"] in chat
    assert FINDINGS in chat
    assert client.text(uri) == "def add(a, b):\n    return a - b\n"
    told = asked(outside)
    assert all(part in told for part in ("path/of/the/file:LINE", "-    return a + b", "+    return a - b"))
    assert "o = 2" not in told
    assert not sprung.exists()


@pytest.mark.parametrize("place", ["nothing", "the folder"])
async def test_the_working_tree(begin: Begin, place: str) -> None:
    outside, _, sprung = await reviewing(begin)
    argument: dict[str, Any] = {"name": "review", "instruction": "Look at the sums."}
    if place == "the folder":
        argument["uri"] = outside.root.as_uri()
    result = await outside.turn("thinklsp.action", argument | {"partialResultToken": "p"})
    assert (result["text"], result["edits"]) == (FINDINGS, None)
    told = asked(outside)
    expected = ("+    return a - b", "-o = 1", "+o = 2", "+n = 1", "new file mode", "Look at the sums.")
    assert all(part in told for part in expected)
    assert "same.py" not in told
    assert not sprung.exists()


async def test_where_there_is_nothing_to_compare(begin: Begin) -> None:
    outside = await begin(answer(Text("Fine.")), files={"app.py": "a = 1\n"})
    with pytest.raises(ResponseError, match="not in a git repository") as error:
        await outside.turn("thinklsp.action", {"name": "review"})
    assert error.value.code == -32803
    # A file can be reviewed all the same.
    uri = outside.open("app.py")
    result = await outside.turn("thinklsp.action", {"name": "review", "uri": uri, "partialResultToken": "p"})
    assert result["text"] == "Fine."
    assert "a = 1" in asked(outside)
    commit(outside.root)
    with pytest.raises(ResponseError, match="no changes since the last commit"):
        await outside.turn("thinklsp.action", {"name": "review", "uri": outside.root.as_uri()})
