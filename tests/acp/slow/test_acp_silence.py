"""Clients that do not answer: reads fall back to the disk, and nothing is written without a yes.

The seconds of the agent are shorter than ours.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.acp.client import NoAnswer
from tests.acp.conftest import Begin
from tests.acp.fake_zed import Avante, Silent
from tests.e2e.acting import edit_file, read_file, say
from tests.support.epilogue import clock
from tests.support.outside import said
from tests.support.signing_server import answer

Json = Any
FILES = {"a.py": "x = 1\n"}
FAST = {"nursery": None, "files": FILES}


def unanswered(_: Json) -> Json:
    raise NoAnswer


@pytest.mark.timing
async def test_read_falls_back_to_the_disk(begin: Begin) -> None:
    talk = await begin(answer(read_file("a.py")), say("1."), env=clock(20), peer=Silent, **FAST)
    assert await talk.prompt("What is x?") == "end_turn"
    assert "x = 1" in said(talk.provider.requests[1].body)
    talk.outside.told()


@pytest.mark.timing
async def test_question_without_an_answer_rejects(begin: Begin) -> None:
    """Ten minutes of the agent."""
    talk = await begin(answer(edit_file("a.py", "1", "2")), say("Done."), env=clock(200), **FAST)
    talk.peer.handlers["session/request_permission"] = unanswered
    assert await talk.prompt("Two.") == "end_turn"
    assert talk.peer.writes == []
    assert talk.edit_statuses() == ["failed"]
    assert talk.outside.told()


@pytest.mark.timing
async def test_write_without_an_answer_is_not_done(begin: Begin) -> None:
    talk = await begin(answer(edit_file("a.py", "1", "2")), say("Done."), env=clock(50), **FAST)
    talk.peer.handlers["fs/write_text_file"] = unanswered
    assert await talk.prompt("Two.") == "end_turn"
    assert (talk.root / "a.py").read_text() == "x = 1\n"
    assert "completed" not in talk.edit_statuses()
    talk.outside.told()


@pytest.mark.timing
async def test_write_that_only_the_disk_has_is_in_doubt(begin: Begin) -> None:
    script = [answer(edit_file("a.py", "1", "2")), say("Done.")]
    talk = await begin(*script, env=clock(50), peer=Avante, **FAST)
    talk.peer.open("a.py", "# not saved\nx = 1\n")
    assert await talk.prompt("Two.") == "end_turn"
    assert (talk.root / "a.py").read_text() == "# not saved\nx = 2"
    assert "Note: a.py may have been changed: the file on disk has the edit, but the editor shows" in talk.text
    assert talk.edit_statuses() == ["failed"]
    talk.outside.told()
