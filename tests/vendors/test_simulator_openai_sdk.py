"""The official SDK talks to the simulator over real HTTP and understands every word."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest

from tests.stand_in_checks.openai_talk import ENCRYPTED, LOOP, MODEL, TOOLS, simulated
from tests.stand_ins.http_server import Simulator
from tests.vendors.clients import FAILING

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
async def sdk(scenario: str = LOOP) -> AsyncIterator[tuple[Simulator, openai.AsyncOpenAI]]:
    async with (
        simulated(scenario) as simulator,
        openai.AsyncOpenAI(api_key="sk-test-key", base_url=f"{simulator.base_url}/v1", max_retries=2) as client,
    ):
        yield simulator, client


async def plain_stream(client: openai.AsyncOpenAI, **options: Any) -> Any:
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


async def test_stored_responses_can_be_continued_by_id() -> None:
    async with sdk() as (_, client):
        options = {**OPTIONS, "store": True}
        first = await client.responses.create(input="loop", **options)
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
            await client.responses.create(input="plain", **{**OPTIONS, "model": "gpt-5"}, temperature=0.2)
        assert (bad.value.code, bad.value.param) == ("unsupported_parameter", "temperature")
        assert bad.value.request_id.startswith("req_")
        with pytest.raises(openai.NotFoundError) as missing:
            await plain_stream(client, input="plain", **{**OPTIONS, "model": "gpt-9"})
        assert missing.value.code == "model_not_found"
        with pytest.raises(openai.AuthenticationError):
            await client.responses.create(input="plain", model=MODEL, extra_headers={"authorization": "Basic eA=="})
        first = await client.responses.create(input="loop", **OPTIONS)
        items: list[Any] = [{"role": "user", "content": "loop"}, *first.output]
        with pytest.raises(openai.BadRequestError, match="No tool output found for function call call_"):
            await plain_stream(client, input=items, **OPTIONS)
        with pytest.raises(openai.BadRequestError) as foreign:
            await plain_stream(client.with_options(api_key="sk-another"), input=items, **OPTIONS)
        assert foreign.value.code == "invalid_encrypted_content"
        assert [request.status for request in simulator.requests] == [400, 404, 401, 200, 400, 400]


async def test_the_sdk_retries_what_a_scenario_lets_fail() -> None:
    scenario = f"""{FAILING}
[[turn]]
[[turn.step]]
fault = {{ cut_after_events = 5 }}
block = [{{ text = "never" }}]
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
