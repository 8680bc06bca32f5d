"""The sharp edges of generateContent, by the number that they have in our list, each with the test that proves it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from tests.support.google_cases import ENDPOINT, as_stream, chunk, raw, run, stream
from tests.support.google_requests import BUDGET, LEVELS, PLAIN, UNKNOWN, asked, call, loop, result, said
from tests.support.google_wire import ADAPTER, DUMMY, Json, body_of, broken_rules, contents_of
from tests.support.sse_server import SseServer, Step, answer, head
from thinklsp.agent.model_call import CallEvent, CallFinished, HttpModelCaller
from thinklsp.core.calls import with_unique_calls
from thinklsp.core.choices import EFFORTS
from thinklsp.core.errors import Overloaded, ProviderError, StreamProtocolError
from thinklsp.core.events import Notice, RetryScheduled, TextStreamed
from thinklsp.core.messages import AssistantMessage, TextBlock, UserMessage
from thinklsp.http.retry import RetryPolicy
from thinklsp.http.transport import Transport
from thinklsp.providers.base import ModelRequest, Thinking
from thinklsp.providers.catalog import known_models, lookup
from thinklsp.providers.thinking import plan_thinking

# Rows, or parts of them, that cannot come about with this program, and why.
CANNOT: dict[int, str] = {
    52: "nothing here writes calls of its own into a conversation; calls of other models, hosts and keys are proven",
}


async def called(
    plays: Sequence[Sequence[Step]], request: ModelRequest | Callable[[str], ModelRequest], *, tries: int = 1
) -> tuple[list[CallEvent], list[Any]]:
    """What a real model call over HTTP comes to, and the bodies that the server received. A request may be made for
    the address of the server."""

    async def asleep(_: float) -> None:
        """Waiting is looked at, not waited for."""

    async with SseServer(plays) as server:
        transport = Transport()
        caller = HttpModelCaller(
            ADAPTER,
            replace(ENDPOINT, base_url=server.url),
            transport,
            policy=RetryPolicy(tries=tries),
            rng=lambda: 0.0,
            sleep=asleep,
        )
        made = request if isinstance(request, ModelRequest) else request(server.url)
        try:
            async with aclosing(caller.stream(made)) as events:
                seen = [event async for event in events]
        finally:
            await transport.aclose()
    return seen, [received.json for received in server.received]


def finished(events: list[CallEvent]) -> AssistantMessage:
    assert isinstance(events[-1], CallFinished)
    return events[-1].message


async def test_row_48_a_signature_in_the_last_chunk_is_kept_however_long() -> None:
    """Behind the reason for the end, in a part without text, on a line far beyond 64 KB."""
    long = "Q" * 400_000
    data = as_stream(chunk({"text": "Done."}, reason="STOP"), chunk({"text": "", "thoughtSignature": long}))
    events, _ = await called([[head(), data]], PLAIN)
    last = {"text": "", "thoughtSignature": long}
    message, _, _ = run(data)
    assert finished(events).text == "Done."
    assert len(finished(events).blocks) == 2
    assert contents_of((UserMessage.of("a"), message, UserMessage.of("b")))[1]["parts"] == [{"text": "Done."}, last]


def test_row_49_signed_parts_keep_their_borders() -> None:
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
    message, _, _ = run(as_stream(*(chunk(piece) for piece in pieces), chunk(reason="STOP")))
    assert [raw(block) for block in message.blocks] == [*pieces[:5], {"text": "fg"}]


def test_row_50_calls_are_known_by_their_parts() -> None:
    message, _, _ = run(stream("thinking_then_tool"))
    assert (message.stop_reason, len(message.tool_uses)) == ("tool_use", 2)
    message, _, _ = run(stream("unknown_reason"))
    assert (message.stop_reason, len(message.tool_uses)) == ("other", 1)


def test_row_51_parallel_calls_keep_order_and_get_no_signatures() -> None:
    message, _, _ = run(stream("thinking_then_tool"))
    results = asked(*(result(one.id) for one in reversed(message.tool_uses)))
    parts = contents_of((UserMessage.of("a"), message, results))[1]["parts"]
    assert [part["functionCall"]["id"] for part in parts] == ["k1", "k2"]
    assert ["thoughtSignature" in part for part in parts] == [True, False]


@pytest.mark.parametrize("origin", [{"model": "gemini-3-pro-preview"}, {"host": "https://v.example"}, {"key": "k"}])
def test_row_52_calls_of_somebody_else_get_the_stand_in(origin: dict[str, str]) -> None:
    for model in (LEVELS, UNKNOWN):
        contents = contents_of(loop(**origin), model=model)
        assert broken_rules(contents, signed_calls=True) == []
        first = [content["parts"] for content in contents if content["role"] == "model"]
        signatures = [[part.get("thoughtSignature") for part in parts if "functionCall" in part] for parts in first]
        assert signatures == [[DUMMY], [DUMMY, None]]
    older = (*loop(**origin), said(TextBlock("done")), UserMessage.of("next"))
    assert DUMMY not in json.dumps(contents_of(older))
    assert DUMMY not in json.dumps(contents_of(loop(**origin), model=BUDGET))


def test_row_53_answers_and_words_are_two_contents() -> None:
    contents = contents_of((UserMessage.of("a"), said(call("k", "S")), asked(TextBlock("stop that"), result("k"))))
    assert [content["role"] for content in contents] == ["user", "model", "user", "user"]
    assert [[*part] for content in contents[2:] for part in content["parts"]] == [["functionResponse"], ["text"]]


@pytest.mark.parametrize("is_error", [False, True])
def test_row_54_an_answer_is_an_object(is_error: bool) -> None:
    for value in ("", "text", '{"already": "json"}', "[1]"):
        contents = contents_of(
            (UserMessage.of("a"), said(call("k", "S")), asked(result("k", value, is_error=is_error)))
        )
        response = contents[2]["parts"][0]["functionResponse"]["response"]
        assert response == {"error" if is_error else "output": value}


async def test_row_55_a_blocked_prompt_is_a_refusal_with_its_reason() -> None:
    events, _ = await called([[head(), stream("prompt_blocked")]], PLAIN)
    assert isinstance(events[-1], CallFinished)
    assert (events[-1].message.stop_reason, events[-1].message.blocks) == ("refusal", ())
    assert "PROHIBITED_CONTENT" in (events[-1].explanation or "")


@pytest.mark.parametrize("name", [*known_models("google"), "gemini-5-neon"])
def test_row_56_one_knob_and_only_levels_that_the_model_has(name: str) -> None:
    model = lookup("google", name)
    for mode in ("auto", "off", "adaptive", "manual"):
        for effort in (None, *EFFORTS):
            for explicit in (False, True):
                plan = plan_thinking(
                    model,
                    mode=mode,
                    budget_tokens=10_000,
                    budget_explicit=explicit,
                    effort=effort,
                    display="summary",
                    max_tokens=None,
                )
                body = body_of(replace(PLAIN, model=model, thinking=plan.thinking, max_tokens=plan.max_tokens))
                config = body.get("generationConfig", {}).get("thinkingConfig", {})
                assert len({"thinkingBudget", "thinkingLevel"} & config.keys()) < 2
                assert config.get("thinkingLevel", "NONE").lower() in (*model.efforts, "none")
                assert config.get("thinkingBudget", -1) in (-1, 0) or model.budget_steers


async def test_row_57_a_paused_answer_is_gone_on_with_by_its_token() -> None:
    plays = [[head(), stream("continuation")], [head(), as_stream(chunk({"text": ", the end."}, reason="STOP"))]]
    async with SseServer(plays) as server:
        transport = Transport()
        endpoint = replace(ENDPOINT, base_url=server.url)
        caller = HttpModelCaller(ADAPTER, endpoint, transport, policy=RetryPolicy(tries=1), rng=lambda: 0.0)
        conversation: tuple[UserMessage | AssistantMessage, ...] = PLAIN.conversation
        for _ in plays:
            async with aclosing(caller.stream(replace(PLAIN, conversation=conversation))) as events:
                conversation += (finished([event async for event in events]),)
        await transport.aclose()
    first, second = (received.json for received in server.received)
    assert second == first | {"continuationToken": "dG9rZW4rLzE="}
    later = body_of(replace(PLAIN, conversation=(*conversation, UserMessage.of("b"))), endpoint)
    assert "continuationToken" not in later
    assert [part["text"] for part in later["contents"][1]["parts"]] == ["Part one, ", "part two", ", the end."]
    message, _, _ = run(stream("continuation_without_token"))
    assert message.stop_reason == "max_tokens"


def test_row_58_thoughts_are_part_of_the_output() -> None:
    _, usage, _ = run(stream("thinking_then_tool"))
    assert (usage.input_tokens, usage.cache_read_tokens) == (900, 800)
    assert (usage.output_tokens, usage.thinking_tokens) == (94, 64)


async def test_row_59_the_wait_stands_in_the_body() -> None:
    limited = json.loads(stream("error_in_a_list"))[0]
    plays = [answer(json.dumps(limited).encode(), 429), [head(), stream("text")]]
    events, _ = await called(plays, PLAIN, tries=2)
    waits = [event.delay for event in events if isinstance(event, RetryScheduled)]
    assert waits == [17.0]
    assert finished(events).text


def test_row_60_calls_without_ids_are_told_apart_and_answered_without_ids() -> None:
    message, _, _ = run(stream("calls_without_ids"))
    message = with_unique_calls(message, ())
    ids = [one.id for one in message.tool_uses]
    assert len(set(ids)) == 3
    results = asked(*(result(one, f"answer {place}") for place, one in reversed([*enumerate(ids)])))
    contents = contents_of((UserMessage.of("a"), message, results))
    answers = [part["functionResponse"] for part in contents[2]["parts"]]
    assert [one["response"]["output"] for one in answers] == ["answer 0", "answer 1", "answer 2"]
    assert not [one for one in answers if "id" in one]


@pytest.mark.parametrize("status", [200, 503])
async def test_row_61_errors_in_a_list(status: int) -> None:
    busy = {"error": {"code": 503, "message": "Busy here.", "status": "UNAVAILABLE"}}
    with pytest.raises(Overloaded, match="Busy here"):
        await called([answer(json.dumps([busy]).encode(), status)], PLAIN)


async def test_a_list_of_chunks_is_an_answer_too() -> None:
    """As the service answers without `alt=sse`, or as something in between makes of it."""
    events, _ = await called([answer(stream("list_of_chunks"))], PLAIN)
    assert finished(events).text == "In a list."


@pytest.mark.parametrize("case", ["malformed_function_call", "unexpected_tool_call", "malformed_response"])
async def test_a_broken_answer_is_asked_for_again_at_most_twice(case: str) -> None:
    events, bodies = await called([[head(), stream(case)]] * 2 + [[head(), stream("text")]], PLAIN)
    assert [event.restart for event in events if isinstance(event, RetryScheduled)] == [True, True]
    assert bodies[0] == bodies[1] == bodies[2]
    with pytest.raises(StreamProtocolError, match="broke off 3 times"):
        await called([[head(), stream(case)]], PLAIN)


async def test_a_missing_signature_ends_in_a_request_without_any() -> None:
    """Said by the reason of the end or by status 400, the conversation goes on with stand-ins."""
    refusal = {"error": {"code": 400, "message": "Corrupted thought signature.", "status": "INVALID_ARGUMENT"}}
    first: list[list[Step]] = [[head(), stream("missing_thought_signature")], answer(json.dumps(refusal).encode(), 400)]
    for play in first:
        events, bodies = await called(
            [play, [head(), stream("text")]], lambda url: replace(PLAIN, conversation=loop(host=url))
        )
        assert [event.level for event in events if isinstance(event, Notice)] == ["warning"]
        assert any(isinstance(event, TextStreamed) for event in events)
        assert broken_rules(bodies[1]["contents"], signed_calls=True) == []
        assert ["Sig" in part.get("thoughtSignature", "") for part in _signed(bodies[0])] == [True] * 3
        assert [part["thoughtSignature"] for part in _signed(bodies[1])] == [DUMMY, DUMMY]


async def test_a_refused_level_steps_down_and_a_refused_budget_is_left_out() -> None:
    level = {"error": {"code": 400, "message": "Thinking level HIGH is not supported for this model."}}
    budget = {"error": {"code": 400, "message": "Budget 0 is invalid. This model only works in thinking mode."}}
    for refusal, request, sent in (
        (level, PLAIN, [{"thinkingLevel": "HIGH"}, {"thinkingLevel": "MEDIUM"}]),
        (budget, replace(PLAIN, model=BUDGET, thinking=Thinking("off")), [{"thinkingBudget": 0}, None]),
    ):
        _, bodies = await called([answer(json.dumps(refusal).encode(), 400), [head(), stream("text")]], request)
        assert [body["generationConfig"].get("thinkingConfig") for body in bodies] == sent


async def test_a_truncated_answer_is_a_failure() -> None:
    with pytest.raises(ProviderError, match="before the answer was complete"):
        await called([[head(), stream("truncated")]] * 3, PLAIN)


def test_every_row_stands_here() -> None:
    named = {int(name.split("_")[2]) for name in globals() if name.startswith("test_row_")}
    assert named | CANNOT.keys() == set(range(48, 62))
    assert all(CANNOT.values())


def _signed(body: Json) -> list[Json]:
    return [part for content in body["contents"] for part in content["parts"] if "thoughtSignature" in part]
