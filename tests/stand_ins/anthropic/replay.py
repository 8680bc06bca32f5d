"""Checks that clients send thinking blocks back unmodified, complete, and after unchanged messages.

A request must contain all thinking from the current tool loop. For this check, the simulator remembers a limited number
of recent answers. Thinking from older answers may be missing.
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
    """The signed data of a thinking block.

    `answer` is the ID of the answer that contains the block. `text` is a hash of the readable thinking, or None if the
    thinking was omitted. `prefix` is a hash of everything before the answer except thinking. `earlier_marks` identifies
    the preceding thinking blocks.
    """

    kind: Literal["thinking", "redacted_thinking"]
    model: str
    answer: str
    place: int
    text: str | None
    prefix: str
    earlier_marks: tuple[str, ...]
    tokens: int


def compute_mark(signature: str) -> str:
    """Return a short hash of a thinking block's signature, which identifies the block."""
    return hash_text(signature)[:12]


@dataclass(frozen=True, slots=True)
class IssuedAnswer:
    """An answer that the simulator sent.

    `order` identifies the answer's signed blocks by the hashes of their signatures, and its tool calls by their IDs.
    """

    id: str
    model: str
    order: tuple[str, ...]
    prefix: str
    has_thinking: bool
    is_paused: bool


@dataclass(slots=True)
class AnthropicReplay:
    """The result of checking the thinking blocks in a request.

    `accepted_marks` identifies the blocks that the model reads, in order. `tokens` maps the path of each of these
    blocks to its token count. `is_unbound` is true if the messages before a block have changed, so that all later
    thinking is dropped. `prefix` is a hash of the entire conversation, for signing the next answer.
    """

    mode: AnthropicThinkingMode
    prefix: str
    accepted_marks: list[str] = field(default_factory=list)
    tokens: dict[str, int] = field(default_factory=dict)
    dropped_blocks: list[dict[str, str]] = field(default_factory=list)
    is_unbound: bool = False


class IssuedAnswers:
    """Recent answers that the next request must contain, which are paused answers and answers with tool calls."""

    def __init__(self) -> None:
        self.answers: dict[str, IssuedAnswer] = {}
        self._by_key: dict[str, str] = {}

    def remember(self, answer: IssuedAnswer, calls: Iterable[str], content: Sequence[Mapping[str, Any]]) -> None:
        self.answers[answer.id] = answer
        for key in (*calls, compute_content_key(content)):
            self._by_key[key] = answer.id

    def find(self, key: str) -> IssuedAnswer | None:
        """Return the answer with the given tool call ID or the given hash of its entire content, or None."""
        return self.answers.get(self._by_key.get(key, ""))


class AnthropicReplayCheck:
    """A checker for the thinking blocks in a request. Call `check_blocks` before `is_continuation`."""

    def __init__(
        self,
        body: Mapping[str, Any],
        conversation: AnthropicConversation,
        traits: AnthropicTraits,
        signer: StateSigner,
        issued_answers: IssuedAnswers,
    ) -> None:
        self._conversation = conversation
        self._traits = traits
        self._issued_answers = issued_answers
        self._chain = build_prefix_chain(body, conversation.blocks)
        self._signatures = {
            block.path: _verify_signature(block, signer)
            for block in conversation.blocks
            if block.kind in SIGNATURE_KEYS
        }
        self._marks_by_answer: dict[str, set[str]] = {}
        for block in conversation.blocks:
            if block.kind in SIGNATURE_KEYS:
                self._marks_by_answer.setdefault(self._signatures[block.path].answer, set()).add(
                    _compute_block_mark(block)
                )

    def check_blocks(self, mode: AnthropicThinkingMode) -> AnthropicReplay:
        """Check all thinking blocks in the request. Raises RequestRejected for the first invalid block."""
        replay = AnthropicReplay(mode, self._chain[-1])
        for position, block in enumerate(self._conversation.blocks):
            if block.kind in SIGNATURE_KEYS:
                self._check_block(block, position, replay)
        if mode.kind != "disabled":
            self._check_tool_loop(replay)
        replay.mode = self._resolve_mode(mode)
        return replay

    def is_continuation(self) -> bool:
        """Return True if the conversation ends with a paused answer, which the model continues."""
        last = self._conversation.blocks[-1].message if self._conversation.blocks else -1
        content = [block for block in self._conversation.blocks if block.message == last]
        values = [block.value for block in content]
        # If an answer was paused twice, a client may send back both parts in a single message.
        endings = (self._issued_answers.find(compute_content_key(values[start:])) for start in range(len(values)))
        issued = self._find_issued_answer(content) or next(filter(None, endings), None)
        if issued is not None:
            return issued.is_paused
        results = {str(block.value.get("tool_use_id")) for block in content}
        return any(b.kind == "server_tool_use" and str(b.value.get("id")) not in results for b in content)

    def _check_block(self, block: AnthropicBlock, position: int, replay: AnthropicReplay) -> None:
        seal = self._signatures[block.path]
        if block.kind == "thinking" and seal.text not in (None, hash_text(block.value["thinking"])):
            if self._conversation.is_in_tool_loop(block):
                _reject_modified(block)
            _reject_signature(block)
        reason = None
        if seal.model != self._traits.id:
            reason = "model_binding_mismatch"
        elif replay.is_unbound or not self._has_matching_prefix(seal, position, replay):
            if not replay.mode.drop_unbound:
                _reject_unbound(block, replay.mode)
            replay.is_unbound = True
            reason = "prefix_binding_mismatch"
        if reason is None:
            replay.accepted_marks.append(_compute_block_mark(block))
            replay.tokens[block.path] = seal.tokens
        else:
            replay.dropped_blocks.append({"type": "thinking_dropped", "path": block.path, "reason": reason})

    def _has_matching_prefix(self, seal: ThinkingSignature, position: int, replay: AnthropicReplay) -> bool:
        """Return True if everything before a block is unchanged, except that the oldest thinking may be missing."""
        if not self._traits.bound:
            return True
        before = tuple(mark for mark in replay.accepted_marks if mark not in self._marks_by_answer[seal.answer])
        if (
            len(before) > len(seal.earlier_marks)
            or before != seal.earlier_marks[len(seal.earlier_marks) - len(before) :]
        ):
            return False
        return seal.prefix in self._list_prefixes(position)

    def _check_tool_loop(self, replay: AnthropicReplay) -> None:
        """Check that all answers in the current tool loop are complete and in order, including their thinking."""
        loop = [block for block in self._conversation.blocks if block.message >= self._conversation.state.start]
        positions = {block.path: position for position, block in enumerate(self._conversation.blocks)}
        dropped = {entry["path"] for entry in replay.dropped_blocks}
        issued_runs: list[tuple[list[AnthropicBlock], Sequence[IssuedAnswer]]] = []
        is_edited = False
        for role, run in group_by_role(loop):
            if role == "assistant" and not any(block.path in dropped for block in run):
                answers = self._find_answers(run)
                issued_runs.append((run, answers))
                prefixes = self._list_prefixes(positions[run[-1].path])
                is_edited |= any(issued.prefix not in prefixes for issued in answers)
        # Clients that changed earlier messages must omit all thinking, according to the service's documentation.
        if is_edited and not any(block.kind in SIGNATURE_KEYS for block in loop):
            return
        for run, answers in issued_runs:
            _check_run(run, answers)

    def _find_answers(self, run: Sequence[AnthropicBlock]) -> Sequence[IssuedAnswer]:
        """Return the remembered answers that an assistant message contains.

        Return an empty sequence if an answer is not remembered or came from another model.
        """
        answers: dict[str, IssuedAnswer] = {}
        for block in run:
            if _find_token(block) is not None:
                issued = self._find_issued_answer([block])
                if issued is None or issued.model != self._traits.id:
                    return ()
                answers[issued.id] = issued
        return tuple(answers.values())

    def _resolve_mode(self, mode: AnthropicThinkingMode) -> AnthropicThinkingMode:
        """Return the thinking mode for the current tool loop.

        If the client enables a manual budget during a tool loop, the budget applies only after the loop.
        """
        loop = [block for block in self._conversation.blocks if self._conversation.is_in_tool_loop(block)]
        if mode.kind != "enabled" or not loop or loop[0].kind in SIGNATURE_KEYS:
            return mode
        issued = self._find_issued_answer(loop)
        if issued is None:
            reject(
                f"{loop[0].path}.type: Expected `thinking` or `redacted_thinking`, but found `{loop[0].kind}`. When "
                "`thinking` is enabled, a final `assistant` message must start with a thinking block (preceding the "
                "lastmost set of `tool_use` and `tool_result` blocks). To avoid this requirement, disable `thinking`."
            )
        return mode if issued.has_thinking else replace(mode, kind="disabled")

    def _find_issued_answer(self, blocks: Iterable[AnthropicBlock]) -> IssuedAnswer | None:
        """Return the remembered answer that contains the first tool call or thinking block, or None."""
        for block in blocks:
            if block.kind == "tool_use":
                return self._issued_answers.find(block.value["id"])
            if block.kind in SIGNATURE_KEYS:
                return self._issued_answers.answers.get(self._signatures[block.path].answer)
        return None

    def _list_prefixes(self, position: int) -> frozenset[str]:
        """Return the hashes of all prefixes after which the answer at `position` may have started."""
        first = position
        while first > 0 and self._conversation.blocks[first - 1].role == "assistant":
            first -= 1
        return frozenset(self._chain[first : position + 1])


def build_prefix_chain(body: Mapping[str, Any], blocks: Sequence[AnthropicBlock]) -> list[str]:
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


def compute_content_key(content: Sequence[Mapping[str, Any]]) -> str:
    """Return a hash of an answer's content. Blank text is ignored, because clients cannot send it back."""
    return hash_json("content", [_normalize(dict(value)) for value in content if not _is_blank(value)])


def _is_blank(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "text" and not str(block.get("text")).strip()


def _read_signature(block: AnthropicBlock) -> str:
    return str(block.value[SIGNATURE_KEYS[block.kind]])


def _compute_block_mark(block: AnthropicBlock) -> str:
    return compute_mark(_read_signature(block))


def _find_token(block: AnthropicBlock) -> str | None:
    if block.kind in SIGNATURE_KEYS:
        return _compute_block_mark(block)
    return str(block.value["id"]) if block.kind == "tool_use" else None


def _check_run(run: Sequence[AnthropicBlock], answers: Sequence[IssuedAnswer]) -> None:
    expected = [token for issued in answers for token in issued.order]
    actual = [(block, token) for block in run if (token := _find_token(block)) is not None]
    if answers and [token for _, token in actual] != expected:
        pairs = enumerate(zip(actual, expected, strict=False))
        _reject_modified(actual[next((i for i, (pair, wanted) in pairs if pair[1] != wanted), -1)][0])


def _verify_signature(block: AnthropicBlock, signer: StateSigner) -> ThinkingSignature:
    seal = signer.verify(_read_signature(block), ThinkingSignature)
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
