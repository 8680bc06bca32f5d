"""Opaque state cannot be displayed by accident, and only encoders and the store open it."""

from __future__ import annotations

import ast
import copy
import dataclasses
import json
import pickle
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.sources import PACKAGE
from tests.support.stored_sessions import EVERY_KIND
from thinklsp.core.messages import (
    OpaqueState,
    Origin,
    RedactedThinkingBlock,
    ServerToolBlock,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    strip_opaque_state,
)
from thinklsp.providers.encoding import EncodedParts

ORIGIN = Origin("anthropic", "m", "https://h", "fingerprint")
SECRET = "EqQBCkYICxgCKkDcanary"
STATE = OpaqueState(json.dumps({"signature": SECRET}), ORIGIN)

LEAKS: dict[str, Callable[[object], object]] = {
    "str": str,
    "format": lambda value: f"{value:>10}",
    "f-string": lambda value: f"{value}",
    "percent": lambda value: "%s" % value,  # noqa: UP031 - the old form is one of the ways to be tried
    "pickle": pickle.dumps,
    "pickle 0": lambda value: pickle.dumps(value, 0),
    "deepcopy": copy.deepcopy,
    "json": json.dumps,
    "vars": vars,
    "iterate": list,  # type: ignore[call-overload]  # it must fail, that is the test
}


@pytest.mark.parametrize("name", LEAKS)
def test_there_is_no_way_to_turn_it_into_text(name: str) -> None:
    with pytest.raises(TypeError) as caught:
        LEAKS[name](STATE)
    assert SECRET not in str(caught.value)


def test_repr_of_it_and_of_blocks_that_hold_it_says_nothing() -> None:
    for value in (STATE, [STATE], ThinkingBlock("", STATE), RedactedThinkingBlock(STATE)):
        assert SECRET not in repr(value)
        assert "opaque" in repr(value)


def test_what_was_written_of_it_for_its_issuer_says_nothing() -> None:
    block = ThinkingBlock("", STATE)
    parts = EncodedParts()
    parts.encode(block, ORIGIN, lambda: {"signature": SECRET})
    assert SECRET not in f"{block!r} {parts!r} {parts._memo.find(block)!r}"


def test_blocks_that_hold_it_cannot_be_pickled_or_dumped() -> None:
    block = ThinkingBlock("", STATE)
    for leak in (pickle.dumps, dataclasses.asdict, json.dumps):
        with pytest.raises(TypeError):
            leak(block)
    assert SECRET not in json.dumps(block, default=str)
    with pytest.raises(TypeError):
        json.dumps(STATE, default=str)


@pytest.mark.parametrize("field", ["provider", "model", "host", "key"])
def test_only_the_issuer_gets_it_back(field: str) -> None:
    foreign = replace(ORIGIN, **{field: "other"})
    assert not STATE.is_issued_by(foreign)
    with pytest.raises(ValueError, match="only for its own origin") as caught:
        STATE.reveal_for(foreign)
    assert SECRET not in str(caught.value)
    assert json.loads(STATE.reveal_for(ORIGIN)) == {"signature": SECRET}


def test_only_encoders_and_the_store_open_it() -> None:
    openers = {
        path.relative_to(PACKAGE).parts[0]
        for path in PACKAGE.rglob("*.py")
        if "reveal_for" in (source := path.read_text("utf-8"))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and node.attr == "reveal_for"
        if path.relative_to(PACKAGE).as_posix() != "core/messages.py"
    }
    assert "providers" in openers
    assert openers <= {"providers", "sessions"}


def test_a_bare_message_keeps_what_anybody_may_read() -> None:
    bare = strip_opaque_state(EVERY_KIND)
    kept = [type(block) for block in EVERY_KIND.blocks if isinstance(block, TextBlock | ServerToolBlock | ToolUseBlock)]
    assert [type(block) for block in bare.blocks] == kept
    # What the service ran itself is nothing without its seal.
    assert [type(block) for block in bare.blocks if block.raw is not None] == [ServerToolBlock]
    assert strip_opaque_state(bare) == bare
