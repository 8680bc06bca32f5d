"""A tool loop with the vendor's client and with ours: both read the same messages and send the same back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.stand_ins.dialect import Dialect, ReceivedRequest, SimulatedReply, StreamedReply, WholeReply
from tests.stand_ins.http_server import Simulator
from tests.support.services import Place, place, read
from tests.vendors.clients import Anthropic, Chat, Google, OpenAi, Vendor
from thinklsp.core.messages import Conversation, ToolResultBlock, UserMessage, ensure_unique_call_ids
from thinklsp.offline.scenario import Scenario, load_scenario, parse_scenario
from thinklsp.providers.base import ModelRequest, Thinking
from thinklsp.settings.model import Provider
from thinklsp.tools.registry import TOOLS, build_tool_specs

INTERLEAVED = r"""
[[turn]]
[[turn.step]]
block = [
  { thinking = "Where is it? \u2028 🙂" },
  { redacted_thinking = "hidden" },
  { text = "I look in two places." },
  { tool = "read_file", input = { path = "a 🙂.py" } },
  { thinking = "And there." },
  { tool = "search_text", input = { pattern = "x\\y\n", some_name = { in_depth = [1, 2.5] } } },
]
[[turn.step]]
block = [
  { thinking = "" },
  { tool = "list_files" },
  { raw = { type = "new_thing", id = "n1", deep = { a = [1, 2.50] } } },
]
[[turn.step]]
block = [{ thinking = "Done." }, { text = "Here it is." }]

[[turn]]
[[turn.step]]
block = [{ text = "And again:" }, { tool = "list_files" }]
[[turn.step]]
block = [{ thinking = "Once more." }, { text = "The same." }]
"""
SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "interleaved": lambda: parse_scenario(INTERLEAVED, "interleaved"),
    "parallel": lambda: load_scenario("parallel"),
}
SIDES: list[tuple[Provider, str, type[Vendor]]] = [
    ("anthropic", "claude-opus-5-5", Anthropic),
    ("openai", "gpt-6-sol", OpenAi),
    ("openai", "gpt-6.2-sol", OpenAi),
    ("google", "gemini-4-argon", Google),
    ("google", "gemini-2.5-pro", Google),
    ("openai-compatible", "deepseek-reasoner", Chat),
    ("openai-compatible", "anthropic/claude-opus-5.5", Chat),
    ("openai-compatible", "gpt-oss:20b", Chat),
    ("openai-compatible", "qwen3-8b", Chat),
]
PROMPTS = ("Find it.", "Again.")


@dataclass
class Recorder:
    inner: Dialect
    asked: list[ReceivedRequest] = field(default_factory=list)
    said: list[SimulatedReply] = field(default_factory=list)

    def can_answer(self, request: ReceivedRequest) -> bool:
        return self.inner.can_answer(request)

    def build_reply(self, request: ReceivedRequest) -> SimulatedReply:
        self.asked.append(request)
        self.said.append(self.inner.build_reply(request))
        return self.said[-1]

    def build_failure(self, status: int, message: str) -> WholeReply:
        return self.inner.build_failure(status, message)


class Recording(Simulator):
    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.recorders = tuple(Recorder(dialect) for dialect in self._dialects)
        self._dialects = self.recorders

    def newest(self, where: Place) -> tuple[Recorder, dict[str, Any], bytes]:
        (recorder,) = [recorder for recorder in self.recorders if recorder.asked]
        reply = recorder.said[-1]
        assert isinstance(reply, StreamedReply), f"{where.model.id}: {reply}"
        data = reply.body
        return recorder, json.loads(recorder.asked[-1].body), data


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize(("provider", "model", "kind"), SIDES, ids=[model for _, model, _ in SIDES])
async def test_the_vendor_and_we_read_the_same_and_send_the_same_back(
    provider: Provider, model: str, kind: type[Vendor], name: str
) -> None:
    async with Recording(SCENARIOS[name]()) as simulator:
        made = place(provider, model)
        base_url = simulator.base_url + urlsplit(made.access.base_url).path
        where = replace(made, access=replace(made.access, base_url=base_url))
        vendor = kind(simulator.base_url, where.access.api_key, model)
        try:
            replayed = await both(where, vendor, simulator)
        finally:
            await vendor.close()
        assert {request.status for request in simulator.requests} == {200}
    assert replayed >= 2, "the scenario calls tools, so that a replay was judged"


async def both(where: Place, vendor: Vendor, simulator: Recording) -> int:
    """Return how many answers of the model the last request sent back."""
    conversation: Conversation = ()
    sent_back = 0
    for prompt in PROMPTS:
        vendor.prompt(prompt)
        conversation = (*conversation, UserMessage.from_text(prompt))
        calls = True
        while calls:
            body = ours(where, conversation)
            theirs, calls = await vendor.ask(body)
            recorder, sent, stream = simulator.newest(where)
            said = vendor.said_by_model(body)
            assert said == vendor.said_by_model(sent)
            sent_back = len(said)
            accepted(where, recorder, conversation)
            answer = read(where, stream)
            assert vendor.read_by_us(answer, where.endpoint.build_origin(where.model.id)) == theirs
            assert bool(answer.message.tool_uses) is calls
            message = ensure_unique_call_ids(answer.message, conversation)
            results = tuple(ToolResultBlock(call.id, "seen") for call in message.tool_uses)
            conversation = (*conversation, message, *([UserMessage(results)] if results else []))
    return sent_back


def request(where: Place, conversation: Conversation) -> ModelRequest:
    form = "adaptive" if where.model.adaptive else "manual"
    thinking = Thinking(form, summarized=True)  # type: ignore[arg-type]  # one of two literals
    return ModelRequest(where.model, "Be brief.", build_tool_specs(TOOLS), conversation, thinking, 8_000)


def ours(where: Place, conversation: Conversation) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(where.encode(request(where, conversation)).body)
    return body


def accepted(where: Place, recorder: Recorder, conversation: Conversation) -> None:
    wire = where.encode(request(where, conversation))
    url = urlsplit(wire.url)
    reply = recorder.inner.build_reply(ReceivedRequest("POST", url.path, url.query, wire.headers, wire.body))
    assert isinstance(reply, StreamedReply), reply
