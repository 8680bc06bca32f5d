"""The simulator refuses what the service refuses, in its words; what each model takes is a table."""

from __future__ import annotations

from typing import Any

import pytest
from simulator_openai_item_refusals import ITEM_REFUSALS
from simulator_openai_refusals import CALL, OUTPUT, REFUSALS, SAID, TOOL, USER, Refusal, without

from tests.support.simulator_openai_talk import HEADERS, SCHEMA, Talk, request, user
from thinklsp.simulator.dialect import Received

ALL = ["none", "minimal", "low", "medium", "high", "xhigh", "max"]
# One row per model: the efforts that it takes, and whether it reasons when nobody asks.
MODELS = {
    "gpt-6-astra": ("low medium high xhigh max", True),
    "gpt-6.1-sol": ("low medium high xhigh max", True),
    "gpt-6.2-sol": ("low medium high xhigh max", True),
    "gpt-6.2-luna": ("low medium high xhigh max", True),
    "gpt-6.2-astra-law": ("low medium high xhigh max", True),
    "gpt-6-sol": ("none low medium high xhigh max", True),
    "gpt-6-luna": ("none low medium high xhigh max", True),
    "gpt-6.1-terra": ("none low medium high xhigh max", True),
    "gpt-5.6-sol": ("none low medium high xhigh max", True),
    "gpt-5.6-terra": ("none low medium high xhigh max", True),
    "gpt-5.6-luna": ("none low medium high xhigh max", True),
    "gpt-5.5": ("none low medium high xhigh", True),
    "gpt-5.5-2026-04-23": ("none low medium high xhigh", True),
    "gpt-5.4": ("none low medium high xhigh", False),
    "gpt-5.3-codex": ("low medium high xhigh", True),
    "gpt-5.2-codex": ("low medium high xhigh", True),
    "gpt-5.1-codex-max": ("low medium high xhigh", True),
    "gpt-5.1-codex": ("low medium high", True),
    "gpt-5.1-codex-mini": ("low medium high", True),
    "gpt-5-codex": ("low medium high", True),
    "gpt-5.2": ("none low medium high xhigh", False),
    "gpt-5.1": ("none low medium high", False),
    "gpt-5.2-pro": ("medium high xhigh", True),
    "gpt-5.4-pro": ("medium high xhigh", True),
    "gpt-5.5-pro": ("medium high xhigh", True),
    "gpt-5-pro": ("high", True),
    "gpt-5.1-chat-latest": ("medium", True),
    "gpt-5.2-chat-latest": ("medium", True),
    "gpt-5.3-chat-latest": ("medium", True),
    "gpt-5": ("minimal low medium high", True),
    "gpt-5-mini": ("minimal low medium high", True),
    "gpt-5-nano": ("minimal low medium high", True),
    "o1": ("low medium high", True),
    "o3": ("low medium high", True),
    "o3-pro": ("low medium high", True),
    "o4-mini": ("low medium high", True),
    "gpt-4.1": ("", False),
}


@pytest.mark.parametrize("model", MODELS)
def test_each_model_takes_what_its_row_says(model: str) -> None:
    efforts, unasked = MODELS[model]
    talk = Talk()
    body = without(request("plain", model, include=[]), "reasoning")
    answer = talk.good(body)
    assert [item["type"] for item in answer["output"]] == ["reasoning", "message"][not unasked :]
    for effort in ALL:
        asked = {**body, "reasoning": {"effort": effort}}
        status, answer = talk.ask(asked)
        assert status == (200 if effort in efforts.split() else 400), effort
        if status == 200:
            assert answer["reasoning"]["effort"] == effort
            assert [item["type"] for item in answer["output"]] == ["reasoning", "message"][effort == "none" :]
        sampled = talk.ask({**asked, "temperature": 0.5})[0]
        assert sampled == (200 if effort == "none" and status == 200 else 400)
    assert talk.ask({**body, "include": ["reasoning.encrypted_content"]})[0] == (200 if efforts else 400)
    assert talk.ask(b"", path=f"/v1/models/{model}", method="GET")[0] == 200


@pytest.mark.parametrize("case", [*REFUSALS, *ITEM_REFUSALS], ids=lambda case: case.id)
def test_refused(case: Refusal) -> None:
    error = Talk().refused(request("plain", case.model, **case.changes))
    assert (error["param"], error["code"]) == (case.param, case.code)
    if case.whole:
        assert error["message"] == case.message
    else:
        assert error["message"].startswith(case.message)


REMINDER = {"type": "message", "role": "developer", "content": "Be brief."}
ACCEPTED: list[tuple[str, str, dict[str, Any]]] = [
    ("text", "gpt-6-sol", {"input": "plain"}),
    ("easy", "gpt-6-sol", {"input": [{"role": "user", "content": "plain"}]}),
    ("history", "gpt-6-sol", {"input": [USER, SAID, USER]}),
    (
        "foreign-loop",
        "gpt-6-sol",
        {"input": [USER, SAID, CALL, {**CALL, "call_id": "call_2"}, {**OUTPUT, "call_id": "call_2"}, OUTPUT]},
    ),
    ("empty-output", "gpt-6-sol", {"input": [USER, CALL, {**OUTPUT, "output": ""}]}),
    ("nulls", "gpt-6-sol", {"temperature": None, "metadata": None, "tool_choice": None, "max_output_tokens": None}),
    ("sixteen", "gpt-6-sol", {"max_output_tokens": 16}),
    ("off-sampling", "gpt-6-sol", {"reasoning": {"effort": "none"}, "temperature": 0.2, "top_p": 0.5}),
    ("old-sampling", "gpt-4.1", {"reasoning": {"summary": "auto"}, "include": None, "temperature": 0.2}),
    ("forced", "gpt-6-sol", {"tool_choice": {"type": "function", "name": "read_file"}}),
    ("loose-tool", "gpt-6-sol", {"tools": [{**TOOL, "strict": False, "parameters": without(SCHEMA, "required")}]}),
    ("unsaid-strict", "gpt-6-sol", {"tools": [without({**TOOL, "parameters": without(SCHEMA, "required")}, "strict")]}),
    ("hosted", "gpt-6-sol", {"tools": [{"type": "web_search"}]}),
    (
        "additional",
        "gpt-6-sol",
        {"tools": [], "input": [USER, {"type": "additional_tools", "role": "developer", "tools": [TOOL]}]},
    ),
    ("pro", "gpt-6-sol", {"reasoning": {"mode": "pro", "context": "all_turns"}}),
    ("developer", "gpt-6-sol", {"input": [REMINDER, USER, REMINDER]}),
    (
        "image",
        "gpt-6-sol",
        {
            "input": [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_image", "image_url": "data:,"},
                        {"type": "input_text", "text": "plain"},
                    ],
                }
            ]
        },
    ),
    (
        "echoed-web-search",
        "gpt-6-sol",
        {"input": [USER, {"type": "web_search_call", "id": "ws_1", "status": "completed"}, SAID, USER]},
    ),
]


@pytest.mark.parametrize(("model", "changes"), [case[1:] for case in ACCEPTED], ids=[case[0] for case in ACCEPTED])
def test_accepted(model: str, changes: dict[str, Any]) -> None:
    Talk().good(request("plain", model, **changes))


@pytest.mark.parametrize(
    ("headers", "path", "method", "body", "status", "code", "message"),
    [
        ({"authorization": ""}, "/v1/responses", "POST", request(), 401, None, "You didn't provide an API key."),
        ({"authorization": "Bearer "}, "/v1/responses", "POST", request(), 401, None, "You didn't provide an API key."),
        ({"authorization": "Basic eA=="}, "/v1/responses", "POST", request(), 401, None, "You didn't provide"),
        ({"authorization": ""}, "/v1/models", "GET", b"", 401, None, "You didn't provide an API key."),
        (
            {},
            "/v1/responses",
            "POST",
            request(model="gpt-9"),
            404,
            "model_not_found",
            "The model `gpt-9` does not exist",
        ),
        ({}, "/v1/models/gpt-9", "GET", b"", 404, "model_not_found", "The model 'gpt-9' does not exist"),
        ({}, "/v1/responses", "GET", b"", 405, "method_not_supported", "Invalid method for URL (GET /v1/responses)"),
        ({}, "/v1/responses/resp_1", "GET", b"", 404, None, "Invalid URL (GET /v1/responses/resp_1)"),
        ({}, "/v1/responses", "POST", b"{", 400, None, "We could not parse the JSON body of your request."),
        ({}, "/v1/responses", "POST", b"[NaN]", 400, None, "We could not parse the JSON body of your request."),
        ({}, "/v1/responses", "POST", b"[]", 400, "invalid_type", "Invalid type for 'body'"),
        ({}, "/v1/responses", "POST", {"input": "x"}, 400, "missing_required_parameter", "Missing required parameter"),
        ({}, "/v1/responses", "POST", request(conversation="conv_1"), 404, None, "Conversation with id 'conv_1' not"),
    ],
)
def test_refused_before_the_input_counts(
    headers: dict[str, str], path: str, method: str, body: Any, status: int, code: str | None, message: str
) -> None:
    error = Talk().refused(body, status, path=path, method=method, **headers)
    assert error["code"] == code
    assert error["message"].startswith(message)


@pytest.mark.parametrize(
    ("method", "path", "headers", "mine"),
    [
        ("POST", "/v1/responses", {}, True),
        ("GET", "/v1/responses/resp_1", {}, True),
        ("POST", "/v1/responsesx", HEADERS, False),
        ("POST", "/v1/messages", HEADERS, False),
        ("POST", "/v1/chat/completions", HEADERS, False),
        ("GET", "/v1/models", HEADERS, True),
        ("GET", "/v1/models/gpt-5", HEADERS, True),
        ("GET", "/v1/models", {}, False),
        ("GET", "/v1/models", {**HEADERS, "anthropic-version": "2023-06-01"}, False),
        ("GET", "/v1/models", {"x-api-key": "k", **HEADERS}, False),
    ],
)
def test_a_request_is_told_by_path_and_headers(method: str, path: str, headers: dict[str, str], mine: bool) -> None:
    assert Talk().dialect.serves(Received(method, path, "", headers, b"")) is mine


def test_a_prompt_over_the_window_is_too_long() -> None:
    talk = Talk('context_window = 500\n[[turn]]\n[[turn.step]]\nblock=[{text="Hi."}]')
    talk.good(request("short"))
    error = talk.refused(request("long " * 1000))
    assert (error["code"], error["param"]) == ("context_length_exceeded", "input")
    assert error["message"] == (
        "Your input exceeds the context window of this model. Please adjust your input and try again."
    )
    talk.good(request("long " * 1000, truncation="auto"))


def test_prompts_answers_and_results_are_counted_by_items() -> None:
    steps = "[[turn.step]]\nblock=[{text='first'}]\n[[turn.step]]\nblock=[{text='got {{result:1}} and {{result:2}}'}]\n"
    talk = Talk(f"[[turn]]\nwhen={{user='go', system='Be brief', tools=['read_file']}}\n{steps}[[turn]]\n{steps}")
    second = {**CALL, "call_id": "call_2"}
    outputs = [
        {**OUTPUT, "output": [{"type": "input_text", "text": "one"}]},
        {**OUTPUT, "call_id": "call_2", "output": "two"},
    ]

    def heard(*items: Any) -> str:
        return talk.good(request(input=list(items)))["output"][-1]["content"][0]["text"]

    assert heard(REMINDER, user("go")) == "first"
    assert heard(REMINDER, user("go"), SAID, CALL, second, *outputs) == "got one and two"
    note = user("<note>three calls are left</note>")
    assert heard(REMINDER, user("go"), CALL, second, *outputs, note) == "got one and two"
    assert heard(REMINDER, user("go"), CALL, second, *outputs, user("go on")) == "first"
    assert heard(user("other"), CALL, second, REMINDER, *outputs) == "got one and two"
