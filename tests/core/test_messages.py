"""Memoized values end with their objects, and call ids are unique."""

from __future__ import annotations

import gc

from thinklsp.core.messages import AssistantMessage, IdentityMemo, TextBlock, ToolUseBlock, ensure_unique_call_ids


def test_a_value_goes_with_its_object() -> None:
    memo: IdentityMemo[int] = IdentityMemo()
    blocks = [TextBlock(str(number)) for number in range(100)]
    for number, block in enumerate(blocks):
        memo.store(block, number)
    del block
    kept = blocks[:10]
    blocks.clear()
    gc.collect()
    assert [memo.find(block) for block in kept] == list(range(10))
    assert len(memo._entries) == 10


def test_a_call_gets_a_free_id_if_its_own_is_taken_or_missing() -> None:
    before = AssistantMessage((ToolUseBlock("a", "t", {}), ToolUseBlock("a-3", "t", {})))
    calls = ensure_unique_call_ids(AssistantMessage((ToolUseBlock("a", "t", {}), ToolUseBlock("", "t", {}))), (before,))
    assert [call.id for call in calls.tool_uses] == ["a-4", "call-4"]
