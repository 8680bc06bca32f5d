"""`Session` values: complete steps, stopped turns, forks, crashes and titles."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.scripted_model import check_sendable, says, tool
from thinklsp.core.messages import TextBlock, ToolResultBlock, UserMessage, UserPrompt
from thinklsp.core.usage import Usage
from thinklsp.sessions.session import INTERRUPTED, UNDONE, Session
from thinklsp.sessions.state_folder import resolve_state_folder
from thinklsp.sessions.titles import MAX_TITLE_LENGTH, derive_title

USAGE = Usage(input_tokens=3, output_tokens=2)
CALLS = says("Go.", tool("a", "read_file"), tool("b", "read_file")).message


def results(*calls: str) -> UserMessage:
    return UserMessage(tuple(ToolResultBlock(call, "x") for call in calls))


def test_a_step_is_committed_whole_or_not_at_all() -> None:
    session = Session("s", "w").add_user_message("Hello.")
    for wrong in (None, results("a"), results("a", "b", "c"), results("a", "c"), UserMessage.from_text("x")):
        with pytest.raises(ValueError, match="result"):
            session.add_step(CALLS, wrong, USAGE)
    with pytest.raises(ValueError, match="result"):
        session.add_step(says("Hi.").message, results("a"), USAGE)
    stepped = session.add_step(CALLS, results("a", "b"), USAGE).add_step(says("Done.").message, None, USAGE)
    check_sendable(stepped.add_user_message("More?").conversation)
    assert (stepped.steps, stepped.usage) == (2, Usage(input_tokens=6, output_tokens=4))
    assert (session.steps, len(session.conversation)) == (0, 1), "a transition leaves the former value alone"


def test_a_prompt_that_nothing_answered_is_taken_back() -> None:
    session = Session("s", "w").add_user_message("One.").add_step(says("Hi.").message, None, USAGE)
    cut = session.add_user_message("Two.").cut_short()
    assert cut.conversation == session.conversation
    check_sendable(cut.add_user_message("Three.").conversation)
    assert Session("s", "w").add_user_message("One.").cut_short().conversation == ()


def test_stopped_turn_is_reported_to_the_model_once() -> None:
    session = Session("s", "w").add_user_message("One.").add_step(CALLS, results("a", "b"), USAGE).cut_short()
    following = session.add_user_message("Two.")
    check_sendable(following.conversation)
    blocks = following.conversation[-1].blocks
    assert [INTERRUPTED in getattr(block, "text", "") for block in blocks] == [True, False]
    again = following.add_step(says("Yes.").message, None, USAGE).add_user_message("Three.")
    assert len(again.conversation[-1].blocks) == 1


def test_what_a_crash_leaves_can_be_continued() -> None:
    asked = Session("s", "w").add_user_message("One.")
    at_work = asked.add_step(CALLS, results("a", "b"), USAGE)
    done = at_work.add_step(says("Done.").message, None, USAGE)
    assert asked.recover().conversation == ()
    assert at_work.recover().interrupted
    assert at_work.add_user_message("Two.").recover().conversation == at_work.conversation
    assert done.recover() == done
    assert Session("s", "w").recover() == Session("s", "w")
    for session in (asked, at_work, done):
        check_sendable(session.recover().add_user_message("Next.").conversation)


def test_undo_is_reported_once_with_an_answered_prompt() -> None:
    done = Session("s", "w").add_user_message("One.").add_step(says("Done.").message, None, USAGE).mark_undone()
    asked = done.add_user_message("Two.")
    assert asked.conversation[-1] == UserMessage((TextBlock(UNDONE), TextBlock("Two.")))
    assert asked.cut_short() == done, "nobody has heard it"
    answered = asked.add_step(says("Yes.").message, None, USAGE)
    assert answered.add_user_message("Three.").conversation[-1] == UserMessage.from_text("Three.")
    both = answered.cut_short().mark_undone().add_user_message("Three.")
    assert [block.text for block in both.conversation[-1].blocks] == [INTERRUPTED, UNDONE, "Three."]
    assert both.cut_short().add_user_message("Four.").conversation[-1].blocks[:2] == both.conversation[-1].blocks[:2]


def test_a_fork_knows_what_was_known_then() -> None:
    first = Session("s", "w", choices={"effort": "low"}).add_user_message("One.")
    first = first.add_step(CALLS, results("a", "b"), USAGE).add_step(says("Done.").message, None, USAGE)
    second = first.add_user_message("Two.").add_step(says("Again.").message, None, USAGE)
    assert [len(second.fork("f", step).conversation) for step in range(4)] == [0, 3, 4, 6]
    fork = second.fork("f", 2)
    assert (fork.id, fork.steps, fork.usage) == ("f", 2, Usage())
    assert (fork.choices, fork.title) == (first.choices, "One. (fork)")
    assert second.fork("f", 1).interrupted
    assert second.fork("f").conversation == second.conversation
    for step in range(4):
        check_sendable(second.fork("f", step).add_user_message("Next.").conversation)
    for wrong in (-1, 4, 100):
        with pytest.raises(ValueError, match="step"):
            second.fork("f", wrong)


def test_fork_before_a_prompt_leaves_the_prompt_out() -> None:
    """An editor forks a session before a prompt to send a changed prompt."""
    done = Session("s", "w").add_prompt("One.", "t1").add_user_message("One.", prompt=UserPrompt("One.", "t1"))
    done = done.add_step(says("Done.").message, None, USAGE)
    stopped = done.add_prompt("Two.", "t2").add_user_message("Two.").cut_short("cancelled", partial_text="Ha")
    assert [prompt.partial_text for prompt in stopped.fork("f").prompts] == ["Ha"]
    fork = stopped.fork("f", 1)
    assert (fork.prompts, fork.conversation) == ((), done.conversation)
    assert stopped.fork("f", 0).add_prompt("Three.").title == "Three."
    joined = UserMessage((*results("a", "b").blocks, TextBlock("Three.", prompt=UserPrompt("Three.", "t3"))))
    later = done.add_user_message("Two.").add_step(CALLS, joined, USAGE).add_step(says("Yes.").message, None, USAGE)
    assert later.fork("f", 2).conversation[-1] == results("a", "b"), "a prompt that joined the turn is left out too"
    assert later.replace_conversation((UserMessage.from_text("Summary."),)).fork("f", 3).conversation


def test_a_stopped_turn_keeps_how_it_ended_and_its_text() -> None:
    running = Session("s", "w").add_prompt("One.", "t1").add_user_message("One.")
    worked = running.add_step(CALLS, results("a", "b"), USAGE)
    [prompt] = worked.cut_short("cancelled", turn_id="t1", partial_text="I have").prompts
    assert (prompt.text, prompt.partial_text, prompt.after_step, prompt.turn_id) == ("", "I have", 1, "t1")
    following = worked.cut_short("cancelled", turn_id="t1", partial_text="I have").add_user_message("Two.")
    assert "I have" not in str(following.conversation), "the model never reads it again"
    assert worked.cut_short("cancelled", turn_id="t1", partial_text="a" * 10**6).prompts[0].partial_text == "a" * 10**5
    assert worked.cut_short("cancelled", turn_id="t1").fork("f", 1).prompts[0].turn_id == "t1"


def test_fork_counts_steps_from_the_end() -> None:
    session = Session("s", "w")
    for number in range(5):
        session = session.add_user_message(f"p{number}").add_step(says(f"a{number}").message, None, USAGE)
    compacted = session.replace_conversation((UserMessage.from_text("Summary."), *session.conversation[-4:]))
    assert compacted.fork("f", 4).conversation == compacted.conversation[:3]
    for gone in (1, 2, 3):
        with pytest.raises(ValueError, match="step"):
            compacted.fork("f", gone)
    assert (compacted.steps, compacted.usage) == (5, session.usage)
    with pytest.raises(ValueError, match="begin"):
        session.replace_conversation(session.conversation[1:])


TITLES = {
    "What is in a.py?\nTell me.": "What is in a.py?",
    "\n  \n\tAfter  blank   lines\n": "After blank lines",
    "# Fix `parse()` in @src/parser.py:10-40, please": "Fix parse() in parser.py, please",
    "@src/a.py @lib/b.py:3 what differs?": "a.py b.py what differs?",
    '@"src/a b.py":1-2 what is this, and @"c\\"d"?': 'a b.py what is this, and c"d?',
    "@selection\nWhy is this slow?": "Why is this slow?",
    "Why @selection? And @diagnostics.": "Why ? And .",
    "@selection": "@selection",
    "**Why** does [this](http://x/y) return *None*?": "Why does this return None?",
    "> - [ ] 1. quoted and listed": "quoted and listed",
    "```python\nx = 1\n```\nWhat is this?": "What is this?",
    "````\n```\nx = 1\n````\nWhy?": "Why?",
    "~~~\nonly code\n~~~": "only code",
    "---\n***\nAfter a rule": "After a rule",
    "__init__.py and snake_case and 2 * 3 * 4 stay": "__init__.py and snake_case and 2 * 3 * 4 stay",
    "Mail me@example.org about #5 and -x": "Mail me@example.org about #5 and -x",
    "日本語の題名": "日本語の題名",
    "???": "???",
    "": "",
    "word " * 20: "word " * 10 + "word…",
    "x" * 61: "x" * 59 + "…",
    "x" * 80: "x" * 59 + "…",
    "x" * 60: "x" * 60,
    "Fix it.": "Fix it.",
    "\n\n  First line  \nsecond": "First line",
    " ": "",
}


@pytest.mark.parametrize("prompt", TITLES)
def test_a_title_is_the_first_line_with_words(prompt: str) -> None:
    title = TITLES[prompt]
    assert derive_title(prompt) == title
    session = Session("s", "w").add_user_message(prompt)
    assert session.title == title
    assert session.add_user_message("Another one.").title == (title or "Another one.")


@given(st.text(st.sampled_from("ab @#>-*`~[](). :/1\n\t日🙂"), max_size=120))
def test_title_is_one_short_line_and_not_empty(prompt: str) -> None:
    title = derive_title(prompt)
    assert len(title) <= MAX_TITLE_LENGTH
    assert len(title.splitlines()) == bool(prompt.strip())


def test_the_first_prompt_names_a_session_and_a_fork_can_be_told() -> None:
    session = Session("a", "w").add_user_message("Change the selected code.", "edit a.py: Make it faster.\nMuch.")
    assert session.title == "edit a.py: Make it faster."
    assert session.add_user_message("Something else.").title == session.title
    long = Session("a", "w").add_user_message("word " * 20)
    assert long.fork("b").title.endswith("… (fork)")
    assert len(long.fork("b").title) <= MAX_TITLE_LENGTH
    assert session.rename("  # as it is\nMore. ").title == "# as it is"
    assert session.rename(" a\nb ").title == "a"


@pytest.mark.parametrize("given", ["", "  ", "relative/state", "./state"])
def test_relative_state_folder_is_not_used(given: str) -> None:
    assert resolve_state_folder({"THINKLSP_STATE_DIR": given}) == resolve_state_folder({})
    assert os.path.isabs(resolve_state_folder({}))


def test_a_state_folder_in_the_home_folder_is_found_there() -> None:
    assert resolve_state_folder({"THINKLSP_STATE_DIR": "~/x"}) == os.path.expanduser("~/x")
