"""The four dialects refuse what the services refuse, in their words, and answer whatever a client sends."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stand_in_checks import chat_talk as chat
from tests.stand_in_checks import google_talk as google
from tests.stand_in_checks import openai_talk as openai
from tests.stand_in_checks import talk as anthropic
from tests.stand_ins.dialect import ReceivedRequest, WholeReply
from tests.stand_ins.http_server import Simulator
from tests.support.sizes import examples
from thinklsp.offline.scenario import parse_scenario

USER = {"role": "user", "content": "plain"}
ROUND = {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}
CACHE = {"cache_control": {"type": "ephemeral"}}
OFF, MANUAL = {"type": "disabled"}, {"type": "enabled", "budget_tokens": 2000}


def between(*contents: Any) -> dict[str, Any]:
    """Contents of user and assistant in turn."""
    return {"messages": [{"role": ("user", "assistant")[n % 2], "content": said} for n, said in enumerate(contents)]}


def own_tool(**schema: Any) -> dict[str, Any]:
    """A tool of the Messages API with another schema."""
    return {**anthropic.TOOLS[0], "input_schema": {"type": "object", **schema}}


def own_function(**schema: Any) -> dict[str, Any]:
    """A function of the Responses API with another schema."""
    return {**openai.TOOLS[0], "strict": False, "parameters": {"type": "object", **schema}}


ANTHROPIC: list[tuple[str, dict[str, Any], str]] = [
    ("claude-opus-5-5", {"thinking": MANUAL}, '"thinking.type.enabled" is not supported for this model.'),
    ("claude-opus-5-5", {"thinking": OFF}, '"thinking.type.disabled" is not supported for this model.'),
    ("claude-opus-4-5", {"thinking": {"type": "adaptive"}}, "adaptive thinking is not supported on this model"),
    ("claude-opus-5-5", {"thinking": {"type": "between_tools"}}, '"thinking.type.between_tools" is not supported'),
    ("claude-opus-4-5", {"thinking": {**MANUAL, "budget_tokens": 1023}}, "greater than or equal to 1024"),
    ("claude-opus-4-5", {"thinking": {**MANUAL, "budget_tokens": 8000}}, "`max_tokens` must be greater than"),
    ("claude-opus-5", {"thinking": OFF, "output_config": {"effort": "xhigh"}}, "when thinking is disabled"),
    ("claude-sonnet-4-5", {"output_config": {"effort": "low"}}, "output_config.effort"),
    ("claude-opus-5-5", {"tool_choice": {"type": "any"}}, 'type "tool" and "any" are not supported for this model.'),
    ("claude-opus-4-7", {"temperature": 0.2}, "`temperature`"),
    ("claude-haiku-4-5", {"max_tokens": 64001}, "max_tokens: 64001 > 64000"),
    ("claude-opus-5-5", {"mood": "good"}, "mood: Extra inputs are not permitted"),
    ("claude-opus-5-5", {"tools": [{**t, **CACHE} for t in anthropic.TOOLS] * 2}, "Tool names must be unique."),
    ("claude-opus-5-5", {"tools": [own_tool(anyOf=[])]}, "input_schema does not support oneOf, allOf, or anyOf"),
    ("claude-opus-5-5", {"tools": [own_tool(properties={"a b": {}})]}, "Property keys should match pattern"),
    ("claude-opus-5-5", between("plain", "Sure"), "does not support assistant message prefill"),
    ("claude-opus-5-5", between([{"type": "text", "text": ""}]), "text content blocks must be non-empty"),
    ("claude-opus-5-5", between("loop", [ROUND], "go on"), "tool_use ids were found without tool_result blocks"),
    ("claude-opus-5-5", between([RESULT]), "unexpected `tool_use_id` found in `tool_result` blocks: toolu_1."),
    ("claude-opus-5-5", between("loop", [ROUND], [RESULT, RESULT]), "each tool_use must have a single result."),
    ("claude-opus-5-5", between("loop", [ROUND, ROUND], [RESULT]), "`tool_use` ids must be unique"),
    ("claude-opus-5-5", between([{"type": "text", "text": "a", **CACHE}] * 5), "A maximum of 4 blocks"),
]
CALL = {"type": "function_call", "call_id": "call_1", "name": "read_file", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "ok"}
BLOB = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAABabcdef=="}
UNSUPPORTED = "Unsupported value: 'max' is not supported"
OPENAI: list[tuple[str, dict[str, Any], str]] = [
    ("gpt-6-sol", {"mood": "good"}, "Unknown parameter: 'mood'."),
    ("gpt-6-sol", {"max_tokens": 100}, "Unsupported parameter: 'max_tokens'."),
    ("gpt-6-sol", {"max_output_tokens": 15}, "Invalid 'max_output_tokens': integer below minimum value."),
    ("gpt-6-sol", {"temperature": 0.2}, "Unsupported parameter: 'temperature' is not supported with this model."),
    ("gpt-6-astra", {"reasoning": {"effort": "none"}}, "Unsupported value: 'none' is not supported with the"),
    ("gpt-5.5", {"reasoning": {"effort": "max"}}, f"{UNSUPPORTED} with the 'gpt-5.5' model."),
    ("gpt-4.1", {"include": []}, "Unsupported parameter: 'reasoning.effort' is not supported with this model."),
    ("gpt-4.1", {"reasoning": None}, "Encrypted content is not supported with this model."),
    ("gpt-6-sol", {"tools": [{**openai.TOOLS[0], "name": "a b"}]}, "Invalid 'tools[0].name'"),
    ("gpt-6-sol", {"tools": [{**openai.TOOLS[0], "parameters": {"type": "object"}}]}, "Invalid schema for function"),
    ("gpt-6-sol", {"tools": [own_function(oneOf=[])]}, "and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top"),
    ("gpt-6-sol", {"tools": [own_function(properties={"a": {"type": "array"}})]}, "array schema missing items."),
    ("gpt-6-sol", {"tools": [], "tool_choice": "required"}, "Tool choice 'required' must be specified with 'tools'"),
    ("gpt-6-sol", {"previous_response_id": "resp_1"}, "Previous response with id 'resp_1' not found."),
    ("gpt-6-sol", {"input": [openai.user("")]}, "Invalid 'input[0].content[0].text': empty string."),
    ("gpt-6-sol", {"input": [openai.user("a"), CALL]}, "No tool output found for function call call_1."),
    ("gpt-6-sol", {"input": [openai.user("a"), OUTPUT]}, "No tool call found for function call output"),
    ("gpt-6-sol", {"input": [openai.user("a"), CALL, OUTPUT, OUTPUT]}, "Duplicate item found with id call_1."),
    ("gpt-6-sol", {"input": [openai.user("a"), {**CALL, "id": "call_1"}, OUTPUT]}, "Invalid 'input[1].id': 'call_1'."),
    ("gpt-6-sol", {"input": [openai.user("a"), BLOB]}, "The encrypted content for item rs_1 could not be verified."),
]
CALLED = {"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALLED]}
TOLD = {"role": "tool", "tool_call_id": "call_1", "content": "ok"}
CHAT: list[tuple[str, dict[str, Any], str]] = [
    ("compatible-1", {"messages": [USER, CALLING, USER]}, "An assistant message with 'tool_calls' must be followed by"),
    ("compatible-1", {"messages": [USER, TOLD]}, "must be a response to a preceeding message with 'tool_calls'."),
    ("compatible-1", {"messages": [USER, CALLING, TOLD, TOLD]}, "Duplicate value for 'tool_call_id' of 'call_1'"),
    ("compatible-1", {"messages": [USER, {"role": "assistant", "content": None}, USER]}, "expected a string, got null"),
    ("deepseek-chat", {"messages": [{**USER, "role": "developer"}]}, "unknown variant `developer`"),
    ("compatible-1", {"tools": []}, "Invalid 'tools': empty array."),
    ("compatible-1", {"max_tokens": 9, "max_completion_tokens": 9}, "at the same time"),
    ("gpt-oss:20b", {"reasoning_effort": "tiny"}, 'invalid reasoning value: "tiny"'),
    ("deepseek-chat", {"reasoning_effort": "none"}, "unknown variant `none`"),
    ("vllm-x", {"reasoning_effort": "max"}, "reasoning_effort: Input should be 'none', 'low'"),
    ("a/b", {"reasoning": {"effort": "low", "max_tokens": 2000}}, "Only one of"),
    ("llama-3", {"reasoning_format": "tags"}, "Unknown reasoning format: tags"),
    ("plain-1", {"reasoning_effort": "low"}, '"plain-1" does not support thinking'),
    ("strict-1", {"max_completion_tokens": 9}, "max_completion_tokens: Extra inputs are not permitted"),
]
SIGNED = {"functionCall": {"name": "read_file", "args": {}}, "thoughtSignature": google.DUMMY}
ANSWER = {"functionResponse": {"name": "read_file", "response": {"output": "ok"}}}
CALLED_TOOL = [google.user("a"), google.model(SIGNED)]
GOOGLE: list[tuple[str, dict[str, Any], str]] = [
    (google.NEW, {"mood": 1}, 'Unknown name "mood": Cannot find field.'),
    (google.NEW, {"contents": []}, "contents is not specified"),
    (google.NEW, {"contents": [google.user("")]}, "required oneof field 'data' must have one initialized field"),
    (google.NEW, {"contents": [google.model("a"), google.user("b")]}, "multiturn requests begin with a user role."),
    (google.NEW, {"contents": [*CALLED_TOOL, google.user("b")]}, "number of function response"),
    (google.NEW, {"contents": [google.user(ANSWER)]}, "function response turn comes immediately after"),
    (google.NEW, {"contents": [*CALLED_TOOL, google.user(ANSWER, "b")]}, "response turn comes"),
    ("gemini-3.8-flash", {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}, "Budget 0 is invalid."),
    ("gemini-2.5-pro", {"generationConfig": {"thinkingConfig": {"thinkingBudget": 32769}}}, "between 128 and 32768."),
    ("gemini-4-argon", {"generationConfig": {"thinkingConfig": {"thinkingLevel": "xhigh"}}}, "level XHIGH is not"),
    ("gemini-2.5-flash-image", {}, "Function calling is not enabled for models/gemini-2.5-flash-image"),
    (google.NEW, {"generationConfig": {"maxOutputTokens": 65537}}, "the supported range is from 1 (inclusive)"),
    (google.NEW, {"tools": [{"functionDeclarations": [{"name": "1st"}]}]}, "Invalid function name."),
    (google.NEW, {"tools": [{"functionDeclarations": google.DECLARATIONS[:1]}] * 2}, "Duplicate function declaration"),
]
TABLES = ((anthropic, ANTHROPIC), (openai, OPENAI), (chat, CHAT), (google, GOOGLE))
ROWS = [(talk, *row) for talk, rows in TABLES for row in rows]


def asked(talk: ModuleType, prompt: str, model: str, **changes: Any) -> tuple[int, str]:
    """Status and text of what a model answers."""
    if talk is google:
        status, answer = google.Talk().ask(google.request(prompt, **changes), model=model)
    else:
        status, answer = talk.Talk().ask(talk.request(prompt, model, **changes))
    return status, answer.get("error", {}).get("message", "")


@pytest.mark.parametrize(("talk", "model", "changes", "message"), ROWS, ids=[f"{row[1]}-{row[3][:32]}" for row in ROWS])
def test_a_broken_rule_is_refused_by_name(talk: ModuleType, model: str, changes: dict[str, Any], message: str) -> None:
    status, refusal = asked(talk, "plain", model, **changes)
    assert (status, message in refusal) == (400, True), refusal


@pytest.mark.parametrize("talk", [anthropic, openai, google], ids=["anthropic", "openai", "google"])
def test_a_request_without_a_key_or_a_known_model_is_refused(talk: Any) -> None:
    keyless = {"key": ""} if talk is google else {"x_api_key": "", "authorization": ""}
    assert talk.Talk().ask(talk.request("plain"), **keyless)[0] in (401, 403)
    assert asked(talk, "plain", "missing-1")[0] == 404
    for body in (b"{", b"[]", b'{"x":' + 900 * b"[" + 900 * b"]" + b"}"):
        assert talk.Talk().ask(body)[0] == 400


def test_only_hosted_services_want_a_key() -> None:
    for model in chat.ECHO:
        for authorization in ("", "Basic x", "Bearer "):
            hosted = "/" in model or model.startswith("deepseek")
            status, _ = chat.Talk().ask(chat.request("plain", model), authorization=authorization)
            assert status == (401 if hosted else 200)


@pytest.mark.parametrize("talk", [anthropic, openai, chat, google], ids=["anthropic", "openai", "chat", "google"])
def test_a_prompt_over_the_window_is_too_long(talk: Any) -> None:
    small = talk.Talk('context_window = 500\n[[turn]]\n[[turn.step]]\nblock=[{text="Hi."}]')
    small.good(talk.request("short"))
    assert small.ask(talk.request("long " * 1000))[0] == 400


OWNERS = [
    ("POST", "/v1/messages", {"x-api-key": "k"}, anthropic),
    ("POST", "/v1/responses", {}, openai),
    ("GET", "/v1/responses/resp_1", {}, openai),
    ("GET", "/v1/models/gpt-5", openai.HEADERS, openai),
    ("POST", "/v1/chat/completions", chat.HEADERS, chat),
    ("POST", "/v1beta/models/x%3AstreamGenerateContent", {}, google),
    ("GET", "/v1beta/models", {}, google),
    ("GET", "/v1/models", {"x-goog-api-key": "k"}, google),
]


@pytest.mark.parametrize(("method", "path", "headers", "owner"), OWNERS, ids=[row[1] for row in OWNERS])
def test_a_request_goes_to_its_dialect(method: str, path: str, headers: dict[str, str], owner: Any) -> None:
    received = ReceivedRequest(method, path, "", headers, b"")
    dialects = Simulator(parse_scenario(anthropic.LOOP, "test"))._dialects
    assert isinstance(next(dialect for dialect in dialects if dialect.can_answer(received)), owner.Talk.speaks)


def test_google_lists_its_models_in_pages_and_counts_tokens() -> None:
    talk = google.Talk()
    _, page = talk.get("/v1beta/models", "pageSize=6")
    names = [row["name"] for row in page["models"]]
    while "nextPageToken" in page:
        _, page = talk.get("/v1beta/models", f"pageSize=6&pageToken={page['nextPageToken']}")
        names += [row["name"] for row in page["models"]]
    assert len(names) == len(set(names)) > 12
    body = google.request("plain")
    counted = talk.good({"generateContentRequest": {**body, "model": f"models/{google.NEW}"}}, method="countTokens")
    assert talk.good(body)["usageMetadata"]["promptTokenCount"] == counted["totalTokens"]


def test_compatible_servers_list_their_models_and_refuse_others() -> None:
    def get(path: str) -> tuple[int, Any]:
        reply = chat.Talk().dialect.build_reply(ReceivedRequest("GET", path, "", {}, b""))
        assert isinstance(reply, WholeReply)
        return reply.status, json.loads(reply.body)

    names = [entry["id"] for entry in get("/v1/models")[1]["data"]]
    assert {"qwen3-8b", "gpt-oss:20b", "plain-1"} <= set(names)
    for name in names:
        assert get(f"/v1/models/{name.replace('/', '%2F').replace(':', '%3A')}")[1]["id"] == name
    assert get("/v1/models/missing-1")[1]["error"]["code"] == "model_not_found"
    assert get("/v1/chat/completions")[0] == 405


@pytest.mark.parametrize(
    ("form", "field", "content"),
    [
        ("none", None, "<think>Plain thinking.</think>\n\nPlain answer."),
        ("deepseek-legacy", "Plain thinking.", "<think>Plain thinking.</think>\n\nPlain answer."),
        ("auto", "Plain thinking.", "Plain answer."),
    ],
)
def test_llama_cpp_puts_reasoning_where_it_is_told_to(form: str, field: str | None, content: str) -> None:
    message, _ = chat.Talk().message(chat.request("plain", "qwen3-8b", reasoning_format=form), stream=True)
    assert (message.get("reasoning_content"), message["content"]) == (field, content)


# Of each dialect: what may stand at the top of a request, and keys and words further below.
DIALECTS: dict[str, tuple[Any, str, str]] = {
    "anthropic": (
        anthropic,
        "messages system tools thinking output_config tool_choice cache_control model",
        "type role content text cache_control name x user ephemeral tool_use tool_result id tool_use_id input",
    ),
    "openai": (
        openai,
        (
            "input instructions tools tool_choice reasoning include text metadata stream store stream_options model "
            "max_output_tokens temperature previous_response_id conversation prompt prompt_cache_options background"
        ),
        (
            "type role content text id call_id name arguments output summary encrypted_content status phase effort "
            "strict parameters properties message user input_text output_text reasoning function_call call_1"
        ),
    ),
    "chat": (
        chat,
        (
            "messages tools tool_choice thinking reasoning reasoning_effort reasoning_format chat_template_kwargs "
            "model max_tokens stream stream_options temperature enable_thinking"
        ),
        (
            "type role content text name id function arguments effort max_tokens tool_calls tool_call_id "
            "reasoning_content reasoning_details signature data index user assistant tool none enabled call_1"
        ),
    ),
    "google": (
        google,
        "contents systemInstruction tools toolConfig generationConfig continuationToken store",
        (
            "role parts text thought thoughtSignature functionCall function_response name args id response type "
            "properties functionDeclarations parameters user model LOW OBJECT skip_thought_signature_validator"
        ),
    ),
}


def values(words: str) -> st.SearchStrategy[Any]:
    word = st.sampled_from(words.split())
    leaves = st.none() | st.booleans() | st.integers() | st.floats(-2, 2) | st.text(max_size=5) | word
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(word, inner, max_size=5), max_leaves=10
    )


@pytest.mark.parametrize("name", DIALECTS)
def test_no_body_breaks_the_dialect(name: str) -> None:
    talk, top, words = DIALECTS[name]

    @settings(max_examples=examples(300), deadline=None)
    @given(st.dictionaries(st.sampled_from(top.split()), values(words), min_size=1, max_size=3))
    def answers(changes: dict[str, Any]) -> None:
        reply = talk.Talk().reply({**talk.request("plain"), **changes})
        assert getattr(reply, "status", 200) in (200, 400, 404)

    answers()


@pytest.mark.parametrize("name", DIALECTS)
def test_no_change_to_a_replay_breaks_the_dialect(name: str) -> None:
    module, _, words = DIALECTS[name]
    held = {"anthropic": "messages", "openai": "input", "chat": "messages", "google": "contents"}[name]

    @settings(max_examples=examples(200), deadline=None)
    @given(st.data())
    def answers(data: st.DataObject) -> None:
        talk = module.Talk()
        body = module.request()
        answer = talk.good(body)
        body = module.continued(body, answer["choices"][0]["message"] if module is chat else answer)
        item = data.draw(st.sampled_from(body[held]))
        if data.draw(st.booleans()):
            item[data.draw(st.sampled_from(sorted(item)))] = data.draw(values(words))
        else:
            body[held].insert(data.draw(st.integers(0, len(body[held]))), data.draw(values(words)))
        assert getattr(talk.reply(body), "status", 200) in (200, 400, 404)

    answers()


@pytest.mark.parametrize("depth", [300, 900, 100_000])
@pytest.mark.parametrize("name", DIALECTS)
def test_deep_nesting_is_refused_or_read(name: str, depth: int) -> None:
    talk, _, _ = DIALECTS[name]
    schema = {"name": "a", "parameters": "HERE", "input_schema": "HERE"}
    tools = {"openai": {"type": "web_search", "x": "HERE"}, "google": {"functionDeclarations": [schema]}}
    body = json.dumps(talk.request("plain", tools=[tools.get(name, {**schema, "type": "function"})])).encode()
    nested = b'{"items":' * depth + b"1" + b"}" * depth
    assert talk.Talk().ask(body.replace(b'"HERE"', nested))[0] in (200, 400)


@pytest.mark.parametrize("name", DIALECTS)
def test_half_a_surrogate_pair_does_no_harm(name: str) -> None:
    talk, _, _ = DIALECTS[name]
    assert talk.Talk().ask(talk.request("\ud800 hm"))[0] == 200
    assert talk.Talk().ask(talk.request("plain", **{"mo\ud800od": 1}))[0] == (200 if talk is chat else 400)
