"""When the service refuses earlier thinking the conversation goes on: with what fits, then without; never a loop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest

from tests.stand_ins.http_server import RecordedRequest
from tests.support import chat_samples, google_samples, openai_samples
from tests.support.anthropic_samples import ENDPOINT, PLAIN, asked, call, loop, result, said, stream, thinking
from tests.support.hosts import Received, SseServer, Step, answer, head
from thinklsp.agent.model_call import CallEvent, CallFinished, HttpModelCaller
from thinklsp.agent.request_fallbacks import DROP_NOTICE, STRIP_NOTICE
from thinklsp.core import errors
from thinklsp.core.events import Notice, RetryScheduled
from thinklsp.core.messages import Conversation, OpaqueState, TextBlock, UserMessage
from thinklsp.http.retry import RetryPolicy
from thinklsp.http.transport import Transport
from thinklsp.providers.anthropic import AnthropicAdapter
from thinklsp.providers.base import Adapter, ModelRequest, Thinking
from thinklsp.providers.catalogue import find_model
from thinklsp.providers.chat_adapter import OpenAiChatAdapter
from thinklsp.providers.chat_servers import resolve_server
from thinklsp.providers.google import GoogleAdapter
from thinklsp.providers.responses_adapter import OpenAiResponsesAdapter

BETA = "thinking-binding-controls-2026-08-01"
DROP = {"prefix_mismatch_behavior": "drop_block"}
ALL = ["Sig1", "Rd1", "Sig2"]
GOOD: list[Step] = [head(), stream("text")]


def refusal(message: str) -> list[Step]:
    escaped = message.replace('"', '\\"')
    return answer(f'{{"error":{{"type":"invalid_request_error","message":"{escaped}"}}}}'.encode(), 400)


BOUND = refusal(
    "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation. "
    'Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)
INVALID = refusal("messages.1.content.0: Invalid `signature` in `thinking` block")
MODIFIED = refusal(
    "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified."
)
ODD = refusal("messages.1: something that no rule knows")


@dataclass(frozen=True)
class Sent:
    """What of a request this is about."""

    signatures: list[str]
    drops: bool


def sent(request: Received | RecordedRequest) -> Sent:
    body = request.json if isinstance(request, Received) else request.body
    binding = body.get("thinking", {}).get("block_binding")
    announced = BETA in request.headers.get("anthropic-beta", "")
    assert (binding == DROP) is announced, "the field without its header is refused, and the other way round"
    found = [
        block.get("signature") or block["data"]
        for message in body["messages"]
        for block in message["content"]
        if block["type"] in ("thinking", "redacted_thinking")
    ]
    return Sent(found, announced)


@dataclass
class Talk:
    """Calls of one caller, one after the other."""

    caller: HttpModelCaller
    seen: list[CallEvent] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    error: errors.ProviderError | None = None

    async def ask(self, request: ModelRequest) -> bool:
        """Whether an answer came."""
        self.seen.clear()
        try:
            async with aclosing(self.caller.stream(request)) as events:
                async for event in events:
                    self.seen.append(event)
        except errors.ProviderError as error:
            self.error = error
        self.notices = [event.text for event in self.seen if isinstance(event, Notice)]
        retries = [event for event in self.seen if isinstance(event, RetryScheduled)]
        assert all((retry.delay, retry.restart) == (0.0, False) for retry in retries)
        for event, following in pairwise(self.seen):
            if isinstance(event, Notice) and event.fallback is not None and isinstance(following, RetryScheduled):
                assert following.reason == event.text
        return bool(self.seen) and isinstance(self.seen[-1], CallFinished)


def talk(server: SseServer, transport: Transport, provider: str = "anthropic", adapter: Adapter | None = None) -> Talk:
    endpoint = replace(ENDPOINT, provider=provider, base_url=server.url)
    adapter = adapter or AnthropicAdapter()
    return Talk(HttpModelCaller(adapter, endpoint, transport, policy=RetryPolicy(), rng=lambda: 0.0))


def longer(server: SseServer) -> tuple[Any, ...]:
    """The tool loop, one step further: the model has thought again since."""
    host = {"host": server.url}
    return (*loop(**host), said(thinking("Sig3", **host), call("toolu_4", **host)), asked(result("toolu_4")))


ADAPTIVE, OFF = Thinking("adaptive", effort="high"), Thinking("off")
WHOLE, DROPPED, NONE = Sent(ALL, drops=False), Sent(ALL, drops=True), Sent([], drops=False)
COURSES: dict[str, tuple[Thinking, list[list[Step]], list[Sent], list[str], Sent]] = {
    # What was refused, what goes out, what the user hears, and what the next request of the conversation is like.
    "bound": (ADAPTIVE, [BOUND, GOOD], [WHOLE, DROPPED], [DROP_NOTICE], Sent([*ALL, "Sig3"], drops=True)),
    "bound, and dropping does not help": (
        ADAPTIVE,
        [BOUND, BOUND, GOOD],
        [WHOLE, DROPPED, NONE],
        [DROP_NOTICE, STRIP_NOTICE],
        Sent(["Sig3"], drops=False),
    ),
    "bound, then a signature": (
        ADAPTIVE,
        [BOUND, INVALID, GOOD],
        [WHOLE, DROPPED, NONE],
        [DROP_NOTICE, STRIP_NOTICE],
        Sent(["Sig3"], drops=False),
    ),
    "bound with thinking off": (OFF, [BOUND, GOOD], [WHOLE, NONE], [STRIP_NOTICE], Sent(["Sig3"], drops=False)),
    "a signature": (ADAPTIVE, [INVALID, GOOD], [WHOLE, NONE], [STRIP_NOTICE], Sent(["Sig3"], drops=False)),
    "a reason that no rule knows": (ADAPTIVE, [ODD, GOOD], [WHOLE, NONE], [STRIP_NOTICE], Sent(["Sig3"], drops=False)),
    "cannot be modified": (ADAPTIVE, [MODIFIED, GOOD], [WHOLE, NONE], [STRIP_NOTICE], Sent(["Sig3"], drops=False)),
}


@pytest.mark.parametrize("name", COURSES)
async def test_what_is_tried_is_tried_once_said_and_kept(transport: Transport, name: str) -> None:
    form, plays, requests, notices, later = COURSES[name]
    async with SseServer(plays) as server:
        one = talk(server, transport)
        first = replace(PLAIN, conversation=loop(host=server.url), thinking=form)
        assert await one.ask(first)
        assert [sent(request) for request in server.received] == requests
        assert [notice for notice in one.notices if not notice.startswith("Thinking is off")] == notices

        assert await one.ask(replace(first, conversation=longer(server)))
        assert [notice for notice in one.notices if not notice.startswith("Thinking is off")] == [], "it is said once"
        assert [sent(request) for request in server.received[len(requests) :]] == [later]

        other = (UserMessage.from_text("another session"), *loop(host=server.url)[1:])
        assert await one.ask(replace(first, conversation=other))
        assert sent(server.received[-1]) == WHOLE, "it is remembered for this conversation alone"


@pytest.mark.parametrize(
    ("play", "tries"), [(BOUND, [WHOLE, DROPPED, NONE]), (INVALID, [WHOLE, NONE]), (MODIFIED, [WHOLE, NONE])]
)
async def test_a_refusal_after_everything_was_tried_is_the_end(
    transport: Transport, play: list[Step], tries: list[Sent]
) -> None:
    async with SseServer([play]) as server:
        one = talk(server, transport)
        assert not await one.ask(replace(PLAIN, conversation=loop(host=server.url)))
        assert [sent(request) for request in server.received] == tries
        assert isinstance(one.error, errors.BadRequest)
        assert "earlier thinking" in str(one.error)
        assert not await one.ask(replace(PLAIN, conversation=loop(host=server.url)))
        assert [sent(request) for request in server.received[len(tries) :]] == [NONE], "and no second round"


@pytest.mark.parametrize("play", [BOUND, INVALID, MODIFIED])
async def test_where_there_is_no_thinking_nothing_can_be_left_out(transport: Transport, play: list[Step]) -> None:
    async with SseServer([play]) as server:
        one = talk(server, transport)
        assert not await one.ask(PLAIN)
        assert len(server.received) == 1
        assert one.notices == []


def form_and_effort(received: Received) -> tuple[str | None, str | None]:
    return received.json.get("thinking", {}).get("type"), received.json.get("output_config", {}).get("effort")


MANUAL, BETWEEN = Thinking("manual", budget_tokens=2_000), Thinking("between_tools")
NO_BUDGET = refusal('"thinking.type.enabled" is not supported for this model.')
NO_ADAPTIVE = refusal("adaptive thinking is not supported on this model")
NO_OFF = refusal('"thinking.type.disabled" is not supported for this model.')
NO_BETWEEN = refusal('"thinking.type.between_tools" is not supported for this model.')
NO_EFFORT = refusal("output_config.effort: Input should be 'low', 'medium' or 'high'")
NO_MAX = refusal("output_config.effort 'max' is not supported when thinking is disabled on this model.")
NOT_NAMED_OFF = refusal('To turn thinking off on this model, send "thinking": {"type": "between_tools"} instead of …')
CIRCLE = [refusal('"thinking.type.between_tools" is not supported'), refusal('"type": "between_tools"} instead of')]
LEVELS = PLAIN.model.efforts
MAX = Thinking("adaptive", effort="max")


def bent(level: str, used: str) -> str:
    return f"{PLAIN.model.id} does not accept effort {level} with adaptive thinking; effort {used} is used."


@dataclass(frozen=True)
class Course:
    """Answers of the service; the wishes of one request after the other, each with the ends of its notices, or None
    where it fails; and the forms or efforts that are sent."""

    plays: list[list[Step]]
    asks: list[tuple[Thinking, list[str] | None]]
    forms: list[str | None] = field(default_factory=list)
    efforts: list[str | None] = field(default_factory=list)


def changed_once(wish: Thinking, no: list[Step], forms: list[str | None]) -> Course:
    """The second request knows what the first has met; refused in both forms, the third is the end."""
    return Course([no, GOOD, GOOD, no], [(wish, [""]), (wish, []), (wish, None)], [*forms, forms[-1], forms[-1]])


STEPS_DOWN: dict[str, Course] = {
    "adaptive on an old model": changed_once(ADAPTIVE, NO_ADAPTIVE, ["adaptive", None]),
    "a budget on a new model": changed_once(MANUAL, NO_BUDGET, ["enabled", "adaptive"]),
    "off on a model that always thinks": changed_once(OFF, NO_OFF, ["disabled", "adaptive"]),
    "off where it has another name": changed_once(OFF, NOT_NAMED_OFF, ["disabled", "between_tools"]),
    "no form is tried twice": Course(
        [NO_BUDGET, NO_ADAPTIVE, GOOD],
        [(MANUAL, ["", ""]), (MANUAL, [])],
        forms=["enabled", "adaptive", None, None],
    ),
    "no form is accepted": Course(
        [NO_BETWEEN, NO_OFF, NO_ADAPTIVE, NO_BUDGET],
        [(BETWEEN, None)],
        forms=["between_tools", "disabled", "adaptive", None],
    ),
    "no form is tried round in a circle": Course(CIRCLE * 2, [(BETWEEN, None)], forms=["between_tools", "disabled"]),
    "an effort steps down with a notice each time": Course(
        [NO_EFFORT, NO_EFFORT, GOOD, GOOD, GOOD],
        [
            (MAX, [bent("max", LEVELS[-2]), bent(LEVELS[-2], LEVELS[-3])]),
            (MAX, [bent("max", LEVELS[-3])]),
            (Thinking("adaptive", effort="low"), []),
        ],
        efforts=["max", LEVELS[-2], LEVELS[-3], LEVELS[-3], "low"],
    ),
    "an effort refused without thinking is kept with it": Course(
        [NO_MAX, GOOD, GOOD], [(Thinking("off", effort="max"), [""]), (MAX, [])], efforts=["max", LEVELS[-2], "max"]
    ),
    "without any accepted effort the model chooses": Course(
        [NO_EFFORT, NO_EFFORT, GOOD],
        [(Thinking("adaptive", effort=LEVELS[1]), ["", "it chooses its own effort."])],
        efforts=[*reversed(LEVELS[:2]), None],
    ),
}


@pytest.mark.parametrize("name", STEPS_DOWN)
async def test_what_is_refused_steps_down_and_is_said(transport: Transport, name: str) -> None:
    course = STEPS_DOWN[name]
    async with SseServer(course.plays) as server:
        one = talk(server, transport)
        for wish, ends in course.asks:
            assert await one.ask(replace(PLAIN, thinking=wish)) is (ends is not None)
            if ends is None:
                assert isinstance(one.error, errors.BadRequest)
                continue
            for notice, end in zip(one.notices, ends, strict=True):
                assert PLAIN.model.id in notice
                assert notice.endswith(end)
        sent = [form_and_effort(received) for received in server.received]
        assert not course.forms or [form for form, _ in sent] == course.forms
        assert not course.efforts or [effort for _, effort in sent] == course.efforts


@pytest.mark.parametrize("second", [ODD, INVALID, NO_EFFORT], ids=["the same", "thinking", "effort"])
async def test_failed_retry_without_thinking_reports_first_error(transport: Transport, second: list[Step]) -> None:
    async with SseServer([ODD, second, ODD, GOOD]) as server:
        one = talk(server, transport)
        request = replace(PLAIN, conversation=loop(host=server.url), thinking=ADAPTIVE)
        assert not await one.ask(request)
        assert "something that no rule knows" in str(one.error)
        assert one.notices == []
        assert [sent(request) for request in server.received] == [WHOLE, NONE], "exactly one attempt"
        assert await one.ask(request)
        assert sent(server.received[2]) == WHOLE, "nothing was remembered"


@dataclass(frozen=True)
class Service:
    """`loop` returns a tool loop from an origin; `seals` are the names of opaque state in the request."""

    adapter: Adapter
    plain: ModelRequest
    loop: Callable[..., Conversation]
    seals: tuple[str, ...]

    def seals_in(self, received: Received) -> list[str]:
        return [name for name in self.seals if f'"{name}"'.encode() in received.body]


KEY = ENDPOINT.build_origin("").key
CHAT = OpenAiChatAdapter(chat_samples.server())
SERVICES = {
    "anthropic": Service(AnthropicAdapter(), PLAIN, loop, ("signature", "data")),
    "openai": Service(OpenAiResponsesAdapter(), openai_samples.PLAIN, openai_samples.loop, ("encrypted_content", "id")),
    "google": Service(GoogleAdapter(), google_samples.PLAIN, google_samples.loop, ("Sig1", "Sig2", "Sig3")),
    "openai-compatible": Service(CHAT, chat_samples.PLAIN, chat_samples.loop, ("reasoning", "reasoning_content")),
}


@pytest.mark.parametrize("name", SERVICES)
async def test_every_service_is_asked_again_without_thinking(transport: Transport, name: str) -> None:
    service = SERVICES[name]
    async with SseServer([ODD]) as server:
        one = talk(server, transport, name, service.adapter)
        assert not await one.ask(replace(service.plain, conversation=service.loop(host=server.url, key=KEY)))
        assert [bool(service.seals_in(request)) for request in server.received] == [True, False]


@pytest.mark.parametrize("name", SERVICES)
async def test_request_is_not_repeated_unchanged(transport: Transport, name: str) -> None:
    """Thinking from another address is not sent anyway. The second request would be the first one again."""
    service = SERVICES[name]
    async with SseServer([ODD]) as server:
        one = talk(server, transport, name, service.adapter)
        assert not await one.ask(replace(service.plain, conversation=service.loop(host="https://other", key=KEY)))
        assert [service.seals_in(request) for request in server.received] == [[]]
        assert "something that no rule knows" in str(one.error)


COUNTS = "thinking-token-count-2026-05-13"
NO_COUNTS = f"Unexpected value(s) `{COUNTS}` for the `anthropic-beta` header. Please consult our documentation"
# LiteLLM refuses `prompt_cache_key` for Claude and Gemini.
NO_CACHE = "litellm.UnsupportedParamsError: gemini does not support parameters: ['prompt_cache_key']"
DONE = b'data: {"type":"response.completed","response":{"id":"r","status":"completed","output":[]}}\n\n'
# The provider, its adapter, a refusal, a good answer, words of the notice, and whether a request has the refused part.
PARTS: dict[str, tuple[str, Adapter, str, list[Step], str, Callable[[Received], bool]]] = {
    "cache hints": (
        "openai",
        OpenAiResponsesAdapter(),
        NO_CACHE,
        [head(), DONE],
        "prompt cache",
        lambda received: "prompt_cache_key" in received.json,
    ),
    "token counts": (
        "simulator",
        AnthropicAdapter(),
        NO_COUNTS,
        GOOD,
        "cannot count tokens while",
        lambda received: COUNTS in received.headers.get("anthropic-beta", ""),
    ),
}


@pytest.mark.parametrize("name", PARTS)
async def test_a_refused_part_is_left_out_from_then_on(transport: Transport, name: str) -> None:
    provider, adapter, words, good, said, has_part = PARTS[name]
    async with SseServer([refusal(words), good, good]) as server:
        one = talk(server, transport, provider, adapter)
        request = replace(PLAIN, thinking=ADAPTIVE)
        assert await one.ask(request)
        [notice] = one.notices
        assert said in notice
        assert await one.ask(request)
        assert one.notices == []
        assert list(map(has_part, server.received)) == [True, False, False]


async def test_form_then_effort_then_thinking_are_refused_in_turn(transport: Transport) -> None:
    """All three in one call, each once and each told; then the call goes through, and the next one at once."""
    async with SseServer([NO_BUDGET, NO_EFFORT, BOUND, INVALID, GOOD]) as server:
        one = talk(server, transport)
        wish = Thinking("manual", budget_tokens=2_000, effort="max")
        # Of another host, so that the loop begins without thinking that could not be replayed.
        request = replace(PLAIN, conversation=loop(host=server.url), thinking=wish)
        assert await one.ask(request)
        assert len(one.notices) == 4
        assert [sent(received).signatures for received in server.received][-1] == []
        assert await one.ask(request)
        assert [notice.partition(";")[0] for notice in one.notices] == [
            f"{PLAIN.model.id} does not accept effort max with adaptive thinking"
        ]
        assert len(server.received) == 6


async def test_rejected_off_level_leaves_thinking_to_the_model(transport: Transport) -> None:
    """Compatible servers say it in words of their own."""
    no = answer(b'{"error":{"message":"reasoning_effort: Input should be low, medium or high, not none"}}', 400)
    good: list[Step] = [head(), b'data: {"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\n']
    async with SseServer([no, good, good]) as server:
        adapter = OpenAiChatAdapter(resolve_server(server.url, kind="generic", echo=None, think_tags=False))
        one = talk(server, transport, "openai-compatible", adapter)
        request = replace(PLAIN, thinking=OFF)
        assert await one.ask(request)
        assert len(one.notices) == 1
        assert await one.ask(request)
        assert one.notices == []
        assert [received.json.get("reasoning_effort") for received in server.received] == ["none", None, None]


async def test_a_rejection_in_mid_answer_throws_the_pieces_away(transport: Transport) -> None:
    """One service only tells at the end of an answer that a signature was missing."""
    lost = b'data: {"candidates":[{"content":{"parts":[{"text":"Half"}]},"finishReason":"MISSING_THOUGHT_SIGNATURE"}]}'
    good = b'data: {"candidates":[{"content":{"parts":[{"text":"Whole"}]},"finishReason":"STOP"}]}'
    async with SseServer([[head(), lost + b"\n\n"], [head(), good + b"\n\n"]]) as server:
        one = talk(server, transport, "google", GoogleAdapter())
        model = find_model("google", "gemini-3.8-flash")
        origin = replace(ENDPOINT, provider="google", base_url=server.url).build_origin(model.id)
        earlier = TextBlock("Hm", OpaqueState('{"text":"Hm","thoughtSignature":"c2ln"}', origin))
        conversation = (UserMessage.from_text("Hi"), said(earlier), UserMessage.from_text("Go on"))
        async with aclosing(one.caller.stream(replace(PLAIN, model=model, conversation=conversation))) as answers:
            events = [event async for event in answers]
        [retry] = [event for event in events if isinstance(event, RetryScheduled)]
        assert retry.restart, "what was shown belongs to an answer that is no more"
        last = events[-1]
        assert isinstance(last, CallFinished)
        assert last.message.text == "Whole"


# What services say of a prompt of 2,192 tokens and an answer of 7,000, in a window of 8,192.
MAXIMUM = "maximum context length is 8192 tokens"
TOGETHER = [
    "input length and `max_tokens` exceed context limit: 2192 + 7000 > 8192, decrease input length or `max_tokens`",
    f"This model's {MAXIMUM}. However, you requested 9192 tokens (2192 in the messages, 7000 in the completion).",
    f"{MAXIMUM}. you requested 9192 tokens (2000 in the messages, 192 in the functions, and 7000 in the completion)",
    f"{MAXIMUM}. you requested about 9192 tokens (2000 of text input, 192 of tool input, 7000 in the output)",
    f"'max_tokens' is too large: 7000. {MAXIMUM} and your request has 2192 input tokens (7000 > 8192 - 2192)",
    f"{MAXIMUM}. you requested 7000 output tokens and your prompt contains at least 2192 input tokens, for a total",
    "maximum context length of 8192 tokens. You requested 9192 tokens: 2192 tokens in, 7000 tokens for the completion",
    "`inputs` tokens + `max_new_tokens` must be <= 8192. Given: 2192 `inputs` tokens and 7000 `max_new_tokens`",
]
ROOM = (
    "`maxTokens` 7,000 and the conversation together exceed the context window of {}; the answer gets the tokens that "
    "are left."
)


@pytest.mark.parametrize("words", TOGETHER, ids=range(len(TOGETHER)))
async def test_an_output_that_does_not_fit_shrinks(transport: Transport, words: str) -> None:
    chat = [head(), b'data: {"choices":[{"delta":{"content":"Hi."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n']
    for provider, good, adapter in (("anthropic", GOOD, AnthropicAdapter()), ("openai-compatible", chat, CHAT)):
        if provider == "anthropic" and words != TOGETHER[0]:
            continue
        async with SseServer([refusal(words), good]) as server:
            one = talk(server, transport, provider, adapter)
            model = replace(PLAIN.model, provider=provider)
            assert await one.ask(replace(PLAIN, model=model, max_tokens=7_000))
            limits = [
                received.json.get("max_tokens") or received.json.get("max_completion_tokens")
                for received in server.received
            ]
            assert (limits, one.notices) == ([7_000, 6_000], [ROOM.format(model.id)])


@pytest.mark.parametrize(
    ("prompt", "limit", "sent"),
    [(2_192, 7_000, [7_000, 6_000]), (7_000, 7_000, [7_000]), (6_500, 5_000, [5_000, 1_692]), (7_192, 2_000, [2_000])],
)
async def test_too_little_room_for_an_output_is_refused(
    transport: Transport, prompt: int, limit: int, sent: list[int]
) -> None:
    """Then the conversation is compacted. Also if the service refuses what it said was left."""
    no = refusal(f"input length and `max_tokens` exceed context limit: {prompt} + {limit} > 8192")
    async with SseServer([no, no, GOOD]) as server:
        one = talk(server, transport)
        thinking = Thinking("manual", budget_tokens=limit - 1)
        assert not await one.ask(replace(PLAIN, max_tokens=limit, thinking=thinking))
        assert isinstance(one.error, errors.ContextWindowExceeded)
        assert "lower `maxTokens`" in str(one.error)
        bodies = [received.json for received in server.received]
        assert [body["max_tokens"] for body in bodies] == sent
        assert all(1_024 <= body["thinking"]["budget_tokens"] < body["max_tokens"] for body in bodies)
