"""The rows of `faults.toml` that a provider brings about: each case is a turn on one server, and a turn after it."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from tests.slow.running import Tally
from tests.support.client.actions import ResponseError
from tests.support.epilogue import check_answers, clock, faulty
from tests.support.outside import Json, Outside, check_sentence
from tests.support.signing_server import (
    Answer,
    Cut,
    Event,
    Failure,
    Item,
    Raw,
    Redacted,
    Seen,
    Text,
    Thinking,
    Tool,
    answer,
)

ROWS: list[Json] = tomllib.loads((Path(__file__).parent / "faults.toml").read_text("utf-8"))["row"]
AFTERWARDS = answer(Thinking(), Text("Here."))


def item(written: Json) -> Item:
    match written:
        case {"thinking": text}:
            return Thinking(text)
        case {"redacted": _}:
            return Redacted()
        case {"text": text}:
            return Text(text)
        case {"tool": name, "input": arguments}:
            return Tool(name, arguments, cut=written.get("cut", False))
        case {"raw": block}:
            return Raw(block)
        case {"event": name, "data": data}:
            return Event(name, data)
        case {"bytes": text}:
            return re.sub(r"<(.+?)\*(\d+)>", lambda match: match[1] * int(match[2]), text).encode("latin-1")
        case {"cut": how}:
            return Cut(how)
    raise ValueError(f"no item: {written}")


def play(written: Json) -> Answer | Failure:
    if "stream" in written:
        return answer(*map(item, written["stream"]))
    return Failure(written["status"], written["kind"], written["message"], written.get("headers", {}))


def plays(case: Json, outside: Outside) -> list[Answer | Failure]:
    key: str = outside.provider.key
    written = json.loads(json.dumps(case["plays"]).replace("$KEY", key))
    return [play(one) for one in written for _ in range(one.get("times", 1))]


async def run(case: Json, outside: Outside, token: str) -> list[Seen]:
    """Play a case, and a turn after it. Return the requests of the case."""
    before = len(outside.provider.requests)
    outside.provider.say(*plays(case, outside))
    if "fails" not in case and "ends" not in case:
        outside.provider.say(AFTERWARDS)
    (outside.root / "a.py").write_text("x = 1\n")
    turn = outside.client.command("thinklsp.chat", {"prompt": case["name"]}, token=token)
    if "fails" in case:
        with pytest.raises(ResponseError) as failed:
            await outside.result(turn)
        assert failed.value.code == -32803
        check_sentence(failed.value.message)
        assert [word for word in case["fails"] if word not in failed.value.message] == [], failed.value.message
        session = failed.value.data["sessionId"]
    else:
        result = await outside.result(turn)
        assert (result["stopReason"], result["text"]) == ("end_turn", case.get("ends", "Here.")), result
        assert [word for word in case.get("notices", ()) if word not in str(result["notices"])] == []
        session = result["sessionId"]
    assert outside.client.progress_kinds(token)[-1] == "end"
    seen = outside.provider.requests[before:]
    assert len(seen) == case["asked"]
    if "text" in case:
        assert (outside.root / "a.py").read_text() == case["text"]
    await go_on(case, outside, session)
    return seen


async def go_on(case: Json, outside: Outside, session: str) -> None:
    if case.get("unjudged"):
        # The signing rules did not issue this block, so the judge cannot require it.
        session = ""
    outside.provider.say(AFTERWARDS)
    result = await outside.turn("thinklsp.chat", {"prompt": "And now?"} | ({"sessionId": session} if session else {}))
    assert result["text"] == "Here."
    assert outside.provider.violations == []
    await check_answers(outside)


async def play_row(row: Json, place: Path) -> list[tuple[Json, float]]:
    """Play all cases of a row. Return those with `waits`, and the seconds from their first to their second request."""
    speed, waited = row.get("clock", 1), []
    async with faulty(place, env=clock(speed)) as outside:
        for number, case in enumerate(row["case"]):
            seen = await run(case, outside, f"case-{number}")
            if "waits" in case:
                waited.append((case, (seen[1].at - seen[0].at) * speed))
    return waited


@pytest.mark.parametrize("row", [row for row in ROWS if "case" in row], ids=lambda row: row["id"])
async def test_a_row_of_faults(row: Json, tmp_path: Path, tally: Tally) -> None:
    """A busy machine can make a wait longer, but not shorter."""
    for case, seconds in await play_row(row, tmp_path):
        assert case["waits"][0] <= seconds, case["name"]
    tally("A-04", 1)


@pytest.mark.timing
@pytest.mark.parametrize("row", [row for row in ROWS if "waits" in str(row.get("case"))], ids=lambda row: row["id"])
async def test_no_wait_is_longer_than_allowed(row: Json, tmp_path: Path) -> None:
    waited = await play_row(row, tmp_path)
    assert waited
    for case, seconds in waited:
        assert seconds < case["waits"][1], case["name"]
