"""Exports contain every text and no opaque state."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime

import pytest

from tests.support.stored_sessions import EVERY_KIND, SECRET, USAGE, answer, full_session
from thinklsp.core.messages import AssistantMessage, ToolResultBlock, ToolUseBlock, UserMessage
from thinklsp.sessions.codec import reveal_content
from thinklsp.sessions.export import MAX_RESULT_CHARS, to_json, to_markdown
from thinklsp.sessions.session import Session, SessionSummary

SESSION = full_session(Session("0123", "w"))
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
SUMMARY = SessionSummary("0123", "First prompt.", "w", "claude", 2, 4, 99, NOW, NOW, USAGE)


@pytest.mark.parametrize("export", [to_markdown, to_json])
def test_nothing_that_is_sealed_is_in_an_export(export: object) -> None:
    for thinking in (False, True):
        text = export(SESSION, SUMMARY, thinking=thinking)  # type: ignore[operator]  # one of two functions
        assert SECRET not in text
        assert SECRET[10:34] not in text
        assert ("A summary." in text) == thinking
        text.encode()


def test_markdown_reads_as_a_conversation() -> None:
    text = to_markdown(SESSION, SUMMARY)
    parts = ("# First prompt.", "model claude", "## You\n\nFirst prompt.\nMore.", "## thinklsp", "An answer ?")
    places = [text.index(part) for part in (*parts, "Called `read_file`", '"path": "a.py"', "Error:", "The end.")]
    assert places == sorted(places)
    assert "could not be parsed" in text


def test_results_are_cut_and_cannot_break_out_of_their_fence() -> None:
    call = AssistantMessage((ToolUseBlock("a", "read_file", {}),), "tool_use")
    results = UserMessage((ToolResultBlock("a", "````\n# Not a heading\n" + "x" * 10_000),))
    session = Session("s", "w").add_user_message("Go.").add_step(call, results, USAGE)
    text = to_markdown(session.add_step(answer("End."), None, USAGE))
    assert "\n`````\n````\n# Not" in text
    assert len(text) < MAX_RESULT_CHARS + 500
    assert "6,021 more characters" in text
    assert text.count("## You") == 1


def test_json_names_what_is_sealed_by_digest_and_length() -> None:
    data = json.loads(to_json(SESSION, SUMMARY))
    blocks = data["messages"][1]["blocks"]
    assert [block["kind"] for block in blocks] == [block.kind for block in EVERY_KIND.blocks]
    for shown, block in zip(blocks, EVERY_KIND.blocks, strict=True):
        raw = getattr(block, "raw", None)
        assert ("opaque" in shown) == (raw is not None)
        if raw is not None:
            sealed = reveal_content(raw)
            assert shown["opaque"]["sha256"] == hashlib.sha256(sealed).hexdigest()
            assert shown["opaque"]["length"] == len(sealed)
    assert (data["title"], data["steps"], data["choices"]["effort"]) == ("First prompt.", 2, "high")
    assert data["messages"][2]["blocks"][0] == {"kind": "tool_result", "id": "a", "is_error": False, "text": "text"}
    assert data["messages"][0]["blocks"][0]["text"] == "First prompt.\nMore."


def test_an_empty_session_can_be_exported() -> None:
    assert to_markdown(Session("s", "w")).startswith("# Session")
    assert json.loads(to_json(Session("s", "w")))["messages"] == []
