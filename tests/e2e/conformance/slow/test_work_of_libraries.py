"""The work that pygls and httpx do for the server, counted from outside; our own code is not touched."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from lsprotocol import types

from tests.e2e.acting import chat
from tests.e2e.conftest import Begin
from tests.support.client.lsp import LspClient
from tests.support.outside import UNWATCHED, Outside, server_by
from tests.support.services import WAYS, Service

COUNTING = [sys.executable, "-m", "tests.e2e.counting_server"]

# What the session sends behind `initialize`, and what thus needs a handler of ours.
SENT = {
    types.TEXT_DOCUMENT_DID_OPEN: 2,
    types.TEXT_DOCUMENT_DID_CHANGE: 1,
    types.TEXT_DOCUMENT_CODE_ACTION: 1,
    types.TEXT_DOCUMENT_HOVER: 1,
    types.TEXT_DOCUMENT_COMPLETION: 1,
    types.WORKSPACE_EXECUTE_COMMAND: 1,
    types.WORKSPACE_DID_CHANGE_CONFIGURATION: 1,
    types.TEXT_DOCUMENT_DID_SAVE: 1,
    types.TEXT_DOCUMENT_DID_CLOSE: 1,
}


async def counted(begin: Begin, tmp_path: Path) -> tuple[Outside, list[Any]]:
    """Run the session; return what the libraries did."""
    lines, way = tmp_path / "counted", WAYS["anthropic"]
    lines.touch()
    outside = await begin(
        files={"app.py": "x = 1\n"},
        provider=Service(),
        options={"provider": way.provider, "model": way.model},
        connect=server_by(COUNTING, LspClient),
        env={"COUNTED": str(lines)} | UNWATCHED,
    )
    client, uri = outside.client, outside.open("app.py")
    talk = client.open(outside.uri("talk.chat.md"), "## You\n\n/e")
    client.change(uri, "x", "y")
    assert await client.code_actions(uri, "y")
    assert await client.hover(uri, "y") is None
    assert [item.label for item in (await client.complete(talk, "/e")).items] == ["/effort"]
    assert (await chat(outside, "Go on."))["text"] == "Went on."
    client.configure(None)
    client.save(uri)
    client.close_document(uri)
    # Answered in order: what came before has been read.
    assert not await client.lenses(uri)
    return outside, [json.loads(line) for line in lines.read_text().splitlines()]


async def test_pygls_dispatches_each_message_to_a_registered_function(begin: Begin, tmp_path: Path) -> None:
    _, lines = await counted(begin, tmp_path)
    dispatched = Counter(line["dispatched"] for line in lines if "dispatched" in line)
    assert {name: min(count, SENT[name]) for name, count in dispatched.items() if name in SENT} == SENT
    taken = Counter(
        types.WORKSPACE_EXECUTE_COMMAND if line["by"] == "command" else line["taken"]
        for line in lines
        if "taken" in line
    )
    # Answers to requests of the server are no messages of the client's own.
    assert dispatched - taken == Counter()
    assert [line for line in lines if "taken" in line and not line["is_typed"]] == []


async def test_httpx_sends_each_request(begin: Begin, tmp_path: Path) -> None:
    outside, lines = await counted(begin, tmp_path)
    assert len([line for line in lines if "sent" in line]) == len(outside.provider.requests) > 0
