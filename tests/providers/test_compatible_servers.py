"""What compatible servers and gateways do that the services themselves do not, each kind in a table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest

from tests.providers.families import FAMILIES, find_message
from tests.support import anthropic_samples, chat_samples, google_samples, openai_samples
from tests.support.chat_samples import as_events, chunk, messages_of, run, server
from tests.support.hosts import Step, answer, head
from tests.support.samples import asked, result, said
from tests.support.services import call_model
from thinklsp.agent.model_call import CallEvent, CallFinished
from thinklsp.core import errors
from thinklsp.core.events import Notice, RetryScheduled
from thinklsp.core.messages import AssistantMessage, UserMessage
from thinklsp.providers.base import Endpoint

WHOLE = '{"path": "a", "text": "x{}y\\"z"}'
SAME = json.dumps(json.loads(WHOLE), indent=1)
PIECES = (WHOLE[:4], WHOLE[4:15], WHOLE[15:])
MORE_THAN_ONCE: Mapping[str, Sequence[str]] = {
    "once": PIECES,
    "the whole again at the end": (*PIECES, WHOLE),
    "the whole again in other white space": (*PIECES, SAME),
    "the whole twice": (WHOLE, WHOLE),
    "the whole three times": (WHOLE, SAME, WHOLE),
    "all so far in each piece": tuple(accumulate(PIECES)),
    "all so far in each piece, and the whole again": (*accumulate(PIECES), WHOLE),
    "all so far at first, then pieces": (WHOLE[:4], WHOLE[:15], WHOLE[15:]),
    "null in a line of its own first": ("null", "\n", *PIECES),
    "an empty object first": ("{}", *PIECES),
    "an empty object with blanks first": ("{ }", WHOLE),
    "null first": ("null", *PIECES),
    "null and an empty object first": ("null", "{}", WHOLE, WHOLE),
    "an empty object, then all so far": ("{}", *accumulate(PIECES)),
}


def chat_call(pieces: Sequence[str], **repeated: Any) -> bytes:
    """A stream with one call. `repeated`: what each piece says besides its arguments."""
    first = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": pieces[0]}}
    named = {"name": repeated.pop("name")} if "name" in repeated else {}
    later = [{"index": 0, **repeated, "function": {**named, "arguments": piece}} for piece in pieces[1:]]
    if repeated.get("id") == "":
        first["id"] = ""
    deltas = [{"tool_calls": [entry]} for entry in (first, *later)]
    return as_events(*map(chunk, deltas), chunk(reason="tool_calls"))


def anthropic_call(pieces: Sequence[str]) -> bytes:
    block = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return as_events(
        {"type": "message_start", "message": {"id": "m1", "model": "m"}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    )


def responses_call(pieces: Sequence[str]) -> bytes:
    item = {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": ""}
    pieces_sent = [
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": piece} for piece in pieces
    ]
    return as_events(
        {"type": "response.created", "response": {"id": "r1", "model": "m"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        *pieces_sent,
        {"type": "response.completed", "response": {"id": "r1", "output": []}},
    )


WAYS: Mapping[str, Any] = {
    "chat": chat_call,
    "chat, with id and name": lambda pieces: chat_call(pieces, id="c", name="f"),
    "chat, with the name": lambda pieces: chat_call(pieces, name="f"),
    "anthropic": anthropic_call,
    "openai": responses_call,
}


@pytest.mark.parametrize("case", MORE_THAN_ONCE)
@pytest.mark.parametrize("way", WAYS)
def test_arguments_that_are_sent_more_than_once_are_read_once(way: str, case: str) -> None:
    samples = FAMILIES[way.partition(",")[0]].samples
    message = find_message(samples.run(WAYS[way](MORE_THAN_ONCE[case])))
    [call] = message.tool_uses
    assert call.input == json.loads(WHOLE)
    raw = samples.raw(call)
    sent_back = raw["input"] if way == "anthropic" else raw.get("function", raw)["arguments"]
    assert (sent_back if way == "anthropic" else json.loads(sent_back)) == json.loads(WHOLE)


NOT_ONE_OBJECT = {
    "two objects": ('{"a": 1}', '{"a": 2}'),
    "an empty object behind an object": ('{"a": 1}', "{}"),
    "words around it": ('Here: {"a": 1}', '{"a": 1}'),
    "a half": ('{"a":', '"b'),
    "a list twice": ("[1]", "[1]"),
}


@pytest.mark.parametrize("case", NOT_ONE_OBJECT)
def test_what_is_not_one_object_stays_unreadable(case: str) -> None:
    pieces = NOT_ONE_OBJECT[case]
    [call] = run(chat_call(pieces)).message.tool_uses
    assert call.input is None
    assert chat_samples.raw(call)["function"]["arguments"] == "".join(pieces)


def test_long_arguments_that_come_whole_in_each_piece() -> None:
    """The limit counts what is left, not what was sent."""
    text = json.dumps({"content": "x" * 20_000})
    pieces = [text[:end] for end in range(100, len(text), 100)]
    [call] = run(chat_call([*pieces, text])).message.tool_uses
    assert call.input == json.loads(text)


@pytest.mark.parametrize(("issued", "sent"), [("functions.f", "f"), ("f<|channel|>x", "f"), ("F", "F")])
def test_a_name_that_no_service_accepts_goes_back_as_the_tools(issued: str, sent: str) -> None:
    """The turn stores the tool's name beside the name as it came."""
    message = run(chat_call(["{}"]).replace(b'"name": "f"', f'"name": "{issued}"'.encode())).message
    [call] = message.tool_uses
    assert call.name == issued
    message = replace(message, blocks=(replace(call, name="f"),))
    [back] = send_back(message)["tool_calls"]
    assert back["function"] == {"name": sent, "arguments": "{}"}


# Endings.

CHAT_ENDS: Mapping[str, tuple[str, str]] = {
    "stop": ("end_turn", ""),
    "STOP": ("end_turn", ""),
    "eos": ("end_turn", ""),
    "end_turn": ("end_turn", ""),
    "length": ("max_tokens", ""),
    "model_context_window_exceeded": ("context_window", ""),
    "sensitive": ("refusal", ""),
    "SAFETY": ("refusal", ""),
    "MAX_TOKENS": ("max_tokens", ""),
    "completed": ("end_turn", ""),
    "repetition": ("other", "`repetition`"),
    "load": ("other", "`load`"),
}
BROKEN_OFF = (
    *("network_error", "error", "abort", "aborted", "cancelled", "timeout", "server_error", "FAILED"),
    *("connection_interrupted", "insufficient_system_resource"),
)


def end_stream(family: str, word: str) -> bytes:
    """A stream of a family that ends with the word."""
    if family == "chat":
        return as_events(chunk({"content": "half"}), chunk(reason=word))
    if family == "anthropic":
        return as_events(
            {"type": "message_start", "message": {"id": "m1", "model": "m"}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "half"}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": word}},
            {"type": "message_stop"},
        )
    if family == "google":
        return google_samples.as_stream(google_samples.chunk({"text": "half"}, reason=word))
    item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "half"}]}
    response = {"id": "r", "status": "incomplete", "incomplete_details": {"reason": word}, "output": [item]}
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    return as_events(done, {"type": "response.incomplete", "response": response})


async def ask(
    family: str, *plays: Sequence[Step] | bytes, tries: int = 1, request: Any = None
) -> tuple[list[CallEvent], list[Any]]:
    samples = FAMILIES[family].samples
    steps = [[head(), play] if isinstance(play, bytes) else play for play in plays]
    path = "/v1" if family in ("openai", "chat") else ""
    sent = request or samples.PLAIN
    return await call_model(FAMILIES[family].adapter, samples.ENDPOINT, steps, sent, path=path, tries=tries)


def notices_of(events: list[CallEvent]) -> str:
    return " ".join(event.text for event in events if isinstance(event, Notice))


@pytest.mark.parametrize("word", CHAT_ENDS)
async def test_an_ending_is_good_only_if_it_is_known(word: str) -> None:
    events, _ = await ask("chat", end_stream("chat", word))
    reason, notice = CHAT_ENDS[word]
    assert isinstance(events[-1], CallFinished)
    assert events[-1].message.stop_reason == reason
    assert notice in notices_of(events)
    assert bool(notices_of(events)) is bool(notice)


@pytest.mark.parametrize("family", FAMILIES)
async def test_an_unknown_ending_is_told_by_every_family(family: str) -> None:
    events, _ = await ask(family, end_stream(family, "moonrise"))
    assert isinstance(events[-1], CallFinished)
    assert "moonrise" in notices_of(events).lower()


GOOD_ENDS = {"chat": "stop", "anthropic": "end_turn", "google": "STOP", "openai": "max_output_tokens"}


@pytest.mark.parametrize("word", BROKEN_OFF)
@pytest.mark.parametrize("family", FAMILIES)
async def test_an_ending_that_says_broken_off_is_asked_again(family: str, word: str) -> None:
    """With a call in it, too: half of an answer runs nothing."""
    events, received = await ask(family, end_stream(family, word), end_stream(family, GOOD_ENDS[family]), tries=2)
    assert len(received) == 2
    assert [event.restart for event in events if isinstance(event, RetryScheduled)] == [True]


# Faults of the model's output that are told as errors of the request.

TOOL_USE_FAILED = {
    "error": {
        "message": "Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details.",
        "type": "invalid_request_error",
        "code": "tool_use_failed",
        "failed_generation": "<function=read_file{path",
    }
}
OUTPUT_FAULTS: Mapping[str, Any] = {
    "tool_use_failed": TOOL_USE_FAILED,
    "a name that is no tool": {
        "error": {"message": "tool call validation failed: attempted to call tool 'x'", "type": "invalid_request_error"}
    },
    "ollama": {"error": {"message": "error parsing tool call: raw='{'", "type": "api_error"}},
}


@pytest.mark.parametrize("in_stream", [False, True])
@pytest.mark.parametrize("fault", OUTPUT_FAULTS)
@pytest.mark.parametrize("family", ["chat", "openai", "anthropic"])
async def test_output_that_the_server_cannot_read_is_asked_again(family: str, fault: str, in_stream: bool) -> None:
    body = json.dumps(OUTPUT_FAULTS[fault])
    refused: Sequence[Step] = (
        [head(), f"event: error\ndata: {body}\n\n".encode()] if in_stream else answer(body.encode(), 400)
    )
    request = FAMILIES[family].samples.PLAIN
    request = replace(request, model=replace(request.model, prefix_bound=False))
    events, received = await ask(family, refused, end_stream(family, GOOD_ENDS[family]), tries=2, request=request)
    assert isinstance(events[-1], CallFinished)
    first, second = (json.dumps(each.json) for each in received)
    words = OUTPUT_FAULTS[fault]["error"]["message"][:24]
    assert words not in first
    assert words in second
    assert second.startswith(first[: first.index("Hello") + 5])


async def test_gemini_is_told_why_its_answer_was_discarded() -> None:
    events, received = await ask(
        "google", end_stream("google", "MALFORMED_FUNCTION_CALL"), end_stream("google", "STOP"), tries=2
    )
    assert isinstance(events[-1], CallFinished)
    assert "cannot be parsed" in json.dumps(received[1].json)


async def test_bound_thinking_is_asked_again_in_the_same_words() -> None:
    """What it thinks now would not fit the conversation of the next request."""
    request = anthropic_samples.PLAIN
    assert request.model.prefix_bound
    refused = answer(json.dumps(TOOL_USE_FAILED).encode(), 400)
    _, received = await ask("anthropic", refused, end_stream("anthropic", "end_turn"), tries=2)
    assert received[0].json == received[1].json


# Addresses.

ADDRESSES = [
    ("https://h", "/v1/messages", "https://h/v1/messages"),
    ("https://h/v1", "/v1/messages", "https://h/v1/messages"),
    ("https://h/v1/", "/v1/messages", "https://h/v1/messages"),
    ("https://h/v1/messages", "/v1/messages", "https://h/v1/messages"),
    ("https://h/api/v1", "/chat/completions", "https://h/api/v1/chat/completions"),
    ("https://h/api/v1/chat/completions", "/chat/completions", "https://h/api/v1/chat/completions"),
    ("https://h/v1beta", "/v1beta/models/m:x?alt=sse", "https://h/v1beta/models/m:x?alt=sse"),
    ("https://h/xv1", "/v1/messages", "https://h/xv1/v1/messages"),
    ("https://v1", "/v1/messages", "https://v1/v1/messages"),
]


@pytest.mark.parametrize(("base", "path", "url"), ADDRESSES)
def test_the_end_of_the_base_url_is_not_doubled(base: str, path: str, url: str) -> None:
    assert Endpoint("anthropic", base, "").build_url(path) == url


@pytest.mark.parametrize("body", [b"", b'{"detail": "Not Found"}', b"<html>no</html>"])
@pytest.mark.parametrize("family", FAMILIES)
async def test_a_404_names_what_was_asked(family: str, body: bytes) -> None:
    with pytest.raises(errors.ProviderError) as caught:
        await ask(family, answer(body, 404))
    said = str(caught.value)
    assert "http://127.0.0.1:" in said
    assert FAMILIES[family].samples.PLAIN.model.id in said
    assert b"detail" not in body or "Not Found" in said


@pytest.mark.parametrize("body", [b'{"detail": "the tenant is gone"}', b'{"message": "the tenant is gone"}'])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_words_of_a_gateway_are_shown(family: str, body: bytes) -> None:
    for status in (400, 403, 404, 422, 500):
        assert "the tenant is gone" in str(FAMILIES[family].adapter.parse_failure(status, {}, body, "m"))
    listed = b'{"detail": [{"loc": ["body"], "msg": "the tenant is gone", "type": "missing"}]}'
    assert "the tenant is gone" in str(FAMILIES[family].adapter.parse_failure(422, {}, listed, "m"))


# Limits of a day.

NOW = "Sat, 28 Nov 2026 08:00:00 GMT"
IN_FIVE_HOURS = 1795852800 + 5 * 3600
FREE = "Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 free model requests per day"
DAY_LIMITS: Mapping[str, tuple[Any, dict[str, str], str]] = {
    "reset in milliseconds in the body": (
        {"message": FREE, "code": 429, "metadata": {"headers": {"X-RateLimit-Reset": str(IN_FIVE_HOURS * 1000)}}},
        {},
        "5 hours",
    ),
    "reset in seconds in a header": (
        {"message": FREE, "code": 429},
        {"x-ratelimit-reset": str(IN_FIVE_HOURS)},
        "5 hours",
    ),
    "without a reset": ({"message": FREE, "code": 429}, {}, "tomorrow"),
    "tokens of a day": (
        {"message": "Rate limit reached on tokens per day (TPD): Limit 1. Please try again in 4h59m3.5s."},
        {},
        "5 hours",
    ),
    "requests of a day": (
        {"message": "Rate limit reached on requests per day (RPD): Limit 3. Please try again in 17m12s."},
        {},
        "18 minutes",
    ),
    "no quota at all": (
        {
            "message": "Quota exceeded for metric: x/free_tier_requests, limit: 0, model: m\nPlease retry in 30.2s.",
            "status": "RESOURCE_EXHAUSTED",
        },
        {},
        "no quota",
    ),
    "no quota at all, at the end": ({"message": "Quota exceeded for metric: x, limit: 0"}, {}, "no quota"),
}


@pytest.mark.parametrize("case", DAY_LIMITS)
@pytest.mark.parametrize("family", FAMILIES)
async def test_a_limit_of_a_day_is_not_asked_again(family: str, case: str) -> None:
    error, headers, when = DAY_LIMITS[case]
    lines = "".join(f"{name}: {value}\r\n" for name, value in {"date": NOW, **headers}.items())
    body = json.dumps({"error": error}).encode()
    refused = [
        f"HTTP/1.1 429 X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n{lines}\r\n".encode()
        + body
    ]
    with pytest.raises(errors.RateLimited) as caught:
        await ask(family, refused, tries=4)
    assert when in str(caught.value)


def test_a_limit_of_a_minute_is_still_waited_for() -> None:
    for message in ("slow down: tokens per minute, limit: 0.5", "limit: 05", "Please try again in 2.5s."):
        body = json.dumps({"error": {"message": message, "code": 429}}).encode()
        error = FAMILIES["chat"].adapter.parse_failure(429, {}, body, "m")
        assert error.retryable, message
    assert error.retry_after == 2.5


# One answer under several ids, and one beginning twice.


def rotating(*later: dict[str, Any]) -> bytes:
    ids = iter(range(100))
    item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"model": "m"}},
        *({"type": f"response.{name}", "response": {"model": "m"}} for name in ("queued", "in_progress")),
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "content": []}},
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Hello"},
        *later,
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"output": [item]}},
    ]
    for event in events:
        for part in (event.get("response"), event.get("item")):
            if part is not None:
                part["id"] = f"id_{next(ids)}"
    return as_events(*json.loads(json.dumps(events)))


def test_ids_that_rotate_are_one_message() -> None:
    assert openai_samples.run(rotating()).message.text == "Hello"


def test_a_second_response_created_is_a_second_message() -> None:
    with pytest.raises(errors.StreamProtocolError, match="second message"):
        openai_samples.run(rotating({"type": "response.created", "response": {"model": "m"}}))


@pytest.mark.parametrize(("second", "is_one"), [({"id": "m1"}, True), ({"id": "m2"}, False), ({}, False)])
def test_one_beginning_sent_twice_is_one_message(second: dict[str, Any], is_one: bool) -> None:
    data = anthropic_call(['{"a": 1}']).decode()
    start, _, rest = data.partition("\n\n")
    twice = f"{start}\n\ndata: {json.dumps({'type': 'message_start', 'message': second})}\n\n{rest}".encode()
    if is_one:
        assert anthropic_samples.run(twice)[0].tool_uses[0].input == {"a": 1}
        return
    with pytest.raises(errors.StreamProtocolError, match="second message"):
        anthropic_samples.run(twice)


# Thinking that goes back as it came.

MISTRAL = {"type": "thinking", "thinking": [{"type": "text", "text": "t"}], "signature": "MS"}
SIGNED = {"anthropic": {"signature": "AAA"}}
CALL = {
    "tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}]
}
WORDS = {"content": [{"type": "text", "text": "Now."}]}
SENT_BACK: Mapping[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "a thinking chunk and a call": ([{"content": [MISTRAL]}, CALL], {"content": [MISTRAL]}),
    "a thinking chunk and a text": ([{"content": [MISTRAL]}, WORDS], {"content": [MISTRAL, *WORDS["content"]]}),
    "a thinking chunk in pieces": (
        [
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}]},
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "u"}], "closed": True}]},
            CALL,
        ],
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "tu"}], "closed": True}]},
    ),
    "references stay in their place": (
        [
            {
                "content": [
                    {
                        "type": "thinking",
                        "thinking": [{"type": "text", "text": "t"}, {"type": "reference", "reference_ids": [1]}],
                        "signature": "MS",
                    }
                ]
            },
            CALL,
        ],
        {
            "content": [
                {
                    "type": "thinking",
                    "thinking": [{"type": "text", "text": "t"}, {"type": "reference", "reference_ids": [1]}],
                    "signature": "MS",
                }
            ]
        },
    ),
    "two chunks, each signed": (
        [{"content": [MISTRAL]}, {"content": [MISTRAL | {"signature": "M2"}]}, CALL],
        {"content": [MISTRAL, MISTRAL | {"signature": "M2"}]},
    ),
    "a signature beside the reasoning": (
        [{"reasoning": "t"}, {"reasoning": "u", "extra_content": SIGNED}, CALL],
        {"content": None, "reasoning": "tu", "extra_content": SIGNED},
    ),
    "a signature alone": (
        [{"reasoning": "t"}, {"extra_content": SIGNED}, CALL],
        {"content": None, "reasoning": "t", "extra_content": SIGNED},
    ),
    "signatures of several": (
        [{"reasoning": "t", "extra_content": SIGNED}, {"extra_content": {"google": {"thought_signature": "G"}}}, CALL],
        {"content": None, "reasoning": "t", "extra_content": SIGNED | {"google": {"thought_signature": "G"}}},
    ),
    "a note that is no signature": (
        [{"reasoning": "t", "extra_content": {"google": {"thought": True}}}, CALL],
        {"content": None, "reasoning": "t"},
    ),
}
A = UserMessage.from_text("a")


def send_back(message: AssistantMessage, **options: Any) -> dict[str, Any]:
    results = [result(call.id) for call in message.tool_uses]
    following = asked(*results) if results else A
    return dict(messages_of((A, message, following), **options)[1])


@pytest.mark.parametrize("is_whole", [False, True])
@pytest.mark.parametrize("case", SENT_BACK)
def test_thinking_goes_back_as_it_came(case: str, is_whole: bool) -> None:
    deltas, wanted = SENT_BACK[case]
    if is_whole and len(deltas) > 2:
        return
    merged = {key: value for delta in deltas for key, value in delta.items()}
    if is_whole and isinstance(deltas[-1].get("content"), list):
        merged["content"] = [*deltas[0]["content"], *deltas[-1]["content"]]
    whole = as_events({"model": "m", "choices": [{"index": 0, "message": merged, "finish_reason": "stop"}]})
    answered = run(whole if is_whole else as_events(*map(chunk, deltas), chunk(reason="stop")))
    assert answered.message.thinking
    sent = send_back(answered.message)
    assert {key: value for key, value in sent.items() if key not in ("role", "tool_calls")} == wanted
    assert send_back(answered.message, model_id="other").keys() <= {"role", "content", "tool_calls"}
    assert not isinstance(send_back(answered.message, model_id="other")["content"], list)
    assert not isinstance(send_back(answered.message, kind=server(echo="none"))["content"], list)


def test_thinking_parts_of_an_earlier_version_stay_away() -> None:
    call = chat_samples.call("c")
    conversation = (A, said(chat_samples.thinking("t", "content"), call), asked(result("c")))
    assert messages_of(conversation)[1].keys() == {"role", "content", "tool_calls"}
    assert messages_of(conversation)[1]["content"] is None
