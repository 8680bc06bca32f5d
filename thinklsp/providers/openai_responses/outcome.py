"""What a finished answer comes to: why it ended, what it cost, and what the user should know about it.

Also which items of the final response are those that were streamed; the others were never announced.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from thinklsp.core.messages import COMPACTION, StopReason
from thinklsp.core.stream import BlockKind, MessageFinished
from thinklsp.core.usage import Usage
from thinklsp.providers.openai_responses.items import ItemDraft, kind_of, name_of, refusal_in, string

_CUT_REASONS: Mapping[str, StopReason] = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}
_USED_UP = "The output limit was used up by thinking before the model could answer: a lower effort leaves it more room."
_SHORTENED = (
    "The service has shortened what the model reads of this conversation, as compaction.by says. The session is whole."
)
# Why the service removed earlier thinking. Where it ends with its turn nothing has gone wrong.
_ROUTINE = "turn_boundary"
_REMOVAL_REASONS: Mapping[str, str] = {
    "prefix_mismatch": "something before it has changed",
    "model_mismatch": "it belongs to another model",
    "organization_mismatch": "it belongs to another organisation",
    "end_user_mismatch": "it belongs to another user",
}


def message_finished(
    response: Mapping[str, Any], drafts: Iterable[ItemDraft], removals: Sequence[str], *, cut: bool
) -> MessageFinished:
    """`response` is the final one, the drafts all stopped. `removals`: why earlier thinking was removed, for each."""
    items = [(draft.kind, draft.whole or {}) for draft in drafts]
    refusal = "".join(refusal_in(item) for kind, item in items if kind == "text")
    spoke = any(draft.spoke for draft in drafts if draft.kind == "text")
    calls = any(kind == "tool_use" for kind, _ in items)
    details = response.get("incomplete_details")
    why = string(details, "reason") if isinstance(details, dict) else ""
    reason: StopReason = _CUT_REASONS.get(why, "other") if cut else "tool_use" if calls else "end_turn"
    notices = [_removed(removals)] if removals else []
    if any(item.get("type") == COMPACTION for _, item in items):
        notices.append(_SHORTENED)
    if reason == "max_tokens" and not spoke and not calls:
        notices.append(_USED_UP)
    explanation = None
    if refusal:
        reason, explanation = "refusal", refusal
    elif reason == "refusal":
        explanation = "The service's content filter stopped the answer."
    unsealed = not cut and any(kind == "thinking" and not _can_go_back(item) for kind, item in items)
    return MessageFinished(reason, neutral_usage(response.get("usage")), explanation, tuple(notices), unsealed)


def removals_in(transformations: object) -> list[str]:
    """The reasons, one for each part of earlier thinking that the service left out against our will."""
    return [
        string(entry, "reason")
        for entry in (transformations if isinstance(transformations, list) else ())
        if isinstance(entry, dict)
        and (entry.get("type"), entry.get("action")) == ("reasoning", "removed")
        and entry.get("reason") != _ROUTINE
    ]


def neutral_usage(usage: object) -> Usage:
    told = _dict(usage)
    read_in, written_out = _dict(told.get("input_tokens_details")), _dict(told.get("output_tokens_details"))
    return Usage(
        input_tokens=_count(told, "input_tokens"),
        output_tokens=_count(told, "output_tokens"),
        thinking_tokens=_count(written_out, "reasoning_tokens"),
        cache_read_tokens=_count(read_in, "cached_tokens"),
        cache_write_tokens=_count(read_in, "cache_write_tokens"),
    )


def final_items(drafts: Mapping[int, ItemDraft], output: object) -> dict[int, Mapping[str, Any]]:
    """The items of the final response by their index, those under a free one that were not streamed.

    They are known again by name, else by their place among their kind: some servers name everything anew at the end,
    and a call must not run twice for that. Where they stand in the list says nothing, since indexes have gaps.
    """
    listed = output if isinstance(output, list) else []
    items = [(place, item) for place, item in enumerate(listed) if isinstance(item, dict) and string(item, "type")]
    by_name = {(draft.kind, draft.name): index for index, draft in drafts.items() if draft.name}
    found: dict[int, Mapping[str, Any]] = {}
    unnamed = []
    for place, item in items:
        index = by_name.get((kind_of(item), name_of(item)))
        if index is None or index in found:
            unnamed.append((place, item))
        else:
            found[index] = item
    nameless: dict[BlockKind, deque[int]] = defaultdict(deque)
    for index in sorted(drafts.keys() - found.keys()):
        nameless[drafts[index].kind].append(index)
    end = max([*drafts, len(listed)])
    for place, item in unnamed:
        if same_kind := nameless[kind_of(item)]:
            found[same_kind.popleft()] = item
        elif place not in drafts and place not in found:
            found[place] = item
        else:
            end += 1
            found[end] = item
    return found


def _can_go_back(reasoning: Mapping[str, Any]) -> bool:
    return bool(reasoning.get("encrypted_content") or reasoning.get("content"))


def _removed(reasons: Sequence[str]) -> str:
    known = dict.fromkeys(_REMOVAL_REASONS.get(reason, "it no longer fits") for reason in reasons)
    return f"The service left out earlier thinking of the model: {', and '.join(known)}. The conversation goes on."


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(content: Mapping[str, Any], key: str) -> int | None:
    value = content.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
