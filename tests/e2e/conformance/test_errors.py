"""Every failure is a sentence for its reader, on the right channel, without a secret; and the server lives on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.acting import chat, reach, read_file, refused, release, say, start_chat
from tests.e2e.conftest import Begin
from tests.support.client.actions import ResponseError
from tests.support.outside import Outside, check_sentence, said
from tests.support.signing_server import Failure, Hold, Redacted, Seen, Text, Thinking, Tool, answer
from thinklsp.agent.request_fallbacks import STRIP_NOTICE


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
    ("thinklsp.sessions", [{"op": "nonsense"}], "op"),
    ("thinklsp.sessions", [{"op": 1}], "op"),
    ("thinklsp.sessions", [{"op": "delete"}], "sessionId"),
    ("thinklsp.sessions", [{"op": "restore", "sessionId": "last"}], "archiveId"),
    ("thinklsp.sessions", [{"op": "attach", "sessionId": "last"}], "partialResultToken"),
    ("thinklsp.sessions", [{"op": "list", "step": 1}], "step"),
    ("thinklsp.sessions", [{"op": "show", "format": "json"}], "format"),
    ("thinklsp.sessions", [{"op": "export", "format": "pdf"}], "format"),
    ("thinklsp.sessions", [{"op": "fork", "step": -1}], "step"),
    ("thinklsp.sessions", [{"op": "show", "sessionId": 5}], "sessionId"),
    ("thinklsp.sessions", [{"op": "show", "sessionId": ""}], "sessionId"),
    ("thinklsp.sessions", [{"op": "list", "more": 1}], "more"),
    ("thinklsp.usage", [{"session": "last"}], "session"),
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
    await refused(outside.client.request("thinklsp/nothing", {}), -32601)


async def test_turns_that_cannot_begin(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(say("One."), answer(Thinking(), hold, Text("Two.")))
    provider = outside.provider
    for number, argument in enumerate([{"prompt": ""}, {"prompt": " \n"}, {"prompt": "x", "sessionId": "unknown"}]):
        assert (await failure(outside, "thinklsp.chat", argument, token=f"f{number}")).code == -32803
    assert provider.connections == 0

    session = (await chat(outside, "One?"))["sessionId"]
    second = await reach(hold, start_chat(outside, "Two?", sessionId=session, token="second"))
    busy = await failure(outside, "thinklsp.chat", {"prompt": "Three?", "sessionId": session}, token="third")
    assert busy.code == -32803
    assert (await release(hold, outside, second))["text"] == "Two."
    assert "Three?" not in said(provider.requests[-1].body)


async def test_the_provider_refuses_the_key(begin: Begin) -> None:
    outside = await begin()
    # A careless service repeats the key; the reader must not see it.
    outside.provider.say(
        *(Failure(401, "authentication_error", f"invalid x-api-key: {outside.provider.key}") for _ in range(2)),
        say("Better."),
    )
    client = outside.client
    error = await failure(outside, "thinklsp.chat", {"prompt": "x"}, token="t")
    assert error.code == -32803
    assert "key" in error.message.lower()

    # Without a token the sentence comes as the end of the progress and as one message.
    await start_chat(outside, "x")
    check_sentence(await outside.until_told("key"))
    token = client.calls("window/workDoneProgress/create")[0].params.token
    await client.wait_for(lambda: "end" in client.progress_kinds(token), what="the end of the progress")
    assert "key" in client.progress(token)[-1]["message"].lower()
    assert (await chat(outside, "x"))["text"] == "Better."
    assert len(outside.provider.requests) == 3


# What the provider does at every attempt, a word of the sentence
FAILURES = {
    "the key is refused": (Failure(401, "authentication_error", "invalid x-api-key"), "API key"),
    "the service is down": (Failure(529, "overloaded_error", "Down", {"retry-after-ms": "1"}), "All 4 attempts failed"),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_failure_is_told_once_to_a_chat(begin: Begin, name: str) -> None:
    """T-m1, T-m2: not as a warning for each attempt, and not as a notice, a message and an error."""
    response, words = FAILURES[name]
    outside = await begin(*[response] * 4)
    client = outside.client
    error = await failure(outside, "thinklsp.chat", {"prompt": "x", "partialResultToken": "p"}, token="t")
    assert words in error.message
    assert error.message.count("try again") <= 1
    [told] = [value for value in client.progress("p") if value["kind"] != "usage"]
    assert (told["kind"], told["result"]["stopReason"], told["result"]["text"]) == ("finished", "error", error.message)
    assert outside.told() == []


async def test_a_turn_that_fails_says_where_to_go_on(begin: Begin) -> None:
    outside = await begin(
        answer(Thinking(), read_file("a.py")),
        # The second refusal answers the attempt without earlier thinking.
        *[Failure(400, "invalid_request_error", "No.")] * 2,
        say("Here again."),
        files={"a.py": "x = 1\n"},
    )
    error = await failure(outside, "thinklsp.chat", {"prompt": "Look at it."}, token="t")
    session = error.data["sessionId"]
    result = await chat(outside, "And now?", sessionId=session)
    assert (result["text"], result["sessionId"]) == ("Here again.", session)
    assert result["turnId"] != error.data["turnId"]
    assert "Look at it." in said(outside.provider.requests[-1].body)
    [only] = await outside.client.command("thinklsp.sessions", {"op": "list"})
    assert only["sessionId"] == session


UNEXPLAINED = Failure(400, "invalid_request_error", "no", of_thinking=True)
THOUGHT = answer(Thinking(), Redacted(), read_file("a.py"), read_file("a.py"))
BUDGET = {"model": "claude-sonnet-4-5", "thinking": {"mode": "manual", "budgetTokens": 2048}}
# The model's settings; the answers to the second prompt; what their requests contain: all thinking or none, in the
# answers before the refusal; and `thinking` of the last of them.
WITHOUT_THINKING: dict[str, tuple[Any, list[Any], list[bool], str]] = {
    "at a prompt": ({}, [UNEXPLAINED, THOUGHT, say("Two.")], [True, False, True], "adaptive"),
    "in a tool loop": ({}, [THOUGHT, UNEXPLAINED, say("Two.")], [True, True, False], "adaptive"),
    "at a prompt, with a budget": (BUDGET, [UNEXPLAINED, THOUGHT, say("Two.")], [True, False, True], "enabled"),
    # With a budget, the service demands the thinking of the running loop, so the loop ends without a budget.
    "in a tool loop, with a budget": (BUDGET, [THOUGHT, UNEXPLAINED, say("Two.")], [True, True, False], "disabled"),
}


@pytest.mark.parametrize("name", WITHOUT_THINKING)
async def test_unexplained_refusal_leaves_out_all_earlier_thinking(begin: Begin, name: str) -> None:
    """The service accepts each request: no thinking up to the refused request, all thinking after it."""
    settings, answers, whole, form = WITHOUT_THINKING[name]
    last = answer(Thinking(), Text("Four."))
    script = [THOUGHT, answer(Thinking(), Text("One.")), *answers, answer(Thinking(), Text("Three.")), last]
    outside = await begin(*script, files={"a.py": "x = 1\n"}, options=settings)
    provider = outside.provider
    session = (await chat(outside, "One?"))["sessionId"]
    second = await chat(outside, "Two?", sessionId=session)
    assert (second["text"], STRIP_NOTICE in second["notices"]) == ("Two.", True)
    seen = provider.requests[2:]
    assert [bool(places_with_thinking(request)) for request in seen] == whole
    assert seen[-1].body["thinking"]["type"] == form
    refused_size = len(next(request.body["messages"] for request in seen if request.status == 400))

    assert STRIP_NOTICE not in (await chat(outside, "Three?", sessionId=session))["notices"]
    await outside.restart()
    assert (await chat(outside, "Four?", sessionId=session))["text"] == "Four."
    [*_, newest] = places = places_with_thinking(provider.requests[-1])
    assert (places[0] >= refused_size, newest) == (True, len(provider.requests[-1].body["messages"]) - 2)
    assert provider.violations == []


def places_with_thinking(request: Seen) -> list[int]:
    types = [[block["type"] for block in message["content"]] for message in request.body["messages"]]
    return [place for place, each in enumerate(types) if "thinking" in each or "redacted_thinking" in each]


async def test_calls_with_one_id_get_a_result_each(begin: Begin) -> None:
    """A gateway gives two calls of a message one id, none to others, and the same again later."""
    one, two, three = (
        Tool("read_file", {"path": f"{n}.txt"}, id=name) for n, name in ((1, "same"), (2, "same"), (3, ""))
    )
    script = (answer(Thinking(), one, two, three), answer(Thinking(), one), say("Read."), say("Still here."))
    outside = await begin(*script, files={f"{n}.txt": f"number {n}\n" for n in (1, 2, 3)})
    result = await chat(outside, "Read them.")
    assert (result["stopReason"], result["text"]) == ("end_turn", "Read.")
    first, second = (outside.provider.requests[number].tool_results() for number in (1, 2))
    assert [f"number {n}" in block["content"] for n, block in enumerate(first, 1)] == [True] * 3
    assert ["number 1" in block["content"] for block in second] == [True]
    result = await chat(outside, "And now?", sessionId=result["sessionId"])
    assert (result["text"], outside.provider.violations) == ("Still here.", [])
