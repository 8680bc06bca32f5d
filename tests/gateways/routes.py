"""The ways through LiteLLM: which of its interfaces thinklsp speaks to, and whose model answers behind it."""

from __future__ import annotations

from tests.gateways.litellm_proxy import CLAUDE, GEMINI, GPT, KEY, LiteLlm
from tests.support.services import EVERYWHERE, Service, Way
from thinklsp.simulator.scenario import Scenario, load
from thinklsp.simulator.server import Simulator

_CHAT = ("openai-compatible", "THINKLSP_COMPATIBLE_BASE_URL", "THINKLSP_COMPATIBLE_API_KEY", "/v1")
_MESSAGES = ("anthropic", "ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN", "")
_PASSED_ON = ("anthropic", "ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN", "/anthropic")
_RESPONSES = ("openai", "OPENAI_BASE_URL", "OPENAI_API_KEY", "/v1")
_GOOGLE = ("google", "GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY", "")


def _way(interface: tuple[str, str, str, str], model: str) -> Way:
    provider, host, key, address = interface
    return Way(provider, model, host, key, address)


ROUTES = {
    f"{name}, {model}": _way(interface, model)
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

    def __init__(self, proxy: LiteLlm, way: Way, scenario: Scenario | None = None) -> None:
        super().__init__()
        self.simulator = Simulator(scenario or load(str(EVERYWHERE)), proxy.services_port, on_finished=self._judge)
        self._proxy, self._way = proxy, way

    def environment(self) -> dict[str, str]:
        assert self._way.key is not None
        return {self._way.host: self._proxy.url + self._way.address, self._way.key: KEY}

    def secrets(self) -> dict[str, str]:
        return super().secrets() | {"the proxy's key": KEY}
