"""The official SDK talks to the simulator over real HTTP and understands every word."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import pytest

from tests.support.simulator_talk import LOOP, TOOLS
from thinklsp.simulator.scenario import parse
from thinklsp.simulator.server import Simulator

MODEL = "claude-opus-5-5"
SUMMARIZED: Any = {"type": "adaptive", "display": "summarized"}


@asynccontextmanager
async def sdk(scenario: str = LOOP) -> AsyncIterator[tuple[Simulator, anthropic.AsyncAnthropic]]:
    async with (
        Simulator(parse(scenario, "test")) as simulator,
        anthropic.AsyncAnthropic(api_key="sk-test-key", base_url=simulator.base_url, max_retries=2) as client,
    ):
        yield simulator, client


async def streamed(client: anthropic.AsyncAnthropic, **options: Any) -> Any:
    async with client.messages.stream(**options) as stream:
        return await stream.get_final_message()


async def test_a_tool_loop_with_interleaved_redacted_and_parallel_blocks_is_accepted() -> None:
    async with sdk() as (simulator, client):
        options: dict[str, Any] = {"model": MODEL, "max_tokens": 4000, "tools": TOOLS, "thinking": SUMMARIZED}
        messages: list[Any] = [{"role": "user", "content": "loop"}]
        kinds = []
        for _ in range(3):
            message = await streamed(client, messages=messages, **options)
            kinds.append([block.type for block in message.content])
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": f"saw {block.name} {block.input}"}
                for block in message.content
                if block.type == "tool_use"
            ]
            messages += [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]
        assert kinds == [
            ["thinking", "redacted_thinking", "thinking", "text", "tool_use", "tool_use"],
            ["thinking", "tool_use"],
            ["thinking", "text"],
        ]
        assert messages[1]["content"][0].thinking == "First I think."
        assert messages[3]["content"][1].input == {"path": "saw read_file {'path': 'a'}"}
        assert message.stop_reason == "end_turn"
        assert message.usage.output_tokens > message.usage.output_tokens_details.thinking_tokens > 0
        requests = simulator.requests
        assert [request.status for request in requests] == [200] * 3
        assert [request.played for request in requests] == [f"turn 1, step {n}" for n in (1, 2, 3)]
        assert requests[2].body["messages"][1]["content"][1]["data"] == messages[1]["content"][1].data
        assert b'"stream":true' in requests[0].raw.replace(b" ", b"")


async def test_one_byte_of_a_signature_is_refused_as_the_sdk_reports_it() -> None:
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


async def test_with_and_without_a_stream_and_by_display() -> None:
    async with sdk() as (_, client):
        options: dict[str, Any] = {"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "plain"}]}
        for thinking, text in ((SUMMARIZED, "Plain thinking."), ({"type": "adaptive"}, "")):
            whole = await client.messages.create(**options, thinking=thinking)
            stream = await streamed(client, **options, thinking=thinking)
            for message in (whole, stream):
                assert [block.type for block in message.content] == ["thinking", "text"]
                assert message.content[0].thinking == text
                assert len(message.content[0].signature) > 200
                assert message.content[1].text == "Plain answer."
            assert whole.usage.to_dict() == stream.usage.to_dict()


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
"""
    async with sdk(scenario) as (simulator, client):
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
