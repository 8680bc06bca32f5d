"""Sessions: whole steps only, found only from their own workspace, and never overwritten from two sides."""

from __future__ import annotations

import pytest

from tests.support.scripted_model import check_sendable, says, tool
from thinklsp.core.errors import SessionError
from thinklsp.core.messages import ToolResultBlock, UserMessage
from thinklsp.core.usage import Usage
from thinklsp.sessions.session import INTERRUPTED, Session
from thinklsp.sessions.store import MemoryStore

USAGE = Usage(input_tokens=3, output_tokens=2)
CALLS = says("Go.", tool("a", "read_file"), tool("b", "read_file")).message


def results(*calls: str) -> UserMessage:
    return UserMessage(tuple(ToolResultBlock(call, "x") for call in calls))


def test_a_step_is_committed_whole_or_not_at_all() -> None:
    session = Session("s", "w").with_user("Hello.")
    for wrong in (None, results("a"), results("a", "b", "c"), results("a", "c"), UserMessage.of("x")):
        with pytest.raises(ValueError, match="result"):
            session.with_step(CALLS, wrong, USAGE)
    with pytest.raises(ValueError, match="result"):
        session.with_step(says("Hi.").message, results("a"), USAGE)
    stepped = session.with_step(CALLS, results("a", "b"), USAGE).with_step(says("Done.").message, None, USAGE)
    check_sendable(stepped.with_user("More?").conversation)
    assert (stepped.steps, stepped.usage) == (2, Usage(input_tokens=6, output_tokens=4))
    assert (session.steps, len(session.conversation)) == (0, 1), "a transition leaves the former value alone"


@pytest.mark.parametrize(
    ("prompt", "title"),
    [
        ("Fix it.", "Fix it."),
        ("\n\n  First line  \nsecond", "First line"),
        ("x" * 61, "x" * 59 + "…"),
        ("x" * 60, "x" * 60),
        (" ", ""),
    ],
)
def test_the_first_prompt_names_the_session(prompt: str, title: str) -> None:
    session = Session("s", "w").with_user(prompt)
    assert session.title == title
    assert session.with_user("Another one.").title == (title or "Another one.")


def test_choices_add_up() -> None:
    session = Session("s", "w").with_choices({"effort": "low", "model": "m"}).with_choices({"effort": "high"})
    assert session.choices == {"effort": "high", "model": "m"}


def test_a_session_is_found_only_from_its_own_workspace() -> None:
    store = MemoryStore()
    one, other = store.create("one"), store.create("other")
    assert store.get(one.id, "one") == one
    for session_id, workspace in ((one.id, "other"), (other.id, "one"), ("unknown", "one"), ("", "one")):
        with pytest.raises(SessionError, match="sessionId"):
            store.get(session_id, workspace)
    with pytest.raises(SessionError):
        store.latest("third")


def test_ids_cannot_be_guessed() -> None:
    store = MemoryStore()
    ids = {store.create("w").id for _ in range(100)}
    assert len(ids) == 100
    assert min(len(identity) for identity in ids) >= 32


def test_the_newest_is_the_one_that_was_used_last() -> None:
    store = MemoryStore()
    first, second = store.create("w"), store.create("w")
    store.create("other")
    assert store.latest("w") == second
    first = store.update(first.id, lambda session: session.with_user("x"))
    assert store.latest("w") == first


def test_no_update_is_lost() -> None:
    """Each change is made to what is stored then, not to what somebody has in hand."""
    store = MemoryStore()
    session = store.create("w")
    store.update(session.id, lambda now: now.with_user("one"))
    store.update(session.id, lambda now: now.with_choices({"effort": "low"}))
    stored = store.update(session.id, lambda now: now.with_step(says("Hi.").message, None, USAGE))
    assert store.get(session.id, "w") == stored
    assert (len(stored.conversation), stored.choices, stored.steps) == (2, {"effort": "low"}, 1)
    with pytest.raises(SessionError, match="deleted"):
        store.update("unknown", lambda now: now)


def test_a_change_that_fails_changes_nothing() -> None:
    store = MemoryStore()
    session = store.create("w")
    with pytest.raises(ValueError, match="result"):
        store.update(session.id, lambda now: now.with_step(CALLS, None, USAGE))
    assert store.get(session.id, "w") == session


def test_a_prompt_that_nothing_answered_is_taken_back() -> None:
    session = Session("s", "w").with_user("One.").with_step(says("Hi.").message, None, USAGE)
    cut = session.with_user("Two.").cut_short()
    assert cut.conversation == session.conversation
    check_sendable(cut.with_user("Three.").conversation)
    assert Session("s", "w").with_user("One.").cut_short().conversation == ()


def test_a_turn_that_was_stopped_at_work_is_told_to_the_model_once() -> None:
    session = Session("s", "w").with_user("One.").with_step(CALLS, results("a", "b"), USAGE).cut_short()
    following = session.with_user("Two.")
    check_sendable(following.conversation)
    blocks = following.conversation[-1].blocks
    assert [INTERRUPTED in getattr(block, "text", "") for block in blocks] == [True, False]
    again = following.with_step(says("Yes.").message, None, USAGE).with_user("Three.")
    assert len(again.conversation[-1].blocks) == 1
