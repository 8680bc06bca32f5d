"""A session in the user's own words, also one that was stored before prompts kept these words."""

from __future__ import annotations

from tests.support.scripted_model import says
from thinklsp.agent.prompts import Excerpt, build_chat_prompt, list_excerpts
from thinklsp.core.messages import TextBlock, UserMessage
from thinklsp.core.usage import Usage
from thinklsp.engine.session_commands import show_user_words
from thinklsp.sessions.session import INTERRUPTED, Session

_EXCERPTS = (Excerpt("src/a.py", 3, 4, "x\ny", 9), Excerpt("b.py", 1, 1, "z", 1))
_INSTRUCTIONS = """<project_instructions>
<instructions file=AGENTS.md digest="0123456789abcdef">
Be brief.
</instructions>
</project_instructions>"""


def test_an_old_session_is_shown_without_scaffolding() -> None:
    prompt = f"{build_chat_prompt('Fix it', _EXCERPTS, 'ask')}\n\n{_INSTRUCTIONS}"
    message = UserMessage((TextBlock(INTERRUPTED), TextBlock(prompt)))
    session = Session("s", "w", conversation=(message,)).add_step(says("Done.").message, None, Usage())
    [shown] = show_user_words(session).conversation[0].blocks
    assert shown == TextBlock("Fix it")


def test_the_excerpts_of_a_prompt_are_listed() -> None:
    assert list_excerpts(build_chat_prompt("Fix a.py, lines 1-2 of 3:", _EXCERPTS, "agent")) == ["src/a.py:3-4", "b.py"]
    assert list_excerpts("No <excerpt> here.") == []
