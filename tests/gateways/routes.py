"""The routes through LiteLLM: the interface that thinklsp uses, and the provider of the model behind it.

`_CHANGES` lists the differences that LiteLLM causes on a route, with the reasons. There are no other differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from tests.gateways.litellm_proxy import CLAUDE, GEMINI, GPT, KEY, LiteLlm
from tests.stand_ins.http_server import RecordedRequest, Simulator
from tests.support.services import EVERYWHERE, Service, Way
from thinklsp.agent.request_fallbacks import STRIP_NOTICE
from thinklsp.offline.scenario import Scenario, ScenarioStep, ToolPart, parse_scenario

# On most routes LiteLLM translates to chat completions, which have no field for the service's explanation.
_FILTERED = {"refusal": "The provider's content filter stopped the answer."}
_DECLINED = {"refusal": "The provider declined to answer this request."}
# LiteLLM reads these streams with httpx's `aiter_lines`, which splits lines at U+2028, so the event is lost.
_SPLITS = {"separators": False}
# The usage in its Messages API has no number of thinking tokens.
_UNCOUNTED = {"counts_thinking": False}
# LiteLLM forwards the effort, but not the request for summaries.
_UNREADABLE = {"summaries": False}


def _unhinted(model: str) -> Mapping[str, Any]:
    """Return the notice of a rejected `prompt_cache_key`, which LiteLLM supports only for OpenAI (P-D5)."""
    return {"notices": (f"The provider rejected prompt cache hints for {model}; they are no longer sent.",)}


_CHANGES: Mapping[tuple[str, str], Mapping[str, Any]] = {
    # LiteLLM sends an answer's calls to OpenAI before its text, which separates the thinking from its calls (P-D2).
    ("messages", GPT): {**_UNREADABLE, **_UNCOUNTED, "reorders": True, "notices": (STRIP_NOTICE,)},
    # LiteLLM joins several calls: the name of the first one, and the arguments of all of them, concatenated.
    ("messages", GEMINI): {**_SPLITS, **_DECLINED, **_UNCOUNTED, "parallel": False},
    ("chat", CLAUDE): {**_SPLITS, **_FILTERED, **_UNREADABLE},
    ("chat", GPT): _FILTERED,
    ("chat", GEMINI): {**_SPLITS, **_FILTERED, **_UNREADABLE},
    ("responses", CLAUDE): {**_SPLITS, **_FILTERED, **_UNREADABLE, **_unhinted(CLAUDE)},
    ("responses", GEMINI): {**_SPLITS, **_FILTERED, **_UNREADABLE, **_unhinted(GEMINI)},
    ("google", GEMINI): _SPLITS,
}


_ANTHROPIC = ("anthropic", "ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN")
_COMPATIBLE = ("openai-compatible", "THINKLSP_COMPATIBLE_BASE_URL", "THINKLSP_COMPATIBLE_API_KEY")
ROUTES = {
    f"{name}, {model}": Way(provider, model, host, key, address, **_CHANGES.get((name, model), {}))
    for name, (provider, host, key), address, models in (
        ("messages", _ANTHROPIC, "", (CLAUDE, GPT, GEMINI)),
        ("chat", _COMPATIBLE, "/v1", (CLAUDE, GPT, GEMINI)),
        ("responses", ("openai", "OPENAI_BASE_URL", "OPENAI_API_KEY"), "/v1", (CLAUDE, GPT, GEMINI)),
        ("passed on", _ANTHROPIC, "/anthropic", (CLAUDE,)),
        ("google", ("google", "GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY"), "", (GEMINI,)),
    )
    for model in models
}


class ServicesBehind(Service):
    """The simulated services behind the proxy. The environment of thinklsp contains only the address of the proxy."""

    def __init__(self, proxy: LiteLlm, way: Way) -> None:
        super().__init__()
        self.simulator = Simulator(_scenario(way), proxy.services_port, on_finished=self._judge)
        self._proxy, self._way = proxy, way

    def _judge(self, request: RecordedRequest) -> None:
        """Check a request as without a gateway, except for requests that LiteLLM has reordered."""
        if not (self._way.reorders and _has_text_behind_calls(request.body)):
            super()._judge(request)

    def environment(self) -> dict[str, str]:
        assert self._way.key is not None
        return {self._way.host: self._proxy.url + self._way.address, self._way.key: KEY}

    def secrets(self) -> dict[str, str]:
        return super().secrets() | {"the proxy's key": KEY}


def _has_text_behind_calls(body: Any) -> bool:
    items = [(item.get("type"), item.get("role")) for item in body["input"]]
    return (("function_call", None), ("message", "assistant")) in pairwise(items)


def _scenario(way: Way) -> Scenario:
    """Return the scenario of all providers, without the parts that LiteLLM loses on this route."""
    text = EVERYWHERE.read_text("utf-8")
    scenario = parse_scenario(text if way.separators else text.replace("\\u2028", ""), EVERYWHERE.stem)
    if way.parallel:
        return scenario
    turns = (turn.model_copy(update={"step": tuple(map(_with_first_call, turn.step))}) for turn in scenario.turn)
    return scenario.model_copy(update={"turn": tuple(turns)})


def _with_first_call(step: ScenarioStep) -> ScenarioStep:
    calls = [part for part in step.parts if isinstance(part, ToolPart)]
    return step.model_copy(update={"parts": tuple(part for part in step.parts if part not in calls[1:])})
