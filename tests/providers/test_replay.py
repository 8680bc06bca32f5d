"""What goes back to each family: own blocks as they came, foreign ones rebuilt, in a shape that the service takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.providers import replay_anthropic, replay_chat, replay_google, replay_openai
from tests.providers.families import FAMILIES, find_message, list_cases, read_case
from tests.providers.replay_anthropic import LOOPS, answered
from tests.providers.replay_chat import answer, tool, wire
from tests.providers.replay_openai import BARE
from tests.support import anthropic_samples, chat_samples, google_samples, openai_samples
from tests.support.chat_samples import KINDS, call, details, foreign_call, messages_of, server, thinking
from tests.support.google_samples import BUDGET, DUMMY, LEVELS, UNKNOWN
from tests.support.samples import asked, result, said
from thinklsp.core.messages import (
    AssistantMessage,
    ContentBlock,
    Conversation,
    OpaqueBlock,
    RedactedThinkingBlock,
    ServerToolBlock,
    TextBlock,
    ToolUseBlock,
    UserMessage,
    ensure_unique_call_ids,
)
from thinklsp.providers.base import Thinking
from thinklsp.providers.catalogue import ModelInfo, find_model

Json = dict[str, Any]
A, B = UserMessage.from_text("a"), UserMessage.from_text("b")


def unmarked_messages(conversation: Conversation) -> list[Json]:
    messages: list[Json] = anthropic_samples.unmarked(anthropic_samples.messages_of(conversation))
    return messages


SENT: Mapping[str, Callable[[Conversation], list[Json]]] = {
    "anthropic": unmarked_messages,
    "openai": openai_samples.items_of,
    "google": google_samples.contents_of,
    "chat": messages_of,
}
HISTORIES = {
    (family, name): history
    for family, rows in {
        "anthropic": replay_anthropic.HISTORIES,
        "openai": replay_openai.HISTORIES,
        "google": replay_google.HISTORIES,
        "chat": replay_chat.HISTORIES,
    }.items()
    for name, history in rows.items()
}


@pytest.mark.parametrize(("family", "name"), HISTORIES)
def test_a_conversation_becomes_what_is_sent(family: str, name: str) -> None:
    conversation, expected = HISTORIES[family, name]
    assert SENT[family](conversation) == expected
    if family == "openai":
        assert openai_samples.broken_rules(expected, conversation) == []
    if family == "google":
        assert google_samples.broken_rules(expected, signed_calls=True) == []


@pytest.mark.parametrize("family", ["anthropic", "openai"])
def test_what_was_issued_here_goes_back_as_it_came(family: str) -> None:
    samples = FAMILIES[family].samples
    _, first, _, second, _ = samples.loop()
    issued = [[samples.raw(block) for block in message.blocks] for message in (first, second)]
    if family == "anthropic":
        messages = samples.messages_of(samples.loop())
        assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant", "user"]
        assert [messages[1]["content"], messages[3]["content"]] == issued
    else:
        output = samples.output
        results = [output("call_2"), output("call_3", "Error: no such file")]
        question = samples.user("Why?")
        assert samples.items_of(samples.loop()) == [question, *issued[0], output("call_1"), *issued[1], *results]


def check_anthropic_round_trip(case: str, message: AssistantMessage, blocks: list[Json]) -> None:
    sent = anthropic_samples.messages_of((A, message, B))[1]["content"]
    # Blank text is refused by the service; a message may not end with thinking.
    assert [block for block in sent if block.get("text") != "(no text)"] == [
        block for block in blocks if block.get("text") != ""
    ]


def check_openai_round_trip(case: str, message: AssistantMessage, blocks: list[Json]) -> None:
    items = openai_samples.items_of((A, message, B))
    assert (items[0], items[-1]) == (openai_samples.user("a"), openai_samples.user("b"))
    assert [item for item in items[1:-1] if item["type"] != "function_call_output"] == BARE.get(case, blocks)


def check_google_round_trip(case: str, message: AssistantMessage, blocks: list[Json]) -> None:
    message = ensure_unique_call_ids(message, ())
    results = asked(*(result(use.id) for use in message.tool_uses))
    assert google_samples.contents_of((A, message, results, B))[1]["parts"] == [
        part
        for part in blocks
        if part.get("type") != "continuation" and (part.get("thoughtSignature") or not part.get("thought"))
    ]


def check_chat_round_trip(case: str, message: AssistantMessage, blocks: list[Json]) -> None:
    wanted = chat_samples.expected(case)
    message = ensure_unique_call_ids(message, ())
    sent = messages_of((A, message, asked(*(result(one.id) for one in message.tool_uses), TextBlock("y"))))[1]
    came = {key: value for block in blocks for key, value in block.items() if key in REASONING}
    assert {key: sent[key] for key in REASONING if key in sent} == came
    calls = [block for block in blocks if "function" in block]
    content = wanted.get("text") or (None if calls else "(no text)")
    parts = [part for block in blocks if isinstance(block.get("content"), list) for part in block["content"]]
    assert sent["content"] == ([*parts, {"type": "text", "text": content}] if parts else content)
    for one, block, value in zip(sent.get("tool_calls", ()), calls, wanted.get("inputs", ()), strict=True):
        assert one["id"] == block["id"] or not block["id"]
        assert one["function"]["name"] == block["function"]["name"]
        assert json.loads(one["function"]["arguments"]) == (value or {})
        assert {**one, "id": 0, "function": 0} == {**block, "id": 0, "function": 0}


ROUND_TRIPS: Mapping[str, Callable[[str, AssistantMessage, list[Json]], None]] = {
    "anthropic": check_anthropic_round_trip,
    "openai": check_openai_round_trip,
    "google": check_google_round_trip,
    "chat": check_chat_round_trip,
}


@pytest.mark.parametrize(("family", "case"), list_cases(failing=False))
def test_recorded_answers_survive_the_round_trip(family: str, case: str) -> None:
    blocks = FAMILIES[family].samples.expected(case)["blocks"]
    if blocks or family == "openai":
        ROUND_TRIPS[family](case, find_message(read_case(family, case)), blocks)


READ = {"type": "tool_use", "name": "read_file", "input": {"path": "a"}}
FAILED = "Error: no such file"
ERROR = {"functionResponse": {"id": "k3", "name": "read_file", "response": {"error": "no such file"}}}
# For each family another model and provider, what must not leave, and what is sent of `loop`.
FOREIGN: Mapping[str, tuple[str, str, tuple[str, ...], list[Json]]] = {
    "anthropic": (
        "claude-opus-5",
        "openai",
        ("Sig1", "Sig2", "Rd1", "srvtoolu_1", "caller"),
        [
            replay_anthropic.wire("user", "Why?"),
            replay_anthropic.wire("assistant", "Looking.", {"id": "toolu_1", **READ}),
            replay_anthropic.wire("user", answered("toolu_1")),
            replay_anthropic.wire("assistant", {"id": "toolu_2", **READ}, {"id": "toolu_3", **READ}),
            replay_anthropic.wire("user", answered("toolu_2"), answered("toolu_3", "no such file", is_error=True)),
        ],
    ),
    "openai": (
        "gpt-5.5",
        "anthropic",
        ("gAAAsecret", "rs_1", "msg_1", "fc_call_1", "ws_1", "I look.", "phase"),
        [
            openai_samples.user("Why?"),
            openai_samples.bare("Looking."),
            openai_samples.bare_call("call_1"),
            openai_samples.output("call_1"),
            openai_samples.bare_call("call_2"),
            openai_samples.bare_call("call_3"),
            openai_samples.output("call_2"),
            openai_samples.output("call_3", FAILED),
        ],
    ),
    "google": (
        "gemini-4-argon",
        "openai",
        ("Sig1", "Sig2", "Sig3", "Hm.", "So."),
        [
            google_samples.user({"text": "Why?"}),
            google_samples.model({"text": "Looking."}, google_samples.called("k1", DUMMY)),
            google_samples.user(google_samples.answered("k1")),
            google_samples.model(google_samples.called("k2", DUMMY), google_samples.called("k3")),
            google_samples.user(google_samples.answered("k2"), ERROR),
        ],
    ),
    "chat": (
        "other",
        "openai",
        ("Hm", "So"),
        [
            replay_chat.user("Why?"),
            answer("Looking.", wire("call_1")),
            tool("call_1"),
            answer(None, wire("call_2"), wire("call_3")),
            *(tool("call_2"), tool("call_3", FAILED), replay_chat.user("Go on")),
        ],
    ),
}


@pytest.mark.parametrize("changed", ["model", "host", "key", "provider"])
@pytest.mark.parametrize("family", FOREIGN)
def test_foreign_state_is_dropped_and_words_are_kept(family: str, changed: str) -> None:
    model, provider, secrets, expected = FOREIGN[family]
    origin = {"model": model, "host": "https://other.example", "key": "0" * 16, "provider": provider}
    samples = FAMILIES[family].samples
    conversation = samples.loop(**{changed: origin[changed]})
    body = FAMILIES[family].adapter.encode(replace(samples.PLAIN, conversation=conversation), samples.ENDPOINT).body
    assert not [secret for secret in secrets if secret in bytes(body).decode()]
    assert SENT[family](conversation) == expected


def test_ids_of_other_services_are_made_fit_on_both_sides() -> None:
    block = ToolUseBlock("call|a.b/é", "read_file", None)
    messages = unmarked_messages((A, said(block), asked(result("call|a.b/é"))))
    assert messages[1]["content"] == [READ | {"id": "call_a_b__", "input": {}}]
    assert messages[2]["content"][0]["tool_use_id"] == "call_a_b__"
    ids = ["x" * 80 + end for end in "ab"]
    messages = messages_of((A, said(*map(foreign_call, ids)), asked(*map(result, ids))))
    sent = [one["id"] for one in messages[1]["tool_calls"]]
    assert len(set(sent)) == 2
    assert all(len(one) == 40 for one in sent)
    assert [one["tool_call_id"] for one in messages[2:]] == sent


def test_unsigned_thinking_returns_only_to_its_issuer() -> None:
    thought = {"type": "thinking", "thinking": "hm"}
    message = said(OpaqueBlock("thinking", anthropic_samples.sealed(thought)), anthropic_samples.text("x"))
    assert thought in anthropic_samples.messages_of((A, message, B))[1]["content"]
    elsewhere = replace(anthropic_samples.ENDPOINT, base_url="http://127.0.0.1:8080")
    request = replace(anthropic_samples.PLAIN, conversation=(A, message, B))
    assert anthropic_samples.body_of(request, elsewhere)["messages"][1]["content"] == [{"type": "text", "text": "x"}]


@pytest.mark.parametrize("name", LOOPS)
def test_a_budget_needs_a_tool_loop_that_began_with_thinking(name: str) -> None:
    conversation, form = LOOPS[name]
    plain = replace(anthropic_samples.PLAIN, conversation=conversation)
    model = find_model("anthropic", "claude-sonnet-4-5")
    request = replace(plain, thinking=Thinking("manual", 10_000), model=model)
    encoded = anthropic_samples.ADAPTER.encode(request, anthropic_samples.ENDPOINT)
    assert json.loads(encoded.body)["thinking"]["type"] == form
    assert ("interleaved" in encoded.headers.get("anthropic-beta", "")) is (form == "enabled")
    assert anthropic_samples.body_of(plain)["thinking"]["type"] == "adaptive"


def test_a_model_that_always_thinks_gets_adaptive_thinking() -> None:
    model = replace(find_model("anthropic", "claude-sonnet-4-5"), off=None)
    conversation = (A, said(anthropic_samples.call("t1")), asked(result("t1")))
    request = replace(anthropic_samples.PLAIN, thinking=Thinking("manual", 10_000), conversation=conversation)
    body = anthropic_samples.body_of(replace(request, model=model))
    assert body["thinking"] == {"type": "adaptive", "display": "omitted"}


def test_blocks_without_words_of_ours_stay_with_their_issuer() -> None:
    sealed = google_samples.sealed
    blocks: list[ContentBlock] = [
        google_samples.signature_alone("S", model="m"),
        ServerToolBlock("web_search", sealed({"type": "server_tool_use"}, provider="anthropic")),
        RedactedThinkingBlock(sealed({"type": "redacted_thinking", "data": "Rd"}, provider="anthropic")),
        OpaqueBlock("executableCode", sealed({"executableCode": {"code": "x"}}, host="https://other.example")),
        google_samples.paused("T", key="0" * 16),
        TextBlock("  "),
    ]
    contents = google_samples.contents_of((A, said(*blocks), B))
    assert contents == [google_samples.user({"text": "a"}, {"text": "b"})]


@pytest.mark.parametrize(
    ("info", "demanded"), [(LEVELS, True), (UNKNOWN, True), (replace(UNKNOWN, efforts=()), True), (BUDGET, False)]
)
def test_models_before_the_levels_get_no_stand_in(info: ModelInfo, demanded: bool) -> None:
    sent = google_samples.contents_of(google_samples.loop(provider="openai"), model=info)
    assert json.dumps(sent).count(DUMMY) == (2 if demanded else 0)
    assert google_samples.broken_rules(sent, signed_calls=demanded) == []


@pytest.mark.parametrize("tokens", [("T1",), ("T1", "T2"), ("T1", "T2", "T3")])
def test_a_paused_answer_repeats_the_request_with_its_token(tokens: tuple[str, ...]) -> None:
    before = replace(google_samples.PLAIN, conversation=(*google_samples.loop(), B))
    pieces = [said(google_samples.text(f"part {token}", "S"), google_samples.paused(token)) for token in tokens]
    body = google_samples.body_of(replace(before, conversation=(*before.conversation, *pieces)))
    assert body.pop("continuationToken") == tokens[-1]
    assert body == google_samples.body_of(before)


REASONING = ("reasoning", "reasoning_content", "reasoning_details")
ENTRIES = chat_samples.raw(details())["reasoning_details"]
BLOCKS = {
    "reasoning": thinking("Hm"),
    "reasoning_content": thinking("Hm", "reasoning_content"),
    "reasoning_details": details(),
    "tags": thinking("Hm", "think_tags"),
    "parts": thinking("Hm", "content"),
    "foreign": thinking("Hm", model="other"),
    "none": None,
}
# What goes out for a block that came so, by rule: auto, reasoning, reasoning_content, reasoning_details, none.
STRING, CONTENT, WHOLE = {"reasoning": "Hm"}, {"reasoning_content": "Hm"}, {"reasoning_details": ENTRIES}
ECHOED: dict[str, tuple[dict[str, Any], ...]] = {
    "reasoning": (STRING, STRING, CONTENT, {}, {}),
    "reasoning_content": (CONTENT, STRING, CONTENT, {}, {}),
    "reasoning_details": (WHOLE, STRING, CONTENT, WHOLE, {}),
    "tags": ({}, STRING, CONTENT, {}, {}),
    "parts": ({}, STRING, CONTENT, {}, {}),
    "foreign": ({}, {}, {}, {}, {}),
    "none": ({}, {}, {}, {}, {}),
}


@pytest.mark.parametrize("came", BLOCKS)
def test_the_replay_rule(came: str) -> None:
    block = BLOCKS[came]
    turn = said(*([block] if block else []), chat_samples.text("x"), call("t"))
    for rule, fields in zip(("auto", *REASONING, "none"), ECHOED[came], strict=True):
        sent = messages_of((A, turn, asked(result("t"))), server(echo=rule))[1]
        assert {key: sent[key] for key in REASONING if key in sent} == fields
        assert sent["content"] == "x"


@pytest.mark.parametrize("came", BLOCKS)
def test_deepseek_wants_the_field_on_every_answer_with_calls(came: str) -> None:
    block = BLOCKS[came]
    blocks = [block] if block else []
    conversation = (A, said(*blocks, call("t")), asked(result("t")), said(*blocks, chat_samples.text("x")), B)
    own = {} if came in ("foreign", "none") else CONTENT
    _, called, _, spoken, _ = messages_of(conversation, server("deepseek"))
    assert {key: called[key] for key in REASONING if key in called} == (own or {"reasoning_content": ""})
    assert {key: spoken[key] for key in REASONING if key in spoken} == own
    gateway = messages_of((A, said(foreign_call("t")), asked(result("t"))), server(), "deepseek-v4")
    assert gateway[1]["reasoning_content"] == ""


ORIGINS = [{"model": "other"}, {"host": "https://other.example"}, {"key": "0" * 16}, {"provider": "openai"}]


@pytest.mark.parametrize("origin", ORIGINS, ids=lambda origin: next(iter(origin)))
@pytest.mark.parametrize("kind", KINDS)
def test_thinking_goes_to_nobody_but_who_gave_it(kind: str, origin: dict[str, str]) -> None:
    conversation = (*chat_samples.loop(**origin), said(details("Deep", **origin), chat_samples.text("x")), B)
    messages = messages_of(conversation, server(kind))
    assert not any(message.get(name) for message in messages for name in REASONING)
    assert not {"Hm", "So", "Deep", "Sig1", "Enc1"} & set(json.dumps(messages).split('"'))
    assert [message["role"] for message in messages].count("tool") == 3


@pytest.mark.parametrize("kind", KINDS)
def test_tags_that_were_split_off_never_come_back(kind: str) -> None:
    tagged = find_message(read_case("chat", "think_tags_split"))
    sent = messages_of((A, tagged, asked(result("t"))), server(kind))[1]
    assert sent["content"] == "The tag is <think>. "
    # Who demands the field gets the thinking bare.
    assert [sent[name] for name in REASONING if name in sent] == (["hm"] if kind == "deepseek" else [])
