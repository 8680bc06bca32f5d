"""A written answer, or the error that a scenario puts in its place, as bytes on the clock.

Three forms: one JSON object, a stream of `data:` lines, or one JSON array that arrives in pieces.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from thinklsp.simulator.frames import Frame, Send, Streamed, Wait, Whole, spoil
from thinklsp.simulator.google.answer import Response
from thinklsp.simulator.google.errors import (
    Detail,
    error_body,
    error_message,
    error_value,
    named_word,
    retry_info,
    status_here,
    status_of,
)
from thinklsp.simulator.scenario import ErrorEvent, Fault, HttpError
from thinklsp.simulator.script import Answer

Form = Literal["whole", "sse", "array"]
HEADERS = {"content-type": "application/json; charset=UTF-8", "vary": "Origin, X-Origin, Referer"}
# How long to wait stands in the body here, so the headers of other services stay away.
_DELAY_HEADERS = frozenset({"retry-after", "retry-after-ms", "x-should-retry"})


def play(response: Response | None, answer: Answer, form: Form) -> Streamed | Whole:
    """The reply in its form. `response` None: the scenario answers with an HTTP error."""
    fault = answer.fault or Fault.model_construct()
    if response is None or fault.http_error is not None:
        return _scripted_error(fault.http_error or HttpError(status=500), answer, form)
    if form == "whole":
        return _whole(response, fault, answer)
    frames: tuple[Frame, ...] = tuple(_sse(response) if form == "sse" else _array(response))
    if answer.fault is not None:
        frames = spoil(frames, fault, _broken(fault.error_event, form) if fault.error_event else b"")
    kind = "text/event-stream" if form == "sse" else HEADERS["content-type"]
    # This service is silent while it thinks: it sends no pings.
    return Streamed({**HEADERS, "content-type": kind}, frames, b"", answer.pace.delay_ms, 0, answer.label)


def _sse(response: Response) -> Iterator[Frame]:
    for wait, chunk in response.chunks:
        if wait:
            yield Wait(wait)
        yield Send(b"data: " + _encoded(chunk) + b"\n\n")


def _array(response: Response) -> Iterator[Frame]:
    for index, (wait, chunk) in enumerate(response.chunks):
        if wait:
            yield Wait(wait)
        yield Send((b",\r\n" if index else b"[") + _encoded(chunk))
    yield Send(b"\n]\n", counted=False)


def _broken(event: ErrorEvent, form: Form) -> bytes:
    status = status_of(event.type)
    value = error_value(status, event.message, named_word(event.type, status))
    if form == "sse":
        return b"data: " + _encoded(value) + b"\n\n"
    return (b",\r\n" if event.after_events else b"[") + _encoded(value) + b"\n]\n"


def _whole(response: Response, fault: Fault, answer: Answer) -> Whole:
    """Without a stream, faults take their nearest form: an error status, a dropped connection, a longer wait."""
    if fault.error_event is not None:
        event = fault.error_event
        error = HttpError(status=status_of(event.type), type=event.type, message=event.message)
        return _scripted_error(error, answer, "whole")
    delay = answer.pace.delay_ms + (fault.silence_ms or 0)
    body = _encoded(response.whole())
    return Whole(200, HEADERS, body, delay, fault.cut_after_events is not None, answer.label)


def _scripted_error(error: HttpError, answer: Answer, form: Form) -> Whole:
    status = status_here(error.status)
    given = {name.lower(): value for name, value in error.headers.items()}
    headers = {**HEADERS, **{name: value for name, value in given.items() if name not in _DELAY_HEADERS}}
    if error.body is not None:
        headers = {**headers, "content-type": "text/html; charset=UTF-8"}
        return Whole(status, headers, error.body.encode("utf-8"), answer.pace.delay_ms, False, answer.label)
    message = error.message or error_message(status)
    value = error_value(status, message, named_word(error.type, status), _details(given))
    body = error_body(value, listed=form == "array")
    return Whole(status, headers, body, answer.pace.delay_ms, False, answer.label)


def _details(headers: Mapping[str, str]) -> list[Detail]:
    milliseconds, seconds = headers.get("retry-after-ms", ""), headers.get("retry-after", "")
    if milliseconds.isdecimal():
        return [retry_info(f"{int(milliseconds) / 1000:g}")]
    return [retry_info(seconds)] if seconds.isdecimal() else []


def _encoded(value: Mapping[str, Any]) -> bytes:
    # Text goes out unescaped, line separators of Unicode included, as the service sends it; half a surrogate
    # pair, which a prompt may bring in, has no other form than an escape.
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode("ascii")
