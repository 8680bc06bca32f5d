"""Sharp edges of calls, ends and what goes back that every dialect has, by number, proven for each of them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.dialects import Place, ask, place, play, read
from tests.support.simulated_streams import CALLS, SIDES, A, events_of, request_of, streamed, streamed_by
from thinklsp.core.calls import with_unique_calls
from thinklsp.core.messages import (
    AssistantMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from thinklsp.core.usage import Usage
from thinklsp.sessions.session import Session


@pytest.fixture(params=SIDES)
def where(request: pytest.FixtureRequest) -> Place:
    return place(*SIDES[request.param])


@pytest.mark.parametrize("cut", ['{"path": "a", "old_te', '{"path": "x.py', "{"])
def test_row_16_a_call_that_was_cut_is_no_call(where: Place, cut: str) -> None:
    answer_of = read(where, streamed(where, {"tool": "edit_file", "input_json": cut}, stop_reason="max_tokens"))
    assert answer_of.message.stop_reason == "max_tokens"
    # One service gives arguments whole, so that it gives none of a call that was cut.
    assert [call.input for call in answer_of.message.tool_uses] == ([] if where.provider == "google" else [None])


def test_row_17_a_call_without_arguments_has_an_empty_object(where: Place) -> None:
    # Where arguments are objects there is no text of them that could be empty.
    ways: list[dict[str, Any]] = [{}] if where.provider == "google" else [{}, {"input_json": ""}, {"input_json": "{}"}]
    for arguments in ways:
        step = {"block": [{"tool": "list_files", **arguments}]}
        dialect = where.dialect({"step": [step, {"block": [{"text": "Done."}]}]})
        first, last = play(where, dialect, replace(request_of(where), conversation=()), ["a"])
        assert [call.input for call in first.message.tool_uses] == [{}]
        assert last.message.text == "Done."


def test_row_27_a_refusal_is_told_apart_from_an_answer(where: Place) -> None:
    data = streamed(where, {"text": "Partly written"}, stop_reason="refusal", refusal={"explanation": "Not this."})
    assert read(where, data).message.stop_reason == "refusal"


def test_row_29_a_turn_that_was_stopped_leaves_no_open_call(where: Place) -> None:
    """A session takes no step with an open call; one that was stopped within a loop of tools is gone on with."""
    dialect = where.dialect(*TURNS)
    own = with_unique_calls(read(where, streamed_by(dialect, where)).message, ())
    for calls in (own, FOREIGN):
        session = Session("s", "w").with_user("a")
        for count in range(len(calls.tool_uses)):
            with pytest.raises(ValueError, match="a result for every tool call"):
                session.with_step(calls, results_of(calls, count), Usage())
        stopped = session.with_step(calls, results_of(calls, len(calls.tool_uses)), Usage()).cut_short()
        for conversation in (stopped.with_user("Go on.").conversation, session.cut_short().with_user("b").conversation):
            request = request_of(where, conversation)
            found = ask(where, where.dialect(*TURNS) if calls is FOREIGN else dialect, request).message
            assert (found.text, found.tool_uses) != ("", ())


FOREIGN = AssistantMessage(
    (TextBlock("Looking."), *(ToolUseBlock(f"toolu_{n}", "list_files", {}) for n in (1, 2))), "tool_use"
)
TURNS = ({"step": [{"block": CALLS}]}, {"step": [{"block": [{"text": "Fine."}]}]})


def results_of(message: AssistantMessage, count: int) -> UserMessage | None:
    results = tuple(ToolResultBlock(call.id, "was stopped", is_error=True) for call in message.tool_uses[:count])
    return UserMessage(results) if results else None


NEWS = (
    b'event: brand_new\ndata: {"type":"brand_new","deep":{"a":[null,1.5]}}\n\n',
    b'data: {"brandNew":{"x":1}}\n\n',
    b'data: {"object":"brand.new","choices":[],"candidates":[]}\n\n',
    b"retry: 10\nid: 7\n\n",
)


def test_row_31_new_events_and_new_keys_change_nothing(where: Place) -> None:
    data = streamed(where, *CALLS)
    whole, events = read(where, data), events_of(data)
    told = b"".join(event + b"".join(NEWS) for event in events[:-1]) + events[-1]
    assert read(where, told).message == whole.message
    keyed = data.replace(b"data: {", b'data: {"brand_new":{"a":[1,null]},')
    assert read(where, keyed).message == whole.message


def test_row_33_an_empty_answer_after_results_is_an_answer(where: Place) -> None:
    """What the agent then does stands in `tests/engine/test_scenarios_everywhere`."""
    for blocks in ([], [{"thinking": "Hm."}]):
        dialect = where.dialect({"step": [{"block": CALLS}, {"block": blocks}]})
        _, empty = play(where, dialect, replace(request_of(where), conversation=()), ["a"])
        assert (empty.message.text, empty.message.tool_uses, empty.message.stop_reason) == ("", (), "end_turn")


def test_row_34_thinking_goes_back_only_where_it_came_from(where: Place) -> None:
    """Signed or not; what the model said and called stays."""
    for issuer, side in SIDES.items():
        of = place(*side)
        host = f"https://{re.sub('[^a-z]', '-', issuer)}.example"
        of = replace(of, access=replace(of.access, base_url=host + urlsplit(of.access.base_url).path))
        data = streamed(of, {"thinking": "SECRET"}, {"text": "Said."}, {"tool": "list_files"})
        message = with_unique_calls(read(of, data).message, ())
        assert [block.text for block in message.blocks if isinstance(block, ThinkingBlock)] == ["SECRET"]
        request = request_of(where, (A, message, results_of(message, 1) or A))
        body = bytes(where.encode(request).body).decode()
        assert ("Said." in body, "SECRET" in body) == (True, False)
        step = {"block": [{"text": "Fine."}]}
        assert ask(where, where.dialect({"step": [step, step]}), request).message.text == "Fine."
