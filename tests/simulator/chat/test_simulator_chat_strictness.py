"""The chat dialect refuses what compatible servers refuse, in their words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from simulator_chat_refusals import ACCEPTED, REFUSALS, SWITCHES, Case

from tests.support.simulator_chat_talk import ECHO, HEADERS, Talk, request
from thinklsp.simulator.dialect import Received, Streamed, Whole


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.id)
def test_refused(case: Case) -> None:
    assert case.message in Talk().refused(request("plain", case.model, **case.changes))


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.id)
def test_accepted(case: Case) -> None:
    Talk().good(request("plain", case.model, **case.changes))


@pytest.mark.parametrize(("model", "changes", "thinks"), SWITCHES)
def test_thinking_is_delivered_where_it_is_not_switched_off(model: str, changes: dict[str, Any], thinks: bool) -> None:
    for stream in (True, False):
        message, _ = Talk().message(request("plain", model, **changes), stream=stream)
        assert message["content"] == "Plain answer."
        fields = message.keys() & {"reasoning", "reasoning_content", "reasoning_details"}
        assert bool(fields) is thinks


def test_llama_cpp_puts_reasoning_where_it_is_told_to() -> None:
    """Row 70: tags in the text."""
    tags = "<think>Plain thinking.</think>\n\nPlain answer."
    for name, field, content in (
        ("none", None, tags),
        ("deepseek-legacy", "Plain thinking.", tags),
        ("auto", "Plain thinking.", "Plain answer."),
    ):
        message, _ = Talk().message(request("plain", "qwen3-8b", reasoning_format=name), stream=True)
        assert (message.get("reasoning_content"), message["content"]) == (field, content)


@pytest.mark.parametrize(
    ("model", "error"),
    [
        ("compatible-1", {"type": "invalid_request_error", "param": "max_tokens", "code": "integer_below_min_value"}),
        ("llama-3", {"type": "invalid_request_error", "code": 400}),
        ("gpt-oss:20b", {"type": "invalid_request_error", "param": None, "code": None}),
        ("vllm-x", {"type": "BadRequestError", "param": "max_tokens", "code": 400}),
        ("a/b", {"code": 400}),
    ],
)
def test_each_server_has_its_own_form_of_error(model: str, error: dict[str, Any]) -> None:
    status, refusal = Talk().ask(request("plain", model, max_tokens=0))
    message = refusal["error"].pop("message")
    assert (status, refusal) == (400, {"error": error})
    assert "below minimum" in message


@pytest.mark.parametrize(
    ("model", "message", "more"),
    [
        (
            "qwen3-8b",
            "exceeds the available context size (90 tokens)",
            {"type": "exceed_context_size_error", "n_ctx": 90},
        ),
        ("compatible-1", "This model's maximum context length is 90 tokens.", {"code": "context_length_exceeded"}),
        ("gpt-oss:20b", "This model's maximum context length is 90 tokens.", {}),
        ("a/b", "This model's maximum context length is 90 tokens.", {"code": 400}),
    ],
)
def test_a_prompt_over_the_window_is_too_long(model: str, message: str, more: dict[str, Any]) -> None:
    talk = Talk('context_window = 90\n[[turn]]\n[[turn.step]]\nblock=[{text="Hi."}]')
    talk.good(request("short", model, tools=None))
    status, refusal = talk.ask(request("long " * 100, model, tools=None))
    assert status == 400
    assert message in refusal["error"]["message"]
    assert refusal["error"].items() >= more.items()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "could not parse the JSON body"),
        (b"[]", "could not parse the JSON body"),
        (b'{"model": NaN}', "could not parse the JSON body"),
        (b"\xff", "could not parse the JSON body"),
        ({"messages": []}, "you must provide a model parameter"),
        ({"model": 7}, "you must provide a model parameter"),
    ],
)
def test_bodies_that_are_none(body: Any, message: str) -> None:
    assert message in Talk().refused(body)


def test_only_hosted_services_want_a_key() -> None:
    for model in ECHO:
        for authorization in ("", "Basic x", "Bearer "):
            hosted = "/" in model or model.startswith("deepseek")
            status, _ = Talk().ask(request("plain", model), authorization=authorization)
            assert status == (401 if hosted else 200)


def test_models_paths_and_whom_they_belong_to() -> None:
    dialect = Talk().dialect

    def get(path: str, method: str = "GET") -> tuple[int, Any]:
        reply = dialect.reply(Received(method, path, "", {}, b""))
        assert isinstance(reply, Whole)
        return reply.status, json.loads(reply.body)

    names = [entry["id"] for entry in get("/v1/models")[1]["data"]]
    assert {"qwen3-8b", "gpt-oss:20b", "plain-1"} <= set(names)
    for name in names:
        assert get(f"/v1/models/{name}") == get(f"/v1/models/{name.replace('/', '%2F').replace(':', '%3A')}")
        assert get(f"/v1/models/{name}")[1]["id"] == name
    assert get("/v1/models/missing-1") == (
        404,
        {
            "error": {
                "message": "model 'missing-1' not found",
                "type": "not_found_error",
                "param": "model",
                "code": "model_not_found",
            }
        },
    )
    assert Talk().ask(request("plain", "missing-1"))[0] == 404
    assert get("/v1/chat/completions")[0] == 405
    assert get("/v1/chat/completions/x")[0] == 404
    assert get("/v1/models", "POST")[0] == 405
    for path, headers, served in (
        ("/v1/chat/completions", HEADERS, True),
        ("/v1/chat/completions/x", {}, True),
        ("/v1/models", {}, True),
        ("/v1/models/a/b", {}, True),
        ("/v1/models", HEADERS, False),
        ("/v1/models", {"x-api-key": "x"}, False),
        ("/v1/models", {"anthropic-version": "2023-06-01"}, False),
        ("/v1/messages", {}, False),
        ("/v1/responses", HEADERS, False),
    ):
        assert dialect.serves(Received("GET", path, "", headers, b"")) is served


def test_what_the_server_itself_refuses_has_the_dialects_form() -> None:
    failure = Talk().dialect.failure(413, "Too large")
    assert (failure.status, json.loads(failure.body)["error"]["message"]) == (413, "Too large")


def test_the_course_of_a_conversation() -> None:
    """Prompts, steps and results are read from the messages; remarks in tags beside results are no prompt."""
    talk = Talk()
    call = {"id": "c", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
    said = [{"role": "user", "content": "loop"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    result = {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "one"}]}
    note = {"role": "user", "content": "<note>Go on.</note>"}
    for more, played in (
        ([], "turn 1, step 2"),
        ([note], "turn 1, step 2"),
        ([{"role": "system", "content": "plain"}], "turn 1, step 2"),
        ([note, {"role": "user", "content": "plain"}], "turn 2, step 1"),
        ([{"role": "assistant", "content": "x"}, note], "built-in answer"),
    ):
        reply = talk.reply(request() | {"messages": [*said, result, *more], "stream": True})
        assert isinstance(reply, Streamed)
        assert reply.played == played
    answer = talk.good(request() | {"messages": [*said, result]})
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == '{"path": "one"}'
