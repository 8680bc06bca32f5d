"""The contract that every provider adapter keeps: encode a request, decode a stream, classify a failure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Literal, Protocol
from urllib.parse import urlsplit

from thinklsp.core.body import Body
from thinklsp.core.choices import Effort, SummaryLength
from thinklsp.core.errors import ProviderError
from thinklsp.core.messages import Conversation, Origin, ToolSpec
from thinklsp.core.secrets import hide
from thinklsp.core.stream import StreamEvent
from thinklsp.core.usage import Usage
from thinklsp.providers.capabilities import Capabilities
from thinklsp.providers.model_info import ModelInfo

ThinkingForm = Literal["unset", "off", "between_tools", "adaptive", "manual"]

# Headers whose values are secrets, by their names.
_TELLING = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go and with which key. `base_url` as the user gives it, without a trailing slash.

    `bearer`: the key is an OAuth token, sent as ``Authorization: Bearer``. `headers`: the user's own extra headers.
    """

    provider: str
    base_url: str
    api_key: str = field(repr=False)
    bearer: bool = False
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    key_source: str = field(default="", compare=False)

    @property
    def host(self) -> str:
        """Scheme and authority, e.g. ``https://api.anthropic.com``."""
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.netloc}"

    def without_secrets(self, text: str) -> str:
        """For people. A service, or something on the way to it, may repeat in an error what it was sent."""
        told = [value for name, value in self.headers.items() if _TELLING.search(name)]
        return hide(text, [self.api_key, *told])

    def origin(self, model: str) -> Origin:
        fingerprint = sha256(self.api_key.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return _origin(self.provider, model, self.host, fingerprint)


@lru_cache(maxsize=64)
def _origin(provider: str, model: str, host: str, fingerprint: str) -> Origin:
    """One object for each, so that comparing what every block of a conversation holds takes no time."""
    return Origin(provider, model, host, fingerprint)


@dataclass(frozen=True, slots=True)
class Thinking:
    """The thinking configuration of one turn, already resolved against the model. It does not change in a tool loop.

    `budget_tokens` only with form `manual`. `effort` None: send nothing. `summarized`: ask for readable summaries, of
    the length `summary` if the service offers a choice.
    `drop_mismatched`: thinking that no longer fits what stands before it is to be left out instead of refused.
    """

    form: ThinkingForm = "unset"
    budget_tokens: int | None = None
    effort: Effort | None = None
    summarized: bool = False
    summary: SummaryLength = "auto"
    drop_mismatched: bool = False


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call as a value: equal requests encode to identical bytes.

    `max_tokens` None: nothing is said, and the service decides. `compact_at`: tokens at which the service is asked to
    shorten what the model reads, None: not at all; only for models that offer it. `cache_hints`: send the fields that
    help a service to find its prompt cache. `thinking_counts`: ask for token counts while the model thinks.
    """

    model: ModelInfo
    system: str
    tools: tuple[ToolSpec, ...]
    conversation: Conversation
    thinking: Thinking
    max_tokens: int | None
    compact_at: int | None = None
    cache_hints: bool = True
    thinking_counts: bool = True


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A POST. Headers and body hold secrets and are kept out of `repr`. `without_budget`: the conversation does not
    allow the thinking budget that was asked for."""

    url: str
    headers: Mapping[str, str] = field(repr=False, hash=False)
    body: Body = field(repr=False)
    without_budget: bool = False


class StreamDecoder(Protocol):
    """Lives and dies with one stream. Both methods raise ProviderError where the service reports or makes an error."""

    @property
    def usage(self) -> Usage:
        """The figures that the service has reported so far, also those of an answer that breaks off."""
        ...

    def feed(self, event: str, data: str) -> list[StreamEvent]:
        """One server-sent event: its name (empty if none) and its data."""
        ...

    def finish(self) -> list[StreamEvent]:
        """The stream has ended. Raises StreamProtocolError when the terminal event has not been seen."""
        ...


class Adapter(Protocol):
    def encode(self, request: ModelRequest, endpoint: Endpoint) -> HttpRequest: ...

    def decoder(self) -> StreamDecoder: ...

    def failure(self, status: int, headers: Mapping[str, str], body: bytes, model: str = "") -> ProviderError:
        """Return the error for an HTTP answer that is not a stream.

        Header names are lower case; the caller cuts `body`. `model` is the id that the request asked for: the sentence
        shows it as it is.
        """
        ...

    def encode_model_query(self, endpoint: Endpoint, model_id: str) -> tuple[str, Mapping[str, str]]:
        """Return URL and headers of the GET request for a description of the model."""
        ...

    def parse_capabilities(self, body: bytes) -> Capabilities | None:
        """Parse the answer to the model query; return None if it does not describe a model."""
        ...

    def is_unknown_model(self, status: int, body: bytes, model_id: str) -> bool:
        """Return whether the service says that it has no such model; a plain 404 only means that it describes none."""
        ...
