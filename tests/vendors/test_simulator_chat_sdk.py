"""The official SDK talks to the chat dialect over real HTTP and understands every word."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest

from tests.stand_in_checks.chat_talk import TOOLS, ChatSimulator, merged
from tests.stand_in_checks.talk import LOOP
from tests.stand_ins.http_server import Simulator
from thinklsp.offline.scenario import parse_scenario


@asynccontextmanager
async def sdk(scenario: str = LOOP) -> AsyncIterator[tuple[Simulator, openai.AsyncOpenAI]]:
    async with (
        ChatSimulator(parse_scenario(scenario, "test")) as simulator,
        openai.AsyncOpenAI(api_key="sk-test-key", base_url=f"{simulator.base_url}/v1", max_retries=2) as client,
    ):
        yield simulator, client


async def answered(client: openai.AsyncOpenAI, *, stream: bool, **options: Any) -> tuple[dict[str, Any], str]:
    if not stream:
        choice = (await client.chat.completions.create(**options)).choices[0]
        return choice.message.model_dump(exclude_none=True), choice.finish_reason
    chunks = []
    asked = {"stream": True, "stream_options": {"include_usage": True}}
    async with await client.chat.completions.create(**options, **asked) as events:
        chunks = [chunk.model_dump(exclude_unset=True) async for chunk in events]
    assert chunks[-1]["usage"]["total_tokens"] > 0
    return merged(chunks)


async def test_the_sdks_own_stream_helper_puts_the_answer_together() -> None:
    async with sdk() as (_, client):
        options: Any = {"model": "compatible-1", "messages": [{"role": "user", "content": "loop"}], "tools": TOOLS}
        async with client.chat.completions.stream(**options) as stream:
            async for _ in stream:
                pass
            final = (await stream.get_final_completion()).choices[0]
        assert final.finish_reason == "tool_calls"
        assert final.message.content == "Looking."
        calls = [(call.function.name, call.function.arguments) for call in final.message.tool_calls or ()]
        assert calls == [("read_file", '{"path": "a"}'), ("list_files", "{}")]


async def test_refusals_arrive_as_the_sdks_errors() -> None:
    async with sdk() as (_, client):
        prompt: Any = [{"role": "user", "content": "plain"}]
        with pytest.raises(openai.BadRequestError) as error:
            await client.chat.completions.create(model="strict-1", messages=prompt, max_completion_tokens=9)
        assert error.value.body["message"] == "max_completion_tokens: Extra inputs are not permitted"
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="missing-1", messages=prompt)
        effort: Any = {"reasoning_effort": "tiny"}
        with pytest.raises(openai.BadRequestError, match="invalid reasoning value"):
            await client.chat.completions.create(model="gpt-oss:20b", messages=prompt, **effort)


async def test_the_sdk_retries_failures_and_reports_breaks() -> None:
    scenario = """
[[turn]]
when = "retry"
[[turn.step]]
fault = { times = 2, http_error = { status = 529, headers = { retry-after-ms = "1" } } }
block = [{ text = "third" }]
[[turn]]
when = "limit"
[[turn.step]]
fault = { http_error = { status = 429, message = "Slow down", headers = { x-should-retry = "false" } } }
[[turn]]
when = "break"
[[turn.step]]
fault = { error_event = { type = "overloaded_error", message = "Overloaded", after_events = 2 } }
block = [{ text = "never" }]
[[turn]]
when = "key"
[[turn.step]]
fault = { http_error = { status = 401 } }
"""
    async with sdk(scenario) as (simulator, client):

        async def ask(prompt: str, model: str = "compatible-1") -> tuple[dict[str, Any], str]:
            messages = [{"role": "user", "content": prompt}]
            return await answered(client, stream=True, model=model, messages=messages)

        assert (await ask("retry"))[0]["content"] == "third"
        assert [recorded.status for recorded in simulator.requests] == [529, 529, 200]
        with pytest.raises(openai.RateLimitError, match="Slow down") as limit:
            await ask("limit")
        assert limit.value.code == "rate_limit_exceeded"
        with pytest.raises(openai.AuthenticationError):
            await ask("key")
        for model in ("compatible-1", "qwen3-8b", "anthropic/claude-opus-5.5", "plain-1", "lmstudio-x"):
            with pytest.raises(openai.APIError) as error:
                await ask("break", model)
            assert "Overloaded" in error.value.message or model == "plain-1"
