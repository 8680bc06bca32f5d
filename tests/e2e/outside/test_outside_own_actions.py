"""Actions of the user's own, and comments that ask: from the menu to the edit or the chat document."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Begin
from tests.e2e.outside.test_outside_chat import chat_document, chat_uris
from tests.support.outside import MODEL, Outside, named, said
from tests.support.signing_script import Text, Thinking, answer, tool

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
    titles = {action["title"].removeprefix("thinklsp: "): action["kind"].rpartition(".")[2] for action in actions}
    return {title: kind for title, kind in titles.items() if title in {*OWN, "unwanted", "simplify the selection"}}


async def test_own_actions_are_offered_like_others_and_edit(begin: Begin, config: dict[str, str]) -> None:
    change = tool("edit_file", path="app.py", old_text="zähle", new_text="count")
    outside = await begin(answer(Thinking(), change), answer(Text("Done.")), files={"app.py": TEXT}, env=config)
    uri = outside.open("app.py")
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
    look = answer(tool("read_file", path="app.py"))
    outside = await begin(look, answer(Text("Count in English")), files={"app.py": TEXT, ".env": "KEY=1\n"}, env=config)
    outside.open("app.py")
    argument = {"name": "commit", "uri": outside.uri("app.py")}
    with pytest.raises(Exception, match="is not in a git repository"):
        await outside.turn("thinklsp.action", argument)
    git(outside, "init")
    with pytest.raises(Exception, match="Nothing is staged"):
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
    assert ".env may hold secrets" in said(body)
    assert not (outside.root / "run-by-git").exists()


def write(config: dict[str, str], text: str) -> None:
    Path(config["THINKLSP_CONFIG"]).write_text(text)


async def test_an_action_that_is_new_in_the_file_needs_no_new_server(begin: Begin, config: dict[str, str]) -> None:
    """A-16."""
    outside = await begin(answer(Text("Done.")), files={"app.py": TEXT}, env=config)
    uri = outside.open("app.py")
    await outside.client.command("thinklsp.effort")
    write(config, '[[actions]]\ntitle = "whistle"\nprompt = "Whistle."\ntools = "none"\nscope = "file"\n')
    await outside.turn("thinklsp.action", {"name": "whistle", "uri": uri})
    assert "Whistle." in str(outside.provider.requests[-1].body["messages"])
    assert named(await outside.client.code_actions(uri, "def f(x)"), "whistle")
    write(config, "actions = 5")
    assert (await outside.client.command("thinklsp.effort"))["value"] == "auto"
    await outside.until_told("actions", "Your former settings stay in force.")
    assert named(await outside.client.code_actions(uri, "def f(x)"), "whistle")


async def test_a_comment_that_asks_changes_nothing(begin: Begin) -> None:
    text = "# is this\n# fast enough? AI?\nx = 1\n"
    outside = await begin(
        answer(tool("write_file", path="app.py", content="")), answer(Text("It is.")), files={"app.py": text}
    )
    uri = outside.open("app.py")
    [action] = named(await outside.client.code_actions(uri, "is this"), "edit")
    assert action["title"] == "thinklsp: edit: answer the comment: is this fast enough?"
    assert action["kind"] == "refactor.rewrite.thinklsp.edit"
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
    change = tool("edit_file", path="app.js", old_text=text, new_text="let x = 2;\n")
    outside = await begin(answer(change), answer(Text("Made it two.")), files={"app.js": text})
    uri = outside.client.open(outside.uri("app.js"), language="javascript")
    [action] = named(await outside.client.code_actions(uri, {"start": place(1), "end": place(1)}), "edit")
    assert action["title"] == "thinklsp: edit as the comment says: make it two"
    result = await outside.result(outside.client.run_action(action, token="t"))
    assert result["edits"]["applied"] == "all"
    assert outside.client.text(uri) == "let x = 2;\n"
    assert "Instruction: make it\\ntwo\\n\\n(A comment at this place" in said(outside.provider.requests[0].body)  # type: ignore[attr-defined]
    # Saving runs nothing; the lens that offered the undo goes.
    before = len(outside.client.received)
    outside.client.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
    await outside.client.code_actions(uri, {"start": place(0), "end": place(0)})
    assert len(outside.provider.requests) == 2  # type: ignore[attr-defined]
    told = {received.message.get("method") for received in outside.client.received[before:]}
    assert told <= {None, "workspace/codeLens/refresh"}


def place(line: int) -> dict[str, int]:
    return {"line": line, "character": 0}
