"""The servers that one port plays, told apart by model id: what each takes, how it answers, and how it refuses.

It is kept apart from the program's own table of servers on purpose: a client is tested against an independent account.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NoReturn, assert_never

Envelope = Literal["openai", "ollama", "llama.cpp", "vllm", "openrouter"]
_INVALID = "invalid_request_error"
# Neutral names of errors as scenarios write them: OpenAI's type and code for it, and the status it stands for.
_NEUTRAL: Mapping[str, tuple[str, str | None, int]] = {
    "invalid_request_error": (_INVALID, None, 400),
    "authentication_error": (_INVALID, "invalid_api_key", 401),
    "billing_error": ("insufficient_quota", "insufficient_quota", 402),
    "permission_error": (_INVALID, "insufficient_permissions", 403),
    "not_found_error": (_INVALID, "model_not_found", 404),
    "request_too_large": (_INVALID, None, 413),
    "rate_limit_error": ("requests", "rate_limit_exceeded", 429),
    "api_error": ("server_error", None, 500),
    "timeout_error": ("server_error", None, 504),
    "overloaded_error": ("server_error", None, 503),
}
_BY_STATUS = {status: name for name, (_, _, status) in _NEUTRAL.items()} | {529: "overloaded_error"}
_MESSAGES = {
    401: "Incorrect API key provided.",
    402: "Insufficient Balance",
    404: "The model does not exist or you do not have access to it.",
    429: "Rate limit reached for requests",
    500: "The server had an error while processing your request. Sorry about that!",
    503: "The server is currently overloaded with other requests. Sorry about that!",
    529: "The server is currently overloaded with other requests. Sorry about that!",
}
_VLLM_TYPES = {400: "BadRequestError", 401: "AuthenticationError", 404: "NotFoundError", 429: "RateLimitError"}
Knob = Literal["reasoning_effort", "reasoning", "thinking", "chat_template_kwargs", "enable_thinking", "think"]
_OPENAI_ROLES = ("system", "assistant", "user", "tool", "developer")
_SCALE = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


@dataclass(frozen=True, slots=True)
class Failure:
    """An error before it has a server's form. `more`: what a server adds to it (llama.cpp counts, OpenRouter
    metadata). `upstream`: a failure of the server behind a router, told inside the router's own."""

    status: int
    message: str
    kind: str
    code: str | None = None
    param: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


class Refused(Exception):
    """A request that the server answers with an error; `str` is the message exactly as it goes out."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def invalid(message: str, param: str | None = None, code: str | None = None) -> NoReturn:
    """Refuse with status 400."""
    raise Refused(Failure(400, message, _INVALID, code, param))


def extra(place: str) -> NoReturn:
    """Refuse a key that the server does not know."""
    invalid(f"{place}: Extra inputs are not permitted", place)


def missing(place: str) -> NoReturn:
    """Refuse a message or option without a required key."""
    invalid(f"Missing required parameter: '{place}'.", place, "missing_required_parameter")


def empty_list(place: str) -> NoReturn:
    """Refuse an empty list."""
    invalid(
        f"Invalid '{place}': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        place,
        "empty_array",
    )


def wrong_type(place: str, expected: str) -> NoReturn:
    """Refuse a value of another type. `expected` in words, such as `an object`."""
    invalid(f"Invalid type for '{place}': expected {expected}.", place, "invalid_type")


def failure(status: int, message: str | None = None) -> Failure:
    """What a server says with `status`, in its usual words unless others are given."""
    kind, code, _ = _NEUTRAL[_BY_STATUS.get(status, "api_error" if status >= 500 else "invalid_request_error")]
    return Failure(status, message or _MESSAGES.get(status, "Error"), kind, code)


def scripted(name: str | None, message: str | None, status: int | None = None) -> Failure:
    """A scenario's error. Neutral names become the services' own; other names stay. `status` None: the name's own."""
    if name is None:
        return failure(status or 500, message)
    kind, code, usual = _NEUTRAL.get(name, (name, None, 500))
    status = status or usual
    return Failure(status, message or _MESSAGES.get(status, "Error"), kind, code)


def error_value(told: Failure, envelope: Envelope) -> dict[str, Any]:
    """The JSON under the key `error`."""
    match envelope:
        case "openai":
            return {"message": told.message, "type": told.kind, "param": told.param, "code": told.code}
        case "ollama":
            kind = {400: _INVALID, 404: "not_found_error"}.get(told.status, "api_error")
            return {"message": told.message, "type": kind, "param": None, "code": None}
        case "llama.cpp":
            return {"code": told.status, "message": told.message, "type": told.kind, **told.more}
        case "vllm":
            kind = _VLLM_TYPES.get(told.status, "InternalServerError" if told.status >= 500 else "BadRequestError")
            return {"message": told.message, "type": kind, "param": told.param, "code": told.status}
        case "openrouter":
            metadata = {"metadata": told.more} if told.more else {}
            return {"message": told.message, "code": told.status, **metadata}
        case _:
            assert_never(envelope)


@dataclass(frozen=True, slots=True)
class Flavour:
    """How one kind of server behaves.

    `reasoning`: the field in which thinking is delivered, None where the model does not think. `details`: it comes
    sealed in `reasoning_details` too. `knobs`: request keys about thinking that are read; others are ignored.
    `efforts`: levels that are taken, None for any. `calls`: how tool calls stream: opened once and then in pieces;
    whole in one chunk; with id and name in every delta and index 0 always; or without any index.
    `named_chunks`: every chunk carries role and content. `closed`: unknown keys are refused. `fits`: a cap on the
    answer must fit into the window beside the prompt. `hosted`: a key is needed.
    """

    name: str
    reasoning: Literal["reasoning", "reasoning_content"] | None = "reasoning_content"
    details: bool = False
    knobs: frozenset[Knob] = frozenset({"reasoning_effort"})
    efforts: tuple[str, ...] | None = None
    roles: tuple[str, ...] = _OPENAI_ROLES
    calls: Literal["opened", "whole", "repeated", "unnumbered"] = "opened"
    call_ids: Literal["call", "numbered", "plain", "figures"] = "call"
    named_chunks: bool = False
    first_content: str | None = ""
    lies_about_calls: bool = False
    counts_thinking: bool = False
    counts_cached: bool = True
    usage_on: Literal["own_chunk", "finish", "every"] = "own_chunk"
    envelope: Envelope = "openai"
    broken: Literal["data", "event", "text", "line", "choices", "silence"] = "data"
    comment: bytes = b": keep-alive\n\n"
    fingerprint: str | None = None
    closed: bool = False
    fits: bool = False
    hosted: bool = False
    window: int = 131_072


_LLAMA_CPP = Flavour(
    "llama.cpp",
    knobs=frozenset({"reasoning_effort", "chat_template_kwargs"}),
    call_ids="plain",
    first_content=None,
    envelope="llama.cpp",
    comment=b":\n\n",
    fingerprint="b9931-simulated",
    window=32_768,
)
GENERIC = Flavour(
    "generic",
    knobs=frozenset({"reasoning_effort", "reasoning", "thinking", "chat_template_kwargs", "enable_thinking"}),
    counts_thinking=True,
)
OPENROUTER = Flavour(
    "openrouter",
    reasoning="reasoning",
    details=True,
    knobs=frozenset({"reasoning_effort", "reasoning"}),
    efforts=_SCALE,
    named_chunks=True,
    counts_thinking=True,
    envelope="openrouter",
    broken="choices",
    comment=b": OPENROUTER PROCESSING\n\n",
    hosted=True,
    window=200_000,
)
_DEEPSEEK = Flavour(
    "deepseek",
    knobs=frozenset({"reasoning_effort", "thinking"}),
    efforts=("minimal", "low", "medium", "high", "xhigh", "max", "ultra"),
    roles=("system", "user", "assistant", "tool"),
    call_ids="numbered",
    counts_thinking=True,
    fingerprint="fp_simulated_deepseek",
    hosted=True,
)
_OLLAMA = Flavour(
    "ollama",
    reasoning="reasoning",
    knobs=frozenset({"reasoning_effort", "reasoning"}),
    efforts=("minimal", "low", "medium", "high", "xhigh", "max", "ultra", "none"),
    calls="whole",
    named_chunks=True,
    counts_cached=False,
    envelope="ollama",
    broken="silence",
    fingerprint="fp_ollama",
)
_VLLM = Flavour(
    "vllm",
    reasoning="reasoning",
    knobs=frozenset({"reasoning_effort", "chat_template_kwargs"}),
    efforts=("none", "low", "medium", "high"),
    envelope="vllm",
    fits=True,
    window=65_536,
)
_LM_STUDIO = Flavour(
    "lmstudio",
    reasoning="reasoning",
    calls="repeated",
    call_ids="figures",
    lies_about_calls=True,
    broken="event",
    counts_cached=False,
)
_STRICT = Flavour("strict", efforts=_SCALE, usage_on="finish", envelope="vllm", closed=True, fits=True)
_PLAIN = Flavour(
    "plain",
    reasoning=None,
    knobs=frozenset({"reasoning_effort", "reasoning", "thinking", "chat_template_kwargs", "enable_thinking", "think"}),
    calls="unnumbered",
    usage_on="every",
    envelope="ollama",
    broken="text",
)
# Beginnings of model ids; the first that fits counts. An older llama.cpp wrote errors on lines of another name.
_BY_PREFIX = (
    ("deepseek", _DEEPSEEK),
    ("llama-old", replace(_LLAMA_CPP, broken="line")),
    ("llama-", _LLAMA_CPP),
    ("qwen", _LLAMA_CPP),
    ("gpt-oss", _OLLAMA),
    ("ollama", _OLLAMA),
    ("vllm-", _VLLM),
    ("lmstudio-", _LM_STUDIO),
    ("strict-", _STRICT),
    ("plain-", _PLAIN),
)
MODELS = (
    "compatible-1",
    "qwen3-8b",
    "llama-3.3-70b",
    "gpt-oss:20b",
    "deepseek-reasoner",
    "anthropic/claude-opus-5.5",
    "google/gemini-4-argon",
    "openai/gpt-6-sol",
    "vllm-qwen3-32b",
    "lmstudio-qwen3-4b",
    "strict-1",
    "plain-1",
)


def flavour_of(model: str) -> Flavour:
    """The server that has this model. A name with a slash is a router's, whatever it begins with."""
    if "/" in model:
        return OPENROUTER
    return next((flavour for prefix, flavour in _BY_PREFIX if model.startswith(prefix)), GENERIC)


def is_missing(model: str) -> bool:
    """Any name is a model here, so that scenarios can be played for all; these alone are none."""
    return model.startswith("missing")


def model_info(name: str) -> Mapping[str, Any]:
    """The models endpoint's account of one id, with its window where the server tells it."""
    flavour = flavour_of(name)
    told: Mapping[str, Mapping[str, Any]] = {
        "vllm": {"max_model_len": flavour.window},
        "llama.cpp": {"meta": {"n_ctx": flavour.window, "n_ctx_train": 4 * flavour.window}},
        "openrouter": {"context_length": flavour.window},
    }
    return {"id": name, "object": "model", "created": 0, "owned_by": flavour.name, **told.get(flavour.name, {})}
