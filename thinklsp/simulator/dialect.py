"""The seam between HTTP and a provider's protocol: one received request in, one reply value out.

A reply is a list of timed pieces, and a fault may spoil it. A dialect is synchronous and has no clock of its own to
wait on; the server plays the reply. Here is also the part of requests and replies that is the same in all dialects.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from thinklsp.simulator.scenario import Fault, HttpError
from thinklsp.simulator.script import Answer


@dataclass(frozen=True, slots=True)
class Send:
    """Bytes of one event. `counted` False: a ping, which faults do not count."""

    data: bytes
    counted: bool = True


@dataclass(frozen=True, slots=True)
class Wait:
    """Silence, broken only by pings."""

    ms: int


@dataclass(frozen=True, slots=True)
class Cut:
    """The stream ends here: `cleanly` as a complete HTTP body, else with the connection torn down."""

    cleanly: bool


Frame = Send | Wait | Cut


@dataclass(frozen=True, slots=True)
class Whole:
    """An answer in one piece, after `delay_ms`. `cut`: the connection closes instead of answering."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    delay_ms: int = 0
    cut: bool = False
    played: str | None = None


@dataclass(frozen=True, slots=True)
class Streamed:
    """A 200 whose body is played frame by frame. `ping` is sent every `ping_every_ms` of a Wait, if that is not 0."""

    headers: Mapping[str, str]
    frames: tuple[Frame, ...]
    ping: bytes
    delay_ms: int = 0
    ping_every_ms: int = 0
    played: str | None = None


Reply = Whole | Streamed


def pieces(text: str, size: int) -> Iterator[str]:
    """`text` in pieces of `size` characters; nothing for an empty text."""
    return (text[start : start + size] for start in range(0, len(text), size))


def pause(ms: int) -> Iterator[Wait]:
    """Yield a silence, or nothing if there is none."""
    if ms:
        yield Wait(ms)


def send_event(value: object, name: str | None = None) -> Send:
    """Return one server-sent event with JSON as its data."""
    head = f"event: {name}\n" if name else ""
    return Send(f"{head}data: ".encode("ascii") + encode_json(value) + b"\n\n")


def spoil(frames: Iterable[Frame], fault: Fault, error: bytes) -> tuple[Frame, ...]:
    """The frames as the fault leaves them. `error`: the dialect's event for `fault.error_event`.

    A fault that counts more events than there are strikes at the end.
    """
    if fault.error_event is not None:
        return (*_first(frames, fault.error_event.after_events), Send(error))
    if fault.cut_after_events is not None:
        return (*_first(frames, fault.cut_after_events), Cut(fault.cut_cleanly))
    if fault.silence_ms is not None:
        frames = tuple(frames)
        before = _first(frames, fault.silence_after_events)
        return (*before, Wait(fault.silence_ms), *frames[len(before) :])
    return tuple(frames)


def _first(frames: Iterable[Frame], events: int) -> tuple[Frame, ...]:
    """The frames up to the `events`-th counted one."""
    taken: list[Frame] = []
    for frame in frames:
        if events <= 0:
            break
        taken.append(frame)
        events -= isinstance(frame, Send) and frame.counted
    return tuple(taken)


@dataclass(frozen=True, slots=True)
class Received:
    """A complete request. Header names are lower case; `path` without the query, which stands in `query`."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class Dialect(Protocol):
    def serves(self, request: Received) -> bool:
        """Whether a request is this dialect's, right or wrong. Told by path and headers; the first dialect wins."""
        ...

    def reply(self, request: Received) -> Reply:
        """The answer, errors included; never raises for anything that a client can send."""
        ...

    def failure(self, status: int, message: str) -> Whole:
        """An error of the server itself (body too large, not HTTP) in this dialect's form."""
        ...

    def reset(self) -> None:
        """Forget conversations, cached prefixes and tries; blocks already signed stay valid."""
        ...


def parse_json(raw: bytes) -> Any:
    """Parse strict JSON. Raises ValueError, also for NaN, infinities and too many levels."""
    try:
        return json.loads(raw, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError(str(error)) from None


def encode_json(value: object) -> bytes:
    """Encode JSON as the services do: text unescaped, line separators of Unicode included.

    Half a surrogate pair, which a prompt may bring in, has no other form than an escape.
    """
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str).encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), default=str).encode("ascii")


def is_under(path: str, base: str) -> bool:
    return path == base or path.startswith(f"{base}/")


def read_bearer_token(headers: Mapping[str, str]) -> str:
    """Return the token of the authorization header, or an empty text."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def stream_answer(
    answer: Answer, frames: Iterable[Frame], headers: Mapping[str, str], *, ping: bytes, error: bytes
) -> Streamed:
    """Stream an answer at its pace, spoiled by its fault. `error`: the dialect's event for `fault.error_event`."""
    played = tuple(frames) if answer.fault is None else spoil(frames, answer.fault, error)
    headers = {**headers, "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
    return Streamed(headers, played, ping, answer.pace.delay_ms, answer.pace.ping_every_ms, answer.label)


def send_answer(answer: Answer, headers: Mapping[str, str], body: bytes) -> Whole:
    """Send an answer in one piece. Its fault is a dropped connection or a longer wait."""
    fault = answer.fault or Fault.model_construct()
    delay = answer.pace.delay_ms + (fault.silence_ms or 0)
    return Whole(200, headers, body, delay, fault.cut_after_events is not None, answer.label)


def send_error(answer: Answer, error: HttpError, status: int, headers: Mapping[str, str], body: bytes) -> Whole:
    """Send a scripted error. The scenario's own body replaces `body`, and its headers are added to `headers`."""
    headers = {**headers, **{name.lower(): value for name, value in error.headers.items()}}
    if error.body is not None:
        headers = {**headers, "content-type": "text/html; charset=utf-8"}
        body = error.body.encode("utf-8")
    return Whole(status, headers, body, answer.pace.delay_ms, False, answer.label)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
