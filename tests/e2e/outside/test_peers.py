"""Whatever odd things other servers and clients send, the menu is the same: a member that does not fit is dropped."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.acting import begin_file, chat, read_choices, say
from tests.e2e.conftest import Begin
from tests.e2e.outside.odd_peers import (
    CONFIGURATION,
    CONTEXTS,
    DIAGNOSTICS,
    GOOD,
    HERE,
    INITIALIZE,
    SAID,
    changed,
)
from tests.support.client.editor import VSCODE
from tests.support.outside import MODEL, said
from tests.support.signing_server import answer, tool

TEXT = "import math\n\n\ndef area(radius):\n    return 3 * raduis ** 2\n"
START = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}}
Json = Any


def menu(actions: Json) -> list[tuple[str, str]]:
    return sorted((action["title"], action["kind"]) for action in actions)


async def ask(client: Any, uri: str, params: Json) -> Json:
    whole = {"textDocument": {"uri": uri}, "range": HERE, "context": {"diagnostics": []}}
    return await client.request("textDocument/codeAction", changed(whole, params))


async def test_odd_diagnostics_and_contexts_have_the_whole_menu(begin: Begin) -> None:
    _, client, uri = await begin_file(begin, TEXT)
    control = menu(await ask(client, uri, {"context": {"diagnostics": [GOOD], "triggerKind": 1}}))
    bare = menu(await ask(client, uri, {}))
    assert (len(control), len(bare)) == (len(bare) + 1, len(bare))
    wrong: list[Any] = []
    for who, shape, title in DIAGNOSTICS:
        found = await ask(client, uri, {"context": {"diagnostics": [changed(GOOD, shape)]}})
        expected = sorted((name.replace(SAID, title), kind) for name, kind in control)
        if menu(found) != expected:
            wrong.append((who, shape, menu(found)))
    for who, params, has_problem in CONTEXTS:
        found = await ask(client, uri, params)
        if menu(found) != (control if has_problem else bare):
            wrong.append((who, params, menu(found)))
    assert wrong == []
    assert len(DIAGNOSTICS) + len(CONTEXTS) >= 40


async def test_the_fix_of_an_odd_diagnostic_runs(begin: Begin) -> None:
    """The editor hands back what the action holds; a plug-in may hand over the diagnostic as its server made it."""
    outside, client, uri = await begin_file(begin, TEXT)
    for _, shape, title in DIAGNOSTICS:
        odd = changed(GOOD, shape)
        actions = await ask(client, uri, {"context": {"diagnostics": [odd], "only": ["quickfix"]}})
        [given] = actions[0]["command"]["arguments"]
        for argument in (given, {"name": "fix", "uri": uri, "range": HERE, "diagnostics": [odd]}):
            outside.provider.say(say("Nothing to do."))
            result = await outside.turn("thinklsp.action", argument)
            assert result["stopReason"] == "end_turn", shape
            prompt = said(outside.provider.requests[-1].body)
            assert "None" not in prompt, shape
            assert (SAID in prompt) == (title == SAID), shape


@pytest.mark.parametrize(("who", "shape"), INITIALIZE)
async def test_odd_clients_get_in(begin: Begin, who: str, shape: Json) -> None:
    outside = await begin(files={"a.py": TEXT}, initialize=False)
    client, folder = outside.client, {"uri": outside.root.as_uri(), "name": "work"}
    shape = dict(shape)
    folder = changed(folder, shape.pop("folder", {}))
    params = {
        "processId": None, "rootPath": str(outside.root), "rootUri": outside.root.as_uri(),
        "workspaceFolders": [folder], "capabilities": VSCODE, "clientInfo": {"name": "an editor"},
        "initializationOptions": {"model": MODEL},
    }  # fmt: skip
    params = changed(params, shape)
    client.editor.capabilities = params.get("capabilities") or {}
    result = await client.request("initialize", params)
    client.desk.encoding = result["capabilities"]["positionEncoding"]
    assert client.desk.encoding == ("utf-8" if "positionEncodings" in str(shape) else "utf-16")
    client.notify("initialized")
    uri = outside.open("a.py")
    titles = [action["title"] for action in await ask(client, uri, {"context": {"diagnostics": [GOOD]}})]
    assert [title for title in ("fix", "edit", "review") if not any(title in found for found in titles)] == []
    outside.provider.say(answer(tool("list_files", path=".")))
    outside.provider.say(say("Done."))
    await chat(outside, "Look.")
    assert "a.py" in said(outside.provider.requests[-1].body)
    outside.told()  # Some of these clients take no edits, and are told so.


@pytest.mark.parametrize(("who", "settings"), CONFIGURATION)
async def test_an_odd_answer_leaves_the_settings(begin: Begin, who: str, settings: Json) -> None:
    outside = await begin(say("Yes."), initialize=False)
    client = outside.client
    client.editor.handlers["workspace/configuration"] = lambda _: settings
    await client.initialize(outside.root, options={"model": MODEL, "effort": "low"})
    await client.wait_for(lambda: client.calls("workspace/configuration"), what="the question for the settings")
    await chat(outside, "Ready?")
    assert read_choices(outside)[1] == "low"
    outside.told()
