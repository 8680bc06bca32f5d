"""What a waiting user sees: a begin at once, a sign of life every two seconds, never a flood; and its text."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.e2e.acting import chat, reach, read_file, refused, release, start_chat
from tests.e2e.conftest import Begin
from tests.support.outside import Outside
from tests.support.signing_server import Answer, Cut, Failure, Hold, Item, Text, Thinking, answer

SUMMARY = "First I look 🙂, then I think about it."


def times(outside: Outside, token: str, kind: str) -> list[float]:
    seen = outside.client.calls("$/progress")
    return [r.at for r in seen if r.params.token == token and r.params.value.get("kind") == kind]


def most_in_a_second(at: list[float]) -> int:
    # A little less than a second: the reader's clock is not the writer's.
    return max((sum(1 for other in at if start <= other < start + 0.9) for start in at), default=0)


@pytest.mark.timing
async def test_a_silent_provider_is_no_silent_server(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(answer(Thinking(), hold, Text("At last.")))
    client = outside.client
    sent = time.monotonic()
    turn = await reach(hold, start_chat(outside, "Think long.", token="t"))
    silent = time.monotonic()
    await client.wait_for(lambda: times(outside, "t", "report")[-1:] >= [silent + 4.5], what="reports in the silence")
    reports = [silent, *(at for at in times(outside, "t", "report") if at > silent)]
    assert (await release(hold, outside, turn))["text"] == "At last."
    assert times(outside, "t", "begin")[0] - sent < 0.5
    assert max(b - a for a, b in itertools.pairwise(reports)) < 2.4
    assert most_in_a_second(times(outside, "t", "report")) <= 10
    messages = [v["message"] for v in client.progress("t") if v["kind"] == "report"]
    assert any("thinking" in message.lower() for message in messages)
    assert len(set(messages[-3:])) > 1  # The clock in it moves.
    assert all("percentage" not in value for value in client.progress("t"))


async def test_tokens_are_told_while_the_model_thinks(begin: Begin) -> None:
    """The Messages API counts them for whoever asks, as the simulator does."""
    outside = await begin(env={"THINKLSP_PROVIDER": "simulator"})
    result = await chat(outside, "What is here?", partialResultToken="p", token="t")
    assert result["stopReason"] == "end_turn"
    values = [call.params.value for call in outside.client.calls("$/progress")]
    # The end of the first step tells what it used.
    first_step = next(place for place, value in enumerate(values) if value["kind"] == "usage")
    messages = [value.get("message", "") for value in values[:first_step]]
    assert any("tokens" in message for message in messages), messages


async def test_partial_results(begin: Begin) -> None:
    outside = await begin(
        answer(Thinking(SUMMARY), Text("I read. "), read_file("a.py"), read_file("no.py")),
        answer(Thinking("Enough."), Text("It is – 🙂 – one.")),
        files={"a.py": "x = 1\n"},
        options={"thinking": {"display": "summary"}},
    )
    result = await chat(outside, "What is x?", partialResultToken="p", token="t")
    values = outside.client.progress("p")
    kinds = [value["kind"] for value in values]
    assert set(kinds) <= {"text", "thinking", "tool", "plan", "usage", "notice", "finished"}
    assert {"text", "thinking", "tool", "usage"} <= set(kinds)
    assert (kinds[-1], kinds.count("finished")) == ("finished", 1)
    assert values[-1] == {"kind": "finished", "result": result}
    assert joined(values, "text") == "I read. It is – 🙂 – one."
    assert result["text"] == "It is – 🙂 – one."
    assert SUMMARY in joined(values, "thinking")
    assert SUMMARY in result["thinking"]
    assert outside.provider.requests[0].body["thinking"]["display"] == "summarized"

    tools = [value for value in values if value["kind"] == "tool"]
    for value in tools:
        assert set(value) == {"kind", "toolCallId", "name", "title", "status", "arguments", "result"}
        assert value["name"] == "read_file"
    calls = {value["toolCallId"] for value in tools}
    assert len(calls) == 2
    ends = [[v["status"] for v in tools if v["toolCallId"] == call][-1] for call in sorted(calls)]
    assert len(set(ends)) == 2  # The one that failed is told from the one that did not.


READ = answer(Thinking(), Text("I read. "), read_file("a.py"))
WHOLE = answer(Thinking("So."), Text("It is one."))
REFUSED = Failure(403, "permission_error", "Not like this.")
# What the service sends: a whole answer, a failure, or the blocks of an answer that breaks off behind them.
Sent = Answer | Failure | tuple[Item, ...]
# The answers, how many `restart` the client gets, and the text that it ends up with.
RESTARTS: Mapping[str, tuple[list[Sent], int, str]] = {
    "in the middle of the text": ([(Thinking("Hm."), Text("It is")), WHOLE], 1, "It is one."),
    "before any text": ([(Thinking("Hm."),), WHOLE], 1, "It is one."),
    "twice": ([(Text("It "),), (Text("It is"),), WHOLE], 2, "It is one."),
    "in two steps": ([(Text("I"),), READ, (Text("It is"),), WHOLE], 2, "I read. It is one."),
    "as the last thing": ([READ, (Text("It is"),), REFUSED], 1, "I read. "),
}


@pytest.mark.parametrize("case", RESTARTS)
async def test_a_restart_voids_the_text_of_the_broken_attempt(begin: Begin, case: str) -> None:
    script, restarts, text = RESTARTS[case]
    outside = await begin(files={"a.py": "x = 1\n"}, options={"thinking": {"display": "summary"}})
    client, holds = outside.client, []
    for sent in script:
        hold = Hold()
        if isinstance(sent, tuple):
            outside.provider.say(answer(*sent, hold, Cut()))
            holds.append(hold)
        elif sent is WHOLE:
            outside.provider.say(replace(WHOLE, before=hold))
            holds.append(hold)
        else:
            outside.provider.say(sent)
    turn = start_chat(outside, "What is x?", partialResultToken="p", token="t")
    for number, hold in enumerate(holds[:restarts], 1):
        await hold.reached.wait()
        await client.wait_for(partial(is_writing, outside), what="what stands before the cut")
        hold.release()
        await client.wait_for(partial(has_restarts, outside, number), what="the restart")
    if script[-1] is WHOLE:
        await holds[-1].reached.wait()
        await client.command("thinklsp.sessions", {"op": "attach", "partialResultToken": "late"})
        holds[-1].release()
        assert (await outside.result(turn))["text"] == "It is one."
    else:
        await refused(turn, match="Not like this")
    for reader in ("p", "late") if script[-1] is WHOLE else ("p",):
        values = client.progress(reader)
        assert joined(standing(values), "text") == text
        assert "Hm." not in joined(standing(values), "thinking")
        assert values[-1]["kind"] == "finished"
    assert has_restarts(outside, restarts)
    assert "restart" not in client.progress_kinds("late")


def is_writing(outside: Outside) -> bool:
    return outside.client.progress_kinds("p")[-1:] in (["text"], ["thinking"])


def has_restarts(outside: Outside, number: int) -> bool:
    return outside.client.progress_kinds("p").count("restart") == number


def standing(values: list[Any]) -> list[Any]:
    """Drop what a `restart` voids, as the contract says it: text and thinking since the last completed step."""
    kept: list[Any] = []
    since = 0
    for value in values:
        if value["kind"] == "restart":
            kept[since:] = [other for other in kept[since:] if "delta" not in other]
        kept.append(value)
        since = len(kept) if value["kind"] == "usage" else since
    return kept


def joined(values: list[Any], kind: str) -> str:
    return "".join(value["delta"] for value in values if value["kind"] == kind)


async def test_without_display_summary_no_thinking_is_shown(begin: Begin) -> None:
    # This model shows its thinking unless it is asked not to; the setting decides, not the model.
    outside = await begin(answer(Thinking(SUMMARY), Text("One.")), options={"model": "claude-opus-4-6"})
    result = await chat(outside, "What?", partialResultToken="p", token="t")
    assert result["thinking"] is None
    assert "thinking" not in outside.client.progress_kinds("p")
    assert SUMMARY.encode() not in bytes(outside.client.stdout)
