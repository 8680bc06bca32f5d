"""The adapter for the generateContent API, and the decoder for its streams.

A signature is sent back with the part on which it arrived. Tool results are sent in the order of the tool calls, in
their own `Content` object. The user's text follows in another `Content` object.

Each chunk of a stream contains new parts of the answer and the usage so far. There is no terminal event: more chunks
may follow a `finishReason`, so the answer ends only when the stream ends. The decoder also accepts a complete answer,
or a list of chunks, as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never
from urllib.parse import quote

from thinklsp.core.images import encode_base64
from thinklsp.core.messages import (
    AssistantMessage,
    ContentBlock,
    Conversation,
    ImageBlock,
    OpaqueBlock,
    Origin,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    UserMessage,
)
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
from thinklsp.providers.base import Adapter, Endpoint, HttpRequest, ModelRequest, StreamDecoder, Thinking
from thinklsp.providers.catalogue import Capabilities, ModelInfo
from thinklsp.providers.decoding import (
    build_malformed_error,
    explain_unknown_ending,
    merge_non_null,
    parse_json_object,
    read_count,
    read_limit,
    read_text,
)
from thinklsp.providers.encoding import EMPTY_TEXT, EncodedParts, Wire, cache_encoded_tool, encode_body, sanitize_name
from thinklsp.providers.error_reports import ErrorReport
from thinklsp.providers.failures import OutputRejected, classify_event

_KEY_HEADER = "x-goog-api-key"
# The placeholder that Google documents for the signatures of tool calls from other models.
_PLACEHOLDER_SIGNATURE = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
ENCODED_PARTS = EncodedParts()
_CONTINUE_PROMPT = "Continue where you left off."


class GoogleAdapter(Adapter):
    dialects = ("google",)

    def encode(self, request: ModelRequest, endpoint: Endpoint) -> HttpRequest:
        origin = endpoint.build_origin(request.model.id)
        conversation, token = _split_paused_answer(request.conversation, origin)
        body: Wire = {}
        if request.system:
            body["systemInstruction"] = {"parts": [{"text": request.system}]}
        body["contents"] = _build_contents(conversation, origin, signed_calls=_is_signature_required(request.model))
        if request.tools:
            body["tools"] = [{"functionDeclarations": [_encode_tool(tool) for tool in request.tools]}]
        if config := _build_generation_config(request):
            body["generationConfig"] = config
        if token is not None:
            body["continuationToken"] = token
        name = quote(request.model.id.removeprefix("models/"), safe="")
        return HttpRequest(
            endpoint.build_url(f"/v1beta/models/{name}:streamGenerateContent?alt=sse"),
            endpoint.stream_headers(_KEY_HEADER),
            encode_body(body),
        )

    def create_decoder(self) -> StreamDecoder:
        return GoogleDecoder()

    def encode_model_query(self, endpoint: Endpoint, model_id: str) -> tuple[str, Mapping[str, str]]:
        name = quote(model_id.removeprefix("models/"), safe="")
        return endpoint.build_url(f"/v1beta/models/{name}"), endpoint.query_headers(_KEY_HEADER)

    def parse_capabilities(self, body: bytes) -> Capabilities | None:
        """Parse the token limits. The API does not report effort levels or budgets."""
        content = parse_json_object(body)
        window, cap = read_limit(content, "inputTokenLimit"), read_limit(content, "outputTokenLimit")
        return None if window is None and cap is None else Capabilities(context_window=window, max_tokens=cap)


@cache_encoded_tool
def _encode_tool(tool: ToolSpec) -> Wire:
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.input_schema}


def _build_generation_config(request: ModelRequest) -> Wire:
    config: Wire = {}
    if request.max_tokens is not None:
        config["maxOutputTokens"] = request.max_tokens
    if thinking := _build_thinking_config(request.thinking, request.model):
        config["thinkingConfig"] = thinking
    return config


def _build_thinking_config(thinking: Thinking, model: ModelInfo) -> Wire:
    """Build the thinking settings, which contain either a budget or a level, but never both."""
    config: Wire = {}
    match thinking.form:
        case "unset" | "between_tools":
            return {}  # No Gemini model supports the form `between_tools`.
        case "off":
            return {"thinkingBudget": 0}
        case "manual":
            if thinking.budget_tokens is not None:
                config["thinkingBudget"] = thinking.budget_tokens
        case "adaptive":
            config = _build_adaptive_config(thinking, model)
        case _:
            assert_never(thinking.form)
    return config | {"includeThoughts": True} if thinking.summarized else config


def _build_adaptive_config(thinking: Thinking, model: ModelInfo) -> Wire:
    if model.efforts:
        return {} if thinking.effort is None else {"thinkingLevel": thinking.effort.upper()}
    # A budget of -1 lets the model decide how much to think. Most models do so by default.
    return {"thinkingBudget": -1} if model.manual and not model.on_when_unset else {}


def _is_signature_required(model: ModelInfo) -> bool:
    """Return whether the model requires signatures on tool calls.

    All models with thinking levels require signatures. Unlisted models are assumed to require signatures too.
    """
    return bool(model.efforts) or not model.known


@dataclass(frozen=True, slots=True)
class _Call:
    """A tool call in the request. `position` is its index among all tool calls.

    If `id` is None, the result of the call has no ID either.
    """

    position: int
    id: str | None
    name: str


def _split_paused_answer(conversation: Conversation, origin: Origin) -> tuple[Conversation, str | None]:
    """Remove a paused answer from the end of the conversation.

    Return the remaining conversation and the token that continues the paused answer. The token is None if the
    conversation does not end with a paused answer.
    """
    end, token = len(conversation), None
    while end and (piece := _find_continuation_token(conversation[end - 1], origin)) is not None:
        token = token or piece
        end -= 1
    return conversation[:end], token


def _find_continuation_token(message: UserMessage | AssistantMessage, origin: Origin) -> str | None:
    last = message.blocks[-1] if message.blocks else None
    if not isinstance(last, OpaqueBlock) or last.type != CONTINUATION or not last.raw.is_issued_by(origin):
        return None
    return str(json.loads(last.raw.reveal_for(origin))["continuationToken"])


def _build_contents(conversation: Conversation, origin: Origin, *, signed_calls: bool) -> list[Wire]:
    """Encode the conversation as `Content` objects. The first and last objects have the role `user`.

    No object is empty, and objects with the role `model` are never adjacent. If `signed_calls` is true, missing
    signatures in the current turn are replaced with a placeholder.
    """
    contents: list[Wire] = []
    calls: dict[str, _Call] = {}
    pending: list[UserMessage] = []
    for message in conversation:
        if isinstance(message, UserMessage):
            pending.append(message)
        elif parts := _build_model_parts(message, origin, calls):
            contents += _build_user_contents(pending, calls)
            pending.clear()
            if contents and contents[-1]["role"] == "model":
                contents[-1]["parts"] += parts
            else:
                contents.append(_build_content("model", parts))
    contents += _build_user_contents(pending, calls)
    if not contents or contents[0]["role"] == "model":
        contents.insert(0, _build_content("user", [{"text": EMPTY_TEXT}]))
    if contents[-1]["role"] == "model":
        contents.append(_build_content("user", [{"text": _CONTINUE_PROMPT}]))
    return _add_signatures(contents) if signed_calls else contents


def _build_content(role: str, parts: list[Wire]) -> Wire:
    return {"role": role, "parts": parts}


def _build_user_contents(messages: Sequence[UserMessage], calls: dict[str, _Call]) -> list[Wire]:
    """Encode user messages. Tool results come first, and prompts follow in a separate `Content` object.

    Gemini does not accept tool results and other parts in the same object.
    """
    if not messages:
        return []
    blocks = [block for message in messages for block in message.blocks]
    answered = [
        (calls[block.tool_use_id], block)
        for block in blocks
        if isinstance(block, ToolResultBlock) and block.tool_use_id in calls
    ]
    answered.sort(key=lambda pair: pair[0].position)
    answers: list[Wire] = [ENCODED_PARTS.encode(block, call, _encode_result, call, block) for call, block in answered]
    prompts: list[Wire] = [
        ENCODED_PARTS.encode(block, None, _encode_prompt_part, block)
        for block in blocks
        if isinstance(block, ImageBlock) or (isinstance(block, TextBlock) and block.text.strip())
    ]
    if not answers and not prompts:
        prompts = [{"text": EMPTY_TEXT}]
    return [_build_content("user", parts) for parts in (answers, prompts) if parts]


def _encode_prompt_part(block: TextBlock | ImageBlock) -> Wire:
    if isinstance(block, TextBlock):
        return _encode_text(block)
    return {"inlineData": {"mimeType": block.media_type, "data": encode_base64(block)}}


def _encode_result(call: _Call, result: ToolResultBlock) -> Wire:
    response: Wire = {} if call.id is None else {"id": call.id}
    response |= {"name": call.name, "response": {"error" if result.is_error else "output": result.text}}
    return {"functionResponse": response}


def _build_model_parts(message: AssistantMessage, origin: Origin, calls: dict[str, _Call]) -> list[Wire]:
    """Encode an answer and add its tool calls to `calls`.

    If another endpoint or model issued any of the blocks, the entire answer is rebuilt from its readable fields,
    because a signature also covers the parts around it.
    """
    is_own = all(block.raw is not None and block.raw.is_issued_by(origin) for block in message.blocks)
    used_ids: set[str] = set()
    parts = (_encode_part(block, origin if is_own else None, calls, used_ids) for block in message.blocks)
    return [part for part in parts if part is not None]


def _encode_part(
    block: ContentBlock, origin: Origin | None, calls: dict[str, _Call], used_ids: set[str]
) -> Wire | None:
    """Encode a block of an answer.

    `used_ids` contains the provider's IDs of earlier tool calls in the answer.
    """
    raw = None if origin is None else ENCODED_PARTS.find_issued(block, origin)
    if raw is not None:
        return _replay_part(block, raw, calls, used_ids)
    if isinstance(block, TextBlock) and block.text.strip():
        return ENCODED_PARTS.encode(block, None, _encode_text, block)
    if not isinstance(block, ToolUseBlock):
        return None
    name = sanitize_name(block.name)
    calls[block.id] = _Call(len(calls), block.id, name)
    call = {"id": block.id, "name": name, "args": block.input or {}}
    return ENCODED_PARTS.encode(block, None, lambda: {"functionCall": call})


def _encode_text(block: TextBlock) -> Wire:
    return {"text": block.text}


def _replay_part(block: ContentBlock, raw: Wire, calls: dict[str, _Call], used_ids: set[str]) -> Wire | None:
    if isinstance(block, ToolUseBlock):
        call = raw.get("functionCall") or {}
        if call.get("id") in used_ids and not raw.get("thoughtSignature"):
            call = {**call, "id": block.id}
            raw = {**raw, "functionCall": call}
        if call.get("id"):
            used_ids.add(call["id"])
        calls[block.id] = _Call(len(calls), call.get("id"), str(call.get("name") or ""))
        return raw
    if isinstance(block, OpaqueBlock):
        return None if block.type == CONTINUATION else raw
    if raw.get("thoughtSignature"):
        return raw
    # Thinking without a signature is only for display, so it is not sent back.
    return None if isinstance(block, ThinkingBlock) or not raw.get("text") else raw


def _add_signatures(contents: Sequence[Wire]) -> list[Wire]:
    """Sign the first tool call in each step since the user's last prompt. Gemini checks no other calls."""
    turn_start = max(index for index, content in enumerate(contents) if _is_turn_start(content))
    return [
        _build_content("model", _sign_first_call(content["parts"]))
        if index > turn_start and content["role"] == "model"
        else content
        for index, content in enumerate(contents)
    ]


def _is_turn_start(content: Wire) -> bool:
    return content["role"] == "user" and not any("functionResponse" in part for part in content["parts"])


def _sign_first_call(parts: Iterable[Wire]) -> list[Wire]:
    signed = list(parts)
    first = next((index for index, part in enumerate(signed) if part.get("functionCall")), None)
    if first is not None and not signed[first].get("thoughtSignature"):
        signed[first] = {**signed[first], "thoughtSignature": _PLACEHOLDER_SIGNATURE}
    return signed


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
        if not self._started:
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
            is_whole = signed or bool(others)
            yield from self.emit_block(*_build_opening(delta), delta, raw=part) if is_whole else self._add_piece(delta)
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
