"""The parts of the agent that need no process: chunks, pages, the content of prompts and the first answer."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.support.sizes import examples
from thinklsp.acp.host import build_page
from thinklsp.acp.initialization import (
    AnnouncedFeatures,
    answer_initialize,
    build_initialize_reply,
    build_initialize_result,
)
from thinklsp.acp.params import NewSessionParams, read_prompt
from thinklsp.acp.updates import MAX_CHUNK_BYTES, build_chunks, find_tool_kind, split_chunks
from thinklsp.core.errors import PathRefused
from thinklsp.core.json_codec import encode_json
from thinklsp.core.messages import Sight
from thinklsp.core.usage import Usage
from thinklsp.jsonrpc.first_message import FirstInput
from thinklsp.jsonrpc.rpc_messages import InvalidParams
from thinklsp.sessions.session import SessionSummary
from thinklsp.tools.registry import READ_SKILL, TOOLS_WITH_COMMANDS
from thinklsp.workspace.paths import Root
from thinklsp.workspace.view import WorkspaceView

Json = Any

# Params

SERVER = {"name": "a", "command": "b"}


@pytest.mark.parametrize("servers", [[0], [SERVER | {"args": [0]}], [SERVER | {"env": [0]}]], ids=str)
def test_long_list_is_checked_until_its_first_fault(servers: list[Any]) -> None:
    """A list of 200,000 numbers kept the event loop for half a second."""
    text = json.dumps(servers).replace("[0]", str([0] * 100))
    with pytest.raises(ValidationError) as refused:
        NewSessionParams.model_validate({"cwd": "/", "mcpServers": json.loads(text)})
    assert refused.value.error_count() == 1


# Chunks

LETTERS = st.text(st.sampled_from("aé€😀\ud83d\ude00\u0301"), max_size=300)


@given(LETTERS, st.integers(4, 40))
@settings(deadline=None)
def test_chunks_join_to_the_text(text: str, limit: int) -> None:
    pieces = list(split_chunks(text, limit))
    assert "".join(pieces) == text
    assert all(pieces)
    assert all(len(piece.encode("utf-8", "surrogatepass")) <= limit for piece in pieces)


def test_chunks_of_nothing_are_none() -> None:
    assert list(build_chunks("agent_message_chunk", "", "m")) == []
    [update] = build_chunks("agent_message_chunk", "a" * MAX_CHUNK_BYTES, "m")
    assert update["messageId"] == "m"


# Tools


def test_every_tool_has_a_kind() -> None:
    others = {tool.name for tool in (*TOOLS_WITH_COMMANDS, READ_SKILL) if find_tool_kind(tool.name) == "other"}
    assert others == {"ask_user", "plan"}, "add the tool to `_TOOL_KINDS` in thinklsp/acp/updates.py"


# Pages

START = datetime(2026, 1, 1, tzinfo=UTC)


def summary(number: int, seconds: int, workspace: str = "file:///w") -> SessionSummary:
    time = START + timedelta(microseconds=seconds)
    return SessionSummary(f"{number:032x}", "title", workspace, "", 1, 2, 3, time, time, Usage())


@given(st.lists(st.integers(0, 5), max_size=170))
@settings(deadline=None, max_examples=examples(30))
def test_pages_show_each_session_once_and_newest_first(times: list[int]) -> None:
    """Many sessions have the same time."""
    rows = [summary(number, seconds) for number, seconds in enumerate(times)]
    shown: list[str] = []
    cursor: str | None = None
    for _ in range(len(rows) + 1):
        page = build_page(rows, cursor)
        shown += [entry["sessionId"] for entry in page["sessions"]]
        cursor = page.get("nextCursor")
        if cursor is None:
            break
        assert page["sessions"]
    assert cursor is None
    newest = sorted(rows, key=lambda row: (row.updated, row.id), reverse=True)
    assert shown == [row.id for row in newest]


@pytest.mark.parametrize("cursor", ["", "nonsense", "2026"])
def test_cursor_of_another_kind_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidParams):
        build_page([summary(1, 1)], cursor)


# Prompts


@contextmanager
def view_of(folder: Path) -> Iterator[WorkspaceView]:
    with Root(str(folder)) as root:
        yield WorkspaceView([root])


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def link(uri: str) -> Json:
    return {"type": "resource_link", "uri": uri, "name": "name"}


def embedded(uri: str, words: str) -> Json:
    return {"type": "resource", "resource": {"uri": uri, "text": words}}


CONTENT: dict[str, tuple[list[Json], str]] = {
    "nothing": ([], ""),
    "text": ([text("fix it")], "fix it"),
    "texts": ([text("fix"), text(" it")], "fix it"),
    "paragraphs": ([text("Use a.py"), text("What is x?"), text("\nWhy?")], "Use a.py\n\nWhat is x?\nWhy?"),
    "file": ([text("fix "), link("file://ROOT/a.py"), text("now")], "fix @a.py now"),
    "file behind a word": ([text("fix"), link("file://ROOT/a.py")], "fix @a.py "),
    "file behind an empty text": ([text("fix"), text(""), link("file://ROOT/a.py")], "fix @a.py "),
    "file with a space": ([link("file://ROOT/b%20c.py")], '@"b c.py" '),
    "two files": ([link("file://ROOT/a.py"), link("file://ROOT/a.py")], "@a.py @a.py "),
    "missing file": ([link("file://ROOT/no.py")], "no.py "),
    "folder": ([link("file://ROOT/sub")], "sub "),
    "file outside": ([link("file:///etc/hosts")], "/etc/hosts "),
    "other scheme": ([link("zed:///thread/1")], "zed:///thread/1 "),
    "address": ([link("https://example.com/a")], "https://example.com/a "),
    "protected link": ([link("file://ROOT/.env")], "@.env "),
    "embedded": ([text("see"), embedded("file://ROOT/a.py", "x = 1\n")], "see a.py "),
    "lone surrogate": ([text("a\ud800b")], "a\ufffdb"),
}


@pytest.mark.parametrize("name", CONTENT)
def test_content_of_a_prompt(tmp_path: Path, name: str) -> None:
    for file in ("a.py", "b c.py", ".env"):
        (tmp_path / file).write_text("x = 1\n")
    (tmp_path / "sub").mkdir()
    blocks, expected = CONTENT[name]
    blocks = json.loads(json.dumps(blocks).replace("ROOT", str(tmp_path)))
    with view_of(tmp_path) as view:
        assert read_prompt(blocks, view).text == expected


@pytest.mark.parametrize("uri", ["file://ROOT/a.py", "file://ROOT/a.py#L1:2", "zed:///agent/selection?path=a.py"])
@pytest.mark.parametrize("is_whole", [True, False])
def test_embedded_text_shows_a_file_only_if_it_is_the_file(tmp_path: Path, uri: str, is_whole: bool) -> None:
    """Clients also embed selections, under the address of the file."""
    (tmp_path / "a.py").write_text("x = 1\ny = 2\n")
    with view_of(tmp_path) as view:
        words = "x = 1\r\ny = 2\r\n" if is_whole else "x = 1\n"
        [excerpt] = read_prompt([embedded(uri.replace("ROOT", str(tmp_path)), words)], view).attachments
        sight = Sight(excerpt.sight)
        key = view.resolve("a.py").key
        assert sight.knows_whole(key, "x = 1\ny = 2\n") == (is_whole and uri.endswith("a.py") and "file" in uri)
        assert bool(sight.files) == (sight.find(key) is not None)


@pytest.mark.parametrize("uri", ["file://ROOT/.env", "file:///elsewhere/.env", "file://ROOT/.ssh/id_rsa"])
def test_text_of_a_protected_file_is_refused(tmp_path: Path, uri: str) -> None:
    """Clients embed the text of a mentioned file. It may contain secrets just as the file on disk."""
    with view_of(tmp_path) as view, pytest.raises(PathRefused, match="may contain secrets"):
        read_prompt([embedded(uri.replace("ROOT", str(tmp_path)), "KEY=1")], view)


@pytest.mark.parametrize(
    "block",
    [
        {"type": "audio", "data": "", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///a", "blob": ""}},
        {"type": "text", "text": 7},
        None,
    ],
)
def test_block_that_cannot_be_used_is_named(tmp_path: Path, block: Json) -> None:
    with view_of(tmp_path) as view, pytest.raises(InvalidParams, match=r"`prompt\.1` is not valid content"):
        read_prompt([text("a"), block], view)


# The first answer

MALFORMED: list[Json] = [
    {},
    {"clientCapabilities": "all"},
    {"clientCapabilities": {"fs": 3, "terminal": "yes", "session": [], "auth": None, "elicitation": 1}},
    {"clientCapabilities": {"fs": {"readTextFile": "yes", "writeTextFile": None}}},
    {"clientCapabilities": None, "unknown": {"a": 1}},
]


@pytest.mark.parametrize("params", MALFORMED)
def test_malformed_features_count_as_absent(params: Json) -> None:
    assert not any(vars(AnnouncedFeatures(params)).values())


ORDINARY = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}


def exchange(*pieces: bytes) -> tuple[FirstInput, bytes]:
    """Answer an input that comes in one write and then ends; return what is left, and the answer."""
    ends = [*os.pipe(), *os.pipe()]
    try:
        os.write(ends[1], b"".join(pieces))
        os.close(ends.pop(1))
        first = answer_initialize(ends[0], ends[2])
        os.close(ends.pop(2))
        return first, os.read(ends[1], 1 << 16)
    finally:
        for descriptor in ends:
            os.close(descriptor)


def test_first_answer_is_that_of_the_whole_agent() -> None:
    """`tests/lsp/test_greeting.py` has the lines that are answered at once."""
    reply = build_initialize_reply(json.dumps(ORDINARY).encode())
    result = build_initialize_result(AnnouncedFeatures({}))
    assert reply == encode_json({"jsonrpc": "2.0", "id": 0, "result": result})
    for version in (None, -1, 65_536, "1", True):
        assert build_initialize_reply(json.dumps(ORDINARY | {"params": {"protocolVersion": version}}).encode()) is None


def test_input_is_handed_on_with_the_answered_request() -> None:
    line = json.dumps(ORDINARY).encode()
    first, reply = exchange(line, b"\r\n", b'{"jsonrpc":"2.0"')
    assert (first.data, first.is_answered) == (line + b"\r\n" + b'{"jsonrpc":"2.0"', True)
    assert reply == (build_initialize_reply(line) or b"") + b"\n"
