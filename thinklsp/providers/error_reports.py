"""Reports about errors of providers in a common format: the message, the names, the status and the requested delay.

Gateways pass on the errors of many providers, so one reader understands the formats of all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from thinklsp.core.text_safety import make_excerpt
from thinklsp.providers.decoding import find_object, parse_json_object

_MAX_TEXT_CHARS = 8_000
DAY_LIMIT = r"per[ _-]?day|daily|\b[rt]pd\b"


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """A provider error in a common format.

    `names` contains the provider's own names for the error and the rejected field, as in ``param=reasoning.effort``.
    `model` is the requested model ID. `wait_seconds` is the delay that the provider asked for.
    """

    status: int
    message: str
    names: str = ""
    wait_seconds: float | None = None
    model: str = ""

    @property
    def text(self) -> str:
        """The beginning of the names and the message. Some patterns take long for a long text without a match."""
        return f"{self.names}\n{self.message}"[:_MAX_TEXT_CHARS]

    @property
    def quotation(self) -> str:
        """The provider's message as a sentence that can be appended to another sentence, or an empty string."""
        line = make_excerpt(self.message, self.model)
        return f" The provider says: {line}{'' if line[-1] in '.!?…' else '.'}" if line else ""


# Maps the lower-case `code`, `type` or `status` of an error to an HTTP status.
_STATUS_OF_NAME = {
    name: status
    for status, names in {
        400: "badrequesterror context_length_exceeded exceed_context_size_error invalid_argument failed_precondition"
        " out_of_range invalid_request_error",
        401: "authentication_error invalid_api_key unauthenticated",
        402: "billing_error",
        403: "permission_error permission_denied data_residency_mismatch",
        404: "not_found_error notfounderror not_found model_not_found",
        409: "conflict_error aborted",
        413: "request_too_large",
        429: "rate_limit_error rate_limit_exceeded insufficient_quota resource_exhausted tokens requests",
        499: "cancelled",
        501: "not_supported_error",
        503: "service_unavailable unavailable_error unavailable server_is_overloaded slow_down",
        504: "timeout_error vector_store_timeout deadline_exceeded",
        529: "overloaded_error",
    }.items()
    for name in names.split()
}
_REQUEST_ERROR = re.compile(r"invalid|unsupported|image|policy|violation|context_length|billing")


def find_status(content: Mapping[str, Any]) -> int:
    """Return the HTTP status for an error without one, by its code, its type or the name of a status."""
    error = _find_error(content)
    names = (error.get(key) for key in ("code", "type", "status")) if isinstance(error, dict) else ()
    return next((status for name in names if (status := _parse_status(name)) is not None), 500)


def _parse_status(name: object) -> int | None:
    if isinstance(name, str) and not name.isdecimal():
        return _STATUS_OF_NAME.get(name.lower()) or (400 if _REQUEST_ERROR.search(name) else None)
    number = int(name) if isinstance(name, str) and len(name) == 3 else name
    return number if isinstance(number, int) and 400 <= number < 600 else None


def _find_error(content: Mapping[str, Any]) -> Any:
    """Return the error in a response. Servers use the key `error`, the key `detail`, or no key at all."""
    return next((content[key] for key in ("error", "detail") if content.get(key)), content)


def read_report(
    status: int, content: Mapping[str, Any], headers: Mapping[str, str] | None = None, plain: str = "", model: str = ""
) -> ErrorReport:
    """Return the report for an error. `plain` is the body if it contains no JSON object."""
    error = _find_error(content)
    message, names = _read_message(error)
    details = error.get("details") if isinstance(error, dict) else None
    facts = [fact for fact in details if isinstance(fact, dict)] if isinstance(details, list) else []
    if isinstance(details, dict):
        names.append(str(details.get("error_code") or ""))
    names += [reason for fact in facts if isinstance(reason := fact.get("reason"), str)]
    # Google names the limit of an account in a list of violations.
    names += ["PerDay" for fact in facts if "PerDay" in str(fact.get("violations"))]
    message = message or plain
    wait = _find_wait(status, message, content, headers or {}, facts)
    return ErrorReport(status, message, " ".join(names), wait, model)


def _read_message(error: Any) -> tuple[str, list[str]]:
    """Return an error's message and its names. A gateway's own message says only that the provider behind it failed."""
    if not isinstance(error, dict):
        return _read_words(error) or (json.dumps(error) if error else ""), []
    names = [str(error[key]) for key in ("code", "type", "status") if isinstance(error.get(key), str | int)]
    if isinstance(param := error.get("param"), str):
        names.append(f"param={param}")
    message = error.get("message") or error.get("detail") or ""
    metadata = error.get("metadata")
    cause = metadata.get("raw") if isinstance(metadata, dict) else None
    if isinstance(cause, str):
        inner = parse_json_object(cause)
        cause = _read_message(_find_error(inner))[0] if inner else cause
    texts = (_read_words(message) or str(message), cause)
    return " ".join(text for text in texts if isinstance(text, str) and text), names


def _read_words(value: object) -> str:
    """Return an error text, or the texts of a list of errors, as FastAPI sends it. Return "" for anything else."""
    if isinstance(value, list):
        return "; ".join(_read_item(item) if isinstance(item, dict) else str(item) for item in value)
    return value if isinstance(value, str) else ""


def _read_item(item: Mapping[str, Any]) -> str:
    """Return the text of an error in a list, behind the name of the field that it is about."""
    place, text = item.get("loc"), str(item.get("msg") or item.get("message") or item)
    return f"{'.'.join(map(str, place))}: {text}" if isinstance(place, list) else text


# The patterns take long for a long text without a match.
_MAX_ROOM_CHARS = 1_000
# The texts of Anthropic and Bedrock, of vLLM's versions, of text-generation-inference and Together, and of OpenAI,
# DeepSeek, OpenRouter and SGLang. `total` is the prompt and the output.
_ROOM_TEXTS = (
    r"(?P<prompt>\d+) \+ (?P<output>\d+) > (?P<window>\d+)",
    r"(?P<output>\d+) > (?P<window>\d+) - (?P<prompt>\d+)",
    r"context length is (?P<window>\d+) .*requested (?P<output>\d+) output tokens .* (?P<prompt>\d+) input tokens",
    r"<= (?P<window>\d+)\. given: (?P<prompt>\d+) `inputs` tokens and (?P<output>\d+) `max_new_tokens`",
    r"context length \w+ (?P<window>\d+) .*requested \D*(?P<total>\d+) .* (?P<output>\d+) \D+ the (?:comple|out)",
)


def find_output_room(message: str) -> int | None:
    """Return the number of tokens that are left for the output, or None if the message does not name the output."""
    for pattern in _ROOM_TEXTS:
        if (match := re.search(pattern, message[:_MAX_ROOM_CHARS].lower(), re.DOTALL)) is not None:
            found = {name: int(number) for name, number in match.groupdict().items()}
            prompt = found["prompt"] if "prompt" in found else found["total"] - found["output"]
            left = found["window"] - prompt
            return left if 0 < left < found["output"] else None
    return None


_WAIT = re.compile(r"(?:try again|retry) (?:in|after) ((?:[\d.]+ ?[a-z]+[, ]*(?:and )?)+)", re.IGNORECASE)
_WAIT_PART = re.compile(r"(\d+(?:\.\d+)?) ?(ms|milli|[dhms])", re.IGNORECASE)
_UNIT_SECONDS = {"ms": 0.001, "milli": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_MILLISECONDS_FROM = 1e12


def _find_wait(
    status: int,
    message: str,
    content: Mapping[str, Any],
    headers: Mapping[str, str],
    facts: Iterable[Mapping[str, Any]],
) -> float | None:
    """Return the delay in seconds that the provider asked for, or None.

    Google sends it in the error's details. The text is used only for rate limits.
    """
    delays = (re.fullmatch(r"(\d+(?:\.\d+)?)s", str(fact.get("retryDelay"))) for fact in facts)
    wait = next((float(delay[1]) for delay in delays if delay), None)
    wait = parse_retry_after(headers) if wait is None else wait
    if wait is None and re.search(DAY_LIMIT, message, re.IGNORECASE):
        wait = _find_reset(content, headers)
    return _parse_wait(message) if wait is None and status == 429 else wait


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the delay in seconds that the headers ask for, or None if they contain no valid delay.

    A date is compared with the response's `Date` header, because the clock on this machine may be wrong.
    """
    milliseconds = _parse_number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _parse_number(value)
    if seconds is not None or value is None:
        return seconds
    until, now = _parse_date(value), _parse_date(headers.get("date"))
    return None if until is None or now is None or until < now else until - now


def _find_reset(content: Mapping[str, Any], headers: Mapping[str, str]) -> float | None:
    """Return the seconds until a limit of a day is reset, or None if the response does not say.

    OpenRouter names the reset in a header, which is also in the error's metadata.
    """
    inner = find_object(content, "error", "metadata", "headers") or {}
    values = (value for key, value in (*headers.items(), *inner.items()) if key.lower() == "x-ratelimit-reset")
    reset = next(filter(None, (_parse_number(str(value)) for value in values)), 0.0)
    seconds = reset / 1000 if reset >= _MILLISECONDS_FROM else reset
    now = _parse_date(headers.get("date"))
    return seconds - now if now is not None and seconds > now else None


def _parse_wait(text: str) -> float | None:
    """Return the delay in seconds that an error text asks for, such as `try again in 4h59m3.5s`, or None."""
    match = _WAIT.search(text)
    parts = _WAIT_PART.findall(match[1]) if match else []
    return sum(float(number) * _UNIT_SECONDS[unit.lower()] for number, unit in parts) if parts else None


def _parse_number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


def _parse_date(value: str | None) -> float | None:
    """Return the time of an HTTP date with a time zone, in seconds since 1970, or None."""
    try:
        date = parsedate_to_datetime(value or "")
    except (TypeError, ValueError, OverflowError):
        return None
    return date.timestamp() if date.tzinfo else None
