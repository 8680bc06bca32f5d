"""Our requests fit the types of the vendor's client, and are the ones that it sends."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from google import genai
from google.genai import types

from tests.support import google_samples
from tests.support.google_samples import ENDPOINT, MODEL, REQUESTS, Json, body_of, stream
from tests.support.hosts import SseServer, head
from tests.vendors.clients import to_camel_names


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
