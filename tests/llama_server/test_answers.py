"""Turns with a real llama-server whose model says what the prompt asks it to."""

from __future__ import annotations

import asyncio

import pytest

from tests.llama_server.conftest import FILES, Llama, ask
from tests.support.outside import statuses
from thinklsp.core.choices import EFFORT_LEVELS


async def test_text_whose_tokens_end_within_characters(llama: Llama) -> None:
    result = await ask(await llama(), "text")
    assert result["text"] == "Grüße 🙂 aus Köln – 日本語, **fett** und mehr: 🧠."
    assert (result["stopReason"], result["notices"]) == ("end_turn", [])
    assert result["usage"]["outputTokens"] > 5
    assert result["usage"]["costUsd"] is None


async def test_thinking_is_shown_apart_and_kept_out_of_the_answer(llama: Llama) -> None:
    outside = await llama(settings={"thinking": {"display": "summary"}})
    result = await ask(outside, "think")
    assert (result["thinking"].strip(), result["text"]) == ("I ponder it 🙂.", "Pondered enough.")


async def test_fix_in_three_steps_reads_the_prompt_once(llama: Llama) -> None:
    outside = await llama()
    uri = outside.open("app.py", FILES["app.py"])
    result = await ask(outside, "fix")
    assert (result["stopReason"], result["text"], result["notices"]) == ("end_turn", "Fixed – 🙂.", [])
    assert statuses(result) == {"app.py": "applied"}
    assert outside.client.text(uri) == FILES["app.py"].replace("nmae", "name")
    assert result["usage"]["cacheReadTokens"] > 0.5 * result["usage"]["inputTokens"]


async def test_a_server_of_no_named_kind_works_too(llama: Llama) -> None:
    outside = await llama(kind="generic")
    outside.open("app.py", FILES["app.py"])
    assert statuses(await ask(outside, "fix")) == {"app.py": "applied"}


async def test_two_calls_in_one_answer(llama: Llama) -> None:
    result = await ask(await llama("--parallel", "1"), "parallel")
    assert (result["stopReason"], result["text"], result["edits"]) == ("end_turn", "I saw both of them.", None)


async def test_a_call_that_fails_changes_nothing(llama: Llama) -> None:
    outside = await llama()
    uri = outside.open("app.py", FILES["app.py"])
    result = await ask(outside, "lost")
    assert (result["stopReason"], result["text"], result["edits"]) == ("end_turn", "Then it stays.", None)
    assert outside.client.text(uri) == FILES["app.py"]


@pytest.mark.parametrize("case", ["thoughts", "nothing"])
async def test_an_answer_without_words_is_said_to_be_one(llama: Llama, case: str) -> None:
    outside = await llama()
    result = await ask(outside, case)
    assert (result["text"], result["edits"]) == ("The model ended the turn without an answer.", None)
    assert (await ask(outside, "again", sessionId="last"))["text"] == "Good that you ask again."


async def test_a_call_that_is_only_spoken_of_is_text(llama: Llama) -> None:
    result = await ask(await llama(), "spoken")
    assert result["text"] == "A model writes `<tool_call>` before it calls, and that is no call."
    assert result["edits"] is None


@pytest.mark.parametrize("effort", EFFORT_LEVELS)
async def test_an_effort_reaches_the_template(llama: Llama, effort: str) -> None:
    result = await ask(await llama(settings={"effort": effort}), "effort")
    assert result["text"] in {f"Asked for effort {level}." for level in EFFORT_LEVELS}
    assert effort not in {"low", "medium", "high"} or result["text"] == f"Asked for effort {effort}."


@pytest.mark.parametrize(("mode", "text"), [("auto", "Yes, thought about."), ("off", "Not thought about.")])
async def test_thinking_can_be_switched_off(llama: Llama, mode: str, text: str) -> None:
    assert (await ask(await llama(settings={"thinking": {"mode": mode}}), "mode"))["text"] == text


async def test_two_conversations_on_one_slot_wait_for_each_other(llama: Llama) -> None:
    outside = await llama("--parallel", "1")
    results = await asyncio.gather(ask(outside, "text"), ask(outside, "plain"))
    assert [result["stopReason"] for result in results] == ["end_turn"] * 2
    assert results[1]["text"] == "Plain words."


async def test_a_session_goes_on_after_a_restart(llama: Llama) -> None:
    outside = await llama()
    await ask(outside, "think")
    await outside.restart()
    result = await ask(outside, "again", sessionId="last")
    assert result["text"] == "Good that you ask again."
    assert result["usage"]["cacheReadTokens"] > 0
