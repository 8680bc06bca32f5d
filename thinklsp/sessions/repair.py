"""Mends a conversation that no service would accept: pure, shows what it changes, leaves a sound one as it is.

Prompts, answers and the words of tool results are never lost; thinking that cannot be sent again is. Blocks of a model
are never made up: what is missing is filled with results that say so, and with notes of ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from thinklsp.core.calls import with_free_id
from thinklsp.core.messages import (
    AssistantMessage,
    ContentBlock,
    Conversation,
    Message,
    OpaqueBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)

LOST_BEGINNING = "<note>The beginning of this conversation was lost.</note>"
LOST_RESULT = "The result of this call was lost. Call the tool again if it is needed."
_ISSUED_ONCE = (ThinkingBlock, RedactedThinkingBlock, OpaqueBlock)
_STRAY = "<note>The result of a tool call that was lost:</note>\n"


@dataclass(frozen=True, slots=True)
class Repair:
    """`findings` are sentences, one for each change; none: the conversation was sound."""

    findings: tuple[str, ...]
    conversation: Conversation


@dataclass(slots=True)
class _Bench:
    """`waiting` maps the former id of each open call to its present one; `taken` holds every id so far."""

    findings: list[str] = field(default_factory=list)
    mended: list[Message] = field(default_factory=list)
    waiting: list[tuple[str, str]] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    acting: set[AssistantMessage] = field(default_factory=set)
    answered: set[ToolResultBlock] = field(default_factory=set)

    def found(self, number: int, what: str) -> None:
        self.findings.append(f"Message {number + 1}: {what}.")


def mend(conversation: Conversation) -> Repair:
    bench = _Bench()
    if conversation and isinstance(conversation[0], AssistantMessage):
        bench.found(0, "the conversation began with an answer, so a note stands before it now")
        bench.mended.append(UserMessage.of(LOST_BEGINNING))
    for number, message in enumerate(conversation):
        if isinstance(message, AssistantMessage):
            following = conversation[number + 1] if number + 1 < len(conversation) else None
            if message in bench.acting and _said_before(bench, following):
                bench.found(number, "an answer with tool calls stood here a second time and was left out")
            else:
                _take_answer(bench, number, message)
        else:
            _take_user(bench, number, message)
    _close_calls(bench, len(conversation) - 1)
    if not bench.findings:
        return Repair((), conversation)
    if bench.mended and isinstance(bench.mended[0], AssistantMessage):
        bench.mended.insert(0, UserMessage.of(LOST_BEGINNING))
    return Repair(tuple(bench.findings), tuple(bench.mended))


def _said_before(bench: _Bench, message: Message | None) -> bool:
    """Return whether all these results have been seen before."""
    blocks = () if message is None else message.blocks
    return all(block in bench.answered for block in blocks if isinstance(block, ToolResultBlock))


def _take_answer(bench: _Bench, number: int, message: AssistantMessage) -> None:
    blocks = tuple(_kept(bench, number, message))
    if not blocks:
        if not message.blocks:
            bench.found(number, "an empty answer was left out")
        return
    _close_calls(bench, number)
    if message.tool_uses and any(isinstance(block, _ISSUED_ONCE) for block in message.blocks):
        # Without such a block, two steps may look the same: some services give the same ids in every answer.
        bench.acting.add(message)
    named: list[ContentBlock] = []
    for block in blocks:
        if isinstance(block, ToolUseBlock):
            former = block.id
            block = _with_own_id(bench, number, block)
            bench.waiting.append((former, block.id))
        named.append(block)
    bench.mended.append(message if tuple(named) == message.blocks else replace(message, blocks=tuple(named)))


def _kept(bench: _Bench, number: int, message: AssistantMessage) -> Iterator[ContentBlock]:
    """Yield what can be sent: no thinking without its opaque state, nothing twice that a service issues once.

    Equal calls stay: a model may ask for the same thing twice, and each call has its own result."""
    seen: set[ContentBlock] = set()
    for block in message.blocks:
        if isinstance(block, ThinkingBlock) and block.raw is None:
            bench.found(number, "thinking without its signature was left out")
            continue
        if isinstance(block, _ISSUED_ONCE):
            if block in seen:
                bench.found(number, f"a block that stood there twice ({block.kind}) was left out")
                continue
            seen.add(block)
        yield block


def _with_own_id(bench: _Bench, number: int, block: ToolUseBlock) -> ToolUseBlock:
    named = with_free_id(block, bench.taken)
    if named.id != block.id:
        why = "had the same id as an earlier one" if block.id else "had no id"
        bench.found(number, f"a call {why} and is {named.id} now")
    bench.taken.add(named.id)
    return named


def _take_user(bench: _Bench, number: int, message: UserMessage) -> None:
    texts, strays = [], []
    results: dict[str, ToolResultBlock] = {}
    open_calls = list(bench.waiting)
    for block in message.blocks:
        if isinstance(block, TextBlock):
            texts.append(block)
            continue
        call = next((call for call in open_calls if call[0] == block.tool_use_id), None)
        if call is not None:
            open_calls.remove(call)
            bench.answered.add(block)
            results[call[1]] = block if call[0] == call[1] else replace(block, tool_use_id=call[1])
        elif block in bench.answered:
            bench.found(number, "a result that stood there twice was left out")
        else:
            bench.found(number, "a result without its call is kept as text")
            strays.append(TextBlock(f"{_STRAY}{block.text}"))
    kept = tuple(block for block in texts if block.text.strip())
    if len(kept) < len(texts):
        bench.found(number, "a text without words was left out")
    blocks: tuple[ToolResultBlock | TextBlock, ...] = (*_in_order(bench, number, results), *strays, *kept)
    _place_user(bench, number, message, blocks)


def _in_order(bench: _Bench, number: int, results: dict[str, ToolResultBlock]) -> Iterator[ToolResultBlock]:
    """The results of all open calls in the order of the calls."""
    for _, call in bench.waiting:
        if call not in results:
            bench.found(number, f"the call {call} had no result, so one that says so stands there now")
        yield results.get(call) or ToolResultBlock(call, LOST_RESULT, is_error=True)
    bench.waiting.clear()


def _place_user(
    bench: _Bench, number: int, message: UserMessage, blocks: tuple[ToolResultBlock | TextBlock, ...]
) -> None:
    if not blocks:
        if not message.blocks:
            bench.found(number, "an empty message was left out")
        return
    if blocks == message.blocks:
        bench.mended.append(message)
        return
    if set(blocks) == set(message.blocks) and len(blocks) == len(message.blocks):
        bench.found(number, "results and text stood in the wrong order")
    bench.mended.append(UserMessage(blocks))


def _close_calls(bench: _Bench, number: int) -> None:
    """Calls that an answer follows, or nothing."""
    if bench.waiting:
        bench.mended.append(UserMessage(tuple(_in_order(bench, number, {}))))
