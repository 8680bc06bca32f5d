"""The base class for simulated services, and code that they share. A dialect simulates the API of one service.

A streamed reply is a list of timed frames, and a scripted fault may change this list. Dialects are synchronous. The
HTTP server implements the pauses between frames.
"""

from __future__ import annotations

import json
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar, assert_never

from tests.stand_ins.rejections import DialectName, ErrorTable, RequestRejected, reject
from tests.stand_ins.service_state import PromptCache, StateSigner
from thinklsp.offline.scenario import (
    HttpError,
    RawPart,
    RedactedPart,
    Scenario,
    ScenarioStep,
    ScenarioTurn,
    ScriptedFault,
    TextPart,
    ThinkingPart,
    ToolPart,
)
from thinklsp.offline.script import Script

Frame = int | bytes
"""An event of a stream, or a pause in milliseconds before the next one. The server sends only pings during a pause."""


@dataclass(frozen=True, slots=True)
class WholeReply:
    """A reply with a complete body, which is sent after `delay_ms`. `step_label` names the scenario step."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    delay_ms: int = 0
    step_label: str | None = None


@dataclass(frozen=True, slots=True)
class StreamedReply:
    """A reply with status 200 and a body that is sent frame by frame. If `breaks`, the connection is then aborted.

    During a pause, the server sends `ping` every `ping_every_ms` milliseconds. If this interval is 0, no pings are
    sent.
    """

    headers: Mapping[str, str]
    frames: tuple[Frame, ...]
    ping: bytes
    breaks: bool = False
    delay_ms: int = 0
    ping_every_ms: int = 0
    step_label: str | None = None

    @property
    def body(self) -> bytes:
        return b"".join(frame for frame in self.frames if isinstance(frame, bytes))


SimulatedReply = WholeReply | StreamedReply


def send_event(value: object, name: str | None = None) -> bytes:
    """Return a server-sent event with `value` as its JSON data."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: ".encode("ascii") + encode_json(value) + b"\n\n"


def apply_fault(frames: tuple[Frame, ...], fault: ScriptedFault, error: bytes) -> tuple[Frame, ...]:
    """Return a stream's frames with a scripted fault. `error` is the encoded error event, if any.

    A fault that is due after more events than the stream contains occurs at the end of the stream.
    """
    if fault.error_event is not None:
        return (*take_events(frames, fault.error_event.after_events), error)
    if fault.cut_after_events is not None:
        return take_events(frames, fault.cut_after_events)
    return frames


def take_events(frames: tuple[Frame, ...], events: int) -> tuple[Frame, ...]:
    """Return the frames up to and including the event with the number `events`. Pings and comments do not count."""
    counted = (
        place
        for place, frame in enumerate(frames)
        if isinstance(frame, bytes) and not frame.startswith((b":", b"event: ping"))
    )
    ends = [0, *(place + 1 for place in counted)]
    return frames[: ends[events]] if events < len(ends) else frames


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


class Dialect(ABC):
    """The simulation of a service. It streams every answer. Its state is kept in memory and is limited in size."""

    name: ClassVar[DialectName]
    errors: ClassVar[ErrorTable]
    # Clients ignore comment lines, so this ping is valid for all services.
    ping: ClassVar[bytes] = b": keep-alive\n\n"

    def __init__(self, script: Script) -> None:
        self._script = Script(adapt_scenario(script.scenario, self.name))
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

    def _resolve_window(self, model_window: int) -> int:
        """Return the context window that the scenario sets, or `model_window` by default."""
        return self._script.scenario.context_window or model_window

    def _build_error_reply(self, request: ReceivedRequest, rejection: RequestRejected) -> WholeReply:
        headers = {**self._build_headers(request), "content-type": "application/json"}
        body = json.dumps(self._build_error_value(request, rejection)).encode("ascii")
        return WholeReply(rejection.status, headers, body)

    def _build_scripted_failure(self, request: ReceivedRequest, answer: ScenarioStep, error: HttpError) -> WholeReply:
        """Return the reply for a scripted HTTP error, with the scenario's headers."""
        default = self._build_error_reply(request, self._build_scripted_error(error))
        headers = {**default.headers, **{name.lower(): value for name, value in error.headers.items()}}
        return WholeReply(default.status, headers, default.body, answer.pacing.delay_ms, answer.label)

    def _build_scripted_error(self, error: HttpError) -> RequestRejected:
        return self.errors.build_scripted(error)

    def _build_json_reply(self, request: ReceivedRequest, value: object) -> WholeReply:
        headers = {**self._build_headers(request), "content-type": "application/json"}
        return WholeReply(200, headers, encode_json(value))

    def _build_stream(
        self,
        request: ReceivedRequest,
        answer: ScenarioStep,
        frames: Iterable[Frame],
        encode_error: Callable[[RequestRejected], bytes],
    ) -> StreamedReply:
        """Return the stream of an answer, with its scripted fault. `encode_error` encodes a scripted error event."""
        event, pace = (answer.fault and answer.fault.error_event), answer.pacing
        error = b""
        if event is not None:
            scripted = HttpError(status=self.errors.find_status(event.type), type=event.type, message=event.message)
            error = encode_error(self._build_scripted_error(scripted))
        fault = answer.fault or ScriptedFault.model_construct()
        sequence = apply_fault(tuple(frames), fault, error)
        breaks = fault.cut_after_events is not None and not fault.cut_cleanly
        kind = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
        headers = {**self._build_headers(request), **kind}
        every = pace.ping_every_ms if self.ping else 0
        return StreamedReply(headers, sequence, self.ping, breaks, pace.delay_ms, every, answer.label)


def parse_object(raw: bytes) -> dict[str, Any]:
    """Parse a request body, which must be a JSON object. Raises RequestRejected."""
    try:
        body = json.loads(raw, parse_constant=int)
    except (ValueError, RecursionError) as error:
        reject(f"The request body is not valid JSON: {error}")
    if not isinstance(body, dict):
        reject("The request body is not a JSON object")
    return body


def encode_json(value: object) -> bytes:
    """Encode JSON in the same way as the services, without escaping non-ASCII text.

    UTF-8 cannot encode lone surrogates, which a prompt may contain. In this case, all non-ASCII text is escaped.
    """
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str).encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), default=str).encode("ascii")


def read_bearer_token(headers: Mapping[str, str]) -> str:
    """Return the bearer token from the authorization header, or an empty string."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


PieceT = TypeVar("PieceT")
# The services that can pause an answer and continue it in the next response.
_PAUSING_DIALECTS: frozenset[DialectName] = frozenset({"anthropic", "google"})


def adapt_scenario(scenario: Scenario, dialect: DialectName) -> Scenario:
    """Return the scenario as one service plays it."""
    turns = (turn.model_copy(update={"step": tuple(_select_steps(turn, dialect))}) for turn in scenario.turn)
    return scenario.model_copy(update={"turn": tuple(turns)})


def _select_steps(turn: ScenarioTurn, dialect: DialectName) -> list[ScenarioStep]:
    """Return the steps of a turn for one service, without raw blocks unless the service is Anthropic.

    If the service cannot pause an answer, a paused step is merged with the next step.
    """
    steps: list[ScenarioStep] = []
    for step in turn.step:
        blocks = tuple(part for part in step.parts if dialect == "anthropic" or not isinstance(part, RawPart))
        step = step.model_copy(update={"parts": blocks})
        if steps and steps[-1].stop_reason == "pause_turn" and dialect not in _PAUSING_DIALECTS:
            first = steps.pop()
            changes = {"parts": (*first.parts, *step.parts), "pacing": first.pacing, "fault": first.fault or step.fault}
            step = step.model_copy(update=changes)
        steps.append(step)
    if steps[-1].stop_reason == "pause_turn" and dialect not in _PAUSING_DIALECTS:
        steps[-1] = steps[-1].model_copy(update={"stop_reason": None})
    return steps


class AnswerWriter(ABC, Generic[PieceT]):
    """A base class for writers that convert a scripted answer to the format of a service.

    Thinking parts are skipped unless `thinks` is true.
    """

    def __init__(self, answer: ScenarioStep, *, thinks: bool) -> None:
        self._answer = answer
        self._thinks = thinks

    def write(self) -> Iterator[PieceT]:
        for number, part in enumerate(self._answer.parts):
            match part:
                case ThinkingPart() | RedactedPart():
                    if self._thinks:
                        yield from self._write_thinking(part, number)
                case TextPart():
                    yield from self._write_text(part, number)
                case ToolPart():
                    yield from self._write_tool_call(part, number)
                case RawPart():
                    yield from self._write_raw(part)
                case _:
                    assert_never(part)

    @abstractmethod
    def _write_thinking(self, part: ThinkingPart | RedactedPart, number: int) -> Iterator[PieceT]: ...

    @abstractmethod
    def _write_text(self, part: TextPart, number: int) -> Iterator[PieceT]: ...

    @abstractmethod
    def _write_tool_call(self, part: ToolPart, number: int) -> Iterator[PieceT]: ...

    def _write_raw(self, part: RawPart) -> Iterator[PieceT]:
        raise NotImplementedError

    @property
    def _interval_ms(self) -> int:
        """The pause before each delta in milliseconds."""
        return self._answer.pacing.interval_ms

    def _split(self, text: str) -> list[str]:
        size = self._answer.pacing.chunk_chars
        return [text[start : start + size] for start in range(0, len(text), size)]
