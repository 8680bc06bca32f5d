"""Habits of real clients: how Vim tells answers from requests, and how Kate names its folders."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Begin
from tests.support.raw_client import RawClient
from tests.support.signing_script import Text, answer, tool

Json = Any
PROGRESS: Json = {"workspace": {"workspaceFolders": True}, "window": {"workDoneProgress": True}}


class VimClient(RawClient):
    """Takes every message with the id of its own pending request for the answer, as Vim before 9.0.1927 does."""

    def _take(self, body: bytes) -> None:
        message = json.loads(body)
        future = self._futures.get(message.get("id"))
        if "method" in message and future is not None and not future.done():
            self.checker.blame(f"{message['method']} has the id of a pending request: {message['id']}")
        super()._take(body)


async def test_requests_of_the_server_never_have_the_id_of_a_pending_request(begin: Begin) -> None:
    """P-D4"""

    async def connect(root: Path, variables: Any) -> RawClient:
        return await VimClient.start([sys.executable, "-m", "thinklsp"], cwd=root, env=variables)

    outside = await begin(answer(Text("One.")), answer(Text("Two.")), connect=connect, announce=PROGRESS)
    for number in range(2):
        started = await outside.client.command("thinklsp.chat", {"prompt": f"Go on, {number}."})
        token = f"thinklsp-{started['turnId']}"
        await outside.client.wait_for(lambda token=token: "end" in outside.client.progress_kinds(token))
    ids = [one.message["id"] for one in outside.client.received if {"id", "method"} <= one.message.keys()]
    assert ids
    assert outside.told() == ["One.", "Two."]
    assert all(type(number) is int and number >= 1_000_000 for number in ids)


@pytest.mark.parametrize("how", ["Kate", "no folder"])
async def test_an_empty_list_of_folders_means_that_none_is_open(begin: Begin, how: str) -> None:
    """P-D8: `rootUri` is the home folder, the project comes by `didChangeWorkspaceFolders`."""
    script = (answer(tool("list_files", path=".")), answer(Text("Done.")))
    outside = await begin(*script, files={"a.py": "x = 1\n"}, initialize=False)
    await _initialize(outside.client, rootUri=outside.home.as_uri(), workspaceFolders=[])
    if how == "Kate":
        _add_folder(outside.client, outside.root)
    await outside.turn("thinklsp.chat", {"prompt": "Look."})
    listed = json.dumps(outside.provider.requests[-1].body["messages"][-1])
    assert ("a.py" in listed) == (how == "Kate")
    assert outside.told() == []


async def test_the_root_is_dropped_once_a_folder_is_added(begin: Begin) -> None:
    """P-D8: a client that names only `rootUri` and later adds its folder."""
    script = (answer(tool("list_files", path=".")), answer(Text("Done.")))
    outside = await begin(*script, files={"a.py": "x = 1\n"}, initialize=False)
    other = outside.root.parent / "other"
    other.mkdir()
    (other / "b.py").write_text("y = 1\n")
    await _initialize(outside.client, rootUri=outside.root.as_uri(), workspaceFolders=None)
    _add_folder(outside.client, other)
    await outside.turn("thinklsp.chat", {"prompt": "Look."})
    listed = json.dumps(outside.provider.requests[-1].body["messages"][-1])
    assert "b.py" in listed
    assert "a.py" not in listed


async def _initialize(client: RawClient, **params: Json) -> None:
    client.editor.capabilities = PROGRESS
    options = {"model": "claude-opus-5-5"}
    await client.request(
        "initialize", {"processId": None, "capabilities": PROGRESS, "initializationOptions": options} | params
    )
    client.notify("initialized", {})


def _add_folder(client: RawClient, folder: Path) -> None:
    event = {"added": [{"uri": folder.as_uri(), "name": folder.name}], "removed": []}
    client.notify("workspace/didChangeWorkspaceFolders", {"event": event})
