"""Whatever a client sends, the Gemini dialect answers; it never breaks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulator_google_refusals import CALL, RESULT

from tests.support.simulator_google_talk import OLD, Talk, model, request, user
from tests.support.sizes import examples


@pytest.mark.parametrize("depth", [300, 900, 100_000])
@pytest.mark.parametrize("where", ["parametersJsonSchema", "parameters"])
def test_deep_nesting_is_refused_or_read(depth: int, where: str) -> None:
    nested = b'{"items":' * depth + b"{}" + b"}" * depth
    body = json.dumps(request("plain", tools=[{"functionDeclarations": [{"name": "a", where: "HERE"}]}])).encode()
    assert Talk().ask(body.replace(b'"HERE"', nested))[0] in (200, 400)


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(), max_size=5)
    | st.sampled_from(["user", "model", "LOW", "OBJECT", "read_file", "skip_thought_signature_validator"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("role", "parts", "text", "thought", "thoughtSignature", "functionCall", "function_response"),
                    *(
                        "name",
                        "args",
                        "id",
                        "response",
                        "functionDeclarations",
                        "parameters",
                        "type",
                        "properties",
                        "x",
                    ),
                ]
            ),
            inner,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=examples(250), deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            ["contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "continuationToken", "store"]
        ),
        _JSON,
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(["generateContent", "countTokens", "streamGenerateContent"]),
)
def test_no_body_breaks_the_dialect(changes: dict[str, Any], method: str) -> None:
    assert getattr(Talk().reply(request("plain", **changes), method=method), "status", 200) in (200, 400)


@settings(max_examples=examples(250), deadline=None)
@given(_JSON, _JSON, _JSON, st.sampled_from(["gemini-3.5-flash", OLD]))
def test_no_part_breaks_the_dialect(part: Any, later: Any, response: Any, name: str) -> None:
    answer = {"functionResponse": {"name": "read_file", "response": response}}
    contents = [user("plain", part), model({"text": "a", **later} if isinstance(later, dict) else later), user("b")]
    contents += [model(CALL, later), user(RESULT, answer)]
    for number in (5, 3, 1):
        reply = Talk().reply(request(contents=contents[:number]), model=name)
        assert getattr(reply, "status", 200) in (200, 400)
