"""Answers of a real llama-server that end early, and servers that are started in other ways."""

from __future__ import annotations

from typing import Any

import pytest

from tests.llama_server.conftest import Llama, ask
from tests.llama_server.server import KEY
from tests.support.client.actions import ResponseError
from tests.support.outside import Outside, check_sentence


async def refusal_of(outside: Outside, case: str = "plain", **more: Any) -> str:
    """The sentence with which a turn fails."""
    with pytest.raises(ResponseError) as refused:
        await ask(outside, case, **more)
    assert refused.value.code == -32803
    check_sentence(refused.value.message)
    return refused.value.message


@pytest.mark.parametrize(
    ("options", "settings"), [((), {"maxTokens": 1024}), (("--predict", "8"), {})], ids=["maxTokens", "--predict"]
)
async def test_an_endless_answer_ends_at_its_limit(llama: Llama, options: tuple[str, ...], settings: Any) -> None:
    outside = await llama(*options, settings=settings)
    result = await ask(outside, "endless")
    assert result["stopReason"] == "max_tokens"
    assert result["text"].startswith("Round it goes")


async def test_a_call_that_is_cut_by_a_limit_is_not_run(llama: Llama) -> None:
    outside = await llama("--predict", "24")
    result = await ask(outside, "cut")
    assert (result["stopReason"], result["edits"]) == ("max_tokens", None)
    again = await ask(outside, "again", sessionId="last")
    assert again["text"] == "Good that you ask again.", again


async def test_a_budget_of_tokens_asks_before_it_is_exceeded(llama: Llama) -> None:
    outside = await llama(settings={"budget": {"tokensPerTurn": 12_000}})
    result = await ask(outside, "fix")
    assert result["stopReason"] == "budget"
    outside.told()


async def test_a_context_that_is_too_small_is_said_with_what_to_do(llama: Llama) -> None:
    result = await ask(await llama("--ctx-size", "4096"), "plain")
    assert (result["stopReason"], result["text"], result["edits"]) == ("context_window", "", None)
    said = " ".join(result["notices"])
    assert "raise the context length" in said
    assert "available context size (4096 tokens)" in said


async def test_a_context_that_fills_up_while_the_model_writes(llama: Llama) -> None:
    asked = (await ask(await llama(), "plain"))["usage"]["inputTokens"]
    outside = await llama("--ctx-size", str(asked + 768), "--parallel", "1")
    result = await ask(outside, "endless")
    assert result["stopReason"] in {"context_window", "max_tokens"}
    assert result["text"].startswith("Round it goes")


async def test_without_jinja_tools_are_refused_with_the_option(llama: Llama) -> None:
    assert "--jinja" in await refusal_of(await llama("--no-jinja"))


async def test_a_key_lets_in(llama: Llama) -> None:
    assert (await ask(await llama("--api-key", KEY, key=KEY), "plain"))["text"] == "Plain words."


async def test_no_key_is_said_to_be_missing(llama: Llama) -> None:
    outside = await llama("--api-key", KEY)
    assert "THINKLSP_COMPATIBLE_API_KEY" in await refusal_of(outside)


@pytest.mark.parametrize(
    ("form", "config", "clean"),
    [("none", "think_tags = true", True), ("none", "", False), ("deepseek", "", True), ("deepseek-legacy", "", True)],
)
async def test_forms_of_reasoning(llama: Llama, form: str, config: str, clean: bool) -> None:
    outside = await llama("--reasoning-format", form, config=config)
    result = await ask(outside, "think")
    assert result["text"].endswith("Pondered enough.")
    assert ("<think>" not in result["text"]) is clean
    assert bool(result["notices"]) is not clean


async def test_a_router_loads_the_model_that_is_named(llama: Llama) -> None:
    outside = await llama("--models-max", "1")
    assert (await ask(outside, "plain"))["text"] == "Plain words."


async def test_router_without_the_model_is_still_recognized(llama: Llama) -> None:
    """The hint is none for Ollama."""
    outside = await llama("--models-max", "1", settings={"model": "nosuch"})
    said = await refusal_of(outside)
    assert "nosuch" in said
    assert "ollama" not in said.lower()


async def test_cancel_frees_the_slot(llama: Llama) -> None:
    outside = await llama()
    client, server = outside.pair
    token = outside.token()
    turn = client.command("thinklsp.chat", {"prompt": "case endless."}, token=token)
    await client.wait_for(lambda: "report" in client.progress_kinds(token), what="progress")
    client.notify("window/workDoneProgress/cancel", {"token": token})
    assert (await outside.result(turn))["stopReason"] == "cancelled"

    idle = False
    while not idle:
        idle = not await server.is_busy()
    again = await ask(outside, "again", sessionId="last")
    assert again["text"] == "Good that you ask again.", again


async def test_a_server_that_is_killed_while_it_writes(llama: Llama) -> None:
    outside = await llama()
    client, server = outside.pair
    turn = client.command("thinklsp.chat", {"prompt": "case endless."}, token=outside.token())
    await server.wait_for(lambda: "slot" in server.log and "processing task" in server.log, what="the turn")
    server.kill()
    with pytest.raises(ResponseError) as failed:
        await turn
    assert failed.value.code == -32803
    check_sentence(failed.value.message)
