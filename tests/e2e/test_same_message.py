"""A stream of the simulator, read by the vendor's client and by ours: one message, and a replay that is taken."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx

from tests.support.anthropic_cases import raw, run
from tests.support.sse_server import SseServer, head
from thinklsp.core.messages import Conversation, ToolResultBlock, UserMessage
from thinklsp.providers.anthropic.adapter import AnthropicAdapter
from thinklsp.providers.base import Endpoint, ModelRequest, Thinking
from thinklsp.providers.catalog import lookup
from thinklsp.simulator.scenario import load, parse
from thinklsp.simulator.server import Simulator
from thinklsp.tools.registry import TOOLS, tool_specs

INTERLEAVED = """
[[turn]]
[[turn.step]]
block = [
  { thinking = "Where is it? \u2028 🙂" },
  { redacted_thinking = "hidden" },
  { text = "I look in two places." },
  { tool = "read_file", input = { path = "a 🙂.py" } },
  { thinking = "And there." },
  { tool = "search_text", input = { pattern = "x\\\\ny" } },
]
[[turn.step]]
block = [
  { thinking = "" },
  { tool = "list_files" },
  { raw = { type = "new_thing", id = "n1", deep = { a = [1, 2.50] } } },
]
[[turn.step]]
block = [{ thinking = "Done." }, { text = "Here it is." }]
"""


async def test_the_vendor_and_we_read_the_same_message() -> None:
    for scenario in (parse(INTERLEAVED, "interleaved"), load("parallel"), load("sample")):
        async with Simulator(scenario) as simulator:
            endpoint = Endpoint("anthropic", simulator.base_url, "any key")
            conversation: Conversation = (UserMessage.of("Find it."),)
            for _ in range(6):
                body, stream = await asked(conversation, endpoint)
                origin = endpoint.origin(body["model"])
                ours, usage, _ = run(stream, origin)
                theirs = await read_by_vendor(stream)
                assert without_nulls([raw(block, origin) for block in ours.blocks]) == without_nulls(
                    [block.model_dump(mode="json", by_alias=True, warnings=False) for block in theirs.content]
                )
                assert usage.output_tokens == theirs.usage.output_tokens
                assert ours.stop_reason == theirs.stop_reason
                results = tuple(ToolResultBlock(call.id, "seen") for call in ours.tool_uses)
                conversation = (*conversation, ours, *([UserMessage(results)] if results else []))
                if not results:
                    break
            assert [request.status for request in simulator.requests] == [200] * len(simulator.requests)
            assert len(simulator.requests) > 1, "the scenario calls tools, so that a replay was judged"


async def asked(conversation: Conversation, endpoint: Endpoint) -> tuple[Any, bytes]:
    thinking = Thinking("adaptive", summarized=True)
    request = ModelRequest(
        lookup("anthropic", "claude-opus-5-5"), "Be brief.", tool_specs(TOOLS), conversation, thinking, 8_000
    )
    encoded = AnthropicAdapter().encode(request, endpoint)
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.post(encoded.url, headers=dict(encoded.headers), content=encoded.body)
    assert answer.status_code == 200, answer.text
    return json.loads(encoded.body), answer.content


async def read_by_vendor(stream: bytes) -> anthropic.types.Message:
    async with SseServer([[head(), stream]]) as server:
        client = anthropic.AsyncAnthropic(base_url=server.url, api_key="k", max_retries=0)
        async with client.messages.stream(
            model="claude-opus-5-5", max_tokens=100, messages=[{"role": "user", "content": "x"}]
        ) as theirs:
            message = await theirs.get_final_message()
        await client.close()
    return message


def without_nulls(value: Any) -> Any:
    """The vendor's objects add fields of their own with the value None."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value
