"""The envelope of an Anthropic request: key, version, betas, top-level keys of the body, and the errors.

Checks raise `Refused`. Values of known keys are checked by `options` and `messages`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from thinklsp.simulator.dialect import parse_json, read_bearer_token

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_MESSAGES = {
    401: "invalid x-api-key",
    429: "This request would exceed your account's rate limit. Please try again later.",
    500: "Internal server error",
    504: "Request timed out",
    529: "Overloaded",
}
NEWEST_VERSION = "2026-10-21"
_VERSIONS = frozenset({"2023-06-01", NEWEST_VERSION})
_SAMPLING = frozenset({"temperature", "top_p", "top_k"})
_COUNTED = frozenset(
    {"cache_control", "messages", "model", "output_config", "speed", "system"} | {"thinking", "tool_choice", "tools"}
)
_KNOWN = _COUNTED | frozenset(
    {"container", "diagnostics", "inference_geo", "max_tokens"}
    | {"metadata", "service_tier", "stop_sequences", "stream"}
)
# Keys that exist only behind a beta, named by its beginning. They are accepted; what they ask for is not played.
_BETA_KEYS: Mapping[str, str | tuple[str, ...]] = {
    "compaction": "compact-2026-09-04",
    "context_management": ("context-management-", "compact-2026-01-12"),
    "fallback_credit_token": "fallback-credit-",
    "fallbacks": "server-side-fallback-",
    "mcp_servers": "mcp-client-",
    "thread": "message-threads-",
}
_BETAS = frozenset({
    "advisor-tool-2026-03-01", "agent-memory-2026-07-22", "cache-diagnosis-2026-04-07", "code-execution-2025-05-22",
    "compact-2026-01-12", "compact-2026-09-04", "computer-use-2024-10-22", "computer-use-2025-01-24",
    "computer-use-2025-11-24", "context-1m-2025-08-07", "context-management-2025-06-27",
    "dev-full-thinking-2025-05-14", "extended-cache-ttl-2025-04-11", "fallback-credit-2026-06-01",
    "fallback-credit-2026-07-01", "fast-mode-2026-02-01", "files-api-2025-04-14",
    "fine-grained-tool-streaming-2025-05-14", "inline-tools-2026-09-15", "interleaved-thinking-2025-05-14",
    "mcp-client-2025-04-04", "mcp-client-2025-11-20", "mcp-client-2026-09-15", "message-batches-2024-09-24",
    "message-threads-2026-08-12", "mid-conversation-output-config-2026-07-01",
    "mid-conversation-system-clear-at-2026-08-21", "mid-conversation-tool-changes-2026-07-01",
    "model-context-window-exceeded-2025-08-26", "oauth-2025-04-20", "output-128k-2025-02-19", "output-300k-2026-03-24",
    "pdfs-2024-09-25", "prompt-caching-2024-07-31", "server-side-fallback-2026-06-01",
    "server-side-fallback-2026-07-01", "skills-2025-10-02", "structured-outputs-2025-11-13", "task-budgets-2026-03-13",
    "thinking-binding-controls-2026-08-01", "thinking-display-updates-2026-08-18", "thinking-token-count-2026-05-13",
    "token-counting-2024-11-01", "token-efficient-tools-2025-02-19", "user-profiles-2026-03-24",
    "user-profiles-2026-08-18", "user-profiles-2026-09-04",
})  # fmt: skip


class Refused(Exception):
    """A request that the service answers with an error; `str` is the message exactly as it goes out."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def invalid(message: str) -> NoReturn:
    """Refuse with status 400."""
    raise Refused(400, message)


def extra(place: str) -> NoReturn:
    """Refuse a key that the service does not know."""
    invalid(f"{place}: Extra inputs are not permitted")


def error_type(status: int) -> str:
    return _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")


def error_message(status: int) -> str:
    """What the service says with `status` when nobody scripts it."""
    return _MESSAGES.get(status, "Error")


def error_body(kind: str, message: str, request_id: str) -> bytes:
    error = {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id}
    return json.dumps(error).encode("ascii")


def check_key(headers: Mapping[str, str]) -> None:
    """Any key will do, none will not."""
    if not headers.get("x-api-key", "").strip() and not read_bearer_token(headers):
        raise Refused(401, "x-api-key header is required")


def check_version(headers: Mapping[str, str]) -> str:
    version = headers.get("anthropic-version")
    if version is None:
        invalid("anthropic-version: header is required")
    if version not in _VERSIONS:
        invalid(f'anthropic-version: "{version}" is not a valid version')
    return version


def check_betas(headers: Mapping[str, str]) -> frozenset[str]:
    betas = [beta.strip() for beta in headers.get("anthropic-beta", "").split(",") if beta.strip()]
    for beta in betas:
        if beta not in _BETAS:
            invalid(
                f"Unexpected value(s) `{beta}` for the `anthropic-beta` header. Please consult our documentation "
                "at platform.claude.com/docs or try again without the header."
            )
    return frozenset(betas)


def parse_body(raw: bytes) -> Mapping[str, Any]:
    try:
        body = parse_json(raw)
    except ValueError as error:
        invalid(f"The request body is not valid JSON: {error}")
    if not isinstance(body, dict):
        invalid("The request body is not a JSON object")
    return body


def check_keys(body: Mapping[str, Any], version: str, betas: frozenset[str], *, counting: bool) -> None:
    """Required keys are there and no unknown ones; `counting` for count_tokens, which takes fewer."""
    for key in ("model", "messages") if counting else ("model", "max_tokens", "messages"):
        if key not in body:
            invalid(f"{key}: Field required")
    known = _COUNTED if counting else _KNOWN
    if version != NEWEST_VERSION:
        known = known | _SAMPLING
    for key in body:
        if key not in known and not _opened(key, betas, counting=counting):
            extra(key)
    if not isinstance(body["model"], str):
        invalid("model: Input should be a valid string")


def _opened(key: str, betas: frozenset[str], *, counting: bool) -> bool:
    if counting and key not in ("compaction", "context_management"):
        return False
    prefix = _BETA_KEYS.get(key)
    return prefix is not None and any(beta.startswith(prefix) for beta in betas)
