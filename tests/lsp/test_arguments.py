"""Arguments of commands: what is refused, by the name of its field."""

from __future__ import annotations

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


def test_a_prompt_may_hold_one_as_editors_can_send_it() -> None:
    assert parsed(ChatArguments, [{"prompt": "x\ud800"}]).prompt == "x\ud800"
