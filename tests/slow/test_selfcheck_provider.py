"""The signing server is right by an independent judge, and its demands can fail: every tampering is refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx
import pytest

from tests.support.signing_server import Failure, Raw, Redacted, SigningServer, Text, Thinking, answer, tool

KEY = "sk-ant-selfcheck-0123456789abcdef"
TOOLS = [{"name": "read_file", "description": "Reads", "input_schema": {"type": "object"}}]
NOTE = {"type": "future_note", "data": "keep me", "size": 1.0}
STEP = answer(
    Thinking("First\u2028thought 🙂"),
    Redacted(),
    tool("read_file", path="a\u2028b.py", size=1.0, deep={"z": None, "a": [True]}),
    Thinking("between"),
    tool("read_file"),
    Raw(NOTE),
    letters=2,
)
DONE = answer(Thinking("Done thinking"), Text("Fertig – 🙂."))


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=60) as client:
        yield client


def body(messages: list[Any], **changes: Any) -> dict[str, Any]:
    base = {"model": "claude-opus-5-5", "max_tokens": 4096, "stream": True, "tools": TOOLS, "messages": messages}
    return base | {"thinking": {"type": "adaptive", "display": "summarized"}} | changes


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def results(content: list[Any]) -> dict[str, Any]:
    calls = [block["id"] for block in content if block["type"] == "tool_use"]
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": c, "content": "ok"} for c in calls]}


async def post(http: httpx.AsyncClient, provider: SigningServer, value: dict[str, Any]) -> httpx.Response:
    headers = {"x-api-key": KEY, "anthropic-version": "2023-06-01"}
    return await http.post(f"{provider.url}/v1/messages", json=value, headers=headers)


async def test_the_vendors_client_reads_and_echoes_the_stream() -> None:
    async with SigningServer(KEY, STEP, DONE, bearer=True) as provider:
        async with anthropic.AsyncAnthropic(api_key=KEY, base_url=provider.url, max_retries=0) as client:
            question: Any = {"role": "user", "content": "Read it."}
            common: Any = {name: value for name, value in body([]).items() if name not in ("messages", "stream")}
            async with client.messages.stream(messages=[question], **common) as stream:
                first = await stream.get_final_message()
            issued = provider.conversations.issued[0].content
            assert [block.type for block in first.content] == [block["type"] for block in issued]
            assert issued[0]["thinking"] == "First\u2028thought 🙂"
            assert first.stop_reason == "tool_use"
            assert first.usage.output_tokens == provider.requests[0].usage["output_tokens"]
            # The official types cannot echo the block of the future.
            dumped = [b.model_dump(mode="json", exclude_unset=True) for b in first.content]
            assert dumped[:2] == issued[:2]
            history: Any = [question, {"role": "assistant", "content": issued}, results(issued)]
            async with client.messages.stream(messages=history, **common) as stream:
                last = await stream.get_final_message()
            assert last.content[-1].text == "Fertig – 🙂."  # type: ignore[union-attr] # the script ends with a text
        assert provider.violations == []


TAMPERINGS: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "sampling": ("temperature", lambda b: b.update(temperature=1)),
    "unknown field": ("Extra inputs", lambda b: b.update(foo=1)),
    "signature cut": ("were changed", lambda b: _block(b, 0).update(signature=_block(b, 0)["signature"][:-1])),
    "thinking changed": ("were changed", lambda b: _block(b, 0).update(thinking="First thought")),
    "float became int": ("were changed", lambda b: _block(b, 2)["input"].update(size=1)),
    "member dropped": ("were changed", lambda b: _block(b, 2).pop("caller")),
    "redacted dropped": ("never issued", lambda b: b["messages"][1]["content"].pop(1)),
    "unknown block dropped": ("never issued", lambda b: b["messages"][1]["content"].pop(5)),
    "order changed": ("never issued", lambda b: b["messages"][1]["content"].reverse()),
    "prefix changed": ("different conversation", lambda b: b["messages"][0]["content"][0].update(text="Other")),
    "tools changed": ("tools has changed", lambda b: b["tools"][0].update(description="R")),
    "system changed": ("system has changed", lambda b: b.update(system="You are.")),
    "thinking mode changed": ("within a tool loop", lambda b: b["thinking"].pop("display")),
    "result missing": ("without `tool_result`", lambda b: _results(b).pop()),
    "result twice": ("without `tool_result`", lambda b: _results(b).append(_results(b)[0])),
    "text before results": ("must come first", lambda b: _results(b).insert(0, *user("x")["content"])),
    "prefill": ("prefill", lambda b: b["messages"].pop()),
    "five breakpoints": ("maximum of 4", lambda b: b["messages"].append(_marked(5))),
    "breakpoint on thinking": ("thinking blocks", lambda b: _block(b, 0).update(cache_control={"type": "ephemeral"})),
    "budget too small": ("supported", lambda b: b.update(thinking={"type": "enabled", "budget_tokens": 512})),
    "empty text": ("non-empty", lambda b: _results(b).append({"type": "text", "text": ""})),
    "forced tool": ("tool_choice", lambda b: b.update(tool_choice={"type": "any"})),
}


def _block(value: dict[str, Any], number: int) -> Any:
    return value["messages"][1]["content"][number]


def _results(value: dict[str, Any]) -> Any:
    return value["messages"][2]["content"]


def _marked(count: int) -> dict[str, Any]:
    mark = {"cache_control": {"type": "ephemeral"}}
    return {"role": "user", "content": [{"type": "text", "text": "x"} | mark for _ in range(count)]}


@pytest.mark.parametrize("name", TAMPERINGS)
async def test_every_tampering_is_refused_and_noted(name: str, http: httpx.AsyncClient) -> None:
    fragment, tamper = TAMPERINGS[name]
    async with SigningServer(KEY, STEP, DONE) as provider:
        assert (await post(http, provider, body([user("Read it.")]))).status_code == 200
        issued = provider.conversations.issued[0].content
        value = body([user("Read it."), {"role": "assistant", "content": issued}, results(issued)])
        value = json.loads(json.dumps(value))
        tamper(value)
        refused = await post(http, provider, value)
        assert refused.status_code == 400
        assert refused.json()["error"]["type"] == "invalid_request_error"
        assert fragment in refused.json()["error"]["message"]
        assert len(provider.violations) == 1
        assert all(secret not in provider.violations[0] for secret in provider.secrets().values())


LOOK = answer(Thinking(), Redacted(), tool("read_file", size=1.0), tool("read_file"))
NO = Failure(400, "invalid_request_error", "no", of_thinking=True)
OTHER_NO = Failure(400, "invalid_request_error", "prompt is too long")


def bare(content: list[Any]) -> dict[str, Any]:
    """The answer without thinking, in the form of a client that writes texts and calls itself."""
    members = {"text": ("type", "text"), "tool_use": ("type", "id", "name", "input")}
    return {
        "role": "assistant",
        "content": [{m: b[m] for m in members[b["type"]]} for b in content if b["type"] in members],
    }


@dataclass
class Looked:
    """A conversation with a tool loop: its prompt, the model's answer as it was issued, and the results."""

    http: httpx.AsyncClient
    provider: SigningServer
    changes: dict[str, Any]

    async def begin(self) -> None:
        assert await self.send([user("Read it.")]) == ""
        self.issued = self.provider.conversations.issued[0].content

    @property
    def whole(self) -> list[Any]:
        return [user("Read it."), {"role": "assistant", "content": self.issued}, results(self.issued)]

    @property
    def bare(self) -> list[Any]:
        return [user("Read it."), bare(self.issued), results(self.issued)]

    async def send(self, messages: list[Any]) -> str:
        """Return the words of the refusal, or an empty text."""
        response = await post(self.http, self.provider, json.loads(json.dumps(body(messages, **self.changes))))
        return "" if response.status_code == 200 else response.json()["error"]["message"]


@asynccontextmanager
async def looked(http: httpx.AsyncClient, *script: Any, **changes: Any) -> AsyncIterator[Looked]:
    async with SigningServer(KEY, LOOK, *script) as provider:
        talk = Looked(http, provider, changes)
        await talk.begin()
        yield talk


# What the service says first to the conversation in the forms named, how it is changed in the last form, without
# thinking, and a part of the refusal.
BARE: dict[str, tuple[list[tuple[str, Failure]], Callable[[list[Any]], object] | None, str]] = {
    "all thinking is left out": ([("whole", NO)], None, ""),
    "nothing was refused": ([], None, "never issued"),
    "refused for another reason": ([("whole", OTHER_NO)], None, "never issued"),
    "refused without it, too": ([("whole", NO), ("bare", NO)], None, "never issued"),
    "refused once more with it": ([("whole", NO), ("bare", NO), ("whole", NO)], None, ""),
    "a call was changed": ([("whole", NO)], lambda m: m[1]["content"][0]["input"].update(size=1), "never issued"),
    "a call was dropped": (
        [("whole", NO)], lambda m: (m[1]["content"].pop(), m[2]["content"].pop()), "never issued"
    ),
    "a text was added": (
        [("whole", NO)], lambda m: m[1]["content"].insert(0, {"type": "text", "text": "x"}), "never issued"
    ),
    "the prompt was changed": ([("whole", NO)], lambda m: m[0]["content"][0].update(text="Other"), "never issued"),
}  # fmt: skip


@pytest.mark.parametrize("name", BARE)
async def test_thinking_may_be_left_out_after_its_refusal_alone(name: str, http: httpx.AsyncClient) -> None:
    refusals, change, words = BARE[name]
    async with looked(http, *(said for _, said in refusals), DONE) as talk:
        for form, said in refusals:
            assert await talk.send(getattr(talk, form)) == said.message
        messages = json.loads(json.dumps(talk.bare))
        if change is not None:
            change(messages)
        refusal = await talk.send(messages)
        assert words in refusal if words else refusal == ""
        assert len(talk.provider.violations) == bool(words)
