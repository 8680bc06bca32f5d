"""Every loss of thinking is told, with its reason, and once."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

import pytest

from tests.support.anthropic_samples import ENDPOINT, PLAIN, asked, call, result, said, stream, text, thinking
from tests.support.chat_samples import chunk, server
from tests.support.hosts import SseServer, Step, head
from thinklsp.agent.model_call import HttpModelCaller
from thinklsp.agent.request_fallbacks import BUDGET_OMITTED_NOTICE, UNSIGNED_NOTICE, RequestFallbacks, ThinkingLoss
from thinklsp.core.events import Notice
from thinklsp.core.messages import Conversation, UserMessage
from thinklsp.http.retry import RetryPolicy
from thinklsp.http.transport import Transport
from thinklsp.providers.anthropic import AnthropicAdapter
from thinklsp.providers.base import Adapter, ModelRequest, Thinking
from thinklsp.providers.catalogue import find_model
from thinklsp.providers.chat_adapter import OpenAiChatAdapter
from thinklsp.providers.responses_adapter import OpenAiResponsesAdapter

A = UserMessage.from_text("a")
ADAPTIVE = Thinking("adaptive")
MODEL, OLD = "claude-opus-5-5", "claude-sonnet-4-5"
ANTHROPIC, RESPONSES, CHAT = AnthropicAdapter(), OpenAiResponsesAdapter(), OpenAiChatAdapter(server())
TEXT = stream("text")


def events(*contents: object) -> bytes:
    return "".join(f"data: {json.dumps(content)}\n\n" for content in contents).encode()


def reasoned(**fields: str) -> bytes:
    item = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}], **fields}
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}
    return events({"type": "response.completed", "response": {"id": "r", "output": [item, message]}})


def chatted(model: str, **delta: object) -> bytes:
    return events({**chunk({"reasoning": "Hm.", **delta}), "model": model}, chunk({"content": "Done."}, "stop"))


@dataclass(frozen=True)
class Row:
    """`history` is made for the server's address. `first` and `again`: what is told at the first and the second
    request."""

    history: Callable[[str], Conversation]
    first: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    form: Thinking = ADAPTIVE
    model: tuple[str, str] = ("anthropic", MODEL)
    adapter: Adapter = ANTHROPIC
    answer: bytes = TEXT


def thought(url: str, **changes: str) -> Conversation:
    """A turn whose last answer has no thinking, as most have."""
    origin = {"host": url, **changes}
    read = said(thinking("S", **origin), call("t1", **origin))
    return (A, read, asked(result("t1")), said(text("Done.", **origin)), UserMessage.from_text("b"))


def lost(answers: str, reason: str, model: str = MODEL) -> tuple[str, ...]:
    return (f"{model} cannot read the thinking in {answers}, because it came from {reason}.",)


BUDGET = Thinking("manual", 2_000)
TABLE: dict[str, Row] = {
    "its own thinking": Row(thought),
    "words of others without thinking": Row(
        lambda url: (A, said(text("Done.", host=url, provider="openai")), UserMessage.from_text("b"))
    ),
    "another model": Row(lambda url: thought(url, model=OLD), lost("an earlier answer", f"another model ({OLD})")),
    "another provider": Row(
        lambda url: thought(url, provider="openai", model="gpt-6-sol"),
        lost("an earlier answer", "another provider (openai, gpt-6-sol)"),
    ),
    "another address": Row(
        lambda url: thought("https://gateway.example"), lost("an earlier answer", "another address of the provider")
    ),
    "another key": Row(lambda url: thought(url, key="0" * 16), lost("an earlier answer", "another API key")),
    "several reasons": Row(
        lambda url: (
            *thought(url, key="0" * 16),
            *thought(url, model=OLD),
            *thought(url),
            *thought(url, model=OLD),
        ),
        lost("3 earlier answers", f"another API key and another model ({OLD})"),
    ),
    "Gemini signs its calls": Row(
        lambda url: (A, said(call("t1", host=url, provider="google", model="g")), asked(result("t1"))),
        lost("an earlier answer", "another provider (google, g)"),
    ),
    "thinking switched off": Row(
        thought,
        (f"Thinking is off, so {MODEL} does not read the thinking in an earlier answer.",),
        form=Thinking("off"),
    ),
    "switched off, with thinking of others": Row(
        lambda url: thought(url, model=OLD), lost("an earlier answer", f"another model ({OLD})"), form=Thinking("off")
    ),
    "a budget in a loop that began without thinking": Row(
        lambda url: (A, said(call("t1", host=url, model=OLD)), asked(result("t1"))),
        (BUDGET_OMITTED_NOTICE,),
        (BUDGET_OMITTED_NOTICE,),
        form=BUDGET,
        model=("anthropic", OLD),
    ),
    "a gateway dropped what Responses seals": Row(
        lambda _: (A,), (UNSIGNED_NOTICE,), model=("openai", "gpt-6-sol"), adapter=RESPONSES, answer=reasoned()
    ),
    "sealed thinking of Responses": Row(
        lambda _: (A,), model=("openai", "gpt-6-sol"), adapter=RESPONSES, answer=reasoned(encrypted_content="E")
    ),
    "a gateway dropped Claude's signature": Row(
        lambda _: (A,),
        (UNSIGNED_NOTICE,),
        model=("openai-compatible", "claude-x"),
        adapter=CHAT,
        answer=chatted("claude-x"),
    ),
    "a gateway kept Claude's signature": Row(
        lambda _: (A,),
        model=("openai-compatible", "claude-x"),
        adapter=CHAT,
        answer=chatted("claude-x", thinking_blocks=[{"type": "thinking", "thinking": "Hm.", "signature": "S"}]),
    ),
    "a model that signs nothing": Row(
        lambda _: (A,), model=("openai-compatible", "qwen"), adapter=CHAT, answer=chatted("qwen")
    ),
}


async def told(caller: HttpModelCaller, request: ModelRequest) -> tuple[str, ...]:
    async with aclosing(caller.stream(request)) as stream:
        return tuple([event.text async for event in stream if isinstance(event, Notice)])


@pytest.mark.parametrize("name", TABLE)
async def test_every_loss_is_told_with_its_reason(transport: Transport, name: str) -> None:
    """What a service refuses stands in `test_remedies`, what a compaction takes away in `test_compacting`."""
    row = TABLE[name]
    provider, model = row.model
    play: list[Step] = [head(), row.answer]
    async with SseServer([play]) as service:
        endpoint = replace(ENDPOINT, provider=provider, base_url=service.url)
        history = row.history(service.url)
        request = replace(PLAIN, model=find_model(provider, model), conversation=history, thinking=row.form)
        caller = HttpModelCaller(row.adapter, endpoint, transport, policy=RetryPolicy(), rng=lambda: 0.0)
        assert await told(caller, request) == row.first
        assert await told(caller, request) == row.again, "it is told once for what was lost"
        other = replace(request, conversation=(UserMessage.from_text("another session"), *history[1:]))
        assert await told(caller, other) == row.first


def test_told_loss_keeps_no_conversation_in_memory() -> None:
    fallbacks = RequestFallbacks()
    history = thought("https://gateway.example")
    answer = weakref.ref(history[1])
    loss = ThinkingLoss("foreign", "It is lost.", history[:2])
    assert [notice.text for notice in fallbacks.report_losses([loss], MODEL)] == ["It is lost."]
    assert list(fallbacks.report_losses([loss], MODEL)) == []
    del history, loss
    assert answer() is None
