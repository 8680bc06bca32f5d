"""The doctor's report for each provider: reachable, unknown model, wrong key, windows that differ, lists of models, and
what the service says of a model: shown, compared with the catalogue, never waited for."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.settings.test_sources import NO_FILE
from tests.stand_ins.anthropic.requests import build_model_info as describe_claude
from tests.stand_ins.google.requests import build_model_info as describe_gemini
from tests.stand_ins.http_server import Simulator
from tests.support.hosts import SseServer, Step, answer
from tests.support.services import WAYS, Way
from thinklsp.engine import Engine
from thinklsp.engine.diagnosis import PROBE_SECONDS, build_report
from thinklsp.offline.scenario import load_scenario
from thinklsp.settings.sources import EditorSettings

KEY = "sk-canary-0123456789-abcdefghijkl"
KNOCK: list[Step] = answer(b"{}", 404)


def answer_json(body: object, status: int = 200) -> list[Step]:
    return answer(json.dumps(body).encode(), status)


@dataclass(frozen=True)
class Service:
    """`question`: what is asked about a model, `{}` being its id. `key_in`: the header that carries the key.
    `wrong_key`: how the service refuses a key; `refused`: what the user reads of it. `unknown`: words of the sentence
    for a model that the service does not have. `capabilities`: some of what it tells of the model."""

    way: Way
    question: str
    key_in: str
    wrong_key: list[Step]
    refused: str = "rejected the API key"
    unknown: str = "check `model`"
    capabilities: Mapping[str, Any] | None = field(default_factory=dict)

    def environment(self, url: str, key: str = KEY, address: str | None = None) -> dict[str, str]:
        assert self.way.key is not None
        return NO_FILE | {self.way.host: url + (self.way.address if address is None else address), self.way.key: key}


NO_KEY = {"error": {"message": f"Incorrect API key provided: {KEY}.", "type": "invalid_request_error"}}
NO_GOOGLE_KEY = {"error": {"code": 400, "message": f"API key not valid. {KEY}", "status": "INVALID_ARGUMENT"}}
NO_CLAUDE_KEY = {"type": "error", "error": {"type": "authentication_error", "message": f"invalid x-api-key {KEY}"}}
SERVICES = {
    "anthropic": Service(
        replace(WAYS["anthropic"], model="claude-sonnet-5-5"), "/v1/models/{}", "x-api-key",
        answer_json(NO_CLAUDE_KEY, 401),
        capabilities={"contextWindow": 1_000_000, "models": None, "thinking": ["adaptive", "between_tools"]},
    ),
    # It tells nothing about what a model can do.
    "openai": Service(
        WAYS["openai"], "/v1/models/{}", "authorization", answer_json(NO_KEY, 401), capabilities=None,
    ),
    "google": Service(
        WAYS["google"], "/v1beta/models/{}", "x-goog-api-key", answer_json(NO_GOOGLE_KEY, 400),
        capabilities={"contextWindow": 1_048_576, "maxTokens": 65_536, "thinking": None},
    ),
    "openai-compatible": Service(
        replace(WAYS["deepseek"], model="qwen3-8b"), "/v1/models", "authorization", answer_json(NO_KEY, 401),
        "set `THINKLSP_COMPATIBLE_API_KEY`, or check the key", "Set `thinklsp.model` to one of these",
        {"thinking": None, "contextWindow": 32_768},
    ),
}  # fmt: skip


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest) -> Service:
    return SERVICES[request.param]


async def reported(environment: Mapping[str, str], *, seconds: float = 60, **choices: str) -> dict[str, Any]:
    async with aclosing(Engine(environment)) as engine:
        found = await build_report(engine, EditorSettings(), choices, probe_seconds=seconds)
    assert KEY not in json.dumps(found)
    return found


async def test_all_is_well(service: Service) -> None:
    async with Simulator(load_scenario("sample")) as simulator:
        found = await reported(service.environment(simulator.base_url), model=service.way.model)
        knock, asked = simulator.requests
    assert (found["reachable"], found["canRun"], found["problems"]) == (True, True, [])
    assert (found["model"]["provider"], found["model"]["id"]) == (service.way.provider, service.way.model)
    assert found["model"]["keySource"] == f"the environment variable {service.way.key}"
    # The first only sees whether the way is open; the second is answered without a model call.
    assert KEY not in json.dumps(dict(knock.headers))
    assert (asked.method, asked.path, asked.status) == ("GET", service.question.format(service.way.model), 200)
    assert KEY in asked.headers[service.key_in]
    assert ("content-type" in asked.headers, asked.raw) == (False, b"")
    told = found["model"]["capabilities"]
    if service.capabilities is None:
        assert told is None
    else:
        assert {key: told[key] for key in service.capabilities} == service.capabilities


async def test_a_model_that_the_service_does_not_have(service: Service) -> None:
    async with Simulator(load_scenario("sample")) as simulator:
        environment = service.environment(simulator.base_url)
        found = await reported(environment, model="no-such-1", provider=service.way.provider)
        await reported(environment, model="no/../such?1", provider=service.way.provider)
        assert simulator.requests[-1].path == service.question.format("no%2F..%2Fsuch%3F1")
    (problem,) = found["problems"]
    assert service.unknown in problem
    assert "no-such-1" in problem
    # A list may leave out what the server has all the same.
    is_listed = service.way.provider == "openai-compatible"
    assert (found["canRun"], found["model"]["capabilities"] is None) == (is_listed, not is_listed)


async def test_a_key_that_is_refused(service: Service) -> None:
    async with SseServer([KNOCK, service.wrong_key]) as server:
        found = await reported(service.environment(server.url), model=service.way.model)
    (problem,) = found["problems"]
    assert service.refused in problem
    assert (found["reachable"], found["canRun"], found["model"]["capabilities"]) == (True, False, None)


@pytest.mark.parametrize("key", [f"{KEY}\nX: y", f"\N{LEFT DOUBLE QUOTATION MARK}{KEY}"])
async def test_a_key_that_no_request_can_carry(service: Service, key: str) -> None:
    async with SseServer([KNOCK]) as server:
        found = await reported(service.environment(server.url, key), model=service.way.model)
    (problem,) = found["problems"]
    assert "a character that HTTP does not allow" in problem
    assert f"from the environment variable {service.way.key} for line breaks" in problem
    assert (found["reachable"], found["canRun"]) == (True, False)


async def test_a_service_that_cannot_be_reached(service: Service) -> None:
    found = await reported(service.environment("http://127.0.0.1:9"), model=service.way.model)
    (problem,) = found["problems"]
    assert problem.startswith(f"{service.way.provider} cannot be reached.")
    assert (found["reachable"], found["canRun"], found["model"]["capabilities"]) == (False, False, None)


@pytest.mark.parametrize("play", [answer(b"<html>"), answer(b"[1]"), answer(b"{}", 529), answer(b"{}", 404), []])
async def test_an_answer_that_says_nothing_is_no_problem(service: Service, play: list[Step]) -> None:
    async with SseServer([KNOCK, play]) as server:
        found = await reported(service.environment(server.url), model=service.way.model)
    assert (found["canRun"], found["model"]["capabilities"]) == (True, None)
    # Compatible servers all list their models, so that something else there hints at a wrong address.
    odd = service.way.provider == "openai-compatible" and play not in ([], answer(b"{}", 529))
    assert ["usually ends in `/v1`" in problem for problem in found["problems"]] == [True] * odd


@pytest.mark.parametrize("window", [1_048_576, 500_000, "much", -1, True])
async def test_a_window_that_differs_is_said_with_what_to_do(window: object) -> None:
    told = describe_gemini("gemini-4-argon", 1) | {"inputTokenLimit": window}
    service = SERVICES["google"]
    async with SseServer([KNOCK, answer_json(told)]) as server:
        found = await reported(service.environment(server.url), model="gemini-4-argon")
        unknown = await reported(service.environment(server.url), model="gemini-9-new")
    assert found["canRun"] is True
    if window == 500_000:
        (problem,) = found["problems"]
        assert "500,000 tokens for" in problem
        assert "but thinklsp uses 1,048,576" in problem
        assert "Set `context_window` for it under `[models]` in your config.toml" in problem
    else:
        assert found["problems"] == []
    # Of a model that the catalogue does not know there is nothing to contradict.
    assert unknown["problems"] == []


def describe(**changes: Any) -> list[Step]:
    """An answer that describes claude-opus-5-5, with flags set otherwise."""
    told = json.loads(json.dumps(describe_claude("claude-opus-5-5", 1_000_000)))
    for form in ("disabled", "enabled"):
        if form in changes:
            told["capabilities"]["thinking"]["types"][form]["supported"] = changes[form]
    if "xhigh" in changes:
        told["capabilities"]["effort"]["xhigh"] = changes["xhigh"]
    return answer_json(told)


NO_ADDRESS = {"error": {"code": 404, "type": "not_found_error", "message": "File"}}
DESCRIPTIONS: dict[str, tuple[list[Step], list[str], bool]] = {
    # The answer; words of the problems; whether something is shown.
    "agrees": (describe(), [], True),
    "another form": (describe(disabled=True), ["forms of thinking adaptive, disabled for"], True),
    "an effort less": (describe(xhigh={"supported": False}), ["efforts low, medium, high, max for"], True),
    "xhigh absent": (describe(xhigh=None), ["efforts low, medium, high, max for"], True),
    "both": (describe(enabled=True, xhigh={}), ["adaptive, enabled", "efforts low"], True),
    "nothing told": (answer_json({"id": "claude-opus-5-5", "capabilities": None}), [], False),
    "odd shapes": (answer_json({"capabilities": {"thinking": [1], "effort": "x"}, "max_tokens": "y"}), [], True),
    "no such address": (answer_json(NO_ADDRESS, 404), [], False),
}


@pytest.mark.parametrize("name", DESCRIPTIONS)
async def test_description_that_contradicts_the_catalogue_is_told(name: str) -> None:
    play, problems, shown = DESCRIPTIONS[name]
    async with SseServer([KNOCK, play]) as server:
        found = await reported(SERVICES["anthropic"].environment(server.url))
    assert len(found["problems"]) == len(problems)
    assert all(words in problem for words, problem in zip(problems, found["problems"], strict=True))
    assert (found["canRun"], found["model"]["capabilities"] is not None) == (True, shown)


NONE_LOADED = "has no models. Load a model on the server."
LISTS: dict[str, tuple[Any, str, list[str], str | None]] = {
    # The list; the model that is set, if any; words of the problems; the model that a turn would use.
    "the model is there": (["a", "b"], "b", [], "b"),
    "with the newest tag": (["b:latest"], "b", [], "b"),
    "another one": (["a", "b"], "c", ["does not list the model c; it has a, b. Set `thinklsp.model`"], "c"),
    "no model set": (["a", "b"], "", [], "a"),
    "none there, none set": ([], "", [NONE_LOADED], None),
    "none there": ([], "c", ["does not list the model c; it has none", NONE_LOADED], None),
    "odd ones": ([1, {"id": 2}, {"id": ""}, None], "", ["has no models"], None),
}


@pytest.mark.parametrize("name", LISTS)
async def test_the_models_of_a_compatible_server(name: str) -> None:
    ids, model, words, used = LISTS[name]
    data = [{"id": one} if isinstance(one, str) else one for one in ids]
    async with SseServer([KNOCK, answer_json({"data": data})]) as server:
        environment = {"THINKLSP_COMPATIBLE_BASE_URL": f"{server.url}/v1"}
        found = await reported(NO_FILE | environment | ({"THINKLSP_MODEL": model} if model else {}))
        # Without a key there is none to send.
        assert "authorization" not in server.received[1].headers
    assert len(found["problems"]) == len(words)
    assert all(part in problem for part, problem in zip(words, found["problems"], strict=True))
    assert found["canRun"] is (used is not None)
    assert found["model"]["id"] == (used or model)
    told = found["model"]["capabilities"]["models"] if found["model"]["capabilities"] else None
    assert told == [one for one in ids if isinstance(one, str)]


NO_LIST = "list of its models (HTTP status {}). Check the base URL"
COMPATIBLE: dict[str, tuple[str, list[Step], str, str]] = {
    # The path and what stands there; words of the only problem; the model that a turn would use.
    "no version": ("", answer(b"404 page not found", 404), NO_LIST.format(404), ""),
    "a web page": ("/v1", answer(b"<html>", content_type="text/html"), NO_LIST.format(200), ""),
    "two models": ("/v1", answer_json({"object": "list", "data": [{"id": "m:1"}, {"id": "m:2"}]}), "", "m:1"),
}


@pytest.mark.parametrize("name", COMPATIBLE)
async def test_notices_name_a_model_only_once_the_server_has_one(name: str) -> None:
    path, play, words, model = COMPATIBLE[name]
    async with SseServer([KNOCK, play]) as server:
        place = NO_FILE | {"THINKLSP_COMPATIBLE_BASE_URL": server.url + path}
        found = await reported(place, **{"effort": "max", "thinking.mode": "manual"})
    assert (found["canRun"], found["model"]["id"]) == (bool(model), model)
    assert len(found["problems"]) == bool(words)
    assert words in "".join(found["problems"])
    assert [notice.startswith("m:1 ") for notice in found["model"]["notices"]] == [True, True] * bool(model)


ADDRESSES = [
    ("openai", "", "usually ends in `/v1`"),
    ("openai", "/v1", ""),
    ("anthropic", "/v1", "Remove `/v1` from the end"),
    ("anthropic", "/gateway/v1/messages", "Remove `/v1/messages` from the end"),
    ("google", "/v1beta", "Remove `/v1beta` from the end"),
    ("google", "/v1", "Remove `/v1` from the end"),
    ("openai", "/v1/responses", "Remove `/responses` from the end"),
    ("google", "/gateway", ""),
]


@pytest.mark.parametrize(("provider", "path", "words"), ADDRESSES)
async def test_a_base_url_with_a_likely_mistake(provider: str, path: str, words: str) -> None:
    async with SseServer([KNOCK, answer(b"404 page not found", 404)]) as server:
        found = await reported(SERVICES[provider].environment(server.url, address=path))
    assert found["canRun"]
    assert len(found["problems"]) == bool(words)
    assert words in "".join(found["problems"])


async def test_a_scenario_that_cannot_be_read_is_a_problem() -> None:
    found = await reported({"THINKLSP_PROVIDER": "simulator", "THINKLSP_SCENARIO": "/none.toml"})
    assert not found["canRun"]
    assert any("Cannot read the scenario '/none.toml'" in problem for problem in found["problems"])
    assert (await reported({"THINKLSP_PROVIDER": "simulator", "THINKLSP_SCENARIO": "demo"}))["canRun"]


async def report_on_silent_service(seconds: float) -> dict[str, Any]:
    """Return the report on a service that is reachable, but never lists its models."""
    async with SseServer([KNOCK, ["hold"]]) as server:
        return await reported(SERVICES["anthropic"].environment(server.url), seconds=seconds)


async def test_a_silent_service_is_no_problem() -> None:
    found = await report_on_silent_service(0.5)
    assert (found["reachable"], found["canRun"], found["problems"]) == (True, True, [])


@pytest.mark.timing
async def test_a_silent_service_is_waited_for_three_seconds_in_all() -> None:
    began = time.monotonic()
    await report_on_silent_service(PROBE_SECONDS)
    assert 2.5 < time.monotonic() - began < 4.0
