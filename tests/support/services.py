"""Every service that the product speaks to, played by the simulator, as the outside sees them: a host, a key, a model.

`Service` stands where the signing provider stands in `outside.start`: it judges what arrives and knows what is secret.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from thinklsp.simulator.journal import RecordedRequest
from thinklsp.simulator.scenario import Scenario, load
from thinklsp.simulator.server import Simulator

EVERYWHERE = Path(__file__).parents[1] / "fixtures" / "scenarios" / "everywhere.toml"
# Names under which services send what only they may read.
_SEALED = frozenset({"signature", "data", "encrypted_content", "thoughtSignature"})
_LEAST = 100


@dataclass(frozen=True)
class Way:
    """A provider and one of its models. `address` follows the host in the variable `host`; `key` None: no key needed.

    `summaries`: readable thinking can be asked for. `counts_thinking`: the service tells how many tokens it took.
    `learned`: that it takes no thinking back is learned from its first refusal.

    The others say what a gateway changes on the way, so that no client can have it otherwise. `refusal`: what the user
    reads when the model refuses. `notices`: what the user is told in a turn with tools. `reorders`: a request that
    returns text and calls of one answer is refused once. `separators`: U+2028 in a text arrives. `parallel`: several
    calls in one answer arrive as several.
    """

    provider: str
    model: str
    host: str
    key: str | None
    address: str = ""
    summaries: bool = True
    counts_thinking: bool = True
    learned: bool = False
    refusal: str = "Stopped by a safety system."
    notices: tuple[str, ...] = ()
    reorders: bool = False
    separators: bool = True
    parallel: bool = True

    def environment(self, base_url: str) -> dict[str, str]:
        key = {} if self.key is None else {self.key: KEYS[self.provider]}
        return {self.host: base_url + self.address, **key}


KEYS = {
    "anthropic": "sk-ant-canary-Zq8wLr2vTn5xKc9pBd4fMh7j",
    "openai": "sk-proj-canary-Hy3kPw6sQx1mVb8nRt5gJd2c",
    "google": "AIzaCanaryUe4rWz7yNk2pLq9sXv6bTm3fGc8h",
    "openai-compatible": "local-canary-Fo5dKs8gLw2jQn7tXr4bVm9z",
}
_COMPATIBLE = ("THINKLSP_COMPATIBLE_BASE_URL", "THINKLSP_COMPATIBLE_API_KEY", "/v1")
WAYS: Mapping[str, Way] = {
    "anthropic": Way("anthropic", "claude-opus-5-5", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
    "openai": Way("openai", "gpt-6-sol", "OPENAI_BASE_URL", "OPENAI_API_KEY", "/v1"),
    "google": Way("google", "gemini-4-argon", "GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY"),
    "google, with a budget": Way("google", "gemini-2.5-pro", "GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY"),
    "deepseek": Way("openai-compatible", "deepseek-reasoner", *_COMPATIBLE),
    "openrouter": Way("openai-compatible", "anthropic/claude-opus-5.5", *_COMPATIBLE),
    "llama.cpp": Way("openai-compatible", "qwen3-8b", _COMPATIBLE[0], None, "/v1", counts_thinking=False),
    "ollama": Way("openai-compatible", "gpt-oss:20b", _COMPATIBLE[0], None, "/v1", counts_thinking=False),
    "lm studio": Way("openai-compatible", "lmstudio-qwen", _COMPATIBLE[0], None, "/v1", counts_thinking=False),
    "strict gateway": Way("openai-compatible", "strict-1", *_COMPATIBLE, counts_thinking=False, learned=True),
    "no thinking": Way("openai-compatible", "plain-1", *_COMPATIBLE, summaries=False, counts_thinking=False),
}


class Service:
    """`async with Service() as service:`; all ways lead to it."""

    def __init__(self, scenario: Scenario | None = None) -> None:
        self.simulator = Simulator(scenario or load(str(EVERYWHERE)), on_finished=self._judge)
        self.key = KEYS["anthropic"]
        self.violations: list[str] = []
        self._told_strictly = False

    async def __aenter__(self) -> Self:
        await self.simulator.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.simulator.__aexit__()

    @property
    def url(self) -> str:
        return self.simulator.base_url

    @property
    def requests(self) -> list[RecordedRequest]:
        """What models were asked; that a server was asked for its list of them is left out."""
        return [request for request in self.simulator.requests if request.method == "POST"]

    def environment(self) -> dict[str, str]:
        """Every way is open."""
        return {name: value for way in WAYS.values() for name, value in way.environment(self.url).items()}

    def secrets(self) -> dict[str, str]:
        """The keys, and everything sealed that has come back so far."""
        sealed = {text for request in self.requests for text in sealed_in(request.body)}
        return {f"{name} key": key for name, key in KEYS.items()} | {f"sealed {n}": t for n, t in enumerate(sealed)}

    def _judge(self, request: RecordedRequest) -> None:
        """What was refused on the service's own account, and not because the scenario says so. The doctor's question
        whether the way is open has no body, and asks to be refused."""
        if not request.raw:
            return
        if request.status is not None and request.status >= 400 and request.played is None:
            if request.body.get("model", "").startswith("strict") and not self._told_strictly:
                # What this server takes can only be learned by asking, once.
                self._told_strictly = True
                return
            said = json.dumps(request.body, ensure_ascii=False)[-3000:]
            self.violations.append(f"{request.status} for {request.method} {request.path}: …{said}")


def sealed_in(value: Any) -> Iterator[str]:
    """Opaque state in a request: long texts under the names that services give them."""
    if isinstance(value, dict):
        for name, item in value.items():
            if name in _SEALED and isinstance(item, str) and len(item) >= _LEAST:
                yield item
            else:
                yield from sealed_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from sealed_in(item)
