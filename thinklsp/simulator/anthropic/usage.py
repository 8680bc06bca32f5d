"""What a request costs in tokens, and what of it the prompt cache already holds. Estimates, but steady ones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from thinklsp.simulator.anthropic.envelope import extra, invalid
from thinklsp.simulator.anthropic.messages import SIGNED, Conversation, content_blocks
from thinklsp.simulator.anthropic.models import ModelTraits
from thinklsp.simulator.anthropic.options import Mode
from thinklsp.simulator.anthropic.replay import Replay
from thinklsp.simulator.state import LIFETIMES, Item, chain_items

_MAX_BREAKPOINTS = 4
_IMAGE_TOKENS = 1200


def list_cache_items(
    body: Mapping[str, Any], conversation: Conversation, traits: ModelTraits, mode: Mode, replay: Replay
) -> tuple[Item, ...]:
    """Return the request as cacheable units. Raises Refused for breakpoints that the service does not take."""
    units = list(_units(body, conversation, traits, mode, replay))
    marks = [_ttl(unit.control, unit.place) for unit in units]
    _mark_last(body.get("cache_control"), units, marks)
    used = sum(ttl is not None for ttl in marks)
    if used > _MAX_BREAKPOINTS:
        invalid(f"A maximum of {_MAX_BREAKPOINTS} blocks with cache_control may be provided. Found {used}.")
    _check_order([ttl for ttl in marks if ttl is not None])
    return chain_items("", ((unit.content, unit.tokens, ttl) for unit, ttl in zip(units, marks, strict=True)))


@dataclass(frozen=True, slots=True)
class _Unit:
    """An item before its breakpoint is known. `content` tells it apart; thinking cannot carry a breakpoint."""

    content: str
    tokens: int
    place: str
    control: Any = None
    thinking: bool = False


def _units(
    body: Mapping[str, Any], conversation: Conversation, traits: ModelTraits, mode: Mode, replay: Replay
) -> Iterator[_Unit]:
    opening = f"{traits.id}\n{body.get('speed')}\n"
    for index, tool in enumerate(body.get("tools") or ()):
        yield _unit(tool, traits, f"tools.{index}", opening)
        opening = ""
    for index, part in enumerate(content_blocks(body.get("system") or [], "system")):
        if not isinstance(part, Mapping) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            invalid(f"system.{index}: Input should be a text block")
        if not part["text"]:
            invalid("system: text content blocks must be non-empty")
        yield _unit(part, traits, f"system.{index}", opening + "system\n")
        opening = ""
    opening += f"{mode.kind} {mode.budget} {mode.effort} {json.dumps(body.get('tool_choice'))}\n"
    for block in conversation.blocks:
        if block.kind in SIGNED and "cache_control" in block.value:
            extra(f"{block.path}.{block.kind}.cache_control")
        if block.kind in SIGNED:
            tokens = replay.tokens.get(block.path)
            earlier_turn = block.message < conversation.loop_start
            if tokens is None or (earlier_turn and not traits.keeps_thinking):
                continue
            yield _Unit(f"{opening}{json.dumps(block.value)}", tokens, block.path, thinking=True)
        else:
            yield _unit(block.value, traits, block.path, f"{opening}{block.role}\n")
        opening = ""


def _unit(value: Mapping[str, Any], traits: ModelTraits, place: str, opening: str) -> _Unit:
    bare = {key: item for key, item in value.items() if key != "cache_control"}
    # Key order is kept: a tool input written in another order is another prompt.
    content = json.dumps(bare, ensure_ascii=False)
    tokens = _IMAGE_TOKENS if value.get("type") == "image" else _tokens(bare, content, traits)
    return _Unit(f"{opening}{content}", tokens, place, value.get("cache_control"))


def _tokens(value: Mapping[str, Any], content: str, traits: ModelTraits) -> int:
    return 3 + traits.count_tokens(str(value["text"]) if value.get("type") == "text" else content)


def _ttl(control: Any, place: str) -> str | None:
    if control is None:
        return None
    if not isinstance(control, Mapping) or control.get("type") != "ephemeral":
        invalid(f"{place}.cache_control: Input should be an object of type 'ephemeral'")
    for key in control:
        if key not in ("type", "ttl"):
            extra(f"{place}.cache_control.{key}")
    ttl = control.get("ttl") or "5m"
    if not isinstance(ttl, str) or ttl not in LIFETIMES:
        invalid(f"{place}.cache_control.ttl: Input should be '5m' or '1h'")
    return ttl


def _mark_last(control: Any, units: Sequence[_Unit], marks: list[str | None]) -> None:
    """A top-level cache_control is a breakpoint on the last block that can carry one."""
    ttl = _ttl(control, "request")
    if ttl is None:
        return
    last = max((i for i, unit in enumerate(units) if not unit.thinking), default=None)
    if last is None:
        return
    if marks[last] not in (None, ttl):
        invalid("cache_control: the last block already has a cache_control with a different ttl")
    marks[last] = ttl


def _check_order(ttls: Sequence[str]) -> None:
    if any(before == "5m" and after == "1h" for before, after in pairwise(ttls)):
        invalid(
            "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note that blocks are "
            "processed in the following order: `tools`, `system`, `messages`."
        )
