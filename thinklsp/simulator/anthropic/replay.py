"""Whether thinking comes back as it was issued: unmodified, complete in the current tool loop, behind its own prefix.

A `Hearing` judges one request. It needs the seals themselves, and for completeness a bounded memory of recent
answers; what has been forgotten is not held against anybody.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NoReturn

from thinklsp.simulator.anthropic.envelope import invalid
from thinklsp.simulator.anthropic.messages import SIGNED, Block, Conversation, content_blocks, runs
from thinklsp.simulator.anthropic.models import ModelTraits
from thinklsp.simulator.anthropic.options import Mode
from thinklsp.simulator.state import Sealer, forget_oldest, json_digest, text_digest

_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class Seal:
    """What one signed block is about.

    `answer`: id of the model answer it stands in. `text`: digest of the thinking as it was shown, None where it was
    omitted. `prefix`: digest of everything before the answer but thinking. `seen`: marks of the thinking before it.
    """

    kind: Literal["thinking", "redacted_thinking"]
    model: str
    answer: str
    place: int
    text: str | None
    prefix: str
    seen: tuple[str, ...]
    tokens: int


def signed(seal: Seal, sealer: Sealer) -> str:
    return sealer.close(asdict(seal), seal.tokens)


def opened(signature: str, sealer: Sealer) -> Seal | None:
    """None for anything that this process did not sign exactly so."""
    content = sealer.open(signature)
    return None if content is None else Seal(**{**content, "seen": tuple(content["seen"])})


def mark_of(signature: str) -> str:
    """A short name of a signed block, by which others remember having seen it."""
    return text_digest(signature)[:12]


@dataclass(frozen=True, slots=True)
class Issued:
    """An answer that went out. `order`: marks of its signed blocks and ids of its tool calls, as they stood."""

    id: str
    model: str
    order: tuple[str, ...]
    prefix: str
    thinking: bool
    paused: bool


@dataclass(slots=True)
class Replay:
    """The judgement on one request. `kept`: marks of the thinking that the model reads, in order.

    `tokens`: what each of them counts, by its path. `unbound`: a prefix did not fit, so all later thinking is dropped.
    `prefix`: digest of the whole conversation, for the seals of the answer to come.
    """

    mode: Mode
    prefix: str
    kept: list[str] = field(default_factory=list)
    tokens: dict[str, int] = field(default_factory=dict)
    dropped: list[dict[str, str]] = field(default_factory=list)
    unbound: bool = False


class Memory:
    """Recent answers that a client must bring back at once: those with tool calls, and paused ones."""

    def __init__(self) -> None:
        self._answers: OrderedDict[str, Issued] = OrderedDict()
        self._by_key: OrderedDict[str, str] = OrderedDict()

    def clear(self) -> None:
        self._answers.clear()
        self._by_key.clear()

    def remember(self, issued: Issued, calls: Iterable[str], content: Sequence[Mapping[str, Any]]) -> None:
        self._answers[issued.id] = issued
        for key in (*calls, content_key(content)):
            self._by_key[key] = issued.id
        forget_oldest(self._answers, _REMEMBERED)
        forget_oldest(self._by_key, 4 * _REMEMBERED)

    def answer(self, answer_id: str) -> Issued | None:
        return self._answers.get(answer_id)

    def find(self, key: str) -> Issued | None:
        """By the id of a tool call, or by `content_key` of the whole content."""
        return self._answers.get(self._by_key.get(key, ""))


class Hearing:
    """One request before the judge. `judge` once, then `continues` may be asked."""

    def __init__(
        self,
        body: Mapping[str, Any],
        conversation: Conversation,
        traits: ModelTraits,
        *,
        sealer: Sealer,
        memory: Memory,
    ) -> None:
        self._conversation = conversation
        self._traits = traits
        self._memory = memory
        self._chain = prefix_chain(body, conversation.blocks)
        self._seals = {block.path: _opened(block, sealer) for block in conversation.blocks if block.kind in SIGNED}
        self._families: dict[str, set[str]] = {}
        for block in conversation.blocks:
            if block.kind in SIGNED:
                self._families.setdefault(self._seals[block.path].answer, set()).add(_mark(block))

    def judge(self, mode: Mode) -> Replay:
        """Raises Refused when a block does not come back as it must."""
        replay = Replay(mode, self._chain[-1])
        for position, block in enumerate(self._conversation.blocks):
            if block.kind in SIGNED:
                self._judge_block(block, position, replay)
        if mode.kind != "disabled":
            self._judge_loop(replay)
        replay.mode = self._mode_in_loop(mode)
        return replay

    def continues(self) -> bool:
        """Whether the last, unanswered assistant message is one that was paused, so that it may stand last."""
        last = self._conversation.blocks[-1].message if self._conversation.blocks else -1
        content = [block for block in self._conversation.blocks if block.message == last]
        values = [block.value for block in content]
        # An answer that was paused twice may come back as one message.
        endings = (self._memory.find(content_key(values[start:])) for start in range(len(values)))
        known = self._issued(content) or next(filter(None, endings), None)
        if known is not None:
            return known.paused
        results = {str(block.value.get("tool_use_id")) for block in content}
        return any(b.kind == "server_tool_use" and str(b.value.get("id")) not in results for b in content)

    def _judge_block(self, block: Block, position: int, replay: Replay) -> None:
        seal = self._seals[block.path]
        if block.kind == "thinking" and seal.text not in (None, text_digest(block.value["thinking"])):
            if self._conversation.in_loop(block):
                _modified(block)
            _invalid_signature(block)
        reason = None
        if seal.model != self._traits.id:
            reason = "model_binding_mismatch"
        elif replay.unbound or not self._fits(seal, position, replay):
            if not replay.mode.drop_unbound:
                _unbound(block, replay.mode)
            replay.unbound = True
            reason = "prefix_binding_mismatch"
        if reason is None:
            replay.kept.append(_mark(block))
            replay.tokens[block.path] = seal.tokens
        else:
            replay.dropped.append({"type": "thinking_dropped", "path": block.path, "reason": reason})

    def _fits(self, seal: Seal, position: int, replay: Replay) -> bool:
        """The prefix is the one that the block was made behind, less thinking taken from its front."""
        if not self._traits.bound:
            return True
        before = tuple(mark for mark in replay.kept if mark not in self._families[seal.answer])
        if len(before) > len(seal.seen) or before != seal.seen[len(seal.seen) - len(before) :]:
            return False
        return seal.prefix in self._prefixes_around(position)

    def _judge_loop(self, replay: Replay) -> None:
        """In the current tool loop every answer comes back whole and in order, thinking included."""
        loop = [block for block in self._conversation.blocks if block.message >= self._conversation.loop_start]
        positions = {block.path: position for position, block in enumerate(self._conversation.blocks)}
        dropped = {entry["path"] for entry in replay.dropped}
        known: list[tuple[list[Block], Sequence[Issued]]] = []
        edited = False
        for role, run in runs(loop):
            if role == "assistant" and not any(block.path in dropped for block in run):
                answers = self._answers_in(run)
                known.append((run, answers))
                prefixes = self._prefixes_around(positions[run[-1].path])
                edited |= any(issued.prefix not in prefixes for issued in answers)
        # Once history was edited, leaving out all thinking is the documented way on.
        if edited and not any(block.kind in SIGNED for block in loop):
            return
        for run, answers in known:
            _judge_run(run, answers)

    def _answers_in(self, run: Sequence[Block]) -> Sequence[Issued]:
        """The remembered answers that make up an assistant message; none if one is forgotten or another model's."""
        answers: dict[str, Issued] = {}
        for block in run:
            if _token(block) is not None:
                issued = self._issued([block])
                if issued is None or issued.model != self._traits.id:
                    return ()
                answers[issued.id] = issued
        return tuple(answers.values())

    def _mode_in_loop(self, mode: Mode) -> Mode:
        """Manual thinking needs a tool loop that began with it; switched on in the middle it silently waits."""
        loop = [block for block in self._conversation.blocks if self._conversation.in_loop(block)]
        if mode.kind != "enabled" or not loop or loop[0].kind in SIGNED:
            return mode
        issued = self._issued(loop)
        if issued is None:
            invalid(
                f"{loop[0].path}.type: Expected `thinking` or `redacted_thinking`, but found `{loop[0].kind}`. When "
                "`thinking` is enabled, a final `assistant` message must start with a thinking block (preceding the "
                "lastmost set of `tool_use` and `tool_result` blocks). To avoid this requirement, disable `thinking`."
            )
        return mode if issued.thinking else replace(mode, kind="disabled")

    def _issued(self, blocks: Iterable[Block]) -> Issued | None:
        """The remembered answer that the first telling block belongs to."""
        for block in blocks:
            if block.kind == "tool_use":
                return self._memory.find(block.value["id"])
            if block.kind in SIGNED:
                return self._memory.answer(self._seals[block.path].answer)
        return None

    def _prefixes_around(self, position: int) -> frozenset[str]:
        """Prefixes of the answers that can be part of the assistant message around `position`, neighbours merged."""
        first = position
        while first > 0 and self._conversation.blocks[first - 1].role == "assistant":
            first -= 1
        return frozenset(self._chain[first : position + 1])


def prefix_chain(body: Mapping[str, Any], blocks: Sequence[Block]) -> list[str]:
    """Digests of system, tools and the blocks before each block, and of all; thinking and cache_control left out."""
    tools = [tool for tool in body.get("tools") or () if not tool.get("defer_loading")]
    system = content_blocks(body.get("system") or [], "system")
    chain = [json_digest("", [_bare(tool) for tool in tools], [_bare(part) for part in system])]
    for block in blocks:
        same = block.kind in SIGNED
        chain.append(chain[-1] if same else json_digest(chain[-1], block.role, _bare(block.value)))
    return chain


def _bare(value: Any) -> Any:
    """Without what does not matter: cache_control, and keys that are null."""
    match value:
        case Mapping():
            return {key: _bare(item) for key, item in value.items() if key != "cache_control" and item is not None}
        case list():
            return [_bare(item) for item in value]
        case _:
            return value


def content_key(content: Sequence[Mapping[str, Any]]) -> str:
    """A name for the content of an answer, the same when it comes back as it went out. Blank text has to stay away."""
    return json_digest("content", [_bare(dict(value)) for value in content if not _is_blank(value)])


def _is_blank(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "text" and not str(block.get("text")).strip()


def _signature(block: Block) -> str:
    return str(block.value["signature" if block.kind == "thinking" else "data"])


def _mark(block: Block) -> str:
    return mark_of(_signature(block))


def _token(block: Block) -> str | None:
    if block.kind in SIGNED:
        return _mark(block)
    return str(block.value["id"]) if block.kind == "tool_use" else None


def _judge_run(run: Sequence[Block], answers: Sequence[Issued]) -> None:
    expected = [token for issued in answers for token in issued.order]
    found = [(block, token) for block in run if (token := _token(block)) is not None]
    if answers and [token for _, token in found] != expected:
        pairs = enumerate(zip(found, expected, strict=False))
        _modified(found[next((i for i, (pair, wanted) in pairs if pair[1] != wanted), -1)][0])


def _opened(block: Block, sealer: Sealer) -> Seal:
    seal = opened(_signature(block), sealer)
    if seal is None or seal.kind != block.kind:
        _invalid_signature(block)
    return seal


def _invalid_signature(block: Block) -> NoReturn:
    name = "signature" if block.kind == "thinking" else "data"
    invalid(f"{block.path}: Invalid `{name}` in `{block.kind}` block")


def _modified(block: Block) -> NoReturn:
    invalid(
        f"{block.path}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. "
        "These blocks must remain as they were in the original response."
    )


def _unbound(block: Block, mode: Mode) -> NoReturn:
    message = (
        f"{block.path}: Invalid `signature` in `thinking` block. The block is bound to a different conversation. "
        'Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
    )
    if not mode.reports:
        message += (
            " That setting requires the `thinking-binding-controls-2026-08-01` value in the `anthropic-beta` header."
        )
    invalid(message)
