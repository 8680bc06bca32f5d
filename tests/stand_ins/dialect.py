"""The base class for simulated services, and code that they share. A dialect simulates the API of one service.

A streamed reply is a list of timed frames, and a scripted fault may change this list. Dialects are synchronous. The
HTTP server implements the pauses between frames.
"""

from __future__ import annotations

import json
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn
from urllib.parse import parse_qs

from tests.stand_ins.rejections import ErrorTable, RequestRejected, reject
from tests.stand_ins.service_state import PromptCache, StateSigner
from tests.stand_ins.writer import adapt_scenario
from thinklsp.offline.scenario import DialectName, HttpError, ScenarioStep, ScriptedFault
from thinklsp.offline.script import Script


@dataclass(frozen=True, slots=True)
class SendBytes:
    """The bytes of a stream event. `is_counted` is false for pings, because scripted faults count only other events."""

    data: bytes
    is_counted: bool = True


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause in a stream. The server sends only pings during the pause."""

    ms: int


@dataclass(frozen=True, slots=True)
class EndStream:
    """The early end of a stream. If `is_clean` is false, the connection is aborted."""

    is_clean: bool


Frame = SendBytes | Pause | EndStream


@dataclass(frozen=True, slots=True)
class WholeReply:
    """A reply with a complete body, which is sent after `delay_ms`.

    If `disconnects` is true, the server closes the connection instead. `step_label` names the scenario step.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    delay_ms: int = 0
    disconnects: bool = False
    step_label: str | None = None


@dataclass(frozen=True, slots=True)
class StreamedReply:
    """A reply with status 200 and a body that is sent frame by frame.

    During a pause, the server sends `ping` every `ping_every_ms` milliseconds. If this interval is 0, no pings are
    sent.
    """

    headers: Mapping[str, str]
    frames: tuple[Frame, ...]
    ping: bytes
    delay_ms: int = 0
    ping_every_ms: int = 0
    step_label: str | None = None


SimulatedReply = WholeReply | StreamedReply


def pause(ms: int) -> Iterator[Pause]:
    """Yield a `Pause` of `ms` milliseconds unless `ms` is 0."""
    if ms:
        yield Pause(ms)


def send_event(value: object, name: str | None = None) -> SendBytes:
    """Return a server-sent event with `value` as its JSON data."""
    head = f"event: {name}\n" if name else ""
    return SendBytes(f"{head}data: ".encode("ascii") + encode_json(value) + b"\n\n")


def apply_fault(frames: Iterable[Frame], fault: ScriptedFault, error: bytes) -> tuple[Frame, ...]:
    """Return a stream's frames with a scripted fault. `error` is the encoded error event, if any.

    A fault that is due after more events than the stream contains occurs at the end of the stream.
    """
    if fault.error_event is not None:
        return (*take_events(frames, fault.error_event.after_events), SendBytes(error))
    if fault.cut_after_events is not None:
        return (*take_events(frames, fault.cut_after_events), EndStream(fault.cut_cleanly))
    if fault.silence_ms is not None:
        frames = tuple(frames)
        before = take_events(frames, fault.silence_after_events)
        return (*before, Pause(fault.silence_ms), *frames[len(before) :])
    return tuple(frames)


def take_events(frames: Iterable[Frame], events: int) -> tuple[Frame, ...]:
    """Return the frames up to and including the counted event with the number `events`."""
    result: list[Frame] = []
    for frame in frames:
        if events <= 0:
            break
        result.append(frame)
        events -= isinstance(frame, SendBytes) and frame.is_counted
    return tuple(result)


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A complete HTTP request. Header names are lowercase, and `path` does not include the query.

    `id` is the request ID that the service sends in headers and errors.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    id: str = field(default_factory=lambda: f"req_{secrets.token_hex(12)}", compare=False)

    @property
    def parameters(self) -> Mapping[str, str]:
        """The query parameters. If a key is repeated, its last value is used."""
        return {key: values[-1] for key, values in parse_qs(self.query).items()}


class Dialect(ABC):
    """The simulation of a service. Its state is kept in memory and is limited in size.

    `clock` returns the time in seconds, which determines when cached prefixes expire.
    """

    name: ClassVar[DialectName]
    errors: ClassVar[ErrorTable]
    # Clients ignore comment lines, so this ping is valid for all services.
    ping: ClassVar[bytes] = b": keep-alive\n\n"

    def __init__(self, script: Script, clock: Callable[[], float] = time.monotonic) -> None:
        self._script = Script(adapt_scenario(script.scenario, self.name))
        self._clock = clock
        self._signer = StateSigner()
        self._cache = PromptCache()

    @abstractmethod
    def can_answer(self, request: ReceivedRequest) -> bool:
        """Return True if a request's path and headers belong to this service. The request may be invalid."""

    @abstractmethod
    def _route_request(self, request: ReceivedRequest) -> SimulatedReply:
        """Check a request and return the reply. Raises RequestRejected for an invalid request."""

    @abstractmethod
    def _build_error_value(self, request: ReceivedRequest, rejection: RequestRejected) -> object:
        """Return the JSON body for a rejected request."""

    def _build_headers(self, request: ReceivedRequest) -> dict[str, str]:
        return {}

    def build_reply(self, request: ReceivedRequest) -> SimulatedReply:
        """Return the reply to a request. An invalid request gets an error reply."""
        try:
            return self._route_request(request)
        except RequestRejected as rejection:
            return self._build_error_reply(request, rejection)
        except RecursionError:
            return self._build_error_reply(request, RequestRejected(400, "The request body is nested too deeply."))

    def build_failure(self, status: int, message: str) -> WholeReply:
        """Return the error reply to a request that is too large or not valid HTTP."""
        return self._build_error_reply(
            ReceivedRequest("", "", "", {}, b""), self.errors.build_for_status(status, message)
        )

    def reset(self) -> None:
        """Forget conversations and cached prefixes. Signatures from earlier answers stay valid."""
        self._script.reset()
        self._cache.clear()

    def _resolve_window(self, model_window: int) -> int:
        """Return the context window that the scenario sets, or `model_window` by default."""
        return self._script.scenario.context_window or model_window

    def _build_json_reply(self, request: ReceivedRequest, value: object) -> WholeReply:
        headers = {**self._build_headers(request), "content-type": "application/json"}
        return WholeReply(200, headers, encode_json(value))

    def _build_error_reply(self, request: ReceivedRequest, rejection: RequestRejected) -> WholeReply:
        headers = {**self._build_headers(request), "content-type": "application/json"}
        body = json.dumps(self._build_error_value(request, rejection)).encode("ascii")
        return WholeReply(rejection.status, headers, body)

    def _build_scripted_failure(self, request: ReceivedRequest, answer: ScenarioStep, error: HttpError) -> WholeReply:
        """Return the reply for a scripted HTTP error, with the scenario's headers and body."""
        default = self._build_error_reply(request, self._build_scripted_error(error))
        headers = {**default.headers, **{name.lower(): value for name, value in error.headers.items()}}
        body = default.body
        if error.body is not None:
            headers["content-type"] = "text/html; charset=utf-8"
            body = error.body.encode("utf-8")
        return WholeReply(default.status, headers, body, answer.pacing.delay_ms, False, answer.label)

    def _build_scripted_error(self, error: HttpError) -> RequestRejected:
        return self.errors.build_scripted(error)

    def _build_answer_reply(
        self,
        request: ReceivedRequest,
        answer: ScenarioStep,
        value: object,
        frames: Iterable[Frame] | None,
        encode_error: Callable[[RequestRejected], bytes],
    ) -> SimulatedReply:
        """Return the reply for an answer: a stream of `frames`, or the JSON `value` if `frames` is None.

        `encode_error` encodes a scripted error event. If the answer is not streamed, a scripted fault becomes an error
        status, a closed connection or a longer delay.
        """
        event, fault, pace = answer.error_event, answer.fault, answer.pacing
        error: HttpError | None = None
        if event is not None:
            error = HttpError(status=self.errors.find_status(event.type), type=event.type, message=event.message)
        if frames is not None:
            error_bytes = encode_error(self._build_scripted_error(error)) if error is not None else b""
            sequence = tuple(frames) if fault is None else apply_fault(frames, fault, error_bytes)
            every = pace.ping_every_ms if self.ping else 0
            return StreamedReply(
                self._build_stream_headers(request), sequence, self.ping, pace.delay_ms, every, answer.label
            )
        if error is not None:
            return self._build_scripted_failure(request, answer, error)
        whole = self._build_json_reply(request, value)
        delay = pace.delay_ms + ((fault and fault.silence_ms) or 0)
        disconnects = fault is not None and fault.cut_after_events is not None
        return WholeReply(200, whole.headers, whole.body, delay, disconnects, answer.label)

    def _build_stream_headers(self, request: ReceivedRequest) -> Mapping[str, str]:
        kind = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
        return {**self._build_headers(request), **kind}


def parse_json(raw: bytes) -> Any:
    """Parse strict JSON. Raise ValueError for invalid JSON, NaN, infinities, and values that are nested too deeply."""
    try:
        return json.loads(raw, parse_constant=_reject_constant)
    except RecursionError as error:
        raise ValueError(str(error)) from None


def parse_object(raw: bytes, not_json: str, not_object: str) -> dict[str, Any]:
    """Parse a request body, which must be a JSON object.

    Raises RequestRejected. `not_json` and `not_object` are the error messages. The parser's message is added to
    `not_json`.
    """
    try:
        body = parse_json(raw)
    except ValueError as error:
        reject(f"{not_json}{error}")
    if not isinstance(body, dict):
        reject(not_object)
    return body


def encode_json(value: object) -> bytes:
    """Encode JSON in the same way as the services, without escaping non-ASCII text.

    UTF-8 cannot encode lone surrogates, which a prompt may contain. In this case, all non-ASCII text is escaped.
    """
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str).encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), default=str).encode("ascii")


def is_under(path: str, base: str) -> bool:
    return path == base or path.startswith(f"{base}/")


def read_bearer_token(headers: Mapping[str, str]) -> str:
    """Return the bearer token from the authorization header, or an empty string."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
