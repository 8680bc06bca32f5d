"""Arguments of commands: what is refused, by the name of its field."""

from __future__ import annotations

import re
from typing import Any

import pytest

from thinklsp.lsp.editor.arguments import ChatArguments, ChoiceArguments, TurnArguments, parsed
from thinklsp.lsp.protocol.errors import InvalidParams


@pytest.mark.parametrize(
    ("kind", "field"),
    [(ChoiceArguments, "sessionId"), (ChoiceArguments, "value"), (TurnArguments, "turnId"), (ChatArguments, "model")],
)
def test_half_of_a_character_pair_is_in_no_id(kind: type[ChatArguments], field: str) -> None:
    with pytest.raises(InvalidParams, match=f"The field {field} is not valid"):
        parsed(kind, [{field: "x\ud800"}])
    parsed(kind, [{field: "x\U0001f600"}])


PLACE = {"line": 0, "character": 0}
RANGE = {"start": PLACE, "end": PLACE}
# References, and the field that is wrong.
WRONG_REFERENCES: list[tuple[Any, str]] = [
    ([{"uri": "file:///a", "range": RANGE, "foo": 1}], "references.0.foo"),
    (["file:///a", {}], "references.1.uri"),
    ([{"uri": 3}], "references.0.uri"),
    ([{"uri": "file:///a", "range": RANGE | {"start": PLACE | {"line": -1}}}], "references.0.range.start.line"),
    ([{"uri": "file:///a", "range": {"start": PLACE}}], "references.0.range.end"),
    ([3], "references.0"),
    ([None], "references.0"),
    ("file:///a", "references"),
]


@pytest.mark.parametrize(("references", "field"), WRONG_REFERENCES)
def test_the_field_that_is_wrong_is_named(references: Any, field: str) -> None:
    with pytest.raises(InvalidParams, match=rf"field {re.escape(field)}( is not valid: .*)?\.$"):
        parsed(ChatArguments, [{"prompt": "x", "references": references}])


def test_a_reference_is_a_uri_or_a_place() -> None:
    given = ["file:///a", {"uri": "file:///b", "range": RANGE}, {"uri": "file:///c", "range": None}]
    read = parsed(ChatArguments, [{"references": given}]).references
    found = [(one.uri, one.range is None) for one in read]
    assert found == [("file:///a", True), ("file:///b", False), ("file:///c", True)]


@pytest.mark.parametrize("token", [1.5, [], {}, True, "x" * 300])
def test_a_token_is_an_integer_or_a_short_text(token: Any) -> None:
    with pytest.raises(InvalidParams, match="field partialResultToken is not valid"):
        parsed(ChatArguments, [{"partialResultToken": token}])
    for good in (0, -3, "t"):
        assert parsed(ChatArguments, [{"partialResultToken": good}]).partial_result_token == good


def test_a_prompt_may_hold_one_as_editors_can_send_it() -> None:
    assert parsed(ChatArguments, [{"prompt": "x\ud800"}]).prompt == "x\ud800"
