"""The doctor's report for each provider: reachable, unknown model, wrong key, windows that differ, lists of models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.settings.test_sources import NO_FILE
from tests.support.sse_server import SseServer, Step, answer
from thinklsp.engine import Engine
from thinklsp.engine.doctor import report
from thinklsp.settings import EditorSettings
from thinklsp.simulator.google.models import model_info
from thinklsp.simulator.scenario import load
from thinklsp.simulator.server import Simulator

KEY = "sk-canary-0123456789-abcdefghijkl"
KNOCK: list[Step] = answer(b"{}", 404)


@dataclass(frozen=True)
class Service:
    """`address` follows the host. `question`: what is asked about a model, `{}` being its id. `key_in`: the header that
    carries the key. `unknown`: words of the sentence for a model that the service does not have. `wrong_key`: how the
    service refuses a key; `refused`: what the user reads of it."""

    provider: str
    host: str
    key: str
    model: str
    question: str
    key_in: str
    unknown: str
    wrong_key: tuple[int, Any]
    address: str = ""
    refused: str = "refused the API key"
    capabilities: Mapping[str, Any] | None = field(default_factory=dict)

    def environment(self, url: str, key: str = KEY) -> dict[str, str]:
        return NO_FILE | {self.host: url + self.address, self.key: key}


NO_KEY = {"error": {"message": f"Incorrect API key provided: {KEY}.", "type": "invalid_request_error"}}
SERVICES = {
    "anthropic": Service(
        "anthropic",
        "ANTHROPIC_BASE_URL",
        "ANTHROPIC_API_KEY",
        "claude-opus-5-5",
        "/v1/models/{}",
        "x-api-key",
        "check `model`",
        (401, {"type": "error", "error": {"type": "authentication_error", "message": f"invalid x-api-key {KEY}"}}),
        capabilities={"contextWindow": 1_000_000, "models": None},
    ),
    "openai": Service(
        "openai",
        "OPENAI_BASE_URL",
        "OPENAI_API_KEY",
        "gpt-6-sol",
        "/v1/models/{}",
        "authorization",
        "check `model`",
        (401, NO_KEY),
        "/v1",
        # It tells nothing about what a model can do.
        capabilities=None,
    ),
    "google": Service(
        "google",
        "GOOGLE_GEMINI_BASE_URL",
        "GEMINI_API_KEY",
        "gemini-4-argon",
        "/v1beta/models/{}",
        "x-goog-api-key",
        "check `model`",
        (400, {"error": {"code": 400, "message": f"API key not valid. {KEY}", "status": "INVALID_ARGUMENT"}}),
        capabilities={"contextWindow": 1_048_576, "maxTokens": 65_536, "thinking": None},
    ),
    "openai-compatible": Service(
        "openai-compatible",
        "THINKLSP_COMPATIBLE_BASE_URL",
        "THINKLSP_COMPATIBLE_API_KEY",
        "qwen3-8b",
        "/v1/models",
        "authorization",
        "Set thinklsp.model to one of its models",
        (401, NO_KEY),
        "/v1",
        "set THINKLSP_COMPATIBLE_API_KEY, or check the key",
        capabilities={"thinking": None, "contextWindow": 32_768},
    ),
}


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest) -> Service:
    return SERVICES[request.param]


async def reported(environment: Mapping[str, str], **choices: str) -> dict[str, Any]:
    engine = Engine(environment)
    try:
        found = await report(engine, EditorSettings(), choices)
    finally:
        await engine.aclose()
    assert KEY not in json.dumps(found)
    return found


async def test_all_is_well(service: Service) -> None:
    async with Simulator(load("sample")) as simulator:
        found = await reported(service.environment(simulator.base_url), model=service.model)
        knock, asked = simulator.requests
    assert (found["reachable"], found["canRun"], found["problems"]) == (True, True, [])
    assert (found["model"]["provider"], found["model"]["id"]) == (service.provider, service.model)
    assert found["model"]["keySource"] == f"the environment variable {service.key}"
    # The first only sees whether the way is open; the second is answered without a model call.
    assert KEY not in json.dumps(dict(knock.headers))
    assert (asked.method, asked.path, asked.status) == ("GET", service.question.format(service.model), 200)
    assert KEY in asked.headers[service.key_in]
    told = found["model"]["capabilities"]
    if service.capabilities is None:
        assert told is None
    else:
        assert {key: told[key] for key in service.capabilities} == service.capabilities


async def test_the_window_that_a_compatible_server_tells_is_the_one_that_counts() -> None:
    service = SERVICES["openai-compatible"]
    async with Simulator(load("sample")) as simulator:
        for model, window in (("qwen3-8b", 32_768), ("vllm-qwen3-32b", 65_536), ("gpt-oss:20b", None)):
            found = await reported(service.environment(simulator.base_url), model=model)
            assert (found["model"]["contextWindow"], found["problems"]) == (window, [])


async def test_a_model_that_the_service_does_not_have(service: Service) -> None:
    async with Simulator(load("sample")) as simulator:
        found = await reported(service.environment(simulator.base_url), model="no-such-1", provider=service.provider)
    (problem,) = found["problems"]
    assert service.unknown in problem
    assert "no-such-1" in problem
    # A list may leave out what the server has all the same.
    assert found["canRun"] is (service.provider == "openai-compatible")


async def test_a_key_that_is_refused(service: Service) -> None:
    status, body = service.wrong_key
    async with SseServer([KNOCK, answer(json.dumps(body).encode(), status)]) as server:
        found = await reported(service.environment(server.url), model=service.model)
    (problem,) = found["problems"]
    assert service.refused in problem
    assert (found["reachable"], found["canRun"]) == (True, False)


@pytest.mark.parametrize("key", [f"{KEY}\nX: y", f"\N{LEFT DOUBLE QUOTATION MARK}{KEY}"])
async def test_a_key_that_no_request_can_carry(service: Service, key: str) -> None:
    async with SseServer([KNOCK]) as server:
        found = await reported(service.environment(server.url, key), model=service.model)
    (problem,) = found["problems"]
    assert "a character that HTTP does not allow" in problem
    assert f"from the environment variable {service.key}," in problem
    assert (found["reachable"], found["canRun"]) == (True, False)


async def test_a_service_that_cannot_be_reached(service: Service) -> None:
    found = await reported(service.environment("http://127.0.0.1:9"), model=service.model)
    (problem,) = found["problems"]
    assert problem.startswith(f"{service.provider} cannot be reached.")
    assert (found["reachable"], found["canRun"], found["model"]["capabilities"]) == (False, False, None)


@pytest.mark.parametrize("play", [answer(b"<html>"), answer(b"[1]"), answer(b"{}", 500), answer(b"{}", 404), []])
async def test_an_answer_that_says_nothing_is_no_problem(service: Service, play: list[Step]) -> None:
    async with SseServer([KNOCK, play]) as server:
        found = await reported(service.environment(server.url), model=service.model)
    assert (found["canRun"], found["model"]["capabilities"]) == (True, None)
    # Compatible servers all list their models, so that something else there hints at a wrong address.
    odd = service.provider == "openai-compatible" and play not in ([], answer(b"{}", 500))
    assert ["usually ends in /v1" in problem for problem in found["problems"]] == [True] * odd


@pytest.mark.parametrize("window", [1_048_576, 500_000, "much", -1, True])
async def test_a_window_that_differs_is_said_with_what_to_do(window: object) -> None:
    told = model_info("gemini-4-argon") | {"inputTokenLimit": window}
    service = SERVICES["google"]
    async with SseServer([KNOCK, answer(json.dumps(told).encode())]) as server:
        found = await reported(service.environment(server.url), model="gemini-4-argon")
        unknown = await reported(service.environment(server.url), model="gemini-9-new")
    assert found["canRun"] is True
    if window == 500_000:
        (problem,) = found["problems"]
        assert "reads 500,000 tokens; this version reckons with 1,048,576" in problem
        assert "Set context_window for it under [models] in your config.toml" in problem
    else:
        assert found["problems"] == []
    # Of a model that the catalogue does not know there is nothing to contradict.
    assert unknown["problems"] == []


LISTS: dict[str, tuple[Any, str, list[str], str | None]] = {
    # The list; the model that is set, if any; words of the problems; the model that a turn would use.
    "the model is there": (["a", "b"], "b", [], "b"),
    "with the newest tag": (["b:latest"], "b", [], "b"),
    "another one": (["a", "b"], "c", ["does not list the model c; it has a, b. Set thinklsp.model"], "c"),
    "no model set": (["a", "b"], "", [], "a"),
    "none there, none set": ([], "", ["has no model yet. Load one there."], None),
    "none there": ([], "c", ["does not list the model c; it has none", "has no model yet. Load one there."], None),
    "odd ones": ([1, {"id": 2}, {"id": ""}, None], "", ["has no model yet"], None),
}


@pytest.mark.parametrize("name", LISTS)
async def test_the_models_of_a_compatible_server(name: str) -> None:
    ids, model, words, used = LISTS[name]
    data = [{"id": one} if isinstance(one, str) else one for one in ids]
    async with SseServer([KNOCK, answer(json.dumps({"data": data}).encode())]) as server:
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
