"""The ways through LiteLLM: which of its interfaces thinklsp speaks to, and whose model answers behind it.

`_CHANGES` says what LiteLLM changes or loses on a way, with the reason. All else is the same as without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from tests.gateways.litellm_proxy import CLAUDE, GEMINI, GPT, KEY, LiteLlm
from tests.support.services import EVERYWHERE, Service, Way
from thinklsp.agent.remedies import BARE
from thinklsp.simulator.journal import RecordedRequest
from thinklsp.simulator.scenario import Scenario, Step, ToolPart, Turn, parse
from thinklsp.simulator.server import Simulator

_CHAT = ("openai-compatible", "THINKLSP_COMPATIBLE_BASE_URL", "THINKLSP_COMPATIBLE_API_KEY", "/v1")
_MESSAGES = ("anthropic", "ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN", "")
_PASSED_ON = ("anthropic", "ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN", "/anthropic")
_RESPONSES = ("openai", "OPENAI_BASE_URL", "OPENAI_API_KEY", "/v1")
_GOOGLE = ("google", "GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY", "")


# In chat completions, which it translates everything to on most ways, there is no place for the service's sentence.
_FILTERED = {"refusal": "The service's content filter stopped the answer."}
_DECLINED = {"refusal": "The service declined to answer this request."}
# It reads these streams with httpx's `aiter_lines`, which takes U+2028 for the end of a line: the event is lost.
_SPLITS = {"separators": False}
# Its usage in the Messages API has no number of thinking tokens.
_UNCOUNTED = {"counts_thinking": False}
# It passes on the effort of thinking, and no wish for summaries.
_UNREADABLE = {"summaries": False}


def _unhinted(model: str) -> Mapping[str, Any]:
    """It refuses `prompt_cache_key` for models behind other services than OpenAI (P-D5)."""
    return {"notices": (f"The service does not accept hints for its prompt cache with {model}; none are sent.",)}


_CHANGES: Mapping[tuple[str, str], Mapping[str, Any]] = {
    # It sends the calls of an answer to OpenAI before its text, which separates the thinking from what follows (P-D2).
    ("messages", GPT): {**_UNREADABLE, **_UNCOUNTED, "reorders": True, "notices": (BARE,)},
    # It makes one call of several: the name of the first, the arguments of all in a row.
    ("messages", GEMINI): {**_SPLITS, **_DECLINED, **_UNCOUNTED, "parallel": False},
    ("chat", CLAUDE): {**_SPLITS, **_FILTERED, **_UNREADABLE},
    ("chat", GPT): _FILTERED,
    ("chat", GEMINI): {**_SPLITS, **_FILTERED, **_UNREADABLE},
    ("responses", CLAUDE): {**_SPLITS, **_FILTERED, **_UNREADABLE, **_unhinted(CLAUDE)},
    ("responses", GEMINI): {**_SPLITS, **_FILTERED, **_UNREADABLE, **_unhinted(GEMINI)},
    ("google", GEMINI): _SPLITS,
}


def _way(name: str, interface: tuple[str, str, str, str], model: str) -> Way:
    provider, host, key, address = interface
    return Way(provider, model, host, key, address, **_CHANGES.get((name, model), {}))


ROUTES = {
    f"{name}, {model}": _way(name, interface, model)
    for name, interface, models in (
        ("messages", _MESSAGES, (CLAUDE, GPT, GEMINI)),
        ("chat", _CHAT, (CLAUDE, GPT, GEMINI)),
        ("responses", _RESPONSES, (CLAUDE, GPT, GEMINI)),
        ("passed on", _PASSED_ON, (CLAUDE,)),
        ("google", _GOOGLE, (GEMINI,)),
    )
    for model in models
}


class ServicesBehind(Service):
    """The simulated services where the proxy looks for them. The environment has one way open, through the proxy."""

    def __init__(self, proxy: LiteLlm, way: Way) -> None:
        super().__init__()
        self.simulator = Simulator(_scenario(way), proxy.services_port, on_finished=self._judge)
        self._proxy, self._way = proxy, way

    def _judge(self, request: RecordedRequest) -> None:
        """Judge as without a gateway, but for the requests that LiteLLM itself has put into a wrong order."""
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
    """Return the courses of all providers, without what cannot arrive on this way."""
    text = EVERYWHERE.read_text("utf-8")
    scenario = parse(text if way.separators else text.replace("\\u2028", ""), EVERYWHERE.stem)
    if way.parallel:
        return scenario
    return scenario.model_copy(update={"turn": tuple(map(_without_parallel_calls, scenario.turn))})


def _without_parallel_calls(turn: Turn) -> Turn:
    return turn.model_copy(update={"step": tuple(map(_with_first_call, turn.step))})


def _with_first_call(step: Step) -> Step:
    calls = [part for part in step.block if isinstance(part, ToolPart)]
    return step.model_copy(update={"block": tuple(part for part in step.block if part not in calls[1:])})
