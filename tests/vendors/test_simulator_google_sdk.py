"""The official SDK talks to the Gemini dialect over real HTTP and understands every word."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google import genai
from google.genai import errors, types

from tests.stand_in_checks.google_talk import LOOP, NEW, GoogleSimulator
from tests.vendors.clients import answer_call

TOOLS = [
    {"function_declarations": [{"name": name, "parameters_json_schema": {"type": "object"}}]}
    for name in ("read_file", "list_files")
]
OPTIONS: dict[str, Any] = {
    "tools": TOOLS,
    "system_instruction": "You help.",
    "thinking_config": {"include_thoughts": True, "thinking_level": "LOW"},
    "automatic_function_calling": {"disable": True},
}


@asynccontextmanager
async def sdk(scenario: str = LOOP, **options: Any) -> AsyncIterator[tuple[GoogleSimulator, Any]]:
    async with GoogleSimulator(scenario) as simulator:
        http = types.HttpOptions(base_url=simulator.base_url, **options)
        client = genai.Client(api_key="key-of-the-test", http_options=http, vertexai=False)
        try:
            yield simulator, client.aio
        finally:
            await client.aio.aclose()
            client.close()


async def streamed(client: Any, contents: Any, config: dict[str, Any], model: str = NEW) -> list[Any]:
    parts = []
    async for chunk in await client.models.generate_content_stream(model=model, contents=contents, config=config):
        parts += chunk.candidates[0].content.parts or []
    return parts


def answers(parts: list[Any]) -> Any:
    calls = [part.function_call for part in parts if part.function_call]
    return types.Content(role="user", parts=[answer_call(call, f"{call.args}") for call in calls])


async def test_without_a_stream_and_with_a_chat_of_the_sdk() -> None:
    async with sdk() as (_, client):
        chat = client.chats.create(model=NEW, config=OPTIONS)
        first = await chat.send_message("plain")
        assert first.text == "Plain answer of more than one chunk."
        assert [part.text for part in first.parts if part.thought] == ["Plain thinking."]
        usage = first.usage_metadata
        parts = (usage.prompt_token_count, usage.candidates_token_count, usage.thoughts_token_count)
        assert min(parts) > 0
        assert sum(parts) == usage.total_token_count
        assert first.model_version == NEW
        assert (await chat.send_message("plain")).candidates[0].finish_reason is types.FinishReason.STOP
        chunks = [chunk async for chunk in await chat.send_message_stream("plain")]
        assert "".join(chunk.text or "" for chunk in chunks) == first.text
        assert (await chat.send_message("loop")).function_calls[0].args == {"path": "a", "n": 1.5}


async def test_the_sdk_goes_on_by_itself_with_an_answer_in_pieces() -> None:
    async with sdk() as (simulator, client):
        contents: list[Any] = [types.Content(role="user", parts=[types.Part(text="pause")])]
        parts = await streamed(client, contents, OPTIONS)
        assert "".join(part.text or "" for part in parts if not part.thought) == "One, two, three"
        contents += [types.Content(role="model", parts=parts), answers(parts)]
        parts = await streamed(client, contents, OPTIONS)
        assert "".join(part.text or "" for part in parts) == "Counted {'path': 'c'}."
        assert [request.played for request in simulator.requests] == [f"turn 3, step {n}" for n in (1, 2, 3, 4)]
        assert "continuationToken" in simulator.requests[2].body
        whole = await client.models.generate_content(model=NEW, contents="pause", config=OPTIONS)
        assert whole.text == "One, two, three"


FAULTS = """
[[turn]]
[[turn.step]]
fault = { times = 1, http_error = { status = 429, headers = { retry-after = "17" } } }
block = [{ text = "second try" }]
[[turn]]
[[turn.step]]
fault = { error_event = { type = "overloaded_error", message = "Busy", after_events = 1 } }
block = [{ text = "never whole, though it is long enough" }]
[[turn]]
[[turn.step]]
stop_reason = "refusal"
refusal = { explanation = "Not this." }
"""


async def test_errors_reach_the_exceptions_of_the_sdk() -> None:
    retries = {"retry_options": types.HttpRetryOptions(attempts=1)}
    async with sdk(FAULTS, **retries) as (_, client):
        with pytest.raises(errors.ClientError) as limited:
            await client.models.generate_content(model=NEW, contents="a")
        assert (limited.value.code, limited.value.status) == (429, "RESOURCE_EXHAUSTED")
        assert limited.value.details["error"]["details"][0]["retryDelay"] == "17s"
        first = await client.models.generate_content(model=NEW, contents="a")
        history = [types.Content(role="user", parts=[types.Part(text="a")]), first.candidates[0].content]
        with pytest.raises(errors.ServerError) as broken:
            await streamed(client, [*history, types.Content(role="user", parts=[types.Part(text="b")])], {})
        assert (broken.value.code, broken.value.status, broken.value.message) == (503, "UNAVAILABLE", "Busy")
        with pytest.raises(errors.ServerError):
            await client.models.generate_content(model=NEW, contents=[*history, "b"])
        third = [*history, "b", types.Content(role="model", parts=[types.Part(text="x")]), "c"]
        blocked = await client.models.generate_content(model=NEW, contents=third)
        assert blocked.candidates is None
        assert blocked.prompt_feedback.block_reason == "SAFETY"
        with pytest.raises(errors.ClientError, match="is not found for API version"):
            await client.models.generate_content(model="gemini-9", contents="a")
