"""The table of bad inputs against one real server: the errors that are due, no pop-up, and a probe after every row."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.slow.mutating import frame
from tests.slow.rough_client import ACTION, answered, check_decent, key, probe, write
from tests.slow.running import Tally, running
from tests.support.client.raw import RawClient
from tests.support.outside import ROOT, Json, Outside

TABLE = tomllib.loads((Path(__file__).parent / "bad_inputs.toml").read_text("utf-8"))
ROWS: list[Json] = [row for row in TABLE["row"] if "absent" not in row]
WORDS = json.dumps({"jsonrpc": "2.0", "method": "textDocument/codeAction", "params": ACTION})[1:-1]


def spelled(text: str, outside: Outside) -> bytes:
    for name, value in {"$ACTION": WORDS, "$URI": outside.uri("a.py"), "$ROOT": outside.root.as_uri()}.items():
        text = text.replace(name, value)
    text = re.sub(r"<([^<>]+?)\*(\d+)>", lambda match: match[1] * int(match[2]), text)
    return text.encode("latin-1") if text.isascii() or max(text) < "\u0100" else text.encode("utf-8", "surrogatepass")


def sent_by(row: Json, outside: Outside) -> bytes:
    framed = b"".join(frame(spelled(text, outside)) for text in row.get("send", ()))
    return framed + b"".join(spelled(text, outside) for text in row.get("raw", ()))


def codes(client: RawClient) -> list[str]:
    found = []
    for received in client.received:
        message = received.message
        if "method" not in message and not str(message["id"]).startswith("probe"):
            code = message["error"]["code"] if "error" in message else "result"
            found.append(f"{json.dumps(message['id'])}: {code}")
    return sorted(found)


async def play(outside: Outside, row: Json) -> None:
    client = outside.client
    client.received.clear()
    write(client, sent_by(row, outside))
    if "exit" in row:
        assert await client.gone() == row["exit"]
        assert codes(client) == sorted(row["answers"])
        return
    if row.get("swallows"):
        write(client, frame(probe("probe-swallowed")))
    write(client, frame(probe("probe")))
    wanted = sorted(row["answers"])
    await client.wait_for(
        lambda: answered(client)[key("probe")] and len(codes(client)) >= len(wanted), what=f"answers to {row['id']}"
    )
    assert codes(client) == wanted
    assert client.messages() == []


@asynccontextmanager
async def server(place: Path, phase: str | None, env: Mapping[str, str | None] | None = None) -> AsyncIterator[Outside]:
    files = {"a.py": "é🙂 = 1\n"}
    async with running(place, files=files, finish=False, initialize=phase != "fresh", env=env) as outside:
        if phase != "fresh":
            outside.open("a.py")
            await outside.client.command("thinklsp.cancel")
        if phase == "shutdown":
            await outside.client.request("shutdown")
        yield outside
        check_decent(outside)


async def test_one_server_through_the_whole_table(tmp_path: Path, tally: Tally) -> None:
    tally("A-04", await through_the_table(tmp_path))


async def through_the_table(place: Path, env: Mapping[str, str | None] | None = None) -> int:
    """Play all rows for which one server is enough. Return the number of rows."""
    rows = [row for row in ROWS if "phase" not in row and "exit" not in row]
    async with server(place, None, env) as outside:
        for row in rows:
            await play(outside, row)
        check_decent(outside)
        assert outside.provider.requests == []
        assert await outside.client.close() == 0
    return len(rows)


@pytest.mark.parametrize("row", [row for row in ROWS if "phase" in row or "exit" in row], ids=lambda row: row["id"])
async def test_rows_that_need_a_server_of_their_own(tmp_path: Path, row: Json, tally: Tally) -> None:
    async with server(tmp_path, row.get("phase")) as outside:
        await play(outside, row)
    tally("A-04", 1)


async def test_many_requests_in_one_write_and_one_byte_at_a_time(tmp_path: Path, tally: Tally) -> None:
    async with server(tmp_path, None) as outside:
        client = outside.client
        client.received.clear()
        write(client, b"".join(frame(probe(f"probe-{number}")) for number in range(10_000)))
        await client.wait_for(lambda: len(client.received) >= 10_000, within=60, what="10,000 answers")
        assert set(answered(client).values()) == {1}
        for byte in frame(probe("probe slow")):
            write(client, bytes([byte]))
            assert client.process.stdin is not None
            await client.process.stdin.drain()
        await client.wait_for(lambda: answered(client)[key("probe slow")], what="the slow answer")
        assert await client.close() == 0
    tally("A-04", 1)


def test_the_table_is_whole() -> None:
    """Every row is played or says why not, and every decision names an existing check."""
    names = {row["id"].rstrip("bcd") for row in TABLE["row"]}
    assert names == {f"B-{number:02}" for number in range(1, 57)}
    assert all(row.get("absent") or ("answers" in row and ("send" in row or "raw" in row)) for row in TABLE["row"])
    assert [d["id"] for d in TABLE["decided"] if d["checked"] and not (ROOT / d["checked"]).is_file()] == []
