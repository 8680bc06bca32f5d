"""When the service refuses earlier thinking the conversation goes on: with what fits, then without; never a loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest

from tests.support.anthropic_cases import ENDPOINT, stream
from tests.support.anthropic_requests import PLAIN, asked, call, loop, result, said, thinking
from tests.support.sse_server import Received, SseServer, Step, answer, head
from thinklsp.agent.model_call import CallEvent, CallFinished, HttpModelCaller
from thinklsp.agent.remedies import BARE, DROPPING
from thinklsp.core import errors
from thinklsp.core.events import Notice, RetryScheduled, TurnEvent, TurnFinished
from thinklsp.core.messages import AssistantMessage, OpaqueState, TextBlock, UserMessage
from thinklsp.engine import ChatTask, Engine, Turn, TurnSpec
from thinklsp.http.retry import RetryPolicy
from thinklsp.http.transport import Timeouts, Transport
from thinklsp.providers.anthropic.adapter import AnthropicAdapter
from thinklsp.providers.base import ModelRequest, Thinking
from thinklsp.providers.catalog import lookup
from thinklsp.providers.google.adapter import GoogleAdapter
from thinklsp.providers.openai_chat.adapter import OpenAiChatAdapter
from thinklsp.providers.openai_chat.servers import server_for
from thinklsp.providers.openai_responses.adapter import OpenAiResponsesAdapter
from thinklsp.settings import EditorSettings
from thinklsp.simulator.journal import RecordedRequest
from thinklsp.simulator.scenario import Scenario
from thinklsp.simulator.server import Simulator
from thinklsp.workspace.view import WorkspaceView

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
            if isinstance(event, Notice) and event.remedy is not None and isinstance(following, RetryScheduled):
                assert following.reason == event.text
        return bool(self.seen) and isinstance(self.seen[-1], CallFinished)


@pytest.fixture
async def transport() -> AsyncIterator[Transport]:
    transport = Transport(
        timeouts=Timeouts(connect=2, write=2, pool=2, first_byte_here=3, idle=3, total=10, settle=0.05)
    )
    yield transport
    await transport.aclose()


def talk(server: SseServer, transport: Transport, provider: str = ENDPOINT.provider) -> Talk:
    endpoint = replace(ENDPOINT, provider=provider, base_url=server.url)
    return Talk(HttpModelCaller(AnthropicAdapter(), endpoint, transport, policy=RetryPolicy(), rng=lambda: 0.0))


def longer(server: SseServer) -> tuple[Any, ...]:
    """The tool loop, one step further: the model has thought again since."""
    host = {"host": server.url}
    return (*loop(**host), said(thinking("Sig3", **host), call("toolu_4", **host)), asked(result("toolu_4")))


ADAPTIVE, OFF = Thinking("adaptive", effort="high"), Thinking("off")
WHOLE, DROPPED, NONE = Sent(ALL, drops=False), Sent(ALL, drops=True), Sent([], drops=False)
COURSES: dict[str, tuple[Thinking, list[list[Step]], list[Sent], list[str], Sent]] = {
    # What was refused, what goes out, what the user hears, and what the next request of the conversation is like.
    "bound": (ADAPTIVE, [BOUND, GOOD], [WHOLE, DROPPED], [DROPPING], Sent([*ALL, "Sig3"], drops=True)),
    "bound, and dropping does not help": (
        ADAPTIVE,
        [BOUND, BOUND, GOOD],
        [WHOLE, DROPPED, NONE],
        [DROPPING, BARE],
        Sent(["Sig3"], drops=False),
    ),
    "bound, then a signature": (
        ADAPTIVE,
        [BOUND, INVALID, GOOD],
        [WHOLE, DROPPED, NONE],
        [DROPPING, BARE],
        Sent(["Sig3"], drops=False),
    ),
    "bound with thinking off": (OFF, [BOUND, GOOD], [WHOLE, NONE], [BARE], Sent(["Sig3"], drops=False)),
    "a signature": (ADAPTIVE, [INVALID, GOOD], [WHOLE, NONE], [BARE], Sent(["Sig3"], drops=False)),
    "cannot be modified": (ADAPTIVE, [MODIFIED, GOOD], [WHOLE, NONE], [BARE], Sent(["Sig3"], drops=False)),
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

        other = (UserMessage.of("another session"), *loop(host=server.url)[1:])
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


STEPS = [
    {"block": [{"thinking": "First."}, {"text": "Looking."}, {"tool": "list_files"}]},
    {"block": [{"thinking": "Second."}, {"tool": "list_files"}, {"tool": "list_files"}]},
    {"block": [{"thinking": "Third."}, {"text": "Done."}]},
]
SCENARIO = Scenario.model_validate({"turn": [{"step": STEPS}] * 5})
MODEL = "claude-opus-5-5"


def engine_for(simulator: Simulator) -> Engine:
    place = {"THINKLSP_CONFIG": "/nonexistent/config.toml", "ANTHROPIC_BASE_URL": simulator.base_url}
    return Engine({**place, "ANTHROPIC_API_KEY": "sk-ant-canary-0123456789"})


async def turn_of(engine: Engine, session_id: str | None, *, system: str | None = None, **choices: str) -> Turn:
    """Plays a whole turn; it must end with an answer."""
    spec = TurnSpec("chat", ChatTask("Go on."), WorkspaceView((), []), "w", session_id=session_id)
    turn = await engine.begin(spec, EditorSettings(), {"model": MODEL, **choices})
    if system is not None:
        turn.config = replace(turn.config, system=system)
    last: TurnEvent | None = None
    with turn:
        async with aclosing(turn.events(_nobody, _nobody)) as events:
            async for event in events:
                last = event
    assert isinstance(last, TurnFinished)
    assert (last.stop_reason, last.text) == ("end_turn", "Done.")
    return turn


async def _nobody(*_: object) -> Any:
    raise AssertionError("nobody is asked")


async def test_a_system_prompt_that_changes_in_mid_session() -> None:
    """The newest models bind thinking to everything before it. The turn succeeds, says why, and so does the next."""
    async with Simulator(SCENARIO) as simulator:
        engine = engine_for(simulator)
        session = (await turn_of(engine, None)).session.id
        assert [sent(request).drops for request in simulator.requests] == [False] * 3
        changed = await turn_of(engine, session, system="Other instructions.")
        assert changed.said == [DROPPING]
        requests = simulator.requests[3:]
        assert [(request.status, sent(request).drops) for request in requests] == [
            (400, False),
            (200, True),
            (200, True),
            (200, True),
        ]
        following = await turn_of(engine, session, system="Other instructions.")
        assert following.said == []
        again = await turn_of(engine, session, system="Changed once more.")
        assert again.said == [], "dropping goes on, so nothing is refused any more"
        assert [request.status for request in simulator.requests[7:]] == [200] * 6
        # What was thought since stays: the service decides what fits.
        assert len(sent(simulator.requests[-1]).signatures) == 11
        bare = await turn_of(engine, session, **{"model": "claude-haiku-5-5", "thinking.mode": "off"})
        [lost] = bare.said
        assert "it came from another model (claude-opus-5-5)" in lost
        await engine.aclose()


async def test_thinking_that_nobody_knows_any_more() -> None:
    """Another process of the simulator has another secret: every signature is invalid there."""
    async with Simulator(SCENARIO) as simulator:
        engine = engine_for(simulator)
        session = (await turn_of(engine, None)).session.id
        port = int(simulator.base_url.rpartition(":")[2])
    async with Simulator(SCENARIO, port) as simulator:
        turn = await turn_of(engine, session)
        assert turn.said == [BARE]
        following = await turn_of(engine, session)
        assert following.said == []
        assert [request.status for request in simulator.requests] == [400] + [200] * 6
        assert len(sent(simulator.requests[-1]).signatures) == 5
        await engine.aclose()


async def test_a_changed_prompt_while_thinking_is_off() -> None:
    """Without thinking there is nothing to set, so the earlier thinking stays away whole."""
    haiku = {"model": "claude-haiku-5-5"}
    async with Simulator(SCENARIO) as simulator:
        engine = engine_for(simulator)
        session = (await turn_of(engine, None, **haiku)).session.id
        turn = await turn_of(engine, session, system="Other.", **haiku, **{"thinking.mode": "off"})
        assert turn.said == [
            "Thinking is off, so claude-haiku-5-5 does not read the thinking of 3 earlier answers.",
            BARE,
        ]
        on = await turn_of(engine, session, system="Other.", **haiku)
        assert on.said == []
        assert [request.status for request in simulator.requests] == [200] * 3 + [400] + [200] * 6
        await engine.aclose()


MANUAL = Thinking("manual", budget_tokens=2_000)
FORMS: dict[str, tuple[Thinking, str, Any]] = {
    # What was asked for, what the service says about it, and what it is asked for instead.
    "adaptive on an old model": (ADAPTIVE, "adaptive thinking is not supported on this model", None),
    "a budget on a new model": (MANUAL, '"thinking.type.enabled" is not supported for this model.', "adaptive"),
    "off on a model that always thinks": (OFF, '"thinking.type.disabled" is not supported.', "adaptive"),
    "off where it has another name": (
        OFF,
        'To turn thinking off on this model, send "thinking": {"type": "between_tools"} instead of …',
        "between_tools",
    ),
}


@pytest.mark.parametrize("course", FORMS)
async def test_a_form_of_thinking_that_the_model_does_not_take_is_changed_once(
    transport: Transport, course: str
) -> None:
    wanted, words, instead = FORMS[course]
    request = replace(PLAIN, thinking=wanted)
    async with SseServer([refusal(words), GOOD, GOOD, refusal(words)]) as server:
        one = talk(server, transport)
        assert await one.ask(request)
        [notice] = one.notices
        assert PLAIN.model.id in notice
        assert await one.ask(request), "the next request knows"
        assert one.notices == []
        forms = [received.json.get("thinking", {}).get("type") for received in server.received]
        assert forms[1:] == [instead, instead]
        assert forms[0] != instead
        assert not await one.ask(request), "refused in both forms, it is said"
        assert isinstance(one.error, errors.BadRequest)
        assert len(server.received) == 4


def asked_for(server: SseServer) -> list[tuple[str | None, str | None]]:
    """Form and effort of every request."""
    bodies = [received.json for received in server.received]
    return [(body.get("thinking", {}).get("type"), body.get("output_config", {}).get("effort")) for body in bodies]


NO_BUDGET = refusal('"thinking.type.enabled" is not supported for this model.')
NO_ADAPTIVE = refusal("adaptive thinking is not supported on this model")
NO_OFF = refusal('"thinking.type.disabled" is not supported for this model.')
NO_BETWEEN = refusal('"thinking.type.between_tools" is not supported for this model.')
NO_EFFORT = refusal("output_config.effort: Input should be 'low', 'medium' or 'high'")


async def test_a_form_may_be_refused_after_another_but_none_is_tried_twice(transport: Transport) -> None:
    async with SseServer([NO_BUDGET, NO_ADAPTIVE, GOOD]) as server:
        one = talk(server, transport)
        assert await one.ask(replace(PLAIN, thinking=MANUAL))
        assert len(one.notices) == 2
        assert await one.ask(replace(PLAIN, thinking=MANUAL))
        assert one.notices == [], "the next request knows"
        assert [form for form, _ in asked_for(server)] == ["enabled", "adaptive", None, None]
    async with SseServer([NO_BETWEEN, NO_OFF, NO_ADAPTIVE, NO_BUDGET]) as server:
        one = talk(server, transport)
        assert not await one.ask(replace(PLAIN, thinking=Thinking("between_tools")))
        assert [form for form, _ in asked_for(server)] == ["between_tools", "disabled", "adaptive", None]
        assert isinstance(one.error, errors.BadRequest)
    circle = refusal('"thinking.type.between_tools" is not supported'), refusal('"type": "between_tools"} instead of')
    async with SseServer([*circle, *circle]) as server:
        one = talk(server, transport)
        assert not await one.ask(replace(PLAIN, thinking=Thinking("between_tools")))
        assert len(server.received) == 2, "round in a circle it does not go"


async def test_a_refused_effort_steps_down_one_level_and_is_told_each_time(transport: Transport) -> None:
    """A-3: the level was dropped, silently from the second turn on."""
    wish = replace(PLAIN, thinking=Thinking("adaptive", effort="max"))
    levels = PLAIN.model.efforts
    said = f"{PLAIN.model.id} does not accept effort"
    assert levels[-1] == "max"
    async with SseServer([NO_EFFORT, NO_EFFORT, GOOD, GOOD, GOOD]) as server:
        one = talk(server, transport)
        assert await one.ask(wish)
        assert one.notices == [
            f"{said} max with adaptive thinking; effort {levels[-2]} is used.",
            f"{said} {levels[-2]} with adaptive thinking; effort {levels[-3]} is used.",
        ]
        assert await one.ask(wish)
        assert one.notices == [f"{said} max with adaptive thinking; effort {levels[-3]} is used."]
        assert await one.ask(replace(PLAIN, thinking=Thinking("adaptive", effort="low")))
        assert one.notices == []
        sent_levels = ["max", levels[-2], levels[-3], levels[-3], "low"]
        assert [effort for _, effort in asked_for(server)] == sent_levels


async def test_an_effort_refused_without_thinking_is_still_sent_with_thinking(transport: Transport) -> None:
    """A-3: the refusal of one form counted for all forms, for 30 days."""
    no = refusal("output_config.effort 'max' is not supported when thinking is disabled on this model.")
    async with SseServer([no, GOOD, GOOD]) as server:
        one = talk(server, transport)
        assert await one.ask(replace(PLAIN, thinking=Thinking("off", effort="max")))
        assert await one.ask(replace(PLAIN, thinking=Thinking("adaptive", effort="max")))
        assert one.notices == []
        assert [effort for _, effort in asked_for(server)][-1] == "max"


async def test_without_any_accepted_effort_the_model_chooses(transport: Transport) -> None:
    async with SseServer([NO_EFFORT, NO_EFFORT, GOOD]) as server:
        one = talk(server, transport)
        request = replace(PLAIN, thinking=Thinking("adaptive", effort=PLAIN.model.efforts[1]))
        assert await one.ask(request)
        assert one.notices[-1].endswith("it chooses its own effort.")
        assert [effort for _, effort in asked_for(server)] == [*reversed(PLAIN.model.efforts[:2]), None]


ODD = refusal("messages.1: something that no rule knows")


async def test_a_refusal_that_nothing_explains_is_tried_once_without_earlier_thinking(transport: Transport) -> None:
    """P-D2: the attempt succeeds, the session goes on, and a notice says so."""
    async with SseServer([ODD, GOOD]) as server:
        one = talk(server, transport)
        first = replace(PLAIN, conversation=loop(host=server.url), thinking=ADAPTIVE)
        assert await one.ask(first)
        assert one.notices == [BARE]
        assert await one.ask(replace(first, conversation=longer(server)))
        assert one.notices == []
        assert [sent(request) for request in server.received] == [WHOLE, NONE, Sent(["Sig3"], drops=False)]


@pytest.mark.parametrize("second", [ODD, INVALID, NO_EFFORT], ids=["the same", "thinking", "effort"])
async def test_if_the_attempt_without_thinking_fails_too_the_first_error_is_reported(
    transport: Transport, second: list[Step]
) -> None:
    async with SseServer([ODD, second, ODD, GOOD]) as server:
        one = talk(server, transport)
        request = replace(PLAIN, conversation=loop(host=server.url), thinking=ADAPTIVE)
        assert not await one.ask(request)
        assert "something that no rule knows" in str(one.error)
        assert one.notices == []
        assert [sent(request) for request in server.received] == [WHOLE, NONE], "exactly one attempt"
        assert await one.ask(request)
        assert sent(server.received[2]) == WHOLE, "nothing was remembered"


async def test_a_refusal_that_nothing_explains_is_final_without_earlier_thinking(transport: Transport) -> None:
    async with SseServer([ODD]) as server:
        one = talk(server, transport)
        assert not await one.ask(PLAIN)
        assert len(server.received) == 1


async def test_a_refused_cache_hint_is_left_out_from_then_on(transport: Transport) -> None:
    """P-D5: LiteLLM refuses `prompt_cache_key` for Claude and Gemini."""
    words = b"litellm.UnsupportedParamsError: gemini does not support parameters: ['prompt_cache_key']"
    no = answer(b'{"error":{"message":"' + words + b'"}}', 400)
    done = b'data: {"type":"response.completed","response":{"id":"r","status":"completed","output":[]}}\n\n'
    async with SseServer([no, [head(), done], [head(), done]]) as server:
        endpoint = replace(ENDPOINT, provider="openai", base_url=server.url)
        caller = HttpModelCaller(OpenAiResponsesAdapter(), endpoint, transport, policy=RetryPolicy(), rng=lambda: 0.0)
        one = Talk(caller)
        assert await one.ask(PLAIN)
        [notice] = one.notices
        assert "prompt cache" in notice
        assert await one.ask(PLAIN)
        assert one.notices == []
        assert ["prompt_cache_key" in received.json for received in server.received] == [True, False, False]


async def test_refused_token_counts_are_not_asked_for_again(transport: Transport) -> None:
    """A-4: the request goes out again without its beta, and the user is told once."""
    counts = "thinking-token-count-2026-05-13"
    refused = refusal(
        f"Unexpected value(s) `{counts}` for the `anthropic-beta` header. Please consult our documentation"
    )
    async with SseServer([refused, GOOD]) as server:
        one = talk(server, transport, provider="simulator")
        first = replace(PLAIN, thinking=ADAPTIVE)
        assert await one.ask(first)
        assert one.notices == [
            f"The service does not count tokens while {PLAIN.model.id} thinks; progress shows them afterwards."
        ]
        assert await one.ask(first)
        assert one.notices == []
        assert [counts in request.headers.get("anthropic-beta", "") for request in server.received] == [
            True,
            False,
            False,
        ]


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


async def test_where_off_is_a_level_and_refused_as_one_the_model_thinks_as_it_likes(transport: Transport) -> None:
    """Compatible servers say it in words of their own."""
    no = answer(b'{"error":{"message":"reasoning_effort: Input should be low, medium or high, not none"}}', 400)
    good: list[Step] = [head(), b'data: {"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\n']
    async with SseServer([no, good, good]) as server:
        endpoint = replace(ENDPOINT, provider="openai-compatible", base_url=server.url)
        adapter = OpenAiChatAdapter(server_for(server.url, kind="generic", echo=None, think_tags=False))
        one = Talk(HttpModelCaller(adapter, endpoint, transport, policy=RetryPolicy(), rng=lambda: 0.0))
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
        endpoint = replace(ENDPOINT, provider="google", base_url=server.url)
        model = lookup("google", "gemini-3.8-flash")
        origin = endpoint.origin(model.id)
        raw = OpaqueState('{"text":"Hm","thoughtSignature":"c2ln"}', origin)
        earlier = (UserMessage.of("Hi"), AssistantMessage((TextBlock("Hm", raw),)), UserMessage.of("Go on"))
        caller = HttpModelCaller(GoogleAdapter(), endpoint, transport, policy=RetryPolicy(), rng=lambda: 0.0)
        async with aclosing(caller.stream(replace(PLAIN, model=model, conversation=earlier))) as answers:
            events = [event async for event in answers]
        [retry] = [event for event in events if isinstance(event, RetryScheduled)]
        assert retry.restart, "what was shown belongs to an answer that is no more"
        last = events[-1]
        assert isinstance(last, CallFinished)
        assert last.message.text == "Whole"
