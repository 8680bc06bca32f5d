"""What the service says of a model, in the doctor's report: shown, compared with the catalogue, never waited for."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.support.sse_server import SseServer, Step, answer
from thinklsp.engine import Engine
from thinklsp.engine.doctor import report
from thinklsp.providers.anthropic.adapter import AnthropicAdapter
from thinklsp.providers.capabilities import contradictions
from thinklsp.providers.catalog import lookup
from thinklsp.settings import EditorSettings
from thinklsp.simulator.anthropic.models import MODELS, model_info
from thinklsp.simulator.scenario import load
from thinklsp.simulator.server import Simulator

KEY = "canary-key-0123456789"
KNOCK: list[Step] = answer(b"{}", 404)


async def reported(base_url: str, **choices: str) -> dict[str, Any]:
    place = {"THINKLSP_CONFIG": "/nonexistent/config.toml", "ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_API_KEY": KEY}
    engine = Engine(place)
    try:
        found = await report(engine, EditorSettings(), choices)
    finally:
        await engine.aclose()
    assert KEY not in json.dumps(found)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_the_catalogue_agrees_with_the_simulated_service(name: str) -> None:
    told = AnthropicAdapter().parse_capabilities(json.dumps(model_info(name)).encode())
    assert told is not None
    model = lookup("anthropic", name)
    assert contradictions(model, told) == []
    assert told.max_tokens == model.output_cap


async def test_the_simulator_is_asked_with_the_key() -> None:
    async with Simulator(load("sample")) as simulator:
        found = await reported(simulator.base_url, model="claude-sonnet-5-5")
        asked = simulator.requests[-1]
        assert (asked.method, asked.path, asked.status) == ("GET", "/v1/models/claude-sonnet-5-5", 200)
        assert asked.headers["x-api-key"] == KEY
        assert "content-type" not in asked.headers
        assert asked.raw == b""
        unknown = await reported(simulator.base_url, model="claude-nine/../x?y")
    assert found["model"]["capabilities"]["thinking"] == ["adaptive", "between_tools"]
    assert (found["problems"], found["canRun"]) == ([], True)
    assert asked_path(simulator) == "/v1/models/claude-nine%2F..%2Fx%3Fy"
    assert unknown["model"]["capabilities"] is None


def asked_path(simulator: Simulator) -> str:
    return simulator.requests[-1].path


def info(**changes: Any) -> bytes:
    """The description of claude-opus-5-5, with flags set otherwise."""
    told = json.loads(json.dumps(model_info("claude-opus-5-5")))
    for form in ("disabled", "enabled"):
        if form in changes:
            told["capabilities"]["thinking"]["types"][form]["supported"] = changes[form]
    if "xhigh" in changes:
        told["capabilities"]["effort"]["xhigh"] = changes["xhigh"]
    return json.dumps(told).encode()


NOT_FOUND = {"type": "error", "error": {"type": "not_found_error", "message": "model: claude-opus-5-5"}}
NO_KEY = {"type": "error", "error": {"type": "authentication_error", "message": f"invalid x-api-key {KEY}"}}
ANSWERS: dict[str, tuple[list[Step], list[str], bool, bool]] = {
    # The answer; words of the problems; whether a turn could run; whether something is shown.
    "agrees": (answer(info()), [], True, True),
    "another form": (answer(info(disabled=True)), ["forms of thinking adaptive, disabled; this version"], True, True),
    "an effort less": (answer(info(xhigh={"supported": False})), ["efforts low, medium, high, max;"], True, True),
    "xhigh absent": (answer(info(xhigh=None)), ["efforts low, medium, high, max;"], True, True),
    "both": (answer(info(enabled=True, xhigh={})), ["adaptive, enabled", "efforts low"], True, True),
    "nothing told": (answer(b'{"id": "claude-opus-5-5", "capabilities": null}'), [], True, False),
    "odd shapes": (answer(b'{"capabilities": {"thinking": [1], "effort": "x"}, "max_tokens": "y"}'), [], True, True),
    "no JSON": (answer(b"<html>"), [], True, False),
    "no such address": (
        answer(b'{"error":{"code":404,"type":"not_found_error","message":"File"}}', 404),
        [],
        True,
        False,
    ),
    "no such model": (answer(json.dumps(NOT_FOUND).encode(), 404), ["check `model`"], False, False),
    "wrong key": (answer(json.dumps(NO_KEY).encode(), 401), ["refused the API key"], False, False),
    "trouble": (answer(b"{}", 529), [], True, False),
    "broken off": ([], [], True, False),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_what_the_answer_means(name: str) -> None:
    play, problems, can_run, shown = ANSWERS[name]
    async with SseServer([KNOCK, play]) as server:
        found = await reported(server.url)
    assert len(found["problems"]) == len(problems)
    assert all(words in problem for words, problem in zip(problems, found["problems"], strict=True))
    assert found["canRun"] is can_run
    assert (found["model"]["capabilities"] is not None) is shown


LISTED = b'{"object": "list", "data": [{"id": "m:1"}, {"id": "m:2"}]}'
COMPATIBLE: dict[str, tuple[str, list[Step], str, bool, str]] = {
    # The path and what stands there; words of the only problem; whether a turn could run; the model that is shown.
    "no version": ("", answer(b"404 page not found", 404), "has nothing there (404). Check the base URL", False, ""),
    "a web page": ("/v1", answer(b"<html>", content_type="text/html"), "something else there (200)", False, ""),
    "nothing pulled": ("/v1", answer(b'{"object": "list", "data": null}'), "has no model yet", False, ""),
    "two models": ("/v1", answer(LISTED), "", True, "m:1"),
}


@pytest.mark.parametrize("name", COMPATIBLE)
async def test_a_compatible_server_that_is_asked_for_its_models(name: str) -> None:
    path, play, words, can_run, model = COMPATIBLE[name]
    async with SseServer([KNOCK, play]) as server:
        place = {"THINKLSP_CONFIG": "/nonexistent/config.toml", "THINKLSP_COMPATIBLE_BASE_URL": server.url + path}
        engine = Engine(place)
        try:
            # No sentence may speak of a model that has no name yet.
            found = await report(engine, EditorSettings(), {"effort": "max", "thinking.mode": "manual"})
        finally:
            await engine.aclose()
    assert (found["canRun"], found["model"]["id"]) == (can_run, model)
    assert len(found["problems"]) == bool(words)
    assert words in "".join(found["problems"])
    assert [notice.startswith("m:1 ") for notice in found["model"]["notices"]] == [True, True] * bool(model)


@pytest.mark.parametrize(
    ("provider", "path", "words"),
    [
        ("openai", "", "usually ends in /v1"),
        ("openai", "/v1", ""),
        ("anthropic", "/v1", "Leave /v1 out at the end"),
        ("google", "/v1beta", "Leave /v1beta out at the end"),
        ("google", "/gateway", ""),
    ],
)
async def test_a_base_url_with_a_likely_mistake(provider: str, path: str, words: str) -> None:
    keys = {"openai": "OPENAI_API_KEY", "google": "GEMINI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
    urls = {"openai": "OPENAI_BASE_URL", "google": "GOOGLE_GEMINI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL"}
    async with SseServer([KNOCK, answer(b"404 page not found", 404)]) as server:
        engine = Engine({"THINKLSP_CONFIG": "/none.toml", keys[provider]: KEY, urls[provider]: server.url + path})
        try:
            found = await report(engine, EditorSettings(), {})
        finally:
            await engine.aclose()
    assert found["canRun"]
    assert len(found["problems"]) == bool(words)
    assert words in "".join(found["problems"])


async def test_a_silent_service_is_waited_for_three_seconds_in_all() -> None:
    async with SseServer([KNOCK, ["hold"]]) as server:
        began = time.monotonic()
        found = await reported(server.url)
        assert 2.5 < time.monotonic() - began < 4.0
    assert (found["reachable"], found["canRun"], found["problems"]) == (True, True, [])
