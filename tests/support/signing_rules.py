"""What the signing server demands of a request, and what it counts for it.

`Conversations` remembers everything that was issued and finds each break of the replay rules; `PromptCache` is a small
model of the service's prompt cache. Both know the public Messages API only and share no code with the product.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = Any

FIELDS = {
    "model", "max_tokens", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control",
    "stop_sequences", "stream", "metadata", "service_tier", "inference_geo", "container", "diagnostics",
}  # fmt: skip
SAMPLING = {"temperature", "top_p", "top_k"}
VERSIONS = {"2023-06-01", "2026-10-21"}


@dataclass(frozen=True)
class ModelRules:
    adaptive: bool
    manual: bool
    disabled: bool
    efforts: frozenset[str]
    shows_thinking: bool


_FOUR = frozenset({"low", "medium", "high", "max"})
MODELS = {
    "claude-opus-5-5": ModelRules(True, False, False, _FOUR | {"xhigh"}, False),
    "claude-opus-4-6": ModelRules(True, True, True, _FOUR, True),
    "claude-sonnet-4-6": ModelRules(True, True, True, _FOUR, True),
    "claude-sonnet-4-5": ModelRules(False, True, True, frozenset(), True),
}


IMAGE_STARTS = {
    "image/png": rb"\x89PNG\r\n",
    "image/jpeg": rb"\xff\xd8\xff",
    "image/gif": rb"GIF8[79]a",
    "image/webp": rb"RIFF....WEBP",
}


class Refused(Exception):
    """The request gets a 400 with this message."""


def without_cache_control(value: Json) -> Json:
    if isinstance(value, dict):
        return {k: without_cache_control(v) for k, v in value.items() if k != "cache_control"}
    return [without_cache_control(item) for item in value] if isinstance(value, list) else value


def exact(value: Json) -> str:
    """Equal texts mean equal JSON to the letter: 1, 1.0 and true differ, and so does the order of members."""
    return json.dumps(value, ensure_ascii=True)


def blocks_of(content: Json) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def check_request(body: Json, headers: Mapping[str, str], key: str, *, bearer: bool) -> None:
    """Everything that one request must keep by itself."""
    _check_headers(headers, key, bearer=bearer)
    for name in body:
        if name in SAMPLING or name not in FIELDS:
            raise Refused(f"{name}: Extra inputs are not permitted")
    if not isinstance(body.get("max_tokens"), int) or not body.get("model"):
        raise Refused("max_tokens and model are required")
    _check_thinking(body, headers)
    _check_cache_control(body)
    _check_messages(body["messages"])
    if body.get("thinking", {}).get("type") == "enabled":
        _check_loop_start(body["messages"])


def _check_headers(headers: Mapping[str, str], key: str, *, bearer: bool) -> None:
    mine, other = ("authorization", "x-api-key") if bearer else ("x-api-key", "authorization")
    if headers.get(mine) != (f"Bearer {key}" if bearer else key):
        raise Refused(f"{mine} is not the key")
    if other in headers:
        raise Refused(f"{other} is sent beside {mine}")
    if headers.get("anthropic-version") not in VERSIONS:
        raise Refused("anthropic-version: header is required")
    if not headers.get("content-type", "").startswith("application/json"):
        raise Refused("content-type must be application/json")


def _check_thinking(body: Json, headers: Mapping[str, str]) -> None:
    rules = MODELS.get(body["model"])
    if rules is None:
        raise Refused(f"model: {body['model']}")
    thinking = body.get("thinking", {"type": "unset"})
    kind, extra = thinking["type"], set(thinking) - {"type"}
    legal = {"unset": True, "adaptive": rules.adaptive, "enabled": rules.manual, "disabled": rules.disabled}
    if not legal.get(kind):
        raise Refused(f'"thinking.type.{kind}" is not supported for this model.')
    allowed = {"unset": set(), "adaptive": {"display"}, "enabled": {"display", "budget_tokens"}}.get(kind, set())
    if extra - allowed:
        raise Refused(f"thinking.{kind}: {sorted(extra - allowed)}: Extra inputs are not permitted")
    if kind == "enabled":
        interleaved = "interleaved-thinking-2025-05-14" in headers.get("anthropic-beta", "")
        if thinking["budget_tokens"] < 1024:
            raise Refused("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        if thinking["budget_tokens"] >= body["max_tokens"] and not interleaved:
            raise Refused("`max_tokens` must be greater than `thinking.budget_tokens`")
    effort = body.get("output_config", {}).get("effort")
    if effort is not None and effort not in rules.efforts:
        raise Refused(f"output_config.effort '{effort}' is not supported on this model")
    if body.get("tool_choice", {"type": "auto"})["type"] not in {"auto", "none"}:
        raise Refused('tool_choice: type "tool" and "any" are not supported for this model.')


def _check_cache_control(body: Json) -> None:
    def count(value: Json) -> int:
        if isinstance(value, dict):
            if "cache_control" in value and value.get("type") in {"thinking", "redacted_thinking"}:
                raise Refused("cache_control cannot be set for thinking blocks")
            return ("cache_control" in value) + sum(count(v) for v in value.values())
        return sum(count(item) for item in value) if isinstance(value, list) else 0

    found = count(body)
    if found > 4:
        raise Refused(f"A maximum of 4 blocks with cache_control may be provided. Found {found}.")


def _check_messages(messages: list[Json]) -> None:
    if not messages or messages[0]["role"] != "user":
        raise Refused("messages: first message must use the user role")
    waiting: list[str] = []
    called: set[str] = set()
    for number, message in enumerate(messages):
        blocks = blocks_of(message["content"])
        if not blocks:
            raise Refused(f"messages.{number}: content must not be empty")
        if any(b["type"] == "text" and not b["text"] for b in blocks):
            raise Refused(f"messages.{number}: text content blocks must be non-empty")
        for block in blocks:
            if block["type"] == "image":
                _check_image(block, message["role"])
        results = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        if sorted(results) != sorted(waiting):
            raise Refused(
                f"messages.{number}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{waiting}, answered: {results}"
            )
        if any(b["type"] != "tool_result" for b in blocks[: len(results)]):
            raise Refused(f"messages.{number}: `tool_result` blocks must come first")
        waiting = [b["id"] for b in blocks if b["type"] == "tool_use"]
        for name in waiting:
            if not name or name in called:
                raise Refused(f"messages.{number}: `tool_use` ids must be unique")
            called.add(name)


def _check_loop_start(messages: list[Json]) -> None:
    """With a budget, the answer that began the running tool loop must start with thinking."""
    place = len(messages) - 1
    while place > 0 and (messages[place]["role"] == "assistant" or _is_step(messages[place])):
        place -= 1
    first = [message for message in messages[place:] if message["role"] == "assistant"][:1]
    kinds = [blocks_of(message["content"])[0]["type"] for message in first]
    if kinds and kinds[0] not in ("thinking", "redacted_thinking"):
        raise Refused(
            f"messages.{place + 1}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{kinds[0]}`."
        )


def _is_step(message: Json) -> bool:
    return any(block["type"] == "tool_result" for block in blocks_of(message["content"])) and not _prompts(message)


def _check_image(block: Json, role: str) -> None:
    source = block.get("source", {})
    if role != "user" or set(block) - {"type", "source", "cache_control"}:
        raise Refused("image: only users send images")
    if set(source) != {"type", "media_type", "data"} or source["type"] != "base64":
        raise Refused(f"image.source: {sorted(source)}: Input should be base64")
    start = IMAGE_STARTS.get(source["media_type"])
    try:
        content = base64.b64decode(source["data"], validate=True)
    except ValueError:
        raise Refused("image.source.base64: invalid base64 data") from None
    if start is None or re.match(start, content, re.DOTALL) is None:
        raise Refused(f"image.source.base64.data: not of the type {source['media_type']}")
    if len(source["data"]) > 10 << 20:
        raise Refused("image.source.base64: image exceeds 10 MB maximum")


@dataclass
class Issued:
    """One answer: its request and the content that has to come back. `renames`: under other ids of its calls."""

    body: Json
    content: list[Json]
    reason: str
    complete: bool = False
    renames: bool = False

    @property
    def prefix(self) -> list[str]:
        return [exact(m) for m in without_cache_control(self.body["messages"])]

    def is_replayed_by(self, content: list[Json]) -> bool:
        if self.renames:
            return exact(_without_call_ids(self.content)) == exact(_without_call_ids(content))
        return exact(self.content) == exact(content)


@dataclass
class Conversations:
    """Every assistant message must be one that was issued, in full, at its place, behind an unchanged prefix.

    `elsewhere`: other models take part in the conversations. What they said comes as words and calls alone.
    `refused`: for each refusal of earlier thinking, the refused messages as `_bare` returns them.
    """

    issued: list[Issued] = field(default_factory=list)
    elsewhere: bool = False
    refused: list[list[str]] = field(default_factory=list)

    def refuse(self, body: Json) -> None:
        """Let the refused messages come back without any thinking, as the service does.

        The service accepts a history from which all thinking was removed, but not a part of it (preserved thinking).
        With adaptive thinking, no answer has to start with thinking; `_check_loop_start` has the rule for budgets.
        Answers that the service gives afterwards must come back whole. If the bare messages are refused too, thinking
        was not the reason, and they may not come again.
        """
        messages = without_cache_control(body["messages"])
        bare = [exact(_bare(message)) for message in messages]
        self.refused = [each for each in self.refused if each != bare]
        if any(_is_sealed(message) for message in messages):
            self.refused.append(bare)

    def check(self, body: Json) -> None:
        messages = without_cache_control(body["messages"])
        texts = [exact(message) for message in messages]
        if messages[-1]["role"] == "assistant" and not self._is_paused(messages[-1]):
            raise Refused("This model does not support assistant message prefill.")
        bare = self._count_bare(messages)
        for place, message in enumerate(messages):
            if message["role"] == "assistant" and place >= bare:
                self._check_replay(body, texts, place, message)
        self._check_dropped(texts, messages)

    def _count_bare(self, messages: list[Json]) -> int:
        """Return the number of messages at the start that may come without thinking, and do."""
        texts = [exact(_bare(message)) for message in messages]
        sealed = next((place for place, message in enumerate(messages) if _is_sealed(message)), len(messages))
        sizes = (len(bare) for bare in self.refused if texts[: len(bare)] == bare)
        return max((size for size in sizes if size <= sealed), default=0)

    def _is_paused(self, message: Json) -> bool:
        content = exact(blocks_of(message["content"]))
        return any(issued.reason == "pause_turn" and exact(issued.content) == content for issued in self.issued)

    def _check_replay(self, body: Json, texts: list[str], place: int, message: Json) -> None:
        content = blocks_of(message["content"])
        same = [i for i in self.issued if i.is_replayed_by(content)]
        if not same and self.elsewhere and self._is_foreign(body, texts[:place], message):
            return
        if not same:
            raise Refused(f"messages.{place}.content: {self._difference(place, message)}")
        answer = next((i for i in same if i.prefix == texts[:place]), None)
        if answer is None:
            bound = "Invalid `signature` in `thinking` block. The block is bound to a different conversation."
            raise Refused(f"messages.{place}.content.0: {bound}")
        if answer.reason == "refusal" or not answer.complete:
            raise Refused(f"messages.{place}: this answer was never finished ({answer.reason}) and is no history")
        for part in ("system", "tools"):
            if exact(without_cache_control(answer.body.get(part))) != exact(without_cache_control(body.get(part))):
                raise Refused(f"messages.{place}.content.0: Invalid `signature`: {part} has changed since")
        if place == len(texts) - 2 and answer.reason == "tool_use" and not _prompts(body["messages"][-1]):
            for part in ("thinking", "output_config"):
                if answer.body.get(part) != body.get(part):
                    raise Refused(f"{part} changed within a tool loop")

    def _is_foreign(self, body: Json, prefix: list[str], message: Json) -> bool:
        """No sealed block, and not what this model itself has said here with one."""
        spoken = blocks_of(message["content"])
        mine = [i for i in self.issued if i.body["model"] == body["model"] and i.prefix == prefix]
        return _unsealed(spoken) == spoken and all(exact(_unsealed(i.content)) != exact(spoken) for i in mine)

    def _difference(self, place: int, message: Json) -> str:
        """Which block is wrong, said without the secrets."""
        near = [i for i in self.issued if len(i.prefix) == place]
        blocks = blocks_of(message["content"])
        kinds = [block["type"] for block in blocks]
        for answer in near:
            if [block["type"] for block in answer.content] == kinds:
                wrong = [n for n, b in enumerate(blocks) if exact(b) != exact(answer.content[n])]
                members = [sorted(blocks[n]) for n in wrong]
                return f"blocks {wrong} of {kinds} were changed; they have the members {members}"
        wanted = [[block["type"] for block in answer.content] for answer in near]
        return f"the blocks {kinds} were never issued here; issued were {wanted}"

    def _check_dropped(self, texts: list[str], messages: list[Json]) -> None:
        for answer in self.issued:
            size = len(answer.prefix)
            if not answer.complete or answer.reason != "end_turn" or len(texts) <= size:
                continue
            if texts[:size] == answer.prefix and messages[size]["role"] != "assistant":
                raise Refused(f"messages.{size}: the answer that was issued here has been dropped")


def _prompts(message: Json) -> bool:
    """Beside the results of tools, a remark in tags belongs to the loop that goes on; other text begins a new turn."""
    return any(b["type"] == "text" and not b["text"].startswith("<") for b in blocks_of(message["content"]))


def _without_call_ids(blocks: list[Json]) -> list[Json]:
    return [{k: v for k, v in b.items() if k != "id"} if b["type"] == "tool_use" else b for b in blocks]


def _unsealed(blocks: list[Json]) -> list[Json]:
    return [block for block in blocks if block["type"] not in ("thinking", "redacted_thinking")]


def _is_sealed(message: Json) -> bool:
    blocks = blocks_of(message["content"])
    return message["role"] == "assistant" and _unsealed(blocks) != blocks


# The members of a block that a client needs for a block of its own.
_READABLE = {"text": ("type", "text"), "tool_use": ("type", "id", "name", "input")}


def _bare(message: Json) -> Json:
    """Return an answer without thinking, and its texts and calls without members that only the service can set."""
    if message["role"] != "assistant":
        return message
    blocks = _unsealed(blocks_of(message["content"]))
    return message | {"content": [{m: b[m] for m in _READABLE.get(b["type"], b)} for b in blocks]}


@dataclass(frozen=True)
class CacheUse:
    """Tokens of one input, at four characters each."""

    read: int
    written: int
    rest: int


@dataclass
class PromptCache:
    """Prefixes that were written at a breakpoint; found again from a later breakpoint within 20 blocks.

    Model, thinking and effort are part of the key of the messages; a prefix under `minimum` tokens is not kept.
    """

    minimum: int = 1024
    _written: set[int] = field(default_factory=set)

    def use(self, body: Json) -> CacheUse:
        prefixes = list(_prefixes(body))
        total = prefixes[-1].size // 4
        marks = [n for n, prefix in enumerate(prefixes) if prefix.marked]
        if "cache_control" in body:
            marks.append(len(prefixes) - 1)
        read = 0
        for mark in marks:
            near = prefixes[max(0, mark - 20) : mark + 1]
            read = max([read, *(p.size // 4 for p in near if p.identity in self._written)])
        kept = [prefixes[mark] for mark in marks if prefixes[mark].size // 4 >= self.minimum]
        self._written |= {prefix.identity for prefix in kept}
        last = max([read, *(prefix.size // 4 for prefix in kept)])
        return CacheUse(read, last - read, total - last)


@dataclass(frozen=True)
class _Prefix:
    identity: int
    size: int
    marked: bool


def _prefixes(body: Json) -> Iterator[_Prefix]:
    key = (body["model"], exact([body.get("thinking"), body.get("output_config"), body.get("tool_choice")]))
    identity, size = hash(key[0]), 0
    for part in (body.get("tools", []), blocks_of(body.get("system", [])), None):
        if part is None:
            identity = hash((identity, key[1]))
            part = [(m["role"], b) for m in body["messages"] for b in blocks_of(m["content"])]
        for block in part:
            text = exact(without_cache_control(block if isinstance(block, dict) else list(block)))
            identity, size = hash((identity, text)), size + len(text)
            last = block if isinstance(block, dict) else block[1]
            yield _Prefix(identity, size, "cache_control" in last)
