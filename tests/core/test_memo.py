"""A memo finds values by the identity of an object, and forgets them with the object."""

from __future__ import annotations

import gc

from thinklsp.core.memo import IdentityMemo
from thinklsp.core.messages import TextBlock


def test_equal_objects_have_a_value_each() -> None:
    memo: IdentityMemo[int] = IdentityMemo()
    one, other = TextBlock("same"), TextBlock("same")
    assert memo.keep(one, 1) == 1
    assert memo.find(other) is None
    memo.keep(other, 2)
    assert (memo.find(one), memo.find(other)) == (1, 2)


def test_a_later_value_replaces_the_former_one() -> None:
    memo: IdentityMemo[int] = IdentityMemo()
    block = TextBlock("text")
    memo.keep(block, 1)
    memo.keep(block, 2)
    assert (memo.find(block), len(memo._entries)) == (2, 1)


def test_a_value_goes_with_its_object() -> None:
    memo: IdentityMemo[int] = IdentityMemo()
    blocks = [TextBlock(str(number)) for number in range(100)]
    for number, block in enumerate(blocks):
        memo.keep(block, number)
    del block
    kept = blocks[:10]
    blocks.clear()
    gc.collect()
    assert [memo.find(block) for block in kept] == list(range(10))
    assert len(memo._entries) == 10
