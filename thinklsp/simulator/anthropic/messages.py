"""The conversation in an Anthropic request: its blocks in one row, its prompts, and what a message may hold.

Raises `Refused` for shapes that the service refuses. Signatures and caching are looked at elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from thinklsp.simulator.anthropic.envelope import NEWEST_VERSION, extra, invalid
from thinklsp.simulator.anthropic.models import ModelTraits
from thinklsp.simulator.anthropic.options import Mode, check_effort
from thinklsp.simulator.script import join_prompt

SIGNED = frozenset({"thinking", "redacted_thinking"})
_EFFORT_BETA = "mid-conversation-output-config-2026-07-01"
_CLEAR_BETA = "mid-conversation-system-clear-at-2026-08-21"
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_USER_KINDS = frozenset(
    {"text", "image", "document", "search_result", "tool_result", "container_upload", "tool_reference"}
)
_ONLY_ASSISTANT = SIGNED | {"tool_use", "server_tool_use"}
# Type: its required keys with their JSON types, and the keys it may have besides.
_SHAPES: Mapping[str, tuple[Mapping[str, type[object]], frozenset[str]]] = {
    "text": ({"text": str}, frozenset({"citations", "cache_control"})),
    "thinking": ({"thinking": str, "signature": str}, frozenset()),
    "redacted_thinking": ({"data": str}, frozenset()),
    "tool_use": (
        {"id": str, "name": str, "input": dict},
        frozenset({"cache_control", "caller", "toolset_name"}),
    ),
    "tool_result": (
        {"tool_use_id": str},
        frozenset({"cache_control", "content", "is_error", "toolset_name"}),
    ),
}
_WORDS: Mapping[type[object], str] = {str: "a valid string", dict: "a valid dictionary"}


@dataclass(frozen=True, slots=True)
class Block:
    """One content block and its place. Text content counts as one text block."""

    message: int
    index: int
    role: str
    value: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return str(self.value["type"])

    @property
    def path(self) -> str:
        return f"messages.{self.message}.content.{self.index}"


@dataclass(frozen=True, slots=True)
class Conversation:
    """`prompts`: what the user said, oldest first. Messages from `loop_start` on answer the last prompt.

    `answers`: assistant messages among them. `results`: texts of the tool results that end the conversation.
    """

    blocks: tuple[Block, ...]
    prompts: tuple[str, ...]
    loop_start: int
    answers: int
    results: tuple[str, ...]

    def in_loop(self, block: Block) -> bool:
        return block.message >= self.loop_start and block.role == "assistant"


def read_conversation(
    messages: Any, traits: ModelTraits, mode: Mode, *, version: str, betas: frozenset[str]
) -> Conversation:
    """The checked conversation. Raises Refused."""
    if not isinstance(messages, list):
        invalid("messages: Input should be a valid list")
    if not messages:
        invalid("messages: at least one message is required")
    effort = mode.effort
    for number, message in enumerate(messages):
        _check_message(message, number, traits, betas)
        effort = _check_own_effort(message, number, effort, mode, traits)
        if message["role"] == "assistant" and not message["content"] and number < len(messages) - 1:
            invalid(
                f"messages.{number}: all messages must have non-empty content except for the optional final "
                "assistant message"
            )
    if messages[0]["role"] != "user":
        invalid('messages: first message must use the "user" role')
    blocks = tuple(block for number, message in enumerate(messages) for block in _blocks(message, number))
    for block in blocks:
        _check_block(block, newest=version == NEWEST_VERSION)
    _check_pairs(blocks)
    _check_server_tools(blocks)
    return _conversation(messages, blocks)


def content_blocks(content: Any, place: str) -> Sequence[Any]:
    """Text or a list of blocks as a list of blocks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        invalid(f"{place}: Input should be a valid list")
    return content


def result_text(block: Mapping[str, Any]) -> str:
    """The text of a tool result; parts that are no text are left out."""
    content = block.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(str(part["text"]) for part in content if part.get("type") == "text")


def runs(blocks: Iterable[Block]) -> Iterator[tuple[str, list[Block]]]:
    """Neighbouring messages of one role count as one message; system messages do not part them."""
    spoken = (block for block in blocks if block.role != "system")
    for role, run in groupby(spoken, key=lambda block: block.role):
        yield role, list(run)


def _check_message(message: Any, number: int, traits: ModelTraits, betas: frozenset[str]) -> None:
    if not isinstance(message, Mapping):
        invalid(f"messages.{number}: Input should be a valid dictionary")
    role = message.get("role")
    if role not in ("user", "assistant", "system"):
        invalid(f"messages.{number}.role: Input should be 'user' or 'assistant'")
    if role == "system" and not traits.system_role:
        invalid(f"messages.{number}: role 'system' is not supported on this model")
    known = {"role", "content"}
    if role == "system":
        known |= {"output_config"} if _EFFORT_BETA in betas else set()
        known |= {"clear_at"} if _CLEAR_BETA in betas else set()
    for key in message:
        if key not in known:
            extra(f"messages.{number}.{key}")
    if "content" not in message:
        invalid(f"messages.{number}.content: Field required")
    if role == "user" and not message["content"]:
        invalid(f"messages.{number}: user messages must have non-empty content")


def _check_own_effort(
    message: Mapping[str, Any], number: int, before: str | None, mode: Mode, traits: ModelTraits
) -> str | None:
    """A system message may change the effort from its place on; returns the effort in effect after it."""
    if "output_config" not in message:
        return before
    if not traits.modern or not traits.bound:
        invalid("output_config.effort requires a model that supports per-turn effort; this model does not")
    effort = check_effort(message["output_config"], traits)
    if not mode.on and effort is not None and effort != (before or "high"):
        invalid(
            f"messages.{number}: output_config.effort '{effort}' differs from the '{before or 'high'}' in effect "
            "before it; effort cannot change when thinking is disabled on this model."
        )
    return effort or before


def _blocks(message: Mapping[str, Any], number: int) -> Iterator[Block]:
    for index, value in enumerate(content_blocks(message["content"], f"messages.{number}.content")):
        if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
            invalid(f"messages.{number}.content.{index}: Input should be a dictionary with a type")
        yield Block(number, index, message["role"], value)


def _check_block(block: Block, *, newest: bool) -> None:
    kind, value = block.kind, block.value
    if block.role == "user" and kind not in _USER_KINDS:
        if kind in _ONLY_ASSISTANT:
            invalid(f"messages.{block.message}: `{kind}` blocks can only be in `assistant` messages")
        invalid(f"{block.path}: Input tag '{kind}' found using 'type' does not match any of the expected tags")
    if block.role == "assistant" and kind == "tool_result":
        invalid(f"messages.{block.message}: `tool_result` blocks can only be in `user` messages")
    if newest and block.role == "assistant" and kind == "document":
        extra(f"{block.path}.document")
    _check_shape(value, block.path)
    if newest and block.role == "user" and value.get("citations"):
        extra(f"{block.path}.text.citations")
    match kind:
        case "tool_use" if not _ID.fullmatch(value["id"]):
            invalid(f"{block.path}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
        case "tool_result":
            _check_result(value, block.path)
        case _:
            pass


def _check_shape(value: Mapping[str, Any], place: str) -> None:
    kind = value["type"]
    if kind not in _SHAPES:
        return
    required, optional = _SHAPES[kind]
    for key, expected in required.items():
        if key not in value:
            invalid(f"{place}.{kind}.{key}: Field required")
        if not isinstance(value[key], expected):
            invalid(f"{place}.{kind}.{key}: Input should be {_WORDS[expected]}")
    for key in value:
        if key != "type" and key not in required and key not in optional:
            extra(f"{place}.{kind}.{key}")
    if kind == "text" and not value["text"]:
        invalid("messages: text content blocks must be non-empty")
    if kind == "text" and not value["text"].strip():
        invalid("messages: text content blocks must contain non-whitespace text")


def _check_result(value: Mapping[str, Any], place: str) -> None:
    if not isinstance(value.get("is_error") or False, bool):
        invalid(f"{place}.tool_result.is_error: Input should be a valid boolean")
    content = value.get("content")
    if content is None or isinstance(content, str):
        return
    for part in content_blocks(content, f"{place}.tool_result.content"):
        if not isinstance(part, Mapping) or str(part.get("type")) not in _USER_KINDS - {"tool_result"}:
            invalid(f"{place}.tool_result.content: Input should be text, image, document or search_result blocks")
        _check_shape(part, f"{place}.tool_result.content")


def _check_pairs(blocks: Sequence[Block]) -> None:
    """Every tool_use is answered right after it, results first; every tool_result answers one."""
    seen: set[str] = set()
    open_calls: dict[str, Block] = {}
    for role, run in runs(blocks):
        if role == "user":
            _check_answers(run, open_calls)
            open_calls = {}
            continue
        for call in run:
            if call.kind == "tool_use":
                if call.value["id"] in seen:
                    invalid("messages: `tool_use` ids must be unique")
                seen.add(call.value["id"])
                open_calls[call.value["id"]] = call
    if open_calls:
        _unanswered(open_calls)
    _check_system_places(blocks)


def _check_answers(run: Sequence[Block], open_calls: Mapping[str, Block]) -> None:
    leading: list[str] = []
    text_seen = False
    for block in run:
        if block.kind != "tool_result":
            text_seen = True
            continue
        call_id = block.value["tool_use_id"]
        if call_id not in open_calls:
            invalid(
                f"{block.path}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. Each `tool_result` "
                "block must have a corresponding `tool_use` block in the previous message."
            )
        if call_id in leading:
            invalid(f"each tool_use must have a single result. Found multiple `tool_result` blocks with id: {call_id}")
        if not text_seen:
            leading.append(call_id)
    missing = {call_id: call for call_id, call in open_calls.items() if call_id not in leading}
    if missing:
        _unanswered(missing)


def _unanswered(calls: Mapping[str, Block]) -> None:
    first = next(iter(calls.values()))
    invalid(
        f"messages.{first.message}: tool_use ids were found without tool_result blocks immediately after: "
        f"{', '.join(calls)}. Each tool_use block must have a corresponding tool_result block at the beginning of the "
        "next message."
    )


def _check_system_places(blocks: Sequence[Block]) -> None:
    for before, block in pairwise(blocks):
        if block.role == "system" and before.role == "assistant" and before.kind == "tool_use":
            invalid(f"messages.{block.message}: role 'system' may not stand between a tool_use and its tool_result")


def _check_server_tools(blocks: Sequence[Block]) -> None:
    """A server tool's call needs its result once the user has spoken again."""
    finished = {str(block.value.get("tool_use_id")) for block in blocks if block.role == "assistant"}
    pending: Block | None = None
    for role, run in runs(blocks):
        if role == "user" and pending is not None and not any(b.kind == "tool_result" for b in run):
            name = pending.value.get("name")
            invalid(
                f"{pending.path}: `{name}` tool use with id `{pending.value.get('id')}` was found without a "
                f"corresponding `{name}_tool_result` block"
            )
        for block in run:
            if block.kind == "server_tool_use" and str(block.value.get("id")) not in finished:
                pending = block


def _conversation(messages: Sequence[Mapping[str, Any]], blocks: tuple[Block, ...]) -> Conversation:
    prompts: list[str] = []
    loop_start = 0
    last: list[Block] = []
    for role, run in runs(blocks):
        last = run
        if role == "user" and (texts := _prompt(run)) is not None:
            prompts.append(texts)
            loop_start = run[-1].message + 1
    answers = sum(message["role"] == "assistant" for message in messages[loop_start:])
    results = tuple(result_text(block.value) for block in last if block.kind == "tool_result")
    return Conversation(blocks, tuple(prompts), loop_start, answers, results)


def _prompt(run: Sequence[Block]) -> str | None:
    """What the user says in a run, or None where it only brings tool results (and remarks in tags beside them)."""
    texts = [str(block.value["text"]) for block in run if block.kind == "text"]
    return join_prompt(texts, beside_results=any(block.kind == "tool_result" for block in run))
