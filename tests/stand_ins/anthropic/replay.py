"""Checks that clients send thinking blocks back unmodified, complete, and after unchanged messages.

A request must contain all thinking from the current tool loop. Thinking from earlier turns may be missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NoReturn

from tests.stand_ins.anthropic.requests import (
    SIGNATURE_KEYS,
    AnthropicBlock,
    AnthropicConversation,
    AnthropicThinkingMode,
    AnthropicTraits,
    group_by_role,
    list_content_blocks,
)
from tests.stand_ins.rejections import reject
from tests.stand_ins.service_state import StateSigner, hash_json, hash_text


@dataclass(frozen=True, slots=True)
class ThinkingSignature:
    """What the signature of a thinking block stands for.

    `answer` is the ID of the answer that contains the block. `text` is a hash of the readable thinking, or None if the
    thinking was omitted. `prefix` is a hash of everything before the answer except thinking.
    """

    kind: Literal["thinking", "redacted_thinking"]
    model: str
    answer: str
    place: int
    text: str | None
    prefix: str
    tokens: int


@dataclass(frozen=True, slots=True)
class IssuedAnswer:
    """An answer of the stand-in. `order` contains the signatures and the tool call IDs of its blocks."""

    id: str
    model: str
    order: tuple[str, ...]
    prefix: str
    has_thinking: bool
    is_paused: bool


@dataclass(slots=True)
class AnthropicReplay:
    """The result of checking the thinking blocks in a request.

    `tokens` maps the path of each block that the model reads to its token count. `prefix` is a hash of the entire
    conversation, for signing the next answer.
    """

    mode: AnthropicThinkingMode
    prefix: str
    tokens: dict[str, int] = field(default_factory=dict)
    dropped_blocks: list[dict[str, str]] = field(default_factory=list)


class IssuedAnswers:
    """The answers that the next request must contain, which are paused answers and answers with tool calls."""

    def __init__(self) -> None:
        self._answers: dict[str, IssuedAnswer] = {}

    def remember(self, answer: IssuedAnswer, content: Sequence[Mapping[str, Any]]) -> None:
        """Make an answer known by its ID, by its signatures and tool calls, and by a hash of its content."""
        for key in (answer.id, *answer.order, compute_content_key(content)):
            self._answers[key] = answer

    def find(self, key: str | None) -> IssuedAnswer | None:
        return self._answers.get(key or "")


class AnthropicReplayCheck:
    """A checker for the thinking blocks in a request."""

    def __init__(
        self,
        body: Mapping[str, Any],
        conversation: AnthropicConversation,
        traits: AnthropicTraits,
        signer: StateSigner,
        issued_answers: IssuedAnswers,
    ) -> None:
        self._conversation = conversation
        self._blocks = conversation.blocks
        self._traits = traits
        self._issued_answers = issued_answers
        self._chain = _build_prefix_chain(body, conversation.blocks)
        self._signatures = {
            block.path: _verify_signature(block, signer) for block in self._blocks if block.kind in SIGNATURE_KEYS
        }

    def check_blocks(self, mode: AnthropicThinkingMode) -> AnthropicReplay:
        """Check all thinking blocks in the request. Raises RequestRejected for the first invalid block."""
        replay = AnthropicReplay(mode, self._chain[-1])
        for position, block in enumerate(self._blocks):
            if block.kind in SIGNATURE_KEYS:
                self._check_block(block, position, replay)
        if mode.kind != "disabled":
            self._check_tool_loop({entry["path"] for entry in replay.dropped_blocks})
        replay.mode = self._resolve_mode(mode)
        return replay

    def is_continuation(self) -> bool:
        """Return True if the conversation ends with a paused answer, which the model continues."""
        content = [block for block in self._blocks if block.message == self._blocks[-1].message]
        values = [block.value for block in content]
        # If an answer was paused twice, a client may send back both parts in a single message.
        keys = [_find_token(block) for block in content]
        keys += [compute_content_key(values[start:]) for start in range(len(values))]
        issued = next(filter(None, map(self._issued_answers.find, keys)), None)
        return issued is not None and issued.is_paused

    def _check_block(self, block: AnthropicBlock, position: int, replay: AnthropicReplay) -> None:
        seal = self._signatures[block.path]
        if block.kind == "thinking" and seal.text not in (None, hash_text(block.value["thinking"])):
            (_reject_modified if self._conversation.is_in_tool_loop(block) else _reject_signature)(block)
        reason = None
        if seal.model != self._traits.id:
            reason = "model_binding_mismatch"
        elif self._traits.bound and seal.prefix not in self._list_prefixes(position):
            if not replay.mode.drop_unbound:
                _reject_unbound(block, replay.mode)
            reason = "prefix_binding_mismatch"
        if reason is None:
            replay.tokens[block.path] = seal.tokens
        else:
            replay.dropped_blocks.append({"type": "thinking_dropped", "path": block.path, "reason": reason})

    def _check_tool_loop(self, dropped: set[str]) -> None:
        """Check that all answers in the current tool loop are complete and in order, including their thinking."""
        loop = [block for block in self._blocks if block.message >= self._conversation.state.start]
        runs = [run for role, run in group_by_role(loop) if role == "assistant"]
        found = [(run, self._find_answers(run)) for run in runs if not any(block.path in dropped for block in run)]
        is_edited = any(
            issued.prefix not in self._list_prefixes(self._blocks.index(run[-1]))
            for run, answers in found
            for issued in answers
        )
        # Clients that changed earlier messages must omit all thinking, according to the service's documentation.
        if is_edited and not any(block.kind in SIGNATURE_KEYS for block in loop):
            return
        for run, answers in found:
            _check_run(run, answers)

    def _find_answers(self, run: Sequence[AnthropicBlock]) -> Sequence[IssuedAnswer]:
        """Return the answers in an assistant message, or an empty sequence if one is unknown or another model's."""
        tokens = [token for block in run if (token := _find_token(block)) is not None]
        answers = [self._issued_answers.find(token) for token in tokens]
        known = [issued for issued in answers if issued is not None and issued.model == self._traits.id]
        return tuple(dict.fromkeys(known)) if len(known) == len(answers) else ()

    def _resolve_mode(self, mode: AnthropicThinkingMode) -> AnthropicThinkingMode:
        """Return the thinking mode for the current tool loop.

        If the client enables a manual budget during a tool loop, the budget applies only after the loop.
        """
        loop = [block for block in self._blocks if self._conversation.is_in_tool_loop(block)]
        if mode.kind != "enabled" or not loop or loop[0].kind in SIGNATURE_KEYS:
            return mode
        issued = next(filter(None, (self._issued_answers.find(_find_token(block)) for block in loop)), None)
        if issued is None:
            reject(
                f"{loop[0].path}.type: Expected `thinking` or `redacted_thinking`, but found `{loop[0].kind}`. When "
                "`thinking` is enabled, a final `assistant` message must start with a thinking block (preceding the "
                "lastmost set of `tool_use` and `tool_result` blocks). To avoid this requirement, disable `thinking`."
            )
        return mode if issued.has_thinking else replace(mode, kind="disabled")

    def _list_prefixes(self, position: int) -> frozenset[str]:
        """Return the hashes of all prefixes after which the answer at `position` may have started."""
        first = position
        while first > 0 and self._blocks[first - 1].role == "assistant":
            first -= 1
        return frozenset(self._chain[first : position + 1])


def _build_prefix_chain(body: Mapping[str, Any], blocks: Sequence[AnthropicBlock]) -> list[str]:
    """Return a hash of the prefix before each block, followed by a hash of the entire conversation.

    A prefix consists of the tools, the system prompt and the preceding blocks, without thinking and `cache_control`.
    """
    system = list_content_blocks(body.get("system") or [])
    chain = [hash_json("", _normalize(body.get("tools") or []), [_normalize(part) for part in system])]
    for block in blocks:
        same = block.kind in SIGNATURE_KEYS
        chain.append(chain[-1] if same else hash_json(chain[-1], block.role, _normalize(block.value)))
    return chain


def _normalize(value: Any) -> Any:
    """Remove `cache_control` and null values, which clients may change without invalidating signatures."""
    match value:
        case Mapping():
            return {key: _normalize(item) for key, item in value.items() if key != "cache_control" and item is not None}
        case list():
            return [_normalize(item) for item in value]
        case _:
            return value


def compute_content_key(content: Iterable[Mapping[str, Any]]) -> str:
    """Return a hash of an answer's content. Blank text is ignored, because clients cannot send it back."""
    shown = (block for block in content if block.get("type") != "text" or str(block.get("text")).strip())
    return hash_json("content", [_normalize(dict(block)) for block in shown])


def find_value_token(value: Mapping[str, Any]) -> str | None:
    """Return the signature of a thinking block or the ID of a tool call, or None for another block."""
    key = {**SIGNATURE_KEYS, "tool_use": "id"}.get(str(value["type"]))
    return None if key is None else str(value[key])


def _find_token(block: AnthropicBlock) -> str | None:
    return find_value_token(block.value)


def _check_run(run: Sequence[AnthropicBlock], answers: Sequence[IssuedAnswer]) -> None:
    expected = [token for issued in answers for token in issued.order]
    actual = [(block, token) for block in run if (token := _find_token(block)) is not None]
    if answers and [token for _, token in actual] != expected:
        pairs = enumerate(zip(actual, expected, strict=False))
        _reject_modified(actual[next((i for i, (pair, wanted) in pairs if pair[1] != wanted), -1)][0])


def _verify_signature(block: AnthropicBlock, signer: StateSigner) -> ThinkingSignature:
    seal = signer.verify(_find_token(block) or "", ThinkingSignature)
    if seal is None or seal.kind != block.kind:
        _reject_signature(block)
    return seal


def _reject_signature(block: AnthropicBlock) -> NoReturn:
    reject(f"{block.path}: Invalid `{SIGNATURE_KEYS[block.kind]}` in `{block.kind}` block")


def _reject_modified(block: AnthropicBlock) -> NoReturn:
    reject(
        f"{block.path}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. "
        "These blocks must remain as they were in the original response."
    )


def _reject_unbound(block: AnthropicBlock, mode: AnthropicThinkingMode) -> NoReturn:
    message = (
        f"{block.path}: Invalid `signature` in `thinking` block. The block is bound to a different conversation. "
        'Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
    )
    if not mode.reports_drops:
        message += (
            " That setting requires the `thinking-binding-controls-2026-08-01` value in the `anthropic-beta` header."
        )
    reject(message)
