"""The Gemini dialect refuses what the service refuses, in its words; what each model takes is a table."""

from __future__ import annotations

import json
from typing import Any

import pytest
from simulator_google_refusals import CALL, REFUSALS, RESULT, SECOND, SECOND_RESULT, Refusal, with_id

from tests.support.simulator_google_talk import NEW, OLD, Talk, model, request, user
from thinklsp.simulator.dialect import Received, Whole

# One row per model: levels, budgets that are taken, budgets that are not, thinks unasked.
MODELS: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], bool]] = {
    "gemini-2.5-pro": ("", (-1, 128, 32768), (0, 127, 32769, -2), True),
    "gemini-2.5-flash": ("", (-1, 0, 1, 24576), (24577, -2), True),
    "gemini-2.5-flash-lite": ("", (-1, 0, 512, 24576), (1, 511, 24577), False),
    "gemini-2.5-flash-image": ("", (), (-1, 0, 128), False),
    "gemini-3-pro-preview": ("LOW HIGH", (-1, 128), (0,), True),
    "gemini-3-flash-preview": ("MINIMAL LOW MEDIUM HIGH", (-1, 0, 128), (-2,), True),
    "gemini-3.1-pro-preview": ("LOW MEDIUM HIGH", (-1, 128), (0,), True),
    "gemini-3.1-flash-lite": ("MINIMAL LOW MEDIUM HIGH", (-1, 0, 128), (), True),
    "gemini-3.5-flash-lite": ("MINIMAL LOW MEDIUM HIGH", (-1, 0, 128), (), True),
    "gemini-3.5-flash": ("MINIMAL LOW MEDIUM HIGH", (-1, 0, 128), (), True),
    "gemini-3.6-flash": ("MINIMAL LOW MEDIUM HIGH", (-1, 0, 128), (), True),
    "gemini-3.7-flash": ("LOW MEDIUM HIGH", (-1, 128), (0,), True),
    "gemini-3.8-flash": ("LOW MEDIUM HIGH", (-1, 128), (0,), True),
    "gemini-4-argon": ("LOW MEDIUM HIGH", (), (-1, 0, 128), True),
    "gemini-4-carbon": ("LOW MEDIUM HIGH", (), (-1, 0, 128), True),
    "gemini-4-hydrogen": ("LOW MEDIUM HIGH XHIGH", (), (-1, 0, 128), True),
}


@pytest.mark.parametrize("name", MODELS)
def test_each_model_takes_what_its_row_says(name: str) -> None:
    levels, taken, refused, unasked = MODELS[name]
    talk = Talk()

    def ask(**config: Any) -> tuple[int, Any]:
        body = request("plain", tools=[], generationConfig={"thinkingConfig": config} if config else {})
        return talk.ask(body, model=name)

    assert ("thoughtsTokenCount" in ask()[1]["usageMetadata"]) is unasked
    for level in ("MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH"):
        status, answer = ask(thinkingLevel=level.lower())
        assert status == (200 if level in levels.split() else 400), level
        if status == 400 and levels:
            assert answer["error"]["message"] == f"Thinking level {level} is not supported for this model."
    for budget in taken:
        status, answer = ask(thinkingBudget=budget)
        assert status == 200, (budget, answer)
        assert ("thoughtsTokenCount" in answer["usageMetadata"]) is (budget != 0)
    for budget in refused:
        status, answer = ask(thinkingBudget=budget)
        assert status == 400, budget
        if budget == 0 and (name.startswith("gemini-3") or name == "gemini-2.5-pro"):
            assert answer["error"]["message"] == "Budget 0 is invalid. This model only works in thinking mode."
    status, told = talk.get(f"/v1beta/models/{name}")
    assert (status, told["name"], told.get("thinking", False)) == (200, f"models/{name}", name[-5:] != "image")
    assert told["inputTokenLimit"] > told["outputTokenLimit"] - 1
    assert {"generateContent", "countTokens"} <= set(told["supportedGenerationMethods"])


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.id)
def test_refused(case: Refusal) -> None:
    assert Talk().refused(request("plain", **case.changes), model=case.model) == case.message


SNAKE = {
    "contents": [user("plain")],
    "system_instruction": {"parts": {"text": "One part needs no list."}},
    "tools": [
        {
            "function_declarations": [
                {
                    "name": "ns.tool:a-b",
                    "parameters": {
                        "type": "OBJECT",
                        "properties": {"a": {"type": "string", "anyOf": [{"minLength": "2"}], "min_items": 1}},
                        "required": ["a"],
                    },
                }
            ]
        },
        {"google_search": {}},
    ],
    "tool_config": {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["ns.tool:a-b"]}},
    "generation_config": {
        "max_output_tokens": "900",
        "top_k": 5,
        "top_p": 1,
        "temperature": 0,
        "seed": 7.0,
        "stop_sequences": ["x"],
        "thinking_config": {"include_thoughts": True, "thinking_level": "low"},
        "responseMimeType": "text/plain",
    },
    "safety_settings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
    "cached_content": None,
}
ACCEPTED: list[tuple[str, str, dict[str, Any]]] = [
    ("snake-case", NEW, SNAKE),
    ("no-role-alone", NEW, {"contents": {"parts": [{"text": "plain"}]}}),
    ("user-after-user", NEW, {"contents": [user("a"), user("plain")]}),
    ("model-after-model", NEW, {"contents": [user("a"), model("b"), model("c"), user("plain")]}),
    (
        "results-then-text",
        NEW,
        {"contents": [user("a"), model(CALL), user(RESULT), user("plain")]},
    ),
    (
        "results-by-id-in-any-order",
        NEW,
        {
            "contents": [
                user("plain"),
                model(with_id(CALL, "c1"), with_id(SECOND, "c2")),
                user(with_id(SECOND_RESULT, "c2"), with_id(RESULT, "c1")),
            ]
        },
    ),
    ("results-without-ids", NEW, {"contents": [user("plain"), model(with_id(CALL, "c1")), user(RESULT)]}),
    ("image", NEW, {"contents": [user("plain", {"inlineData": {"mimeType": "image/png", "data": "AAAA"}})]}),
    ("thoughts", OLD, {"contents": [user("a"), model({"text": "t", "thought": True}, "b"), user("plain")]}),
]


@pytest.mark.parametrize(("name", "changes"), [case[1:] for case in ACCEPTED], ids=[case[0] for case in ACCEPTED])
def test_accepted(name: str, changes: dict[str, Any]) -> None:
    Talk().good(request("plain", **changes), model=name)


NO_KEY = (
    "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or other "
    "form of API consumer identity to call this API."
)
UNKNOWN = (
    "models/gemini-9 is not found for API version {}, or is not supported for {}. Call ListModels to see the list of "
    "available models and their supported methods."
)


@pytest.mark.parametrize(
    ("options", "body", "status", "word", "message"),
    [
        ({"key": ""}, request(), 403, "PERMISSION_DENIED", NO_KEY),
        ({"key": "", "authorization": "Bearer x"}, request(), 401, "UNAUTHENTICATED", None),
        ({"key": " "}, request(), 400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
        ({"model": "gemini-9"}, request(), 404, "NOT_FOUND", UNKNOWN.format("v1beta", "generateContent")),
        (
            {"path": "/v1/models/gemini-9:countTokens"},
            request(),
            404,
            "NOT_FOUND",
            UNKNOWN.format("v1", "countTokens"),
        ),
        ({"method": "embedContent"}, request(), 404, "NOT_FOUND", None),
        ({"path": "/v1beta/files"}, request(), 404, "NOT_FOUND", None),
        ({"verb": "GET"}, request(), 405, "UNIMPLEMENTED", None),
        ({"path": "/v1beta/models"}, request(), 405, "UNIMPLEMENTED", None),
        ({"path": "/v1beta/models/gemini-9", "verb": "GET"}, b"", 404, "NOT_FOUND", None),
        ({}, b"{", 400, "INVALID_ARGUMENT", None),
        ({}, b"[]", 400, "INVALID_ARGUMENT", None),
        ({}, b'{"contents": NaN}', 400, "INVALID_ARGUMENT", None),
        ({}, b'{"x":' + 900 * b"[" + 900 * b"]" + b"}", 400, "INVALID_ARGUMENT", None),
    ],
)
def test_refused_before_the_body_counts(
    options: dict[str, str], body: Any, status: int, word: str, message: str | None
) -> None:
    answered, error = Talk().ask(body, **options)
    assert (answered, error["error"]["code"], error["error"]["status"]) == (status, status, word)
    assert message is None or error["error"]["message"] == message


def test_a_key_in_the_query_does() -> None:
    Talk().good(request("plain"), key="", query="key=k")


@pytest.mark.parametrize(
    ("verb", "path", "query", "key", "serves"),
    [
        ("POST", "/v1/models/gemini-3.5-flash:generateContent", "", "", True),
        ("POST", "/v1beta/models/gemini-3.5-flash%3AstreamGenerateContent", "alt=sse", "", True),
        ("POST", "/v1alpha/models/x:countTokens", "", "", True),
        ("GET", "/v1beta/models", "", "", True),
        ("GET", "/v1beta/models/gemini-3.5-flash", "", "", True),
        ("GET", "/v1/models", "", "k", True),
        ("GET", "/v1/models/gemini-3.5-flash", "key=k", "", True),
        ("GET", "/v1/models", "", "", False),
        ("GET", "/v1/models/claude-opus-5", "limit=5", "", False),
        ("POST", "/v1/messages", "", "k", False),
        ("POST", "/v1/responses", "", "", False),
        ("POST", "/v1/chat/completions", "", "", False),
        ("POST", "/v1beta/openai/chat/completions", "", "k", False),
    ],
)
def test_which_requests_are_its_own(verb: str, path: str, query: str, key: str, serves: bool) -> None:
    headers = {"x-goog-api-key": key} if key else {}
    assert Talk().dialect.serves(Received(verb, path, query, headers, b"")) is serves


def test_a_failure_of_the_server_itself_has_the_service_s_form() -> None:
    reply = Talk().dialect.failure(413, "Too large")
    assert isinstance(reply, Whole)
    assert json.loads(reply.body) == {"error": {"code": 413, "message": "Too large", "status": "INVALID_ARGUMENT"}}


def test_pages_of_models_and_counting() -> None:
    talk = Talk("context_window = 700")
    status, first = talk.get("/v1beta/models", "pageSize=6")
    names = [row["name"] for row in first["models"]]
    assert (status, len(names), first["models"][0]["inputTokenLimit"]) == (200, 6, 700)
    while "nextPageToken" in first:
        _, first = talk.get("/v1beta/models", f"pageSize=6&pageToken={first['nextPageToken']}")
        names += [row["name"] for row in first["models"]]
    assert sorted(names) == sorted(f"models/{name}" for name in MODELS)
    assert talk.get("/v1beta/models", "pageSize=all")[0] == 400
    body = request("plain")
    inner = {"generateContentRequest": {**body, "model": f"models/{NEW}"}}
    counts = [
        talk.good(counted, method="countTokens")["totalTokens"]
        for counted in ({"contents": [user("a")]}, {"contents": [user("a and b")]}, inner)
    ]
    assert counts == sorted(set(counts))
    assert talk.good(body)["usageMetadata"]["promptTokenCount"] == counts[-1]
    assert talk.refused({**inner, "contents": [user("a")]}, method="countTokens")
    assert talk.refused({}, method="countTokens").endswith("contents is not specified\n")
    long = request("plain " * 1000)
    total = talk.good({"generateContentRequest": long}, method="countTokens")["totalTokens"]
    assert talk.refused(long) == (
        f"The input token count ({total}) exceeds the maximum number of tokens allowed (700)."
    )
