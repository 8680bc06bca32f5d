"""What single services do that others do not. The table of `test_sharp_edges` names these tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, get_args

import pytest

from tests.providers.families import FAMILIES, find_message, read_case
from tests.support import anthropic_samples, chat_samples, google_samples, openai_samples
from tests.support.chat_samples import KINDS, server
from tests.support.google_samples import DUMMY, Json
from tests.support.model_calls import call_model
from tests.support.other_hosts import Step, answer, head
from tests.support.samples import asked, result, said
from thinklsp.agent.model_call import CallEvent, CallFinished
from thinklsp.core.choices import PlannedThinkingMode
from thinklsp.core.events import Notice, RetryScheduled, TextStreamed, ThinkingTick
from thinklsp.core.messages import AssistantMessage, ContentBlock, TextBlock, UserMessage
from thinklsp.engine.turn_config import build_thinking_plan
from thinklsp.providers.base import ModelRequest
from thinklsp.providers.catalogue import find_model, list_models
from thinklsp.providers.chat_adapter import OpenAiChatAdapter
from thinklsp.providers.chat_servers import ChatServer
from thinklsp.settings.model import build_settings

A, B = UserMessage.from_text("a"), UserMessage.from_text("b")
PATHS = {"openai": "/v1", "chat": "/v1"}


async def call(
    family: str,
    *plays: Sequence[Step] | bytes,
    request: ModelRequest | Callable[[str], ModelRequest] | None = None,
    kind: ChatServer | None = None,
    tries: int = 1,
) -> tuple[list[CallEvent], list[Any]]:
    """Return the events of a model call while a server plays this, and the requests that it received."""
    samples = FAMILIES[family].samples
    adapter = OpenAiChatAdapter(kind) if kind else FAMILIES[family].adapter
    steps = [[head(), play] if isinstance(play, bytes) else play for play in plays]
    sent = samples.PLAIN if request is None else request
    return await call_model(adapter, samples.ENDPOINT, steps, sent, path=PATHS.get(family, ""), tries=tries)


def find_end(events: list[CallEvent]) -> CallFinished:
    last = events[-1]
    assert isinstance(last, CallFinished)
    return last


def list_notices(events: list[CallEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, Notice)]


def list_requests(family: str) -> list[ModelRequest]:
    """Return the samples, and the first request of every model in every mode."""
    samples = FAMILIES[family].samples
    requests: list[ModelRequest] = [*samples.REQUESTS.values()]
    for name in (*list_models(samples.ENDPOINT.provider), "next-9"):
        model = find_model(samples.ENDPOINT.provider, name)
        for mode in get_args(PlannedThinkingMode):
            wish = build_settings({"thinking.mode": mode, "effort": "max", "thinking.display": "summary"})
            plan = build_thinking_plan(wish, model)
            requests.append(replace(samples.PLAIN, model=model, thinking=plan.thinking, max_tokens=plan.max_tokens))
    assert any(len(request.conversation) > 3 for request in requests), "a tool loop"
    return requests


SAMPLING = {
    *("temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs"),
    *("top_logprobs", "tool_choice", "toolConfig"),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_no_request_samples_forces_a_tool_or_allows_a_fallback(family: str) -> None:
    """Without a fallback the model that answers is the one that was asked, and price and abilities are its own."""
    for request in list_requests(family):
        wire = FAMILIES[family].adapter.encode(request, FAMILIES[family].samples.ENDPOINT)
        body = json.loads(bytes(wire.body))
        assert not SAMPLING & body.keys()
        assert not [key for key in body if "fallback" in key]
        assert "fallback" not in wire.headers.get("anthropic-beta", "")
        assert body.get("generationConfig", {}).keys() <= {"maxOutputTokens", "thinkingConfig"}


def test_nothing_is_stored_or_referred_to() -> None:
    for request in list_requests("openai"):
        body = openai_samples.body_of(request)
        assert body["store"] is False
        assert not {"previous_response_id", "conversation", "background"} & body.keys()
        assert "item_reference" not in {item["type"] for item in body["input"]}


@pytest.mark.parametrize(("family", "case"), [("anthropic", "omitted_thinking"), ("openai", "empty_summary")])
async def test_thinking_without_text_is_shown_and_goes_back(family: str, case: str) -> None:
    samples = FAMILIES[family].samples
    events, [received] = await call(family, samples.stream(case))
    assert ThinkingTick(None) in events
    message = find_end(events).message
    assert (message.blocks[0].kind, message.thinking) == ("thinking", "")
    endpoint = replace(samples.ENDPOINT, base_url=f"http://{received.headers['host']}{PATHS.get(family, '')}")
    body = samples.body_of(replace(samples.PLAIN, conversation=(A, message, B), system=""), endpoint)
    sent = body["messages"][1]["content"][0] if family == "anthropic" else body["input"][1]
    assert sent == samples.expected(case)["blocks"][0]


def test_a_paused_answer_goes_back_unchanged_at_the_end() -> None:
    """What the model adds is bound to exactly that; a placeholder behind it would have to stay there for ever."""
    thinking, text = anthropic_samples.thinking, anthropic_samples.text
    paused = (said(thinking("S1")), said(text("Searching."), thinking("S2")))
    for count in (1, 2):
        last = anthropic_samples.unmarked(anthropic_samples.messages_of((A, *paused[:count])))[-1]
        assert last["role"] == "assistant"
        assert last["content"] == [
            anthropic_samples.raw(block) for message in paused[:count] for block in message.blocks
        ]


def test_thinking_and_its_next_item_return_together() -> None:
    """Whatever of an answer got lost: either all items stand there, or no thinking and no id."""
    thinking, text, use = openai_samples.thinking, openai_samples.text, openai_samples.call
    whole: tuple[ContentBlock, ...] = (thinking("1"), text("a"), thinking("2"), use("c1"))
    for left_out in range(1, 2 ** len(whole)):
        blocks = [block for index, block in enumerate(whole) if not left_out >> index & 1]
        conversation = (A, said(*blocks, stop="max_tokens"), asked(result("c1"), TextBlock("y")))
        items = openai_samples.items_of(conversation)
        assert openai_samples.broken_rules(items, conversation) == []
        assert not [item for item in items if "id" in item or item["type"] == "reasoning"]


NOTICES = {
    "limit_used_up_by_thinking": 1,
    "earlier_thinking_was_removed": 1,
    "thinking_that_ended_with_its_turn": 0,
    "call_cut_by_the_limit": 0,
}


@pytest.mark.parametrize("case", NOTICES)
async def test_what_the_service_did_to_thinking_is_reported(case: str) -> None:
    events, _ = await call("openai", openai_samples.stream(case))
    assert list_notices(events) == openai_samples.expected(case)["notices"]
    assert len(list_notices(events)) == NOTICES[case]


async def test_a_commentary_is_set_apart() -> None:
    events, _ = await call("openai", openai_samples.stream("commentary_and_final_answer"))
    shown = "".join(event.delta for event in events if isinstance(event, TextStreamed))
    assert shown == "I look first.\n\nIt is fine."


def run_chat(*chunks: Json) -> chat_samples.Answer:
    return chat_samples.run(chat_samples.as_events(*chunks))


chunk = chat_samples.chunk


@pytest.mark.parametrize("arguments", ['{"path": "a", "old', '{"path": "a"}', ""])
def test_calls_of_an_answer_that_was_cut_do_not_run(arguments: str) -> None:
    """Not even those that look whole: the agent runs no tool of an answer that ended so, and keeps no call of it."""
    piece = {"index": 0, "id": "t", "function": {"name": "edit_file", "arguments": arguments}}
    for late in (None, "stop", "tool_calls"):
        message = run_chat(chunk({"tool_calls": [piece]}), chunk(reason="length"), chunk(reason=late)).message
        assert message.stop_reason == "max_tokens"
        assert (message.tool_uses[0].input is None) is arguments.endswith("old")


def test_an_empty_refusal_is_none() -> None:
    """Many servers name the field and say nothing in it."""
    outcome = run_chat(chunk({"content": "Hi.", "refusal": ""}), chunk({"refusal": ""}, "stop"))
    assert (outcome.message.stop_reason, outcome.explanation) == ("end_turn", None)


async def test_an_end_without_a_reason_is_retried() -> None:
    streams = [chat_samples.stream(case) for case in ("ollama_fails_in_silence", "ollama_short")]
    events, _ = await call("chat", *streams, tries=2)
    retries = [event for event in events if isinstance(event, RetryScheduled)]
    assert [(retry.restart, "before the answer was complete" in retry.reason) for retry in retries] == [(True, True)]
    assert find_end(events).message.text == "ja"


@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_of_only_thinking_names_the_parsers(kind: str) -> None:
    events, _ = await call("chat", chat_samples.stream("vllm_everything_in_reasoning"), kind=server(kind))
    flags = server(kind).parsers
    # Users of hosted servers cannot change parser flags.
    assert bool(flags) is (kind not in ("deepseek", "openrouter", "moonshot", "openai"))
    assert len(list_notices(events)) == bool(flags)
    assert all(flags in notice for notice in list_notices(events))
    if kind == "vllm":
        assert all(flag in flags for flag in ("--reasoning-parser", "--tool-call-parser", "--enable-auto-tool-choice"))


@pytest.mark.parametrize("case", ["ollama_short", "ollama_thinking_and_tool", "length_cuts_arguments", "nothing_said"])
def test_ordinary_answers_are_not_suspected(case: str) -> None:
    assert chat_samples.run(chat_samples.stream(case), server("vllm")).notices == ()
    cut = chat_samples.as_events(chunk({"reasoning": "long"}), chunk(reason="length"))
    assert chat_samples.run(cut, server("vllm")).notices == ()


async def test_what_the_service_says_that_it_cost_is_kept() -> None:
    case = "openrouter_text_and_encrypted_share_an_index"
    assert chat_samples.PLAIN.model.price is None
    events, _ = await call("chat", chat_samples.stream(case), kind=chat_samples.server_of(case))
    assert find_end(events).usage.cost_usd == 0.00125


def run_google(*chunks: Json) -> AssistantMessage:
    return google_samples.run(google_samples.as_stream(*chunks))[0]


async def test_a_signature_in_the_last_chunk_is_kept() -> None:
    """Behind the reason for the end, in a part without text, on a line far beyond 64 KB."""
    last = {"text": "", "thoughtSignature": "Q" * 400_000}
    chunks = (google_samples.chunk({"text": "Done."}, reason="STOP"), google_samples.chunk(last))
    message = find_end((await call("google", google_samples.as_stream(*chunks)))[0]).message
    assert (message.text, len(message.blocks)) == ("Done.", 2)
    sent = google_samples.contents_of((A, run_google(*chunks), B))[1]["parts"]
    assert sent == [{"text": "Done."}, last]


def test_signed_parts_keep_their_borders() -> None:
    """Every way in which two pieces can meet: only the last two of them are one."""
    pieces: list[Json] = [
        {"text": "a", "thoughtSignature": "UzE="},
        {"text": "b"},
        {"text": "c", "thoughtSignature": "UzI="},
        {"text": "d", "thoughtSignature": "UzM="},
        {"text": "e", "thought": True},
        {"text": "f"},
        {"text": "g"},
    ]
    message = run_google(*map(google_samples.chunk, pieces), google_samples.chunk(reason="STOP"))
    assert [google_samples.raw(block) for block in message.blocks] == [*pieces[:5], {"text": "fg"}]


@pytest.mark.parametrize("is_error", [False, True])
@pytest.mark.parametrize("value", ["", "text", '{"already": "json"}', "[1]"])
def test_an_answer_is_an_object(value: str, is_error: bool) -> None:
    answered = asked(result("k", value, is_error=is_error))
    contents = google_samples.contents_of((A, said(google_samples.call("k", "S")), answered))
    response = contents[2]["parts"][0]["functionResponse"]["response"]
    assert response == {"error" if is_error else "output": value}


def test_a_paused_answer_is_gone_on_with_by_its_token() -> None:
    plain = google_samples.PLAIN
    paused = (*plain.conversation, find_message(read_case("google", "continuation")))
    token = {"continuationToken": "dG9rZW4rLzE="}
    assert google_samples.body_of(replace(plain, conversation=paused)) == google_samples.body_of(plain) | token
    whole = (*paused, run_google(google_samples.chunk({"text": ", the end."}, reason="STOP")), B)
    later = google_samples.body_of(replace(plain, conversation=whole))
    assert "continuationToken" not in later
    assert [part["text"] for part in later["contents"][1]["parts"]] == ["Part one, ", "part two", ", the end."]


def refuse(message: str, **more: Any) -> list[Step]:
    return answer(json.dumps({"error": {"code": 400, "message": message, **more}}).encode(), 400)


async def test_a_missing_signature_ends_in_a_request_without_any() -> None:
    """Said by the reason of the end or by status 400, the conversation goes on with stand-ins."""
    refusal = refuse("Corrupted thought signature.", status="INVALID_ARGUMENT")
    for play in (google_samples.stream("missing_thought_signature"), refusal):
        events, received = await call(
            "google",
            play,
            google_samples.stream("text"),
            request=lambda url: replace(google_samples.PLAIN, conversation=google_samples.loop(host=url)),
        )
        assert [event.level for event in events if isinstance(event, Notice)] == ["warning"]
        assert any(isinstance(event, TextStreamed) for event in events)
        assert google_samples.broken_rules(received[1].json["contents"], signed_calls=True) == []
        first, second = [
            [part["thoughtSignature"] for part in parts if "thoughtSignature" in part]
            for parts in ([part for content in one.json["contents"] for part in content["parts"]] for one in received)
        ]
        assert ["Sig" in signature for signature in first] == [True] * 3
        assert second == [DUMMY, DUMMY]
