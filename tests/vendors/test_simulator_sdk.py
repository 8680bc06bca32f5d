"""The official SDK talks to the simulator over real HTTP and understands every word."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import pytest

from tests.stand_in_checks.talk import LOOP, TOOLS
from tests.stand_ins.http_server import Simulator
from tests.vendors.clients import FAILING
from thinklsp.offline.scenario import parse_scenario

MODEL = "claude-opus-5-5"


@asynccontextmanager
async def sdk(scenario: str = LOOP) -> AsyncIterator[tuple[Simulator, anthropic.AsyncAnthropic]]:
    async with (
        Simulator(parse_scenario(scenario, "test")) as simulator,
        anthropic.AsyncAnthropic(api_key="sk-test-key", base_url=simulator.base_url, max_retries=2) as client,
    ):
        yield simulator, client


async def streamed(client: anthropic.AsyncAnthropic, **options: Any) -> Any:
    async with client.messages.stream(**options) as stream:
        return await stream.get_final_message()


async def test_the_sdk_reports_one_changed_byte_of_a_signature() -> None:
    async with sdk() as (_, client):
        options: dict[str, Any] = {"model": MODEL, "max_tokens": 4000, "tools": TOOLS}
        message = await streamed(client, messages=[{"role": "user", "content": "loop"}], **options)
        content = [block.to_dict() for block in message.content]
        content[2]["signature"] = content[2]["signature"].swapcase()
        messages: list[Any] = [
            {"role": "user", "content": "loop"},
            {"role": "assistant", "content": content},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": content[i]["id"]} for i in (4, 5)]},
        ]
        with pytest.raises(anthropic.BadRequestError) as error:
            await streamed(client, messages=messages, **options)
        assert error.value.body["error"]["message"] == "messages.1.content.2: Invalid `signature` in `thinking` block"
        assert error.value.request_id == error.value.body["request_id"]


async def test_models_and_counting() -> None:
    async with sdk() as (_, client):
        names = [model.id async for model in client.models.list(limit=5)]
        assert len(names) == len(set(names)) == 22
        for name in names:
            model = await client.models.retrieve(name)
            assert model.id == name
            assert model.capabilities.effort.supported is (model.capabilities.effort.low.supported is True)
        assert (await client.models.retrieve("claude-opus-5-5")).display_name == "Claude Opus 5.5"
        with pytest.raises(anthropic.NotFoundError):
            await client.models.retrieve("claude-0")
        short, long = [
            await client.messages.count_tokens(model=MODEL, messages=[{"role": "user", "content": text}])
            for text in ("one", "one and a lot more")
        ]
        assert 0 < short.input_tokens < long.input_tokens


async def test_betas_updates_token_counts_and_dropped_blocks() -> None:
    async with sdk() as (_, client):
        options: dict[str, Any] = {"model": MODEL, "max_tokens": 900, "tools": TOOLS}
        prompt: list[Any] = [{"role": "user", "content": "loop"}]
        thinking: Any = {"type": "adaptive", "display": "updates"}
        betas = ["thinking-display-updates-2026-08-18", "thinking-token-count-2026-05-13"]
        counted = 0
        async with client.beta.messages.stream(messages=prompt, thinking=thinking, betas=betas, **options) as stream:
            async for event in stream:
                if event.type == "content_block_delta" and event.delta.type == "thinking_delta":
                    counted += event.delta.estimated_tokens
            message = await stream.get_final_message()
        assert counted > 0
        assert [block.thinking for block in message.content if block.type == "thinking"] == ["", ""]


async def test_the_sdk_retries_what_a_scenario_lets_fail() -> None:
    async with sdk(FAILING) as (simulator, client):
        options: dict[str, Any] = {"model": MODEL, "max_tokens": 900}
        messages: list[Any] = [{"role": "user", "content": "hi"}]
        message = await streamed(client, messages=messages, **options)
        assert message.content[-1].text == "third"
        assert [request.status for request in simulator.requests] == [529, 529, 200]
        messages += [{"role": "assistant", "content": message.content}, {"role": "user", "content": "again"}]
        with pytest.raises(anthropic.RateLimitError, match="Slow down"):
            await streamed(client, messages=messages, **options)
        messages += [{"role": "user", "content": "and again"}, {"role": "assistant", "content": "ok"}]
        messages += [{"role": "user", "content": "third prompt"}]
        with pytest.raises(anthropic.APIStatusError) as error:
            await streamed(client, messages=messages, **options)
        assert error.value.body["error"] == {"type": "overloaded_error", "message": "Overloaded"}
