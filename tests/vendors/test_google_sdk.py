"""The vendor's own client as an independent judge: same bytes, same parts; our requests fit its types."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from google import genai
from google.genai import types

from tests.support import google_samples
from tests.support.google_samples import ENDPOINT, MODEL, REQUESTS, Json, body_of, cases, expected, raw, run, stream
from tests.support.hosts import SseServer, head
from tests.vendors.clients import decode_base64, join_parts, to_camel_names

CONFIG = types.GenerateContentConfig(automatic_continuation=False)


@pytest.mark.parametrize("case", [case for case in cases(failing=False) if expected(case)["sdk_agrees"]])
async def test_the_vendor_reads_the_same_message(case: str) -> None:
    parts: list[Json] = []
    usage = types.GenerateContentResponseUsageMetadata()
    token = None
    async with SseServer([[head(), stream(case)]]) as server:
        client = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=server.url))
        async for chunk in await client.aio.models.generate_content_stream(model=MODEL, contents="x", config=CONFIG):
            candidate = (chunk.candidates or [types.Candidate()])[0]
            content = candidate.content or types.Content()
            parts += [part.model_dump(mode="json", by_alias=True, exclude_none=True) for part in content.parts or []]
            usage, token = chunk.usage_metadata or usage, candidate.continuation_token or token
        await client.aio.aclose()
        client.close()
    ours, counted, _ = run(stream(case))
    blocks = [raw(block) for block in ours.blocks]
    if ours.stop_reason == "pause_turn":
        assert token == base64.b64decode(blocks.pop()["continuationToken"])
    assert [_decoded(block) for block in blocks] == join_parts([_decoded(part) for part in parts])
    _compare_usage(usage, counted)


def _compare_usage(theirs: types.GenerateContentResponseUsageMetadata, ours: Any) -> None:
    thoughts, answer = theirs.thoughts_token_count, theirs.candidates_token_count
    assert ours.thinking_tokens == thoughts
    assert ours.output_tokens == (None if thoughts is None and answer is None else (thoughts or 0) + (answer or 0))
    assert ours.input_tokens == theirs.prompt_token_count
    assert ours.cache_read_tokens == theirs.cached_content_token_count


def _decoded(part: Json) -> Json:
    """Decode signatures and data, which the vendor writes in the other base64, and drop null and false."""
    kept = {key: value for key, value in part.items() if value is not None and value is not False}
    if "thoughtSignature" in kept:
        kept["thoughtSignature"] = decode_base64(kept["thoughtSignature"])
    if "inlineData" in kept:
        kept["inlineData"] = {**kept["inlineData"], "data": decode_base64(kept["inlineData"]["data"])}
    return kept


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_fit_the_types_of_the_vendor(name: str) -> None:
    body = body_of(REQUESTS[name])
    assert body.keys() <= {"systemInstruction", "contents", "tools", "generationConfig", "continuationToken"}
    for content in (*body["contents"], *([body["systemInstruction"]] if "systemInstruction" in body else [])):
        fits(types.Content, content)
    for tool in body.get("tools", ()):
        fits(types.Tool, tool)
    fits(types.GenerationConfig, body["generationConfig"])
    if "continuationToken" in body:
        fits(types.GenerateContentConfig, {"continuationToken": body["continuationToken"]})


def fits(kind: Any, value: Json) -> None:
    again = json.loads(kind.model_validate(value).model_dump_json(by_alias=True, exclude_none=True))
    assert again == value


async def test_our_request_is_the_one_that_the_vendor_sends() -> None:
    request = REQUESTS["summaries"]
    body = body_of(request)
    config = types.GenerateContentConfig(
        system_instruction=request.system,
        tools=[types.Tool.model_validate(tool) for tool in body["tools"]],
        max_output_tokens=request.max_tokens,
        thinking_config=types.ThinkingConfig(include_thoughts=True),
    )
    async with SseServer([[head(), stream("text")]]) as server:
        options = types.HttpOptions(base_url=server.url, api_version="v1beta")
        client = genai.Client(api_key="k", http_options=options)
        contents = [types.Content.model_validate(content) for content in body["contents"]]
        async for _ in await client.aio.models.generate_content_stream(model=MODEL, contents=contents, config=config):
            pass
        await client.aio.aclose()
        client.close()
    theirs = server.received[0]
    ours = google_samples.ADAPTER.encode(request, replace(ENDPOINT, base_url=server.url, api_key="k"))
    assert server.url + theirs.target == ours.url
    assert theirs.headers["x-goog-api-key"] == ours.headers["x-goog-api-key"]
    sent = to_camel_names(theirs.json)
    sent["systemInstruction"].pop("role", None)
    assert sent == body
