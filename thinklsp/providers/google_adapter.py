"""The adapter for the generateContent API, which encodes requests and parses non-streaming responses.

A signature is sent back with the part on which it arrived. Tool results are sent in the order of the tool calls, in
their own `Content` object. The user's text follows in another `Content` object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never
from urllib.parse import quote

from thinklsp.core.images import encode_base64
from thinklsp.core.messages import (
    AssistantMessage,
    ContentBlock,
    Conversation,
    ImageBlock,
    OpaqueBlock,
    Origin,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    UserMessage,
)
from thinklsp.providers.base import Adapter, Endpoint, HttpRequest, ModelRequest, StreamDecoder, Thinking
from thinklsp.providers.catalogue import Capabilities, ModelInfo
from thinklsp.providers.decoding import parse_json_object, read_limit
from thinklsp.providers.encoding import EMPTY_TEXT, EncodedParts, Wire, encode_body
from thinklsp.providers.google_stream import CONTINUATION, GoogleDecoder

_KEY_HEADER = "x-goog-api-key"
# The placeholder that Google documents for the signatures of tool calls from other models.
_PLACEHOLDER_SIGNATURE = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
ENCODED_PARTS = EncodedParts()
_CONTINUE_PROMPT = "Continue where you left off."
_INVALID_NAME_CHARACTER = re.compile(r"[^a-zA-Z0-9_.:-]")
_MAX_NAME_LENGTH = 64


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
            body["tools"] = [{"functionDeclarations": [_declare_tool(tool) for tool in request.tools]}]
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


def _declare_tool(tool: ToolSpec) -> Wire:
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
    name = _INVALID_NAME_CHARACTER.sub("_", block.name)[:_MAX_NAME_LENGTH] or "_"
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
