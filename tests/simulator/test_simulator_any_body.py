"""Whatever a client sends, the dialect answers; it never breaks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulator_refusals import CALL, RESULT, TEXT, said

from tests.support.simulator_talk import TOOLS, Talk, request
from tests.support.sizes import examples


@pytest.mark.parametrize("depth", [300, 900, 100_000])
def test_deep_nesting_is_refused_or_read(depth: int) -> None:
    nested = b'{"a":' * depth + b"1" + b"}" * depth
    body = json.dumps(request("plain", tools=[{**TOOLS[0], "input_examples": "HERE"}])).encode()
    assert Talk().ask(body.replace(b'"HERE"', nested))[0] in (200, 400)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["text", "user", "ephemeral"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "role", "content", "text", "cache_control", "name", "x"]), inner)
    ),
    max_leaves=8,
)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            ["messages", "system", "tools", "thinking", "output_config", "tool_choice", "cache_control", "model"]
        ),
        _JSON,
        min_size=1,
        max_size=3,
    )
)
def test_no_body_breaks_the_dialect(changes: dict[str, Any]) -> None:
    reply = Talk().reply(request("plain", **changes))
    assert getattr(reply, "status", 200) in (200, 400, 404)


@settings(max_examples=examples(200), deadline=None)
@given(_JSON, _JSON)
def test_no_block_breaks_the_dialect(block: Any, later: Any) -> None:
    changes = {"messages": said([TEXT, block], [CALL, later], [RESULT, {**RESULT, "content": [block]}])}
    reply = Talk().reply(request("plain", **changes))
    assert getattr(reply, "status", 200) in (200, 400)
