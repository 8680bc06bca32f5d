"""The signing server is right by an independent judge, and its demands can fail: every tampering is refused."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import anthropic
import httpx
import pytest

from tests.support.signing_rules import PromptCache
from tests.support.signing_script import (
    Answer,
    Cut,
    Failure,
    Hold,
    Raw,
    Redacted,
    Signer,
    Text,
    Thinking,
    Tool,
    answer,
    tool,
)
from tests.support.signing_server import SigningServer

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
    async with httpx.AsyncClient(timeout=10) as client:
        yield client


def body(messages: list[Any], **changes: Any) -> dict[str, Any]:
    base = {"model": "claude-opus-5-5", "max_tokens": 4096, "stream": True, "tools": TOOLS, "messages": messages}
    return base | {"thinking": {"type": "adaptive", "display": "summarized"}} | changes


def headers(key: str = KEY) -> dict[str, str]:
    return {"x-api-key": key, "anthropic-version": "2023-06-01", "content-type": "application/json"}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def results(content: list[Any]) -> dict[str, Any]:
    calls = [block["id"] for block in content if block["type"] == "tool_use"]
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": c, "content": "ok"} for c in calls]}


async def post(http: httpx.AsyncClient, provider: SigningServer, value: dict[str, Any]) -> httpx.Response:
    written = json.dumps(value).encode()
    return await http.post(f"{provider.url}/v1/messages", content=written, headers=headers())


async def test_the_official_client_reads_the_stream_and_its_echo_is_accepted() -> None:
    async with SigningServer(KEY, STEP, DONE, bearer=True) as provider:
        async with anthropic.AsyncAnthropic(api_key=KEY, base_url=provider.url, max_retries=0) as client:
            question: Any = {"role": "user", "content": "Read it."}
            common: Any = {
                "model": "claude-opus-5-5",
                "max_tokens": 4096,
                "tools": TOOLS,
                "thinking": {"type": "adaptive", "display": "summarized"},
            }
            async with client.messages.stream(messages=[question], **common) as stream:
                first = await stream.get_final_message()
            issued = provider.conversations.issued[0].content
            assert [block.type for block in first.content] == [block["type"] for block in issued]
            assert issued[0]["thinking"] == "First\u2028thought 🙂"
            assert first.stop_reason == "tool_use"
            assert first.usage.output_tokens == provider.requests[0].usage["output_tokens"]
            # Echoing with the official types works where the block is known to them: all but the future one.
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
    "result missing": ("without `tool_result`", lambda b: b["messages"][2]["content"].pop()),
    "result twice": ("without `tool_result`", lambda b: b["messages"][2]["content"].append(_result(b))),
    "text before results": (
        "must come first",
        lambda b: b["messages"][2]["content"].insert(0, user("x")["content"][0]),
    ),
    "prefill": ("prefill", lambda b: b["messages"].pop()),
    "five breakpoints": ("maximum of 4", lambda b: b["messages"].append(_marked(5))),
    "breakpoint on thinking": ("thinking blocks", lambda b: _block(b, 0).update(cache_control={"type": "ephemeral"})),
    "budget too small": ("supported", lambda b: b.update(thinking={"type": "enabled", "budget_tokens": 512})),
    "empty text": ("non-empty", lambda b: b["messages"][2]["content"].append({"type": "text", "text": ""})),
    "forced tool": ("tool_choice", lambda b: b.update(tool_choice={"type": "any"})),
}


def _block(value: dict[str, Any], number: int) -> Any:
    return value["messages"][1]["content"][number]


def _result(value: dict[str, Any]) -> Any:
    return value["messages"][2]["content"][0]


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


@pytest.mark.parametrize(("text", "status"), [("And now?", 200), ("<note>And now?</note>", 400)])
async def test_a_prompt_beside_results_ends_the_loop_and_a_remark_does_not(
    text: str, status: int, http: httpx.AsyncClient
) -> None:
    async with SigningServer(KEY, STEP, DONE) as provider:
        await post(http, provider, body([user("Read it.")]))
        issued = provider.conversations.issued[0].content
        answered = results(issued)
        answered["content"].append({"type": "text", "text": text})
        value = body([user("Read it."), {"role": "assistant", "content": issued}, answered])
        assert (await post(http, provider, value | {"output_config": {"effort": "low"}})).status_code == status


@pytest.mark.parametrize(("model", "status"), [("claude-opus-4-6", 200), ("claude-opus-5-5", 400)])
async def test_words_alone_are_what_other_models_said(model: str, status: int, http: httpx.AsyncClient) -> None:
    async with SigningServer(KEY, DONE, DONE) as provider:
        provider.conversations.elsewhere = True
        await post(http, provider, body([user("One")]))
        words = provider.conversations.issued[0].content[1:]
        value = body([user("One"), {"role": "assistant", "content": words}, user("Two")], model=model)
        assert (await post(http, provider, value)).status_code == status


async def test_an_answer_that_was_given_may_not_be_dropped(http: httpx.AsyncClient) -> None:
    async with SigningServer(KEY, DONE, DONE) as provider:
        await post(http, provider, body([user("One")]))
        assert (await post(http, provider, body([user("One"), user("Two")]))).status_code == 400


async def test_a_refused_answer_and_half_an_answer_are_no_history(http: httpx.AsyncClient) -> None:
    for script in (answer(Thinking(), Text("I will"), stop_reason="refusal"), answer(Thinking(), Text("x"), Cut())):
        async with SigningServer(KEY, script, DONE, DONE) as provider:
            try:
                await post(http, provider, body([user("One")]))
            except httpx.RemoteProtocolError:
                assert Cut() in script.items
            content = provider.conversations.issued[0].content
            echo = body([user("One"), {"role": "assistant", "content": content}, user("Two")])
            assert (await post(http, provider, echo)).status_code == 400
            assert (await post(http, provider, body([user("One"), user("Two")]))).status_code == 200


async def test_keys_versions_failures_and_an_empty_script(http: httpx.AsyncClient) -> None:
    async with SigningServer(KEY, DONE, DONE, Failure(529, "overloaded_error", "Overloaded")) as provider:
        url = f"{provider.url}/v1/messages"
        for wrong in (headers("other"), headers() | {"authorization": "Bearer x"}, {"x-api-key": KEY}):
            provider.script.insert(0, DONE)
            assert (await http.post(url, json=body([user("a")]), headers=wrong)).status_code == 400
        provider.script[:2] = []
        overloaded = await post(http, provider, body([user("a")]))
        assert (overloaded.status_code, overloaded.json()["error"]["type"]) == (529, "overloaded_error")
        assert (await post(http, provider, body([user("a")]))).status_code == 400
        assert "script" in provider.violations[-1]


@pytest.mark.parametrize("place", ["before the head", "in the stream"])
async def test_a_held_stream_sees_the_client_close(place: str, http: httpx.AsyncClient) -> None:
    hold = Hold()
    script = Answer((Text("x"),), before=hold) if place == "before the head" else answer(Thinking(), hold, Text("x"))
    async with SigningServer(KEY, script, DONE) as provider:
        client = httpx.AsyncClient()
        task = asyncio.create_task(post(client, provider, body([user("a")])))
        await hold.reached.wait()
        at = time.monotonic()
        task.cancel()
        await client.aclose()
        seen = provider.requests[0]
        closed = await provider.wait_for(lambda: seen.closed_at, within=2)
        assert closed is not None
        assert 0 <= closed - at < 1
        assert not seen.finished
        # The next one on a fresh connection works, and a released hold goes on.
        assert (await post(http, provider, body([user("b")]))).status_code == 200


def test_the_prompt_cache_reads_what_a_breakpoint_wrote() -> None:
    cache = PromptCache()
    mark = {"cache_control": {"type": "ephemeral"}}
    big = {"type": "text", "text": "s" * 8000} | mark
    first = {"model": "m", "system": [big], "messages": [user("a" * 400)]}
    use = cache.use(first)
    assert use.read == 0
    assert use.written >= 2000
    second = {"model": "m", "system": [big], "messages": [user("a" * 400), user("b")]}
    again = cache.use(second)
    assert (again.read, again.written) == (use.written, 0)
    changed = json.loads(json.dumps(second).replace("ssss", "tsss", 1))
    assert cache.use(changed).read == 0
    assert cache.use(second | {"model": "n"}).read == 0
    unmarked = json.loads(json.dumps(second).replace('"cache_control"', '"x"'))
    assert cache.use(unmarked).read == 0
    small = {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "s"} | mark]}]}
    assert cache.use(small).written == 0


def test_the_message_part_of_the_cache_depends_on_the_thinking_configuration() -> None:
    cache = PromptCache()
    mark = {"cache_control": {"type": "ephemeral"}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "s" * 8000} | mark]}]
    base = {"model": "m", "system": [{"type": "text", "text": "t" * 8000} | mark], "messages": messages}
    whole = cache.use(base).written
    assert cache.use(base).read == whole
    assert 0 < cache.use(base | {"output_config": {"effort": "low"}}).read < whole


def test_a_cut_tool_call_is_not_content() -> None:
    script = answer(Text("x"), Tool("write_file", {"path": "a"}, cut=True), stop_reason="max_tokens")
    steps = list(Signer().stream(script, summaries=False))
    assert [block["type"] for block in steps[-1][1]] == ["text"]
