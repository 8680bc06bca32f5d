"""What stands around an OpenAI request: the key, JSON, and which top-level keys the body may have.

Raises `Refused`. Values of known keys are checked by `options`, `tools` and `items`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from thinklsp.simulator.openai.errors import Refused, invalid, missing, unknown, wrong_type

_KNOWN = frozenset(
    {"access_programs", "background", "context_management", "conversation", "image", "include", "input"}
    | {"instructions", "max_output_tokens", "max_tool_calls", "metadata", "model", "moderation"}
    | {"parallel_tool_calls", "previous_response_id", "prompt", "prompt_cache_key", "prompt_cache_options"}
    | {"prompt_cache_retention", "reasoning", "safety_identifier", "service_tier", "store", "stream"}
    | {"stream_options", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user"}
)
# Keys of the chat endpoint that have another name here.
_MOVED = {
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "messages": "input",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
    "verbosity": "text.verbosity",
}


def check_key(headers: Mapping[str, str]) -> str:
    """Any key will do, none will not. Returns what tells one key from another, not the key."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise Refused(
            401,
            "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer "
            "auth (i.e. Authorization: Bearer YOUR_KEY).",
        )
    return hashlib.sha256(key.strip().encode("utf-8", "surrogatepass")).hexdigest()[:16]


def parse_body(raw: bytes) -> Mapping[str, Any]:
    try:
        body = json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        invalid(
            "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP "
            "library correctly. The OpenAI API expects a JSON payload, but what was sent was not valid JSON.)"
        )
    if not isinstance(body, dict):
        wrong_type("body", "an object", body)
    return body


def check_keys(body: Mapping[str, Any]) -> None:
    """The model is named and no key is unknown."""
    for key in body:
        if key in _MOVED:
            invalid(
                f"Unsupported parameter: '{key}'. In the Responses API, this parameter has moved to '{_MOVED[key]}'. "
                "Try again with the new parameter. See the API documentation for more information: "
                "https://platform.openai.com/docs/api-reference/responses/create.",
                None,
                "unsupported_parameter",
            )
        if key not in _KNOWN:
            unknown(key)
    if body.get("model") is None:
        missing("model")
    if not isinstance(body["model"], str):
        wrong_type("model", "a string", body["model"])


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
