"""The official SDK talks to the simulator over real HTTP and understands every word."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest

from tests.support.simulator_openai_talk import BOUND, ENCRYPTED, LOOP, MODEL, TOOLS, simulated
from thinklsp.simulator.server import Simulator

OPTIONS: dict[str, Any] = {
    "model": MODEL,
    "store": False,
    "include": ENCRYPTED,
    "reasoning": {"effort": "high", "summary": "auto"},
    "tools": TOOLS,
    "instructions": "You help.",
}
KINDS = [
    ["reasoning", "reasoning", "message", "reasoning", "function_call", "function_call"],
    ["reasoning", "function_call"],
    ["reasoning", "message"],
]


@asynccontextmanager
async def sdk(scenario: str = LOOP, **options: Any) -> AsyncIterator[tuple[Simulator, openai.AsyncOpenAI]]:
    async with (
        simulated(scenario) as simulator,
        openai.AsyncOpenAI(
            **{"api_key": "sk-test-key", "base_url": f"{simulator.base_url}/v1", "max_retries": 2, **options}
        ) as client,
    ):
        yield simulator, client


async def plain_stream(client: openai.AsyncOpenAI, **options: Any) -> Any:
    """The response of the last event; every event is of a type that the SDK knows."""
    final = None
    async for event in await client.responses.create(stream=True, **options):
        assert type(event).__name__.startswith("Response")
        assert type(event).__name__.endswith("Event")
        if event.type in ("response.completed", "response.incomplete"):
            final = event.response
    return final


async def helper_stream(client: openai.AsyncOpenAI, **options: Any) -> Any:
    async with client.responses.stream(**options) as stream:
        return await stream.get_final_response()


async def whole(client: openai.AsyncOpenAI, **options: Any) -> Any:
    return await client.responses.create(**options)


@pytest.mark.parametrize("ask", [plain_stream, helper_stream, whole])
@pytest.mark.parametrize("model", [MODEL, BOUND, "gpt-5.4"])
async def test_a_tool_loop_is_accepted_with_items_as_the_sdk_gives_them(ask: Any, model: str) -> None:
    async with sdk() as (simulator, client):
        items: list[Any] = [{"role": "user", "content": "loop"}]
        kinds = []
        for _ in range(3):
            response = await ask(client, input=items, **{**OPTIONS, "model": model})
            kinds.append([item.type for item in response.output])
            items += response.output
            items += [
                {"type": "function_call_output", "call_id": item.call_id, "output": f"saw {item.arguments}"}
                for item in response.output
                if item.type == "function_call"
            ]
        assert kinds == KINDS
        assert response.output_text == 'Done with saw {"path":"saw {\\"path\\":\\"a\\"}"}.'
        assert response.status == "completed"
        assert response.usage.output_tokens > response.usage.output_tokens_details.reasoning_tokens > 0
        assert not response.input_transformations
        requests = simulator.requests
        assert [request.status for request in requests] == [200] * 3
        assert [request.played for request in requests] == [f"turn 1, step {n}" for n in (1, 2, 3)]
        sent = requests[2].body["input"]
        assert [item["type"] for item in sent[1:7]] == KINDS[0]
        assert [part["text"] for part in sent[1]["summary"]] == ["First I think.", "Then I plan."]


async def test_a_second_turn_and_a_second_session_are_accepted_too() -> None:
    async with sdk() as (simulator, client):
        items: list[Any] = []
        for prompt in ("plain", "plain", "plain again"):
            items += [{"role": "user", "content": prompt}]
            items += (await plain_stream(client, input=items, **OPTIONS)).output
        other = await plain_stream(client, input="plain", **OPTIONS)
        assert other.output_text == "Plain answer."
        assert [request.status for request in simulator.requests] == [200] * 4


async def test_stored_responses_can_be_continued_by_id() -> None:
    async with sdk() as (_, client):
        options = {**OPTIONS, "store": True}
        first = await whole(client, input="loop", **options)
        outputs: Any = [
            {"type": "function_call_output", "call_id": item.call_id, "output": "seen"}
            for item in first.output
            if item.type == "function_call"
        ]
        second = await plain_stream(client, input=outputs, previous_response_id=first.id, **options)
        assert [item.type for item in second.output] == KINDS[1]


async def test_refusals_come_as_the_sdks_exceptions() -> None:
    async with sdk() as (simulator, client):
        with pytest.raises(openai.BadRequestError) as bad:
            await whole(client, input="plain", **{**OPTIONS, "model": "gpt-5"}, temperature=0.2)
        assert (bad.value.code, bad.value.param) == ("unsupported_parameter", "temperature")
        assert bad.value.request_id.startswith("req_")
        with pytest.raises(openai.NotFoundError) as missing:
            await plain_stream(client, input="plain", **{**OPTIONS, "model": "gpt-9"})
        assert missing.value.code == "model_not_found"
        with pytest.raises(openai.AuthenticationError):
            await whole(client, input="plain", model=MODEL, extra_headers={"authorization": "Basic eA=="})
        first = await whole(client, input="loop", **OPTIONS)
        items: list[Any] = [{"role": "user", "content": "loop"}, *first.output]
        with pytest.raises(openai.BadRequestError, match="No tool output found for function call call_"):
            await plain_stream(client, input=items, **OPTIONS)
        with pytest.raises(openai.BadRequestError) as foreign:
            await plain_stream(client.with_options(api_key="sk-another"), input=items, **OPTIONS)
        assert foreign.value.code == "invalid_encrypted_content"
        assert [request.status for request in simulator.requests] == [400, 404, 401, 200, 400, 400]


async def test_the_sdk_retries_what_a_scenario_lets_fail() -> None:
    scenario = """
[[turn]]
[[turn.step]]
fault = { times = 2, http_error = { status = 529, headers = { retry-after-ms = "1" } } }
block = [{ text = "third" }]
[[turn]]
[[turn.step]]
[turn.step.fault.http_error]
status = 429
message = "Slow down"
headers = { x-should-retry = "false" }
[[turn]]
[[turn.step]]
fault = { error_event = { type = "overloaded_error", message = "Overloaded", after_events = 4 } }
block = [{ text = "never" }]
[[turn]]
[[turn.step]]
fault = { cut_after_events = 5 }
block = [{ text = "never" }]
"""
    async with sdk(scenario) as (simulator, client):
        said: list[Any] = [{"role": "user", "content": "hi"}]
        response = await plain_stream(client, input=said, **OPTIONS)
        assert response.output_text == "third"
        assert [request.status for request in simulator.requests] == [503, 503, 200]
        said += [*response.output, {"role": "user", "content": "again"}]
        with pytest.raises(openai.RateLimitError, match="Slow down"):
            await plain_stream(client, input=said, **OPTIONS)
        said += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "third prompt"}]
        events = [event async for event in await client.responses.create(input=said, stream=True, **OPTIONS)]
        assert (events[-1].type, events[-1].code) == ("error", "server_error")
        assert events[-1].sequence_number == 4
        said += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "fourth prompt"}]
        with pytest.raises(RuntimeError, match="Didn't receive"):
            await helper_stream(client, input=said, **OPTIONS)


async def test_pings_are_comments_that_nobody_sees() -> None:
    scenario = "pacing={ping_every_ms=20}\n[[turn]]\n[[turn.step]]\nblock=[{text='Hi.', delay_ms=90}]"
    async with sdk(scenario) as (_, client):
        assert (await helper_stream(client, input="hi", **OPTIONS)).output_text == "Hi."


async def test_endings_and_refusals() -> None:
    scenario = """
[[turn]]
when = "cut"
[[turn.step]]
stop_reason = "max_tokens"
block = [{ thinking = "Hm." }, { tool = "read_file", input_json = '{"path": "a' }]
[[turn]]
[[turn.step]]
stop_reason = "refusal"
refusal = { explanation = "Not this." }
block = [{ text = "Well," }]
"""
    async with sdk(scenario) as (_, client):
        cut = await plain_stream(client, input="cut", **OPTIONS)
        assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        assert (cut.output[-1].status, cut.output[-1].arguments) == ("incomplete", '{"path": "a')
        refused = await helper_stream(client, input="no", **OPTIONS)
        assert refused.output[-1].content[0].refusal == "Not this."


async def test_models() -> None:
    async with sdk() as (_, client):
        names = [model.id async for model in client.models.list()]
        assert MODEL in names
        assert len(names) == len(set(names)) > 30
        assert (await client.models.retrieve(MODEL)).id == MODEL
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("gpt-0")
