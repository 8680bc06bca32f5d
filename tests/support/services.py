"""Every service that the product speaks to, played by the simulator, as the outside sees them: a host, a key, a model.

`Service` stands where the signing provider stands in `outside.start`: it judges what arrives and knows what is secret.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.stand_ins.http_server import Simulator
from tests.stand_ins.journal import RecordedRequest
from tests.support.canary import Canary, Leak
from tests.support.signing_server import SigningServer
from thinklsp.offline.scenario import Scenario, load_scenario

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
        self.simulator = Simulator(scenario or load_scenario(str(EVERYWHERE)), on_finished=self._judge)
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
        """Note what the service refused by itself. The doctor's question has no body, and asks to be refused."""
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


class _Together:
    """Services in the place of one provider in `outside.start`."""

    services: tuple[Any, ...]

    async def __aenter__(self) -> Self:
        for each in self.services:
            await each.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in reversed(self.services):
            await each.__aexit__()

    @property
    def violations(self) -> list[str]:
        return [violation for each in self.services for violation in each.violations]


class BothServices(_Together):
    def __init__(self) -> None:
        self.signing = SigningServer(f"sk-ant-canary-{secrets.token_hex(24)}")
        self.others = Service()
        self.services = (self.signing, self.others)

    def environment(self) -> dict[str, str]:
        return self.others.environment() | self.signing.environment()

    def secrets(self) -> dict[str, str]:
        return self.others.secrets() | self.signing.secrets()


# Where a service finds its own key.
_OWN_HEADERS = ("x-api-key", "authorization", "x-goog-api-key")


class SeveralServices(_Together):
    """`first` is the one that is spoken to at the beginning; `move` is the environment in which `second` is."""

    def __init__(self, *script: Any) -> None:
        self.first = SigningServer(f"sk-ant-canary-{secrets.token_hex(24)}", *script)
        self.second = SigningServer(f"sk-ant-canary-{secrets.token_hex(24)}")
        self.others = Service()
        self.here = self.first
        self.services = (self.first, self.second, self.others)

    def environment(self) -> dict[str, str]:
        return self.others.environment() | self.here.environment()

    def move(self) -> dict[str, str]:
        """The environment of a server that knows the other host from now on."""
        self.here = self.second if self.here is self.first else self.first
        return self.environment()

    @property
    def key(self) -> str:
        return self.here.key

    def secrets(self) -> dict[str, str]:
        """By the name of who issued them: `first, signature 0`."""
        owners = {"first": self.first, "second": self.second, "others": self.others}
        return {f"{owner}, {name}": text for owner, each in owners.items() for name, text in each.secrets().items()}

    def leaks(self) -> list[Leak]:
        """What a service was sent that belongs to another one; or a key, its own too, but in its header."""
        canary = Canary(self.secrets())
        heard = [(owner, text) for owner, texts in self._heard().items() for text in texts]
        leaks = [leak for owner, text in heard for leak in canary.search(text.encode(), f"a request to {owner}")]
        return [
            leak
            for leak in leaks
            if leak.secret.endswith("key") or not leak.where.endswith(leak.secret.partition(",")[0])
        ]

    def _heard(self) -> dict[str, set[str]]:
        """By service: each message of a request once, as most of a request is what the last one was."""
        signed = {"first": self.first, "second": self.second}
        heard = {
            owner: {text for seen in each.requests for text in _parts(seen.body, seen.headers)}
            for owner, each in signed.items()
        }
        others = self.others.simulator.requests
        heard["others"] = {text for seen in others for text in _parts(seen.body or {}, seen.headers)}
        return heard


def _parts(body: Any, headers: Mapping[str, str]) -> Iterator[str]:
    yield json.dumps([value for name, value in headers.items() if name.lower() not in _OWN_HEADERS])
    for name, value in body.items():
        for part in value if isinstance(value, list) else [value]:
            yield json.dumps([name, part])
