"""Sessions: what the commands answer, who may reach them, attaching, usage, and what is never in them."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.acting import chat, reach, read_file, release, say, start_chat, sum_usage
from tests.e2e.acting import refused as refused_request
from tests.e2e.conftest import Begin
from tests.support.canary import Canary
from tests.support.client.raw import RawClient
from tests.support.outside import ARGV, MODEL, Outside, said
from tests.support.signing_server import Hold, Redacted, Text, Thinking, answer, tool
from tests.support.watching import HANG_SECONDS

ENTRY = {
    "sessionId", "title", "workspace", "model", "steps", "messages", "usage", "created", "updated", "size", "busy",
}  # fmt: skip
FIGURES = {
    "inputTokens", "outputTokens", "thinkingTokens", "cacheReadTokens", "cacheWriteTokens", "costUsd", "cacheShare",
}  # fmt: skip
LOOKS = (answer(Thinking("I look."), Redacted(), read_file("a.py")), answer(Thinking(), Text("It holds one line.")))
FILES = {"a.py": "x = 1\n"}


async def sessions(client: RawClient, op: str | None = None, **argument: Any) -> Any:
    return await client.command("thinklsp.sessions", ({} if op is None else {"op": op}) | argument)


async def refused(client: RawClient, op: str, **argument: Any) -> str:
    return await refused_request(sessions(client, op, **argument))


async def test_what_can_be_done_with_a_session(begin: Begin) -> None:
    outside = await begin(*LOOKS, say("Again."), files=FILES)
    client = outside.client
    assert await sessions(client) == []
    first = await chat(outside, "What is in a.py?\nTell me.")
    identity = first["sessionId"]

    [entry] = await sessions(client, "list")
    assert set(entry) == ENTRY
    facts = {name: entry[name] for name in ("sessionId", "title", "model", "steps", "messages", "busy")}
    assert facts == {
        "sessionId": identity, "title": "What is in a.py?", "model": MODEL, "steps": 2, "messages": 4, "busy": False,
    }  # fmt: skip
    assert entry["usage"] == first["usage"]
    assert entry["created"] <= entry["updated"]
    assert entry["size"] > 100

    shown = await sessions(client, "show", sessionId=identity[:8])
    assert set(shown) == {"sessionId", "title", "archiveId", "text", "archives"}
    for words in ("# What is in a.py?", "## You", "Tell me.", "Called `read_file`", "x = 1", "It holds one line."):
        assert words in shown["text"]
    data = json.loads((await sessions(client, "export", sessionId=identity, format="json"))["text"])
    assert [message["role"] for message in data["messages"]] == ["user", "assistant", "user", "assistant"]
    opaque = [block["opaque"] for message in data["messages"] for block in message["blocks"] if "opaque" in block]
    assert {len(state["sha256"]) for state in opaque} == {64}
    assert (await sessions(client, "export", sessionId="last"))["text"] == shown["text"]

    fork = await sessions(client, "fork", sessionId=identity, step=1)
    assert fork == {
        "sessionId": fork["sessionId"], "title": "What is in a.py? (fork)", "steps": 1, "forkedFrom": identity,
    }  # fmt: skip
    again = await chat(outside, "And now?", sessionId=fork["sessionId"])
    assert again["text"] == "Again."
    assert [len(request.body["messages"]) for request in outside.provider.requests] == [1, 3, 3]
    assert "has no step 9" in await refused(client, "fork", sessionId=identity, step=9)

    assert (await sessions(client, "repair", sessionId=identity))["findings"] == []
    deleted = await sessions(client, "delete", sessionId=identity)
    assert deleted == {"sessionId": identity, "title": "What is in a.py?", "deleted": True}
    assert [entry["sessionId"] for entry in await sessions(client)] == [fork["sessionId"]]
    assert "session has this id" in await refused(client, "show", sessionId=identity)


async def test_sessions_are_of_their_workspace_alone(begin: Begin, tmp_path: Path) -> None:
    outside = await begin(say("Here."), say("Still here."))
    client = outside.client
    assert "no sessions yet" in await refused(client, "show")
    identity = (await chat(outside, "Where am I?"))["sessionId"]

    other_root = tmp_path / "other"
    other_root.mkdir()
    other = (await outside.beside(other_root)).client
    assert await sessions(other) == []
    for op in ("show", "export", "delete", "repair", "restore", "fork", "rename"):
        more = {"restore": {"archiveId": "x"}, "rename": {"title": "Mine"}}.get(op, {})
        assert "session has this id" in await refused(other, op, sessionId=identity, **more)
        assert "session has this id" in await refused(other, op, sessionId=identity[:8], **more)
    assert "session has this id" in await refused(other, "attach", sessionId=identity, partialResultToken="p")
    await refused_request(other.command("thinklsp.usage", {"sessionId": identity}), match="session has this id")
    assert (await chat(outside, "And now?", sessionId="last"))["text"] == "Still here."


async def test_attach_replays_the_running_turn_and_goes_on_live(begin: Begin) -> None:
    hold = Hold()
    words = "The first half. ", "The second half."
    last = answer(Thinking("So."), Text(words[0]), hold, Text(words[1]))
    outside = await begin(LOOKS[0], last, files=FILES, options={"thinking": {"display": "summary"}})
    client = outside.client
    turn = await reach(hold, start_chat(outside, "Look.", partialResultToken="p", token="w"))
    [entry] = await sessions(client)
    assert entry["busy"] is True
    assert "is running" in await refused(client, "delete", sessionId=entry["sessionId"])
    assert "is running" in await refused(client, "repair", sessionId="last")

    attached = await sessions(client, "attach", sessionId="last", partialResultToken="q")
    assert attached == {
        "attached": True, "turnId": attached["turnId"], "sessionId": entry["sessionId"], "notice": None,
    }  # fmt: skip
    # What there was so far came before the answer.
    assert {"tool", "usage"} <= set(client.progress_kinds("q"))
    # Neither the turn's own tokens nor those of whoever is attached already.
    for token in ("p", "w", "q"):
        await refused_request(
            sessions(client, "attach", partialResultToken=token), -32602, match="partialResultToken` is already in use"
        )
    result = await release(hold, outside, turn)
    for token in ("p", "q"):
        assert client.progress(token)[-1] == {"kind": "finished", "result": result}
        assert texts(client, token) == texts(client, "p")
    assert texts(client, "p")["text"] == "".join(words)
    assert texts(client, "p")["thinking"] == "I look.So."
    plain = [[v for v in client.progress(token) if "delta" not in v] for token in ("p", "q")]
    assert plain[0] == plain[1]

    none = await sessions(client, "attach", sessionId="last", partialResultToken="r")
    assert (none["attached"], none["turnId"], none["notice"]) == (False, None, "No turn is running.")
    assert client.progress("r") == []


def texts(client: RawClient, token: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for value in client.progress(token):
        if "delta" in value:
            found[value["kind"]] = found.get(value["kind"], "") + value["delta"]
    return found


async def test_usage_is_what_the_provider_reported(begin: Begin) -> None:
    rules = "These are the rules that you follow. " * 400
    declined = answer(Thinking(), Text("I will not."), stop_reason="refusal")
    outside = await begin(*LOOKS, answer(Thinking(), Text("Sure.")), declined, say("Else."), files=FILES)
    client, provider = outside.pair
    empty = await client.command("thinklsp.usage")
    assert (empty["sessionId"], empty["total"]["inputTokens"], empty["byTurn"]) == (None, None, [])
    turns = [await chat(outside, f"Look. {rules}")]
    identity = turns[0]["sessionId"]
    turns += [await chat(outside, p, sessionId=identity) for p in ("Sure?", "Really?")]
    assert [turn["stopReason"] for turn in turns] == ["end_turn", "end_turn", "refusal"]
    await chat(outside, "Something else.")

    usage = await client.command("thinklsp.usage", {"sessionId": identity})
    assert set(usage) == {"sessionId", "total", "byTurn", "byDay", "byModel", "unpriced", "today"}
    assert [set(figures) for figures in (usage["total"], usage["today"])] == [FIGURES, FIGURES]
    assert [turn["turnId"] for turn in usage["byTurn"]] == [turn["turnId"] for turn in turns]
    groups = [provider.requests[:2], provider.requests[2:3], provider.requests[3:4]]
    for reported, told, turn in zip(groups, usage["byTurn"], turns, strict=True):
        assert {name: told[name] for name in FIGURES & set(sum_usage(reported))} == sum_usage(reported)
        assert {name: told[name] for name in turn["usage"]} == pytest.approx(turn["usage"])
    for part in (usage["total"], usage["byDay"][0], usage["byModel"][0]):
        assert {name: part[name] for name in sum_usage(provider.requests[:4])} == sum_usage(provider.requests[:4])
        assert part["cacheShare"] == round(part["cacheReadTokens"] / part["inputTokens"], 4) > 0
    assert usage["byModel"][0]["model"] == MODEL
    assert usage["unpriced"] == []
    assert usage["total"]["costUsd"] == pytest.approx(sum(turn["usage"]["costUsd"] for turn in turns))
    assert usage["today"]["inputTokens"] == sum_usage(provider.requests)["inputTokens"]
    # Without a session it is that of the newest one.
    assert (await client.command("thinklsp.usage"))["sessionId"] != identity


async def test_a_store_that_cannot_be_used_is_told_once(begin: Begin) -> None:
    outside = await begin(say("One."), say("Two."))
    folder = outside.home / "state" / "sessions"
    folder.mkdir(mode=0o700)
    (folder / "sessions.db").write_bytes(b"no database at all " * 99)
    (folder / "sessions.db").chmod(0o600)
    identity = (await chat(outside, "One?"))["sessionId"]
    [told] = outside.told()
    assert "corrupt" in told
    await chat(outside, "Two?", sessionId=identity)
    assert outside.told() == []


def terminal(outside: Outside, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ARGV, *args],
        cwd=outside.root,
        env=outside.variables,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )


async def test_the_terminal_goes_on_with_a_session_of_the_editor(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(
        *LOOKS, answer(Text("Two."), before=hold), answer(Thinking(), Text("Three.")), say("Four."), files=FILES
    )
    identity = (await chat(outside, "One?"))["sessionId"]
    turn = await reach(hold, start_chat(outside, "Two?", sessionId=identity, token="w"))
    denied = await asyncio.to_thread(terminal, outside, "ask", "--session", "last", "Refused?")
    assert (denied.returncode, denied.stdout) == (1, "")
    assert denied.stderr.startswith("thinklsp ask: This session is in use by another thinklsp (process ")
    await release(hold, outside, turn)

    done = await asyncio.to_thread(terminal, outside, "ask", "--session", identity[:8], "--json", "Three?")
    assert json.loads(done.stdout)["sessionId"] == identity
    after = await chat(outside, "Four?", sessionId="last")
    assert (after["sessionId"], after["text"]) == (identity, "Four.")
    told = said(outside.provider.requests[-1].body)
    assert all(words in told for words in ("One?", "Two?", "Three?", "Three.", "Four?"))
    assert "Refused?" not in told


async def test_the_terminal_sees_what_the_editor_sees_and_no_secret(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(*LOOKS, answer(Thinking(), Text("Done."), before=hold), files=FILES)
    identity = (await chat(outside, "Look."))["sessionId"]
    turn = await reach(hold, start_chat(outside, "Go on.", sessionId=identity, token="w"))
    listed = await asyncio.to_thread(terminal, outside, "sessions", "list", "--json")
    [entry] = json.loads(listed.stdout)
    assert (entry["sessionId"], entry["busy"], entry["steps"]) == (identity, True, 2)
    denied = await asyncio.to_thread(terminal, outside, "sessions", "delete", identity, "--yes")
    assert denied.returncode == 1
    assert "in use by another thinklsp" in denied.stderr
    await release(hold, outside, turn)

    canary = Canary(outside.provider.secrets())
    for args in (["list"], ["show", "last"], ["export", "last", "--format", "json"]):
        done = await asyncio.to_thread(terminal, outside, "sessions", *args)
        assert (done.returncode, done.stderr) == (0, "")
        assert canary.search(done.stdout.encode(), str(args)) == []
        assert identity[:8] in done.stdout
    report = await outside.client.command("thinklsp.doctor")
    assert (report["store"]["kind"], report["store"]["databaseExists"]) == ("file", True)
    assert report["store"]["path"] == str(outside.home / "state" / "sessions" / "sessions.db")
    assert "only" in report["store"]["protection"]


async def test_session_is_renamed_also_while_its_turn_runs(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(say("One."), say("Two."), answer(Text("Three."), before=hold))
    client = outside.client
    first = (await chat(outside, "One?"))["sessionId"]
    second = (await chat(outside, "Two?"))["sessionId"]
    renamed = await sessions(client, "rename", sessionId=first[:8], title="  The price of things\nmore " + "x" * 2**20)
    assert renamed == {"sessionId": first, "title": "The price of things"}
    listed = [(entry["sessionId"], entry["title"]) for entry in await sessions(client)]
    assert listed == [(second, "Two?"), (first, "The price of things")]

    turn = await reach(hold, start_chat(outside, "Three?", sessionId=first, token="w"))
    assert (await sessions(client, "rename", sessionId=first, title="Renamed " * 99))["title"].endswith("Renamed…")
    denied = await asyncio.to_thread(terminal, outside, "sessions", "rename", first, "Mine")
    assert (denied.returncode, "in use by another thinklsp" in denied.stderr) == (1, True)
    await release(hold, outside, turn)
    assert "Three." in (await sessions(client, "show", sessionId=first))["text"]
    done = await asyncio.to_thread(terminal, outside, "sessions", "rename", first, "Mine")
    assert (done.returncode, done.stdout) == (0, "Renamed to “Mine”.\n")
    assert (await sessions(client, "export", sessionId=first))["title"] == "Mine"

    await refused_request(sessions(client, "rename", sessionId=first), -32602, match="`title` is required")
    await refused_request(sessions(client, "rename", sessionId=first, title="\ud800"), -32602, match="title")
    await refused_request(sessions(client, "rename", title="x", step=1), -32602, match="`step` is not a field")
    assert "title is empty" in await refused(client, "rename", sessionId=first, title=" \n ")


async def test_a_session_is_shown_in_the_users_words(begin: Begin) -> None:
    outside = await begin(
        answer(Thinking(), tool("edit_file", path="a.py", old_text="1", new_text="2")),
        answer(Thinking(), Text("Changed.")),
        files=FILES | {"AGENTS.md": "Be brief.\n"},
    )
    client, _ = outside.pair
    client.editor.message_answers = ["Follow them"]
    uri = outside.open("a.py")
    result = await outside.turn("thinklsp.chat", {"prompt": "Make it two.", "uri": uri, "mode": "agent"})
    exported = await sessions(client, "export", sessionId=result["sessionId"], format="json")
    data = json.loads(exported["text"])
    [block] = data["messages"][0]["blocks"]
    assert (block["text"], block["turn"]) == ("Make it two.", result["turnId"])
    [turn] = data["turns"]
    figures = {"usage": result["usage"], "files": [uri], "undone": [], "references": ["a.py"]}
    assert turn == {"turnId": result["turnId"], **figures}
    shown = (await sessions(client, "show", sessionId=result["sessionId"]))["text"]
    for scaffolding in ("<excerpt>", "instructions", "Be brief."):
        assert scaffolding not in shown
    outside.told()
    await client.command("thinklsp.undo")
    exported = await sessions(client, "export", sessionId=result["sessionId"], format="json")
    [turn] = json.loads(exported["text"])["turns"]
    assert (turn["files"], turn["undone"]) == ([], [uri])
