"""What a waiting user sees of a turn: its tokens, its text, and its thinking only if they want it."""

from __future__ import annotations

from typing import Any

from tests.e2e.acting import chat, read_file, release, start_chat
from tests.e2e.conftest import Begin
from tests.support.outside import Outside
from tests.support.signing_server import Cut, Hold, Text, Thinking, answer

SUMMARY = "First I look 🙂, then I think about it."


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


async def test_a_restart_voids_the_text_of_the_broken_attempt(begin: Begin) -> None:
    holds = [Hold() for _ in range(3)]
    outside = await begin(
        answer(Text("I"), holds[0], Cut()),
        answer(Thinking(), Text("I read. "), read_file("a.py")),
        answer(Text("It is"), holds[1], Cut()),
        answer(Thinking("So."), Text("It is one."), before=holds[2]),
        files={"a.py": "x = 1\n"},
    )
    client = outside.client
    turn = start_chat(outside, "What is x?", partialResultToken="p", token="t")
    for number, hold in enumerate(holds[:2], 1):
        await hold.reached.wait()
        await client.wait_for(lambda: client.progress_kinds("p")[-1:] == ["text"], what="what stands before the cut")
        hold.release()
        await client.wait_for(lambda number=number: restarts(outside) == number, what="the restart")
    await holds[2].reached.wait()
    await client.command("thinklsp.sessions", {"op": "attach", "partialResultToken": "late"})
    assert (await release(holds[2], outside, turn))["text"] == "It is one."
    for reader in ("p", "late"):
        assert joined(standing(client.progress(reader)), "text") == "I read. It is one."
    assert restarts(outside) == 2
    assert "restart" not in client.progress_kinds("late")


def restarts(outside: Outside) -> int:
    return outside.client.progress_kinds("p").count("restart")


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
