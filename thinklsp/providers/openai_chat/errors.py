"""Failures of chat completions as our errors, with sentences that a user can act on.

Servers agree on neither shape nor status, so the same fragments of text are looked for wherever an error comes from:
an HTTP answer, an event in mid-stream, a body with status 200. They are short, since wording changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from thinklsp.core.errors import AuthenticationFailed, BadRequest, ContextWindowExceeded, Overloaded, ProviderError
from thinklsp.providers.failures import (
    Report,
    cache_hint_refused,
    failure_by_status,
    no_credit,
    refuses_earlier_thinking,
    refuses_thinking,
    thinking_rejected,
)
from thinklsp.providers.service_errors import (
    EffortRefused,
    ThinkingFormRefused,
    ThinkingRejected,
    excerpt,
    json_object,
    retry_after,
    should_retry,
)

# What an error is called in mid-stream, as `code` or `type` -> the status that it would have had.
_STATUS_OF_NAME = {
    "badrequesterror": 400,
    "context_length_exceeded": 400,
    "exceed_context_size_error": 400,
    "invalid_request_error": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "insufficient_quota": 429,
    "permission_error": 403,
    "model_not_found": 404,
    "not_found_error": 404,
    "notfounderror": 404,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "not_supported_error": 501,
    "overloaded_error": 503,
    "service_unavailable": 503,
    "unavailable_error": 503,
}
_TOO_LONG = (
    "context_length_exceeded",
    "exceed_context_size",
    "exceeds the available context size",
    "maximum context length",
    "maximum model length",
    "max context length",
    "exceeds the context length",
    "greater than the context length",
    "context the overflows",
    "exceeded model token limit",
    "prompt is too long",
)
_NO_MODEL = re.compile(
    r"model_not_found|model not exist|not found the model|not a valid model|no models loaded|no endpoints found for"
    r"|\bmodel \S+ (?:is |was )?(?:not found|does not exist)|\bmodel \S+, try pulling|invalid model name"
)
_NO_TOOLS = ("does not support tools", "does not support tool", "support tool use", "does not support function calling")
_NO_CREDIT = ("insufficient_quota", "insufficient balance", "exceeded_current_quota")
_UNKNOWN_KEY = (
    "extra inputs are not permitted",
    "extra_forbidden",
    "unknown parameter",
    "unsupported parameter",
    "unrecognized request argument",
    "additional properties",
    "unknown field",
    "unknown name",
    "is unsupported",
)
_REPLAYED = re.compile(r"\breasoning(?:_content|_details)\b|\bmessages\b.*\breasoning\b", re.DOTALL)
_KNOB = re.compile(r"\breasoning(?:[_.]effort)?\b|\bthinking\b|\bchat_template_kwargs\b|\bthinking_token_budget\b")
_EFFORT = re.compile(r"\breasoning(?:[_. ]effort| value)\b")
_LEVEL_REFUSED = ("invalid", "unsupported", "not support", "must be", "should be")
_OFF_REFUSED = re.compile(r"""(?:does not support|value:?|'input':|"input":) ?['"]none['"]""")
_QUOTED_MODEL = re.compile(r"""\bmodel ["'`]([^"'`]+)["'`]""")
_OLLAMA = "ollama"
_TRY_PULLING = "try pulling"
_LOADING = re.compile(r"\bloading (?:the )?model\b|\bmodel\b.*\b(?:is|still|currently|being) load(?:ing|ed)\b")
_LOADING_SECONDS = 10.0
_TOOLLESS_MODEL = re.compile(r"(\S+) does not support tool")


def holds_error(content: Mapping[str, Any]) -> bool:
    """Whether a chunk, or a whole body with status 200, is an error. Looked at before anything else in it."""
    return bool(content.get("error")) or "error" in (content.get("object"), content.get("type"))


def failure_of_answer(
    status: int, headers: Mapping[str, str], body: bytes, model: str = "", *, server: str = ""
) -> ProviderError:
    """Classify an HTTP answer that is not a stream. `model`: the id that the request asked for; `server`: the kind of
    the server, a name of servers.toml."""
    content = _body(body)
    plain = "" if content else body[:10_000].decode("utf-8", "replace")
    message, names = _said(content)
    failure = _classify(Report(status, message or plain, " ".join(names), retry_after(headers), model), server)
    override = should_retry(headers)
    if override is not None:
        failure.retryable = override
    return failure


def failure_in_stream(content: Mapping[str, Any]) -> ProviderError:
    """An error that came with status 200: an object, a bare string, or a chunk with a key too many."""
    message, names = _said(content)
    statuses = (int(name) if name.isdigit() else _STATUS_OF_NAME.get(name, 0) for name in names)
    status = next((status for status in statuses if 400 <= status < 600), 500)
    return _classify(Report(status, message, " ".join(names), None), "")


def _body(body: bytes) -> Mapping[str, Any]:
    """Some services put their error object into a list."""
    content = json_object(body)
    if not content and body.lstrip()[:1] == b"[":
        content = json_object(body.strip()[1:-1])
    return content


def _said(content: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The message, and by what names the error goes: its code, then its type."""
    error = content.get("error") or content
    if not isinstance(error, dict):
        return error if isinstance(error, str) else json.dumps(error), []
    names = [str(error[key]).lower() for key in ("code", "type") if isinstance(error.get(key), str | int)]
    message = error.get("message") or error.get("detail") or ""
    cause = _cause(error.get("metadata"))
    return " ".join(part for part in (str(message), cause) if part), names


def _cause(metadata: object) -> str:
    """Gateways say in their own words that somebody else failed, and here what that one said."""
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    if not isinstance(raw, str):
        return ""
    inner = json_object(raw)
    return _said(inner)[0] if inner else raw


def _classify(report: Report, server: str) -> ProviderError:
    if report.status == 401:
        return AuthenticationFailed(
            "The server wants an API key, or another one (401): set THINKLSP_COMPATIBLE_API_KEY, or check the key that "
            f"you have configured for this server.{report.said}"
        )
    text = f"{report.message} {report.code}".lower()
    failure = _thinking(report, text) or _model(report, text, server) or _account(report, text)
    return failure or cache_hint_refused(report) or _by_status(report)


def _thinking(report: Report, text: str) -> ProviderError | None:
    """About thinking that goes back, and about how it was asked for."""
    if refuses_earlier_thinking(text):
        return thinking_rejected()
    if any(fragment in text for fragment in _UNKNOWN_KEY):
        if _REPLAYED.search(text):
            error = ThinkingRejected(
                'The server does not take the model\'s earlier thinking back: set reasoning = "none" under '
                f"[providers.openai-compatible] in your config.toml.{report.said}"
            )
            error.never = True
            return error
        return _form_refused(report) if _KNOB.search(text) else None
    if refuses_thinking(text):
        return _form_refused(report)
    if _EFFORT.search(text) and any(fragment in text for fragment in _LEVEL_REFUSED):
        if "/v1/responses" in text:
            return BadRequest(f"This model takes tools only by the Responses API: set provider to openai.{report.said}")
        if _OFF_REFUSED.search(text):
            return _form_refused(report)
        return EffortRefused(f"The model does not take this level of effort: change effort.{report.said}")
    return None


def _form_refused(report: Report) -> ProviderError:
    return ThinkingFormRefused(
        f"The model does not take thinking as it was asked for: change thinking.mode.{report.said}", "unset"
    )


def _model(report: Report, text: str, server: str) -> ProviderError | None:
    """What this model is not, or cannot do."""
    if any(fragment in text for fragment in _TOO_LONG):
        return ContextWindowExceeded(
            "The conversation is longer than the model can read: compact it, begin a new one or, on a server of your "
            f"own, raise its context length.{report.said}"
        )
    if any(fragment in text for fragment in _NO_TOOLS):
        name = _named(_TOOLLESS_MODEL, report, "This model")
        return BadRequest(f"{name} cannot call tools, which thinklsp needs: choose another with `model`.{report.said}")
    if _NO_MODEL.search(text):
        name = _named(_QUOTED_MODEL, report, "")
        is_ollama = _TRY_PULLING in text or server == _OLLAMA
        fetch = f" or fetch it first (ollama pull {name})" if name and is_ollama else ""
        missing = f"no model {name}" if name else "no such model"
        return BadRequest(f"The server has {missing}: choose another with `model`{fetch}.{report.said}")
    for flags in ("--jinja", "--enable-auto-tool-choice and --tool-call-parser"):
        if flags in text:
            said = f"The server does not take tools as it was started: start it with {flags}."
            return BadRequest(f"{said}{report.said}")
    if report.status == 503 and _LOADING.search(text):
        loading = Overloaded(
            f"The server is still loading its model (503): it answers when that is done.{report.said}",
            retry_after=report.wait or _LOADING_SECONDS,
        )
        loading.loading = True
        return loading
    return None


def _account(report: Report, text: str) -> ProviderError | None:
    return no_credit(report) if any(fragment in text for fragment in _NO_CREDIT) else None


def _by_status(report: Report) -> ProviderError:
    if report.status == 404:
        return BadRequest(
            "The server does not know this address or model (404): check `model` and the base URL, which usually ends "
            f"in /v1.{report.said}"
        )
    if report.status == 405:
        return BadRequest(
            "The server takes no chat at this address (405): check the base URL, which usually ends in /v1."
            f"{report.said}"
        )
    if report.status == 501:
        return BadRequest(f"The server cannot do what was asked (501).{report.said}")
    return failure_by_status(report)


def _named(pattern: re.Pattern[str], report: Report, otherwise: str) -> str:
    """The model that the message speaks of, as it can be shown."""
    found = pattern.search(report.message)
    return excerpt(found[1].rsplit("/library/", 1)[-1][:200], report.model) if found else otherwise
