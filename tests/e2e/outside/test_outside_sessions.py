"""Sessions from outside: what the commands answer, who may reach them, attaching, usage, and what is never in them."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Begin
from tests.support.canary import Canary
from tests.support.outside import ARGV, MODEL, Outside, said
from tests.support.raw_client import RawClient, ResponseError
from tests.support.signing_script import Hold, Redacted, Text, Thinking, answer, tool

ENTRY = {
    "sessionId", "title", "workspace", "model", "steps", "messages", "usage", "created", "updated", "size", "busy",
}  # fmt: skip
FIGURES = {
    "inputTokens", "outputTokens", "thinkingTokens", "cacheReadTokens", "cacheWriteTokens", "costUsd", "cacheShare",
}  # fmt: skip
LOOKS = (
    answer(Thinking("I look."), Redacted(), tool("read_file", path="a.py")),
    answer(Thinking(), Text("It holds one line.")),
)
FILES = {"a.py": "x = 1\n"}


async def sessions(client: RawClient, op: str | None = None, **argument: Any) -> Any:
    return await client.command("thinklsp.sessions", ({} if op is None else {"op": op}) | argument)


async def refused(client: RawClient, op: str, **argument: Any) -> str:
    with pytest.raises(ResponseError) as caught:
        await sessions(client, op, **argument)
    assert caught.value.code == -32803
    return caught.value.message


async def test_what_can_be_done_with_a_session(begin: Begin) -> None:
    outside = await begin(*LOOKS, answer(Text("Again.")), files=FILES)
    client, provider = outside.pair
    assert await sessions(client) == []
    first = await outside.turn("thinklsp.chat", {"prompt": "What is in a.py?\nTell me."})
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
    again = await outside.turn("thinklsp.chat", {"prompt": "And now?", "sessionId": fork["sessionId"]})
    assert again["text"] == "Again."
    assert [len(request.body["messages"]) for request in provider.requests] == [1, 3, 3]
    assert "has no step 9" in await refused(client, "fork", sessionId=identity, step=9)

    assert (await sessions(client, "repair", sessionId=identity))["findings"] == []
    deleted = await sessions(client, "delete", sessionId=identity)
    assert deleted == {"sessionId": identity, "title": "What is in a.py?", "deleted": True}
    assert [entry["sessionId"] for entry in await sessions(client)] == [fork["sessionId"]]
    assert "no such session" in await refused(client, "show", sessionId=identity)


WRONG: list[tuple[str, Any, str]] = [
    ("sessions", {"op": "nonsense"}, "op"),
    ("sessions", {"op": 1}, "op"),
    ("sessions", {"op": "delete"}, "sessionId"),
    ("sessions", {"op": "restore", "sessionId": "last"}, "archiveId"),
    ("sessions", {"op": "attach", "sessionId": "last"}, "partialResultToken"),
    ("sessions", {"op": "list", "step": 1}, "step"),
    ("sessions", {"op": "show", "format": "json"}, "format"),
    ("sessions", {"op": "export", "format": "pdf"}, "format"),
    ("sessions", {"op": "fork", "step": -1}, "step"),
    ("sessions", {"op": "show", "sessionId": 5}, "sessionId"),
    ("sessions", {"op": "show", "sessionId": ""}, "sessionId"),
    ("sessions", {"op": "list", "more": 1}, "more"),
    ("usage", {"session": "last"}, "session"),
]


async def test_wrong_arguments_and_other_workspaces(begin: Begin, tmp_path: Path) -> None:
    outside = await begin(answer(Text("Here.")), answer(Text("Still here.")))
    client, _ = outside.pair
    for command, argument, field in WRONG:
        with pytest.raises(ResponseError) as caught:
            await client.command(f"thinklsp.{command}", argument)
        assert (caught.value.code, f"field {field}" in caught.value.message) == (-32602, True), argument
    assert "no session here yet" in await refused(client, "show")
    identity = (await outside.turn("thinklsp.chat", {"prompt": "Where am I?"}))["sessionId"]

    other_root = tmp_path / "other"
    other_root.mkdir()
    other = (await outside.beside(other_root)).client
    assert await sessions(other) == []
    for op in ("show", "export", "delete", "repair", "restore", "fork"):
        more = {"archiveId": "x"} if op == "restore" else {}
        assert "no such session" in await refused(other, op, sessionId=identity, **more)
        assert "no such session" in await refused(other, op, sessionId=identity[:8], **more)
    assert "no such session" in await refused(other, "attach", sessionId=identity, partialResultToken="p")
    with pytest.raises(ResponseError, match="no such session"):
        await other.command("thinklsp.usage", {"sessionId": identity})
    assert (await outside.turn("thinklsp.chat", {"prompt": "And now?", "sessionId": "last"}))["text"] == "Still here."


async def test_attach_replays_the_running_turn_and_goes_on_live(begin: Begin) -> None:
    hold = Hold()
    words = "The first half. ", "The second half."
    last = answer(Thinking("So."), Text(words[0]), hold, Text(words[1]))
    outside = await begin(LOOKS[0], last, files=FILES, options={"thinking": {"display": "summary"}})
    client, _ = outside.pair
    turn = client.command("thinklsp.chat", {"prompt": "Look.", "partialResultToken": "p"}, token="w")
    await hold.reached.wait()
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
        with pytest.raises(ResponseError, match="partialResultToken names a token that is in use") as taken:
            await sessions(client, "attach", partialResultToken=token)
        assert taken.value.code == -32602
    hold.release()
    result = await outside.result(turn)
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
    outside = await begin(*LOOKS, answer(Thinking(), Text("Sure.")), declined, answer(Text("Else.")), files=FILES)
    client, provider = outside.pair
    empty = await client.command("thinklsp.usage")
    assert (empty["sessionId"], empty["total"]["inputTokens"], empty["byTurn"]) == (None, None, [])
    turns = [await outside.turn("thinklsp.chat", {"prompt": f"Look. {rules}"})]
    identity = turns[0]["sessionId"]
    turns += [await outside.turn("thinklsp.chat", {"prompt": p, "sessionId": identity}) for p in ("Sure?", "Really?")]
    assert [turn["stopReason"] for turn in turns] == ["end_turn", "end_turn", "refusal"]
    await outside.turn("thinklsp.chat", {"prompt": "Something else."})

    usage = await client.command("thinklsp.usage", {"sessionId": identity})
    assert set(usage) == {"sessionId", "total", "byTurn", "byDay", "byModel", "unpriced", "today"}
    assert [set(figures) for figures in (usage["total"], usage["today"])] == [FIGURES, FIGURES]
    assert [turn["turnId"] for turn in usage["byTurn"]] == [turn["turnId"] for turn in turns]
    groups = [provider.requests[:2], provider.requests[2:3], provider.requests[3:4]]
    for reported, told, turn in zip(groups, usage["byTurn"], turns, strict=True):
        assert {name: told[name] for name in FIGURES & set(reported_sum(reported))} == reported_sum(reported)
        assert {name: told[name] for name in turn["usage"]} == pytest.approx(turn["usage"])
    for part in (usage["total"], usage["byDay"][0], usage["byModel"][0]):
        assert {name: part[name] for name in reported_sum(provider.requests[:4])} == reported_sum(provider.requests[:4])
        assert part["cacheShare"] == round(part["cacheReadTokens"] / part["inputTokens"], 4) > 0
    assert usage["byModel"][0]["model"] == MODEL
    assert usage["unpriced"] == []
    assert usage["total"]["costUsd"] == pytest.approx(sum(turn["usage"]["costUsd"] for turn in turns))
    assert usage["today"]["inputTokens"] == reported_sum(provider.requests)["inputTokens"]
    # Without a session it is that of the newest one.
    assert (await client.command("thinklsp.usage"))["sessionId"] != identity


def reported_sum(requests: list[Any]) -> dict[str, int]:
    def total(*kinds: str) -> int:
        return sum(request.usage[kind] for request in requests for kind in kinds)

    return {
        "inputTokens": total("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
        "outputTokens": total("output_tokens"),
        "thinkingTokens": total("thinking_tokens"),
        "cacheReadTokens": total("cache_read_input_tokens"),
        "cacheWriteTokens": total("cache_creation_input_tokens"),
    }


async def test_a_change_that_drops_the_cache_says_so(begin: Begin) -> None:
    prompt = "Look. " + "These are the rules that you follow. " * 400
    outside = await begin(answer(Thinking(), Text("Seen.")))
    client, provider = outside.pair
    identity = (await outside.turn("thinklsp.chat", {"prompt": prompt}))["sessionId"]
    usage = provider.requests[0].usage
    cached = usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]
    said = f"the next request sends {cached:,} cached tokens anew, about $"
    for command, value in (("effort", "low"), ("model", "claude-haiku-4-5"), ("thinking", "off")):
        told = await client.command(f"thinklsp.{command}", {"value": value})
        assert said in told["notice"], told
        await client.command(f"thinklsp.{command}", {"value": "auto" if command != "model" else MODEL})
    # The same in other words, or no wish at all, costs nothing.
    assert "cached" not in ((await client.command("thinklsp.effort"))["notice"] or "")
    same = await client.command("thinklsp.thinking", {"value": "adaptive", "sessionId": identity})
    assert "cached" not in (same["notice"] or "")
    dear = await client.command("thinklsp.model", {"value": "claude-unheard-of", "sessionId": identity})
    assert f"{cached:,} cached tokens anew, its cost is unknown" in dear["notice"]


async def test_a_store_that_cannot_be_used_is_told_once(begin: Begin) -> None:
    outside = await begin(answer(Text("One.")), answer(Text("Two.")))
    folder = outside.home / "state" / "sessions"
    folder.mkdir(mode=0o700)
    (folder / "sessions.db").write_bytes(b"no database at all " * 99)
    (folder / "sessions.db").chmod(0o600)
    identity = (await outside.turn("thinklsp.chat", {"prompt": "One?"}))["sessionId"]
    [told] = outside.told()
    assert "corrupt" in told
    await outside.turn("thinklsp.chat", {"prompt": "Two?", "sessionId": identity})
    assert outside.told() == []


def terminal(outside: Outside, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ARGV, *args], cwd=outside.root, env=outside.variables, capture_output=True, text=True, timeout=60, check=False
    )


async def test_the_terminal_goes_on_with_a_session_of_the_editor(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(
        *LOOKS,
        answer(Text("Two."), before=hold),
        answer(Thinking(), Text("Three.")),
        answer(Text("Four.")),
        files=FILES,
    )
    client, provider = outside.pair
    identity = (await outside.turn("thinklsp.chat", {"prompt": "One?"}))["sessionId"]
    turn = client.command("thinklsp.chat", {"prompt": "Two?", "sessionId": identity}, token="w")
    await hold.reached.wait()
    denied = await asyncio.to_thread(terminal, outside, "ask", "--session", "last", "Refused?")
    assert (denied.returncode, denied.stdout) == (1, "")
    assert denied.stderr.startswith("thinklsp ask: This session is in use by another thinklsp (process ")
    hold.release()
    await outside.result(turn)

    done = await asyncio.to_thread(terminal, outside, "ask", "--session", identity[:8], "--json", "Three?")
    assert json.loads(done.stdout)["sessionId"] == identity
    after = await outside.turn("thinklsp.chat", {"prompt": "Four?", "sessionId": "last"})
    assert (after["sessionId"], after["text"]) == (identity, "Four.")
    told = said(provider.requests[-1].body)
    assert all(words in told for words in ("One?", "Two?", "Three?", "Three.", "Four?"))
    assert "Refused?" not in told


async def test_the_terminal_goes_on_after_slash_commands(begin: Begin) -> None:
    """What they change is no turn, and the session is let go of all the same: the one that is cleared, too."""
    outside = await begin(answer(Text("One.")), answer(Text("Two.")), *[answer(Text("Three."))] * 2)
    uri = outside.open("notes.chat.md", "One?")
    first = (await outside.turn("thinklsp.send", {"uri": uri}))["sessionId"]
    for commands in ("/effort high\n", "/effort low\n/clear\nTwo?\n", "/effort high\n"):
        text = outside.client.text(uri) or ""
        outside.client.change(uri, "## You\n\n", f"## You\n\n{commands}", nth=text.count("## You\n\n") - 1)
        last = (await outside.turn("thinklsp.send", {"uri": uri}))["sessionId"]
    assert last != first
    for identity in (first, last):
        done = await asyncio.to_thread(terminal, outside, "ask", "--session", identity, "--json", "Three?")
        assert (done.returncode, done.stderr) == (0, "")


async def test_the_terminal_sees_what_the_editor_sees_and_no_secret(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(*LOOKS, answer(Thinking(), Text("Done."), before=hold), files=FILES)
    client, provider = outside.pair
    identity = (await outside.turn("thinklsp.chat", {"prompt": "Look."}))["sessionId"]
    turn = client.command("thinklsp.chat", {"prompt": "Go on.", "sessionId": identity}, token="w")
    await hold.reached.wait()
    listed = await asyncio.to_thread(terminal, outside, "sessions", "list", "--json")
    [entry] = json.loads(listed.stdout)
    assert (entry["sessionId"], entry["busy"], entry["steps"]) == (identity, True, 2)
    denied = await asyncio.to_thread(terminal, outside, "sessions", "delete", identity, "--yes")
    assert denied.returncode == 1
    assert "in use by another thinklsp" in denied.stderr
    hold.release()
    await outside.result(turn)

    canary = Canary(provider.secrets())
    for args in (["list"], ["show", "last"], ["export", "last", "--format", "json"]):
        done = await asyncio.to_thread(terminal, outside, "sessions", *args)
        assert (done.returncode, done.stderr) == (0, "")
        assert canary.search(done.stdout.encode(), str(args)) == []
        assert identity[:8] in done.stdout
    report = await client.command("thinklsp.doctor")
    assert (report["store"]["kind"], report["store"]["databaseExists"]) == ("file", True)
    assert report["store"]["path"] == str(outside.home / "state" / "sessions" / "sessions.db")
    assert "only" in report["store"]["protection"]
