"""The interface of the provider adapters, which encode requests, decode streams and classify errors."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Any, Literal
from urllib.parse import urlsplit

from thinklsp.core.choices import Effort, SummaryLength
from thinklsp.core.errors import ProviderError, StreamProtocolError
from thinklsp.core.messages import Conversation, Origin, ToolSpec
from thinklsp.core.stream_events import MessageStarted, StreamEvent
from thinklsp.core.text_safety import hide_secrets
from thinklsp.core.usage import Usage
from thinklsp.providers.catalogue import Capabilities, ModelInfo, ThinkingForm
from thinklsp.providers.decoding import find_object, parse_event, parse_json_object
from thinklsp.providers.failures import classify_response

# Matches the names of headers that contain secrets.
_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A provider's base URL, API key and extra headers.

    `base_url` has no trailing slash. If `bearer` is true, the API key is an OAuth token that is sent as
    ``Authorization: Bearer``. `headers` contains additional headers from the user's configuration.
    """

    provider: str
    base_url: str
    api_key: str = field(repr=False)
    bearer: bool = False
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    key_source: str = field(default="", compare=False)

    @property
    def host(self) -> str:
        """The base URL's scheme and authority, for example ``https://api.anthropic.com``."""
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.netloc}"

    def build_url(self, path: str) -> str:
        """Return the URL of a path below the base URL. A start of the path that the base URL ends with counts once."""
        base = self.base_url.rstrip("/")
        place = urlsplit(base).path
        ends = [match.start() for match in re.finditer("/|$", path)][1:]
        doubled = max((end for end in ends if place.endswith(path[:end])), default=0)
        return f"{base}{path[doubled:]}"

    def stream_headers(self, key_header: str | None = None) -> dict[str, str]:
        """Return the headers for a request whose response is a stream.

        `key_header` is the header for an API key. If it is None, the key is always sent as a bearer token.
        """
        return self._add_headers({"content-type": "application/json", "accept": "text/event-stream"}, key_header)

    def query_headers(self, key_header: str | None = None) -> dict[str, str]:
        """Return the headers for a GET request."""
        return self._add_headers({"accept": "application/json"}, key_header)

    def _add_headers(self, headers: dict[str, str], key_header: str | None) -> dict[str, str]:
        """Add the API key and the user's headers. The user's headers override all other headers."""
        if self.api_key and key_header is not None and not self.bearer:
            headers[key_header] = self.api_key
        elif self.api_key:
            headers["authorization"] = f"Bearer {self.api_key}"
        return headers | {name.lower(): value for name, value in self.headers.items()}

    def hide_secrets(self, text: str) -> str:
        """Mask secrets in an error text, because the provider may have repeated parts of the request."""
        secret_values = [value for name, value in self.headers.items() if _SECRET_HEADER.search(name)]
        return hide_secrets(text, [self.api_key, *secret_values])

    def build_origin(self, model: str) -> Origin:
        """Return the `Origin` that identifies opaque state from this endpoint and model."""
        fingerprint = sha256(self.api_key.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return _intern_origin(self.provider, model, self.host, fingerprint)


@lru_cache(maxsize=64)
def _intern_origin(provider: str, model: str, host: str, fingerprint: str) -> Origin:
    """Return a cached `Origin`, so that equal origins share a single object and compare quickly."""
    return Origin(provider, model, host, fingerprint)


@dataclass(frozen=True, slots=True)
class Thinking:
    """The thinking settings for a turn, resolved for the model. They do not change during a tool loop.

    `budget_tokens` is set only if `form` is `manual`. If `effort` is None, the request contains no effort. `summarized`
    requests readable thinking summaries, and `summary` is their length if the provider offers a choice. If
    `drop_mismatched` is true, the provider drops thinking that no longer matches earlier messages instead of rejecting
    the request.
    """

    form: ThinkingForm = "unset"
    budget_tokens: int | None = None
    effort: Effort | None = None
    summarized: bool = False
    summary: SummaryLength = "auto"
    drop_mismatched: bool = False


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """The input to a model call. Equal requests are encoded to identical bytes.

    If `max_tokens` is None, the provider chooses the limit. `compact_at` is the number of tokens at which the provider
    compacts the conversation, or None if the provider must not compact it. `cache_hints` enables fields that help the
    provider find its prompt cache. `thinking_counts` requests token counts while the model is thinking.
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
    """A POST request. Its `repr` excludes the headers and the body, because they contain secrets.

    `budget_omitted` is true if the conversation does not allow a thinking budget and the budget was therefore omitted.
    """

    url: str
    headers: Mapping[str, str] = field(repr=False, hash=False)
    body: bytes = field(repr=False)
    budget_omitted: bool = False


class StreamDecoder(ABC):
    """A decoder for a provider's event stream. Data after the end of the answer is ignored.

    `feed` and `finish` raise ProviderError if the provider reports an error or sends invalid data. `odd_numbers` states
    whether NaN and infinity are an error.
    """

    odd_numbers: Literal["refuse", "null"] = "null"

    def __init__(self) -> None:
        self._started = self._finished = False

    @property
    @abstractmethod
    def usage(self) -> Usage:
        """The usage that the provider has reported so far. It is also available after an interrupted answer."""

    def feed(self, event: str, data: str) -> list[StreamEvent]:
        """Decode a server-sent event, or a complete JSON answer.

        `event` is the event's name, or an empty string if the event has no name.
        """
        data = data.strip()
        if self._finished or not data:
            return []
        if data.startswith("[DONE]"):
            return self._end_stream()
        decoded: list[StreamEvent] = []
        for content in parse_event(event, data, odd_numbers=self.odd_numbers):
            decoded += self._decode(event, content)
        return decoded

    def finish(self) -> list[StreamEvent]:
        """Handle the end of the connection. Raise StreamProtocolError if the answer is incomplete."""
        if not self._finished:
            raise StreamProtocolError("The connection ended before the answer was complete.")
        return []

    @abstractmethod
    def _decode(self, event: str, content: Mapping[str, Any]) -> Iterable[StreamEvent]: ...

    def _end_stream(self) -> list[StreamEvent]:
        """Handle the mark at the end of a stream. Most providers need no mark."""
        return []

    def _begin(self, model: str, usage: Usage | None = None) -> list[StreamEvent]:
        """Return the start of the message, unless it has already started."""
        is_first, self._started = not self._started, True
        return [MessageStarted(model, usage or Usage())] if is_first else []


class Adapter(ABC):
    """A stateless adapter for a provider's API. Equal requests produce identical bytes, with keys in a fixed order.

    Keys in tool schemas and tool call arguments are never reordered, because the model reads them in their original
    order. `dialects` selects the rows of error texts in `failures`.
    """

    dialects: tuple[str, ...]

    @abstractmethod
    def encode(self, request: ModelRequest, endpoint: Endpoint) -> HttpRequest: ...

    @abstractmethod
    def create_decoder(self) -> StreamDecoder: ...

    def parse_failure(self, status: int, headers: Mapping[str, str], body: bytes, model: str = "") -> ProviderError:
        """Return the error for a non-streaming HTTP response.

        Header names are lowercase. The caller limits the length of `body`. `model` is the requested model ID, which is
        never masked in the error message.
        """
        return classify_response(self.dialects, status, headers, body, model)

    @abstractmethod
    def encode_model_query(self, endpoint: Endpoint, model_id: str) -> tuple[str, Mapping[str, str]]:
        """Return the URL and headers of a GET request for the model's description."""

    def parse_capabilities(self, body: bytes) -> Capabilities | None:  # noqa: ARG002 - the default for most providers
        """Parse the response to a model query. Return None if the response does not describe a model."""
        return None

    def is_unknown_model(self, status: int, body: bytes, model_id: str) -> bool:
        """Return whether the response states that the model does not exist.

        A status of 404 alone is not sufficient, because some providers have no endpoint for model descriptions.
        """
        error = find_object(parse_json_object(body), "error") or {}
        message, names = str(error.get("message")), {error.get(key) for key in ("code", "type", "status")}
        is_named = model_id.removeprefix("models/") in message and bool(names & {"not_found_error", "NOT_FOUND"})
        return status == 404 and ("model_not_found" in names or f"'{model_id}'" in message or is_named)
