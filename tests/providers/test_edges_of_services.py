"""What single services do that others do not. The table of `test_sharp_edges` names these tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, get_args

import pytest

from tests.providers.families import FAMILIES
from tests.support import anthropic_samples, chat_samples, google_samples, openai_samples
from tests.support.chat_samples import HOSTED, KINDS, server
from tests.support.google_samples import Json
from tests.support.hosts import Step, head
from tests.support.samples import asked, result, said
from tests.support.services import call_model
from thinklsp.agent.model_call import CallEvent, CallFinished
from thinklsp.core.choices import PlannedThinkingMode
from thinklsp.core.errors import StreamProtocolError
from thinklsp.core.events import Notice
from thinklsp.core.messages import AssistantMessage, ContentBlock, TextBlock, UserMessage
from thinklsp.engine.turn_config import build_thinking_plan
from thinklsp.providers.base import ModelRequest
from thinklsp.providers.catalogue import Capabilities, find_model, list_models
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
        body = json.loads(wire.body)
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


def test_a_whole_message_with_a_block_that_is_none_is_refused() -> None:
    whole = {"type": "message", "id": "m", "model": "m", "content": ["text"], "stop_reason": "end_turn"}
    with pytest.raises(StreamProtocolError, match="a block"):
        anthropic_samples.run(chat_samples.as_events(whole))


def test_a_list_of_models_may_be_missing() -> None:
    """As that of Ollama without a model."""
    adapter = FAMILIES["chat"].adapter
    assert adapter.parse_capabilities(b'{"object": "list", "data": null}') == Capabilities(models=())
    assert adapter.parse_capabilities(b'{"data": {}}') is None


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


@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_of_only_thinking_names_the_parsers(kind: str) -> None:
    events, _ = await call("chat", chat_samples.stream("vllm_everything_in_reasoning"), kind=server(kind))
    flags = server(kind).parsers
    # Users of hosted servers cannot change parser flags.
    assert bool(flags) is (kind not in HOSTED)
    assert len(list_notices(events)) == bool(flags)
    assert all(flags in notice for notice in list_notices(events))
    if kind == "vllm":
        assert all(flag in flags for flag in ("--reasoning-parser", "--tool-call-parser", "--enable-auto-tool-choice"))


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
