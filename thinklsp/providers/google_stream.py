"""The decoder for generateContent streams. Each chunk contains new parts of the answer and the usage so far.

The stream has no terminal event. More chunks may follow a `finishReason`, so the answer ends only when the stream ends.
The decoder also accepts a complete answer, or a list of chunks, as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from thinklsp.core.messages import StopReason
from thinklsp.core.stream_events import (
    BlockDelta,
    BlockKind,
    BlockStarted,
    BlockStopped,
    Delta,
    InputJsonDelta,
    MessageFinished,
    StreamEvent,
    TextBuffer,
    TextDelta,
    ThinkingDelta,
)
from thinklsp.core.text_safety import make_excerpt
from thinklsp.core.usage import Usage
from thinklsp.providers.base import StreamDecoder
from thinklsp.providers.decoding import (
    build_malformed_error,
    explain_unknown_ending,
    merge_non_null,
    read_count,
    read_text,
)
from thinklsp.providers.error_reports import ErrorReport
from thinklsp.providers.failures import OutputRejected, classify_event

CONTINUATION = "continuation"
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
    "MALFORMED_FUNCTION_CALL": "The model sent a tool call that cannot be parsed",
    "UNEXPECTED_TOOL_CALL": "The model called a tool that does not exist",
    "TOO_MANY_TOOL_CALLS": "The model called more tools at once than the provider allows",
    "MALFORMED_RESPONSE": "The model sent an answer that cannot be parsed",
}
_CALL = "a tool call"
_UNFINISHED = ("partialArgs", "willContinue")


class GoogleDecoder(StreamDecoder):
    """A decoder for a generateContent stream."""

    # Tool call arguments are sent back to the provider as JSON.
    odd_numbers = "refuse"

    def __init__(self) -> None:
        super().__init__()
        self._blocks = _BlockBuilder()
        self._usage: dict[str, Any] = {}
        self._reason: str | None = None
        self._finish_message = ""
        self._block_message: str | None = None
        self._token: str | None = None

    @property
    def usage(self) -> Usage:
        """The answer's usage so far.

        The provider counts thinking separately, but `Usage` includes it in the output.
        """
        return Usage(
            input_tokens=self._sum_counts("promptTokenCount", "toolUsePromptTokenCount"),
            output_tokens=self._sum_counts("candidatesTokenCount", "thoughtsTokenCount"),
            thinking_tokens=read_count(self._usage, "thoughtsTokenCount"),
            cache_read_tokens=read_count(self._usage, "cachedContentTokenCount"),
        )

    def finish(self) -> list[StreamEvent]:
        if self._finished or (self._reason is None and self._block_message is None):
            return super().finish()
        reason, explanation = self._resolve_stop_reason()
        notices = (explain_unknown_ending(self._reason or ""),) if reason == "other" else ()
        events = list(self._blocks.close())
        if reason == "pause_turn":
            events += self._blocks.emit_block("opaque", {"type": CONTINUATION, "continuationToken": self._token})
        self._finished = True
        return [*events, MessageFinished(reason, self.usage, explanation, notices)]

    def _decode(self, event: str, content: Mapping[str, Any]) -> Iterator[StreamEvent]:
        if event == "error" or content.get("error"):
            raise classify_event("google", content)
        merge_non_null(self._usage, content.get("usageMetadata"))
        yield from self._begin(str(content.get("modelVersion") or ""), self.usage)
        self._take_feedback(content.get("promptFeedback"))
        candidate = _find_candidate(content)
        for part in _read_parts(candidate):
            yield from self._blocks.add_part(part, read_count(self._usage, "thoughtsTokenCount") or 0)
        self._take_end(candidate)

    def _take_feedback(self, feedback: object) -> None:
        if not isinstance(feedback, dict) or not isinstance(feedback.get("blockReason"), str):
            return
        message = feedback.get("blockReasonMessage")
        self._block_message = (isinstance(message, str) and make_excerpt(message)) or (
            f"The provider blocked the request ({make_excerpt(feedback['blockReason'])}): rephrase it."
        )

    def _take_end(self, candidate: Mapping[str, Any]) -> None:
        reason, message, token = (candidate.get(key) for key in ("finishReason", "finishMessage", "continuationToken"))
        if isinstance(reason, str) and reason and reason.upper() != _UNSPECIFIED:
            self._reason = reason.upper()
        if isinstance(message, str):
            self._finish_message = make_excerpt(message)
        if isinstance(token, str) and token:
            self._token = token

    def _resolve_stop_reason(self) -> tuple[StopReason, str | None]:
        """Return the stop reason and an explanation for the user. Raise ProviderError if the answer failed.

        Gemini has no stop reason for tool calls, so tool calls are recognized by the answer's parts.
        """
        match self._reason:
            case None:
                return "refusal", self._block_message
            case "STOP":
                return ("tool_use" if self._blocks.has_called_tool else "end_turn"), None
            case "MAX_TOKENS":
                return "max_tokens", None
            case "CONTINUATION":
                # Gemini can continue an answer only if it sent a continuation token.
                return ("max_tokens" if self._token is None else "pause_turn"), None
            case "MISSING_THOUGHT_SIGNATURE":
                raise classify_event("google", {"error": {"code": 400, "message": self._reason}})
            case reason if reason in _FAILURES:
                raise OutputRejected(
                    f"{_FAILURES[reason]} ({reason}).{ErrorReport(0, self._finish_message, '', None).quotation}"
                )
            case reason if reason.startswith(_REFUSALS):
                return "refusal", self._finish_message or f"The provider stopped the answer ({reason})."
            case _:
                return "other", self._finish_message or None

    def _sum_counts(self, *keys: str) -> int | None:
        counted = [count for key in keys if (count := read_count(self._usage, key)) is not None]
        return sum(counted) if counted else None


def _find_candidate(chunk: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the candidate with index 0, or an empty object if the chunk does not contain this candidate."""
    candidates = chunk.get("candidates")
    if candidates is None:
        return {}
    if not isinstance(candidates, list) or not all(isinstance(candidate, dict) for candidate in candidates):
        raise build_malformed_error("an event")
    return next((candidate for candidate in candidates if not candidate.get("index")), {})


def _read_parts(candidate: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = candidate.get("content")
    parts = content.get("parts") if isinstance(content, dict) else content
    if parts is None:
        return []
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise build_malformed_error("a part")
    return parts


@dataclass(slots=True)
class _OpenBlock:
    """A text or thinking block to which more text may be added."""

    index: int
    is_thought: bool
    pieces: TextBuffer = field(default_factory=TextBuffer)

    def build_raw(self) -> Mapping[str, Any]:
        text = str(self.pieces)
        return {"text": text, "thought": True} if self.is_thought else {"text": text}


class _BlockBuilder:
    """A builder that converts the parts of an answer to blocks in the order of arrival.

    Adjacent pieces of plain text become a single block. Signed parts and parts with unknown fields are never merged, so
    that they can be sent back unchanged. `has_called_tool` is true after the first tool call.
    """

    def __init__(self) -> None:
        self._open_block: _OpenBlock | None = None
        self._count = 0
        self._thought_tokens = 0
        self.has_called_tool = False

    def add_part(self, part: Mapping[str, Any], thought_tokens: int) -> Iterator[StreamEvent]:
        """Add a part. Raise StreamProtocolError if the part is invalid.

        `thought_tokens` is the number of thinking tokens that the provider has reported so far.
        """
        text = read_text(part, "text", "a part")
        is_thought = part.get("thought") is True
        signed = bool(read_text(part, "thoughtSignature", "a part"))
        others = [
            key
            for key, value in part.items()
            if value is not None and key not in ("text", "thought", "thoughtSignature")
        ]
        if "functionCall" in others:
            yield from self._emit_call(part)
        elif text:
            delta = ThinkingDelta(text, self._count_new_thinking(thought_tokens)) if is_thought else TextDelta(text)
            yield from self._emit_whole_part(part, delta) if signed or others else self._add_piece(delta)
        elif signed or others:
            yield from self.emit_block("opaque", {"type": others[0] if others else "thoughtSignature"}, raw=part)

    def emit_block(
        self,
        kind: BlockKind,
        opening: Mapping[str, Any],
        delta: Delta | None = None,
        *,
        raw: Mapping[str, Any] | None = None,
    ) -> Iterator[StreamEvent]:
        """Emit a complete block. `raw` is the provider's own JSON for the block, and defaults to `opening`."""
        yield from self.close()
        index = self._take_index()
        yield BlockStarted(index, kind, opening)
        if delta is not None:
            yield BlockDelta(index, delta)
        yield BlockStopped(index, raw)

    def close(self) -> Iterator[StreamEvent]:
        """End the open text or thinking block, if any."""
        if self._open_block is not None:
            yield BlockStopped(self._open_block.index, self._open_block.build_raw())
            self._open_block = None

    def _add_piece(self, delta: TextDelta | ThinkingDelta) -> Iterator[StreamEvent]:
        is_thought = isinstance(delta, ThinkingDelta)
        if self._open_block is None or self._open_block.is_thought is not is_thought:
            yield from self.close()
            self._open_block = _OpenBlock(self._take_index(), is_thought)
            yield BlockStarted(self._open_block.index, *_build_opening(delta))
        self._open_block.pieces.append(delta.text)
        yield BlockDelta(self._open_block.index, delta)

    def _emit_whole_part(self, part: Mapping[str, Any], delta: TextDelta | ThinkingDelta) -> Iterator[StreamEvent]:
        kind, opening = _build_opening(delta)
        yield from self.emit_block(kind, opening, delta, raw=part)

    def _emit_call(self, part: Mapping[str, Any]) -> Iterator[StreamEvent]:
        """Emit a tool call with its complete arguments.

        If the arguments are incomplete or not an object, they are marked as invalid, so that the call never runs.
        """
        call = part["functionCall"]
        if not isinstance(call, dict):
            raise build_malformed_error(_CALL)
        self.has_called_tool = True
        raw_arguments = call.get("args")
        arguments: object = {} if raw_arguments is None else raw_arguments
        if any(call.get(key) for key in _UNFINISHED):
            arguments = None
        if not isinstance(arguments, dict):
            # The API accepts only objects as arguments. Invalid arguments are therefore sent back as an empty object.
            finished = {key: value for key, value in call.items() if key not in _UNFINISHED}
            part = {**part, "functionCall": {**finished, "args": {}}}
        opening = {"type": "tool_use", "id": read_text(call, "id", _CALL), "name": read_text(call, "name", _CALL)}
        if not opening["name"]:
            raise build_malformed_error(_CALL)
        yield from self.emit_block("tool_use", opening, InputJsonDelta(json.dumps(arguments)), raw=part)

    def _count_new_thinking(self, thought_tokens: int) -> int | None:
        more = thought_tokens - self._thought_tokens
        self._thought_tokens = max(thought_tokens, self._thought_tokens)
        return more if more > 0 else None

    def _take_index(self) -> int:
        self._count += 1
        return self._count - 1


def _build_opening(delta: TextDelta | ThinkingDelta) -> tuple[BlockKind, Mapping[str, Any]]:
    kind: BlockKind = "thinking" if isinstance(delta, ThinkingDelta) else "text"
    return kind, {"type": kind, kind: ""}
