"""Sessions as values: whole steps only, and what stopping, forking and a crash leave."""

from __future__ import annotations

import os

import pytest

from tests.support.scripted_model import check_sendable, says, tool
from thinklsp.core.messages import TextBlock, ToolResultBlock, UserMessage
from thinklsp.core.usage import Usage
from thinklsp.sessions.session import INTERRUPTED, UNDONE, Session
from thinklsp.sessions.state_folder import state_folder

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


def test_what_a_crash_leaves_can_be_continued() -> None:
    asked = Session("s", "w").with_user("One.")
    at_work = asked.with_step(CALLS, results("a", "b"), USAGE)
    done = at_work.with_step(says("Done.").message, None, USAGE)
    assert asked.recovered().conversation == ()
    assert at_work.recovered().interrupted
    assert at_work.with_user("Two.").recovered().conversation == at_work.conversation
    assert done.recovered() == done
    assert Session("s", "w").recovered() == Session("s", "w")
    for session in (asked, at_work, done):
        check_sendable(session.recovered().with_user("Next.").conversation)


def test_what_the_user_has_undone_is_told_once_with_a_prompt_that_is_answered() -> None:
    done = Session("s", "w").with_user("One.").with_step(says("Done.").message, None, USAGE).with_undo()
    asked = done.with_user("Two.")
    assert asked.conversation[-1] == UserMessage((TextBlock(UNDONE), TextBlock("Two.")))
    assert asked.cut_short() == done, "nobody has heard it"
    answered = asked.with_step(says("Yes.").message, None, USAGE)
    assert answered.with_user("Three.").conversation[-1] == UserMessage.of("Three.")
    both = answered.cut_short().with_undo().with_user("Three.")
    assert [block.text for block in both.conversation[-1].blocks] == [INTERRUPTED, UNDONE, "Three."]
    assert both.cut_short().with_user("Four.").conversation[-1].blocks[:2] == both.conversation[-1].blocks[:2]


def test_a_fork_knows_what_was_known_then() -> None:
    first = Session("s", "w", choices={"effort": "low"}).with_user("One.")
    first = first.with_step(CALLS, results("a", "b"), USAGE).with_step(says("Done.").message, None, USAGE)
    second = first.with_user("Two.").with_step(says("Again.").message, None, USAGE)
    ends = {step: len(second.forked("f", step).conversation) for step in range(4)}
    assert ends == {0: 0, 1: 3, 2: 4, 3: 6}
    fork = second.forked("f", 2)
    assert (fork.id, fork.steps, fork.usage, fork.choices, fork.title) == (
        "f",
        2,
        Usage(),
        first.choices,
        "One. (fork)",
    )
    assert second.forked("f", 1).interrupted
    assert second.forked("f").conversation == second.conversation
    for step in range(4):
        check_sendable(second.forked("f", step).with_user("Next.").conversation)
    for wrong in (-1, 4, 100):
        with pytest.raises(ValueError, match="step"):
            second.forked("f", wrong)


def test_a_fork_counts_steps_from_the_end_so_that_a_compaction_does_not_move_them() -> None:
    session = Session("s", "w")
    for number in range(5):
        session = session.with_user(f"p{number}").with_step(says(f"a{number}").message, None, USAGE)
    compacted = session.compacted((UserMessage.of("Summary."), *session.conversation[-4:]))
    assert compacted.forked("f", 4).conversation == compacted.conversation[:3]
    for gone in (0, 1, 2, 3):
        if gone:
            with pytest.raises(ValueError, match="step"):
                compacted.forked("f", gone)
    assert (compacted.steps, compacted.usage) == (5, session.usage)
    with pytest.raises(ValueError, match="begin"):
        session.compacted(session.conversation[1:])


def test_a_title_is_one_line() -> None:
    assert Session("s", "w").renamed(" a\nb ").title == "a"


@pytest.mark.parametrize("given", ["", "  ", "relative/state", "./state"])
def test_a_state_folder_that_depends_on_where_the_editor_was_started_is_not_used(given: str) -> None:
    assert state_folder({"THINKLSP_STATE_DIR": given}) == state_folder({})
    assert os.path.isabs(state_folder({}))


def test_a_state_folder_in_the_home_folder_is_found_there() -> None:
    assert state_folder({"THINKLSP_STATE_DIR": "~/x"}) == os.path.expanduser("~/x")
