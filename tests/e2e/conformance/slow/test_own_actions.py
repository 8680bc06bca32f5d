"""Actions of the user's own, comments that ask, and reviews: of a file and a working tree, in a hostile repository."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.acting import begin_file, edit_file, read_file, refused, say, write_file
from tests.e2e.conformance.test_chat import chat_document, chat_uris
from tests.e2e.conftest import Begin
from tests.support.client.lsp import named
from tests.support.outside import MODEL, Outside, said
from tests.support.signing_server import Thinking, answer

CONFIG = """
effort_by_action = { translate = "high" }
"actions.disabled" = ["simplify", "unwanted"]

[[actions]]
title = "Write a commit message"
name = "commit"
prompt = "Write a commit message."
scope = "staged"
tools = "none"
effort = "low"

[[actions]]
title = "translate the comment"
name = "translate"
prompt = "Translate the comment to English."
effort = "max"

[[actions]]
title = "Add types"
prompt = "Add types."
scope = "definition"

[[actions]]
title = "unwanted"
prompt = "No."
scope = "file"
"""
TEXT = "def f(x):\n    # zähle\n    return x\n"
OWN = {"Write a commit message": "commit", "translate the comment": "translate", "Add types": "add-types"}


@pytest.fixture
def config(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "config.toml"
    path.write_text(CONFIG)
    path.chmod(0o600)
    return {"THINKLSP_CONFIG": str(path)}


def git(outside: Outside, *arguments: str) -> None:
    argv = ["git", "-c", "user.name=n", "-c", "user.email=e@example.com", *arguments]
    subprocess.run(argv, cwd=outside.root, env=outside.variables, check=True, capture_output=True)


async def offered(outside: Outside, place: Any) -> dict[str, str]:
    """Own actions by title, with the end of their kind."""
    actions = await outside.client.code_actions(outside.uri("app.py"), place)
    titles = {action.title.removeprefix("thinklsp: "): action.kind.rpartition(".")[2] for action in actions}
    return {title: kind for title, kind in titles.items() if title in {*OWN, "unwanted", "simplify the selection"}}


async def test_own_actions_are_offered_like_others_and_edit(begin: Begin, config: dict[str, str]) -> None:
    change = edit_file("app.py", "zähle", "count")
    outside, _, uri = await begin_file(begin, TEXT, answer(Thinking(), change), say("Done."), name="app.py", env=config)
    caret = {"start": {"line": 2, "character": 0}, "end": {"line": 2, "character": 0}}
    assert await offered(outside, caret) == {"Write a commit message": "commit"}
    assert await offered(outside, "def f(x)") == OWN
    assert await offered(outside, "# zähle") == {title: OWN[title] for title in OWN if title != "Add types"}
    assert outside.provider.connections == 0  # type: ignore[attr-defined]

    [action] = named(await outside.client.code_actions(uri, "# zähle"), "translate")
    result = await outside.result(outside.client.run_action(action, token="t"))
    assert result["edits"]["applied"] == "all"
    assert outside.client.text(uri) == TEXT.replace("zähle", "count")
    body = outside.provider.requests[0].body  # type: ignore[attr-defined]
    assert "Translate the comment to English." in said(body)
    assert "     2      # zähle" in said(body)
    # `effortByAction` counts before the action's own.
    assert (body["model"], body["output_config"]["effort"]) == (MODEL, "high")


async def test_a_commit_message_is_made_of_what_is_staged(begin: Begin, config: dict[str, str]) -> None:
    look = answer(read_file("app.py"))
    outside = await begin(look, say("Count in English"), files={"app.py": TEXT, ".env": "KEY=1\n"}, env=config)
    outside.open("app.py")
    argument = {"name": "commit", "uri": outside.uri("app.py")}
    with pytest.raises(Exception, match="is not in a git repository"):
        await outside.turn("thinklsp.action", argument)
    git(outside, "init")
    with pytest.raises(Exception, match="No changes are staged"):
        await outside.turn("thinklsp.action", argument)
    git(outside, "add", "-A")
    # What a repository says to run is not run: its own configuration is that of whoever made it.
    for key in ("core.fsmonitor", "diff.external", "core.pager", "core.sshCommand"):
        git(outside, "config", key, f"touch {outside.root}/run-by-git #")
    result = await outside.turn("thinklsp.action", argument)
    assert (result["text"], result["edits"]) == ("Count in English", None)
    seen, after = outside.provider.requests  # type: ignore[attr-defined]
    body = seen.body
    assert "uses no tools" in str(after.tool_results()[0]["content"])
    assert body["output_config"]["effort"] == "low"
    assert "+    # zähle" in said(body)
    assert "KEY=1" not in said(body)
    assert ".env may contain secrets" in said(body)
    assert not (outside.root / "run-by-git").exists()


def write(config: dict[str, str], text: str) -> None:
    Path(config["THINKLSP_CONFIG"]).write_text(text)


async def test_an_action_that_is_new_in_the_file_needs_no_new_server(begin: Begin, config: dict[str, str]) -> None:
    outside, _, uri = await begin_file(begin, TEXT, say("Done."), name="app.py", env=config)
    await outside.client.command("thinklsp.effort")
    write(config, '[[actions]]\ntitle = "whistle"\nprompt = "Whistle."\ntools = "none"\nscope = "file"\n')
    await outside.turn("thinklsp.action", {"name": "whistle", "uri": uri})
    assert "Whistle." in str(outside.provider.requests[-1].body["messages"])
    assert named(await outside.client.code_actions(uri, "def f(x)"), "whistle")
    write(config, "actions = 5")
    assert (await outside.client.command("thinklsp.effort"))["value"] == "auto"
    await outside.until_told("actions", "Your previous settings stay in effect.")
    assert named(await outside.client.code_actions(uri, "def f(x)"), "whistle")


async def test_a_comment_that_asks_changes_nothing(begin: Begin) -> None:
    text = "# is this\n# fast enough? AI?\nx = 1\n"
    outside, _, uri = await begin_file(begin, text, answer(write_file("app.py", "")), say("It is."), name="app.py")
    [action] = named(await outside.client.code_actions(uri, "is this"), "edit")
    assert action.title == "thinklsp: edit: answer the comment: is this fast enough?"
    assert action.kind == "refactor.rewrite.thinklsp.edit"
    result = await outside.result(outside.client.run_action(action, token="t"))
    assert (result["text"], result["edits"]) == ("It is.", None)
    assert outside.client.text(uri) == text
    first, second = outside.provider.requests  # type: ignore[attr-defined]
    assert "Instruction: is this\\nfast enough?" in said(first.body)
    assert second.tool_results()[0]["is_error"]
    assert "It is." in await chat_document(outside.client, "It is.")
    assert len(chat_uris(outside.client)) == 1


async def test_a_comment_that_orders_goes_with_the_change(begin: Begin) -> None:
    text = "// make it\n// two AI!\nlet x = 1;\n"
    change = edit_file("app.js", text, "let x = 2;\n")
    outside = await begin(answer(change), say("Made it two."), files={"app.js": text})
    uri = outside.client.open(outside.uri("app.js"), language="javascript")
    [action] = named(await outside.client.code_actions(uri, {"start": place(1), "end": place(1)}), "edit")
    assert action.title == "thinklsp: edit as the comment says: make it two"
    result = await outside.result(outside.client.run_action(action, token="t"))
    assert result["edits"]["applied"] == "all"
    assert outside.client.text(uri) == "let x = 2;\n"
    request = said(outside.provider.requests[0].body)  # type: ignore[attr-defined]
    assert "Instruction: make it\\ntwo\\n\\n(This instruction comes from a comment" in request
    # T-m17: the user never reads what is meant for the model alone.
    shown = await outside.client.command("thinklsp.sessions", {"op": "show", "sessionId": result["sessionId"]})
    assert "edit app.js: make it\ntwo" in shown["text"]
    assert "This instruction comes from" not in shown["text"]
    # Saving runs nothing; the lens that offered the undo goes.
    before = len(outside.client.received)
    outside.client.save(uri)
    await outside.client.code_actions(uri, {"start": place(0), "end": place(0)})
    assert len(outside.provider.requests) == 2  # type: ignore[attr-defined]
    told = {received.message.get("method") for received in outside.client.received[before:]}
    assert told <= {None, "workspace/codeLens/refresh"}


def place(line: int) -> dict[str, int]:
    return {"line": line, "character": 0}


GIT = shutil.which("git")
FINDINGS = "- app.py:2: error: it subtracts; add instead.\n\nOne mistake, otherwise fine."
needs_git = pytest.mark.skipif(GIT is None, reason="git is not installed")


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
    tries = write_file("app.py", "gone")
    outside = await begin(answer(tries), say(FINDINGS), files=files)
    sprung = commit(outside.root)
    (outside.root / "other.py").write_text("o = 2\n")
    (outside.root / "new.py").write_text("n = 1\n")
    uri = outside.open("app.py")
    outside.client.change(uri, "a + b", "a - b")
    return outside, uri, sprung


def asked(outside: Outside) -> str:
    return said(outside.provider.requests[0].body)


@needs_git
async def test_a_file_with_what_was_not_committed(begin: Begin) -> None:
    outside, uri, sprung = await reviewing(begin)
    client = outside.client
    [action] = named(await client.code_actions(uri, "add"), "review")
    assert action.kind == "refactor.rewrite.thinklsp.review"
    started = await client.run_action(action)
    shown = await client.wait_for(lambda: client.calls("window/showDocument"), what="the answer")
    chat = client.text(shown[0].params.uri) or ""
    assert started["sessionId"] in chat
    assert FINDINGS in chat
    assert client.text(uri) == "def add(a, b):\n    return a - b\n"
    told = asked(outside)
    assert all(part in told for part in ("path/of/the/file:LINE", "-    return a + b", "+    return a - b"))
    assert "o = 2" not in told
    assert not sprung.exists()


@needs_git
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


@needs_git
async def test_where_there_is_nothing_to_compare(begin: Begin) -> None:
    outside = await begin(say("Fine."), files={"app.py": "a = 1\n"})
    await refused(outside.turn("thinklsp.action", {"name": "review"}), match="not in a git repository")
    # A file can be reviewed all the same.
    uri = outside.open("app.py")
    result = await outside.turn("thinklsp.action", {"name": "review", "uri": uri, "partialResultToken": "p"})
    assert result["text"] == "Fine."
    assert "a = 1" in asked(outside)
    commit(outside.root)
    await refused(
        outside.turn("thinklsp.action", {"name": "review", "uri": outside.root.as_uri()}),
        match="no changes since the last commit",
    )
