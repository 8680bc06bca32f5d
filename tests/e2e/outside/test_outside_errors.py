"""Every failure is a sentence for its reader, on the right channel, without a secret; and the server lives on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import Begin
from tests.support.outside import Outside, check_sentence, diagnostic, named, said
from tests.support.raw_client import ResponseError
from tests.support.signing_script import Cut, Failure, Hold, Text, Thinking, Tool, answer, tool

NO_KEY: dict[str, str | None] = {"ANTHROPIC_API_KEY": None, "ANTHROPIC_BASE_URL": None}


async def failure(outside: Outside, command: str, *arguments: Any, token: str | None = None) -> ResponseError:
    params = {"command": command, "arguments": list(arguments)} | ({"workDoneToken": token} if token else {})
    with pytest.raises(ResponseError) as failed:
        await outside.client.request("workspace/executeCommand", params)
    check_sentence(failed.value.message)
    assert "traceback" not in str(failed.value.data).lower()
    return failed.value


WRONG: list[tuple[str, list[Any], str]] = [
    ("thinklsp.chat", [{"prompt": 7}], "prompt"),
    ("thinklsp.chat", [{"prompt": "x", "colour": "red"}], "colour"),
    ("thinklsp.chat", [{"prompt": "x", "mode": "fast"}], "mode"),
    ("thinklsp.chat", [{"prompt": "x", "effort": "enormous"}], "effort"),
    ("thinklsp.chat", [{"prompt": "x", "sessionId": ["a"]}], "sessionId"),
    ("thinklsp.chat", [{"prompt": "x", "range": {"start": 1}}], "range"),
    ("thinklsp.action", [{"name": 1}], "name"),
    ("thinklsp.action", [{"name": "fix", "diagnostics": "x"}], "diagnostics"),
    ("thinklsp.cancel", [{"turnId": 5}], "turnId"),
    ("thinklsp.apply", [{"turn": "x"}], "turn"),
    ("thinklsp.undo", [{"turnId": 1}], "turnId"),
]


async def test_wrong_arguments_name_the_field(begin: Begin) -> None:
    outside = await begin()
    for command, arguments, field in WRONG:
        error = await failure(outside, command, *arguments)
        assert (error.code, field in error.message) == (-32602, True), (command, arguments, error.message)
    assert (await failure(outside, "thinklsp.chat", {"prompt": "x"}, {"prompt": "y"})).code == -32602
    assert (await failure(outside, "thinklsp.chat", "x")).code == -32602
    dance = await failure(outside, "thinklsp.action", {"name": "dance"}, token="dance")
    assert (dance.code in {-32602, -32803}, "name" in dance.message) == (True, True)
    assert (await failure(outside, "thinklsp.nothing")).code in {-32601, -32602}
    assert outside.provider.connections == 0
    with pytest.raises(ResponseError) as unknown:
        await outside.client.request("thinklsp/nothing", {})
    assert unknown.value.code == -32601


async def test_turns_that_cannot_begin(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(answer(Text("One.")), answer(Thinking(), hold, Text("Two.")))
    client, provider = outside.pair
    for number, argument in enumerate([{"prompt": ""}, {"prompt": " \n"}, {"prompt": "x", "sessionId": "unknown"}]):
        assert (await failure(outside, "thinklsp.chat", argument, token=f"f{number}")).code == -32803
    assert provider.connections == 0

    session = (await outside.turn("thinklsp.chat", {"prompt": "One?"}))["sessionId"]
    second = client.command("thinklsp.chat", {"prompt": "Two?", "sessionId": session}, token="second")
    await hold.reached.wait()
    busy = await failure(outside, "thinklsp.chat", {"prompt": "Three?", "sessionId": session}, token="third")
    assert busy.code == -32803
    hold.release()
    assert (await outside.result(second))["text"] == "Two."
    assert "Three?" not in said(provider.requests[-1].body)


async def test_sessions_run_side_by_side(begin: Begin) -> None:
    first, second = Hold(), Hold()
    outside = await begin(answer(Thinking(), first, Text("A.")), answer(Thinking(), second, Text("B.")))
    client, _ = outside.pair
    slow = client.command("thinklsp.chat", {"prompt": "a"}, token="a")
    await first.reached.wait()
    quick = client.command("thinklsp.chat", {"prompt": "b"}, token="b")
    await second.reached.wait()
    second.release()
    assert (await outside.result(quick))["text"] == "B."
    assert not slow.answered
    first.release()
    assert (await outside.result(slow))["text"] == "A."


async def test_the_provider_refuses_the_key(begin: Begin) -> None:
    outside = await begin()
    # A careless service repeats the key; the reader must not see it.
    outside.provider.say(
        *(Failure(401, "authentication_error", f"invalid x-api-key: {outside.provider.key}") for _ in range(2)),
        answer(Text("Better.")),
    )
    client = outside.client
    error = await failure(outside, "thinklsp.chat", {"prompt": "x"}, token="t")
    assert error.code == -32803
    assert "key" in error.message.lower()

    # Without a token the sentence comes as the end of the progress and as one message.
    await client.command("thinklsp.chat", {"prompt": "x"})
    check_sentence(await outside.until_told("key"))
    token = client.calls("window/workDoneProgress/create")[0].params["token"]
    await client.wait_for(lambda: "end" in client.progress_kinds(token), what="the end of the progress")
    assert "key" in client.progress(token)[-1]["message"].lower()
    assert (await outside.turn("thinklsp.chat", {"prompt": "x"}))["text"] == "Better."
    assert len(outside.provider.requests) == 3


async def test_a_turn_that_fails_says_where_to_go_on(begin: Begin) -> None:
    outside = await begin(
        answer(Thinking(), tool("read_file", path="a.py")),
        # The second refusal answers the attempt without earlier thinking.
        *[Failure(400, "invalid_request_error", "No.")] * 2,
        answer(Text("Here again.")),
        files={"a.py": "x = 1\n"},
    )
    error = await failure(outside, "thinklsp.chat", {"prompt": "Look at it."}, token="t")
    session = error.data["sessionId"]
    result = await outside.turn("thinklsp.chat", {"prompt": "And now?", "sessionId": session})
    assert (result["text"], result["sessionId"]) == ("Here again.", session)
    assert result["turnId"] != error.data["turnId"]
    assert "Look at it." in said(outside.provider.requests[-1].body)
    [only] = await outside.client.command("thinklsp.sessions", {"op": "list"})
    assert only["sessionId"] == session


async def test_no_key_at_all(begin: Begin) -> None:
    text = "print(nmae)\n"
    outside = await begin(files={"a.py": text}, env=NO_KEY)
    uri = outside.open("a.py")
    problem = diagnostic(text, "nmae", "not defined")
    [fix] = named(await outside.client.code_actions(uri, "nmae", diagnostics=[problem]), "fix")
    with pytest.raises(ResponseError) as failed:
        await outside.client.run_action(fix, token="t")
    assert failed.value.code == -32803
    assert "ANTHROPIC_API_KEY" in failed.value.message
    check_sentence(failed.value.message)


@pytest.mark.parametrize("stop", ["refusal", "max_tokens"])
async def test_a_turn_that_is_stopped_holds_its_edits(begin: Begin, stop: str) -> None:
    torn = Tool("write_file", {"path": "b.py", "content": "x"}, cut=True)
    outside = await begin(
        answer(Thinking(), tool("edit_file", path="a.py", old_text="1", new_text="2")),
        answer(Thinking(), Text("I will "), torn, stop_reason=stop),
        answer(Text("Go on.")),
        files={"a.py": "x = 1\n"},
    )
    client, provider = outside.pair
    uri = outside.open("a.py")
    result = await outside.edit(uri)
    assert result["stopReason"] == stop
    assert len(provider.requests) == 2
    assert result["edits"]["applied"] == "none"
    [file] = result["edits"]["files"]
    assert (file["uri"], file["status"]) == (uri, "held")
    assert file["reason"]
    assert client.edits() == []
    assert client.text(uri) == "x = 1\n"
    # The session is free and can be continued; what was refused is no history.
    again = await outside.turn("thinklsp.chat", {"prompt": "Go on?", "sessionId": result["sessionId"]})
    assert again["text"] == "Go on."
    assert ("I will " in said(provider.requests[-1].body)) <= (stop == "max_tokens")
    assert named(await client.code_actions(uri, "x"), "apply")
    assert (await client.command("thinklsp.apply", {"turnId": result["turnId"]}))["applied"] in (True, "all")
    assert client.text(uri) == "x = 2\n"


async def test_a_break_in_the_stream_is_asked_again_and_nothing_of_it_counts(begin: Begin) -> None:
    outside = await begin(
        answer(Thinking(), Text("Half"), tool("edit_file", path="a.py", old_text="1", new_text="3"), Cut()),
        Failure(529, "overloaded_error", "Overloaded", {"retry-after": "0"}),
        answer(Thinking(), tool("edit_file", path="a.py", old_text="1", new_text="2")),
        answer(Text("Done.")),
        files={"a.py": "x = 1\n"},
    )
    uri = outside.open("a.py")
    result = await outside.edit(uri)
    assert (result["stopReason"], outside.client.text(uri)) == ("end_turn", "x = 2\n")
    assert "Half" not in said(outside.provider.requests[-1].body)


async def test_calls_with_one_id_get_a_result_each(begin: Begin) -> None:
    """H-F10: a gateway gives two calls of a message one id, none to others, and the same again later."""
    one, two, three = (
        Tool("read_file", {"path": f"{n}.txt"}, id=name) for n, name in ((1, "same"), (2, "same"), (3, ""))
    )
    outside = await begin(
        answer(Thinking(), one, two, three),
        answer(Thinking(), one),
        answer(Text("Read.")),
        answer(Text("Still here.")),
        files={f"{n}.txt": f"number {n}\n" for n in (1, 2, 3)},
    )
    result = await outside.turn("thinklsp.chat", {"prompt": "Read them."})
    assert (result["stopReason"], result["text"]) == ("end_turn", "Read.")
    first, second = (outside.provider.requests[number].tool_results() for number in (1, 2))
    assert [f"number {n}" in block["content"] for n, block in enumerate(first, 1)] == [True] * 3
    assert ["number 1" in block["content"] for block in second] == [True]
    result = await outside.turn("thinklsp.chat", {"prompt": "And now?", "sessionId": result["sessionId"]})
    assert (result["text"], outside.provider.violations) == ("Still here.", [])
