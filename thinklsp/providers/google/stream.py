"""Decodes the stream of generateContent: chunks of one answer, each with new parts and the counts so far.

There is no terminal event: a `finishReason` may be followed by more, so the message is finished where the stream ends.
One whole answer as JSON, or a list of chunks, takes the same road. No error here repeats what the service sent, except
its error messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from thinklsp.core.errors import StreamProtocolError
from thinklsp.core.messages import StopReason
from thinklsp.core.stream import MessageFinished, MessageStarted, StreamEvent
from thinklsp.core.strict_json import is_shallow, read_json
from thinklsp.core.usage import Usage
from thinklsp.providers.failures import Report, thinking_rejected
from thinklsp.providers.google.contents import CONTINUATION
from thinklsp.providers.google.errors import failure_in_stream
from thinklsp.providers.google.parts import BlockBuilder, malformed
from thinklsp.providers.service_errors import excerpt

_UNSPECIFIED = "FINISH_REASON_UNSPECIFIED"
_REFUSALS = (
    "SAFETY",
    "RECITATION",
    "LANGUAGE",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "ESCALATION",
    "PUP_LIMITED_DISABLED",
    "MODEL_ARMOR",
    "IMAGE_",
)
_FAILURES = {
    "MALFORMED_FUNCTION_CALL": "The model wrote a tool call that cannot be read",
    "UNEXPECTED_TOOL_CALL": "The model called a tool that it does not have",
    "TOO_MANY_TOOL_CALLS": "The model called more tools at once than the service allows",
    "MALFORMED_RESPONSE": "The model wrote an answer that cannot be read",
}
_NESTING = 100


class GoogleDecoder:
    """Lives with one stream. What comes after its end is ignored."""

    def __init__(self) -> None:
        self._blocks = BlockBuilder()
        self._usage: dict[str, Any] = {}
        self._reason: str | None = None
        self._said = ""
        self._blocked: str | None = None
        self._token: str | None = None
        self._started = False
        self._finished = False

    @property
    def usage(self) -> Usage:
        """The service counts thoughts apart from the answer; ours is the whole output."""
        return Usage(
            input_tokens=self._sum("promptTokenCount", "toolUsePromptTokenCount"),
            output_tokens=self._sum("candidatesTokenCount", "thoughtsTokenCount"),
            thinking_tokens=self._count("thoughtsTokenCount"),
            cache_read_tokens=self._count("cachedContentTokenCount"),
        )

    def feed(self, event: str, data: str) -> list[StreamEvent]:
        """One chunk, a whole answer, a list of chunks, or an error as JSON. Raises ProviderError."""
        if self._finished or data.strip() in ("", "[DONE]"):
            return []
        if event == "error":
            raise failure_in_stream(_told_as_error(data))
        content = _parse(data)
        events: list[StreamEvent] = []
        for chunk in content if isinstance(content, list) else [content]:
            if not isinstance(chunk, dict):
                raise malformed("an event")
            if chunk.get("error"):
                raise failure_in_stream(chunk)
            events += self._chunk(chunk)
        return events

    def finish(self) -> list[StreamEvent]:
        if self._finished:
            return []
        if self._reason is None and self._blocked is None:
            raise StreamProtocolError("The connection ended before the answer was complete.")
        reason, explanation = self._ending()
        events = list(self._blocks.close())
        if reason == "pause_turn":
            events += self._blocks.block("opaque", {"type": CONTINUATION, "continuationToken": self._token})
        self._finished = True
        return [*events, MessageFinished(reason, self.usage, explanation)]

    def _chunk(self, chunk: Mapping[str, Any]) -> Iterator[StreamEvent]:
        usage = chunk.get("usageMetadata")
        if isinstance(usage, dict):
            # Counts are totals; early chunks lack some of them.
            self._usage.update({key: value for key, value in usage.items() if value is not None})
        if not self._started:
            self._started = True
            yield MessageStarted(str(chunk.get("modelVersion") or ""), self.usage)
        self._take_feedback(chunk.get("promptFeedback"))
        candidate = _candidate(chunk)
        for part in _parts(candidate):
            yield from self._blocks.part(part, self._count("thoughtsTokenCount") or 0)
        self._take_end(candidate)

    def _take_feedback(self, feedback: object) -> None:
        if not isinstance(feedback, dict) or not isinstance(feedback.get("blockReason"), str):
            return
        said = feedback.get("blockReasonMessage")
        self._blocked = (isinstance(said, str) and excerpt(said)) or (
            f"The service blocked the request ({excerpt(feedback['blockReason'])}): put it in other words."
        )

    def _take_end(self, candidate: Mapping[str, Any]) -> None:
        reason, said, token = (candidate.get(key) for key in ("finishReason", "finishMessage", "continuationToken"))
        if isinstance(reason, str) and reason and reason.upper() != _UNSPECIFIED:
            self._reason = reason.upper()
        if isinstance(said, str):
            self._said = excerpt(said)
        if isinstance(token, str) and token:
            self._token = token

    def _ending(self) -> tuple[StopReason, str | None]:
        """Calls are known by their parts: the service has no reason of its own for them. Raises ProviderError."""
        match self._reason:
            case None:
                return "refusal", self._blocked
            case "STOP":
                return ("tool_use" if self._blocks.called else "end_turn"), None
            case "MAX_TOKENS":
                return "max_tokens", None
            case "CONTINUATION":
                # Without a token nothing can make the service go on.
                return ("max_tokens" if self._token is None else "pause_turn"), None
            case "MISSING_THOUGHT_SIGNATURE":
                raise thinking_rejected()
            case reason if reason in _FAILURES:
                raise StreamProtocolError(f"{_FAILURES[reason]} ({reason}).{Report(0, self._said, '', None).said}")
            case reason if reason.startswith(_REFUSALS):
                return "refusal", self._said or f"The service stopped the answer ({reason})."
            case _:
                return "other", self._said or None

    def _sum(self, *keys: str) -> int | None:
        counted = [count for key in keys if (count := self._count(key)) is not None]
        return sum(counted) if counted else None

    def _count(self, key: str) -> int | None:
        value = self._usage.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _candidate(chunk: Mapping[str, Any]) -> Mapping[str, Any]:
    """The one answer that was asked for; empty where the chunk has nothing of it."""
    candidates = chunk.get("candidates")
    if candidates is None:
        return {}
    if not isinstance(candidates, list) or not all(isinstance(candidate, dict) for candidate in candidates):
        raise malformed("an event")
    return next((candidate for candidate in candidates if not candidate.get("index")), {})


def _parts(candidate: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = candidate.get("content")
    parts = content.get("parts") if isinstance(content, dict) else content
    if parts is None:
        return []
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise malformed("a part")
    return parts


def _parse(data: str) -> object:
    try:
        # Arguments of calls stand in here, and go back as they came.
        content = read_json(data)
    except ValueError:
        raise malformed("an event") from None
    if not is_shallow(content, _NESTING, data):
        raise malformed("an event")
    return content


def _told_as_error(data: str) -> Mapping[str, Any]:
    """Called an error by the stream itself, whatever it looks like."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return {"error": data}
    if isinstance(content, list) and content:
        content = content[0]
    return content if isinstance(content, dict) and content.get("error") else {"error": content}
