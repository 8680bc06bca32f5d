"""Blocks in files of the user: whatever the text, a removal gives back each byte."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinklsp.cli.setup.blocks import Block, BrokenBlock, ConfigPlace, insert_block, remove_block
from thinklsp.core.errors import ThinkLspError
from thinklsp.core.json_codec import find_object, parse_jsonc

ROOT = Path("/root-of-nothing")
LINES = Block(ConfigPlace(ROOT / "init.el", ROOT, ";;"), ('(setq a "1")', '(setq b "2")'))
TOP = Block(ConfigPlace(ROOT / "settings.json", ROOT, "//", ()), ('"a": 1',))
CLIENTS = Block(ConfigPlace(ROOT / "LSP.sublime-settings", ROOT, "//", ("clients",)), ('"thinklsp": {}',))

# Pieces that are hard: line breaks of each kind, none at the end, a byte order mark, comment signs.
PIECES = ["a", "\n", "\r\n", "\r", "\ufeff", ";;", ";; >>> other setup >>>", "ä", " ", "\t", "\x0c", "\u2028"]
texts = st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text()


@given(texts)
def test_a_block_of_lines_leaves_no_trace(text):
    data = text.encode("utf-8", "replace")
    there = insert_block(data, LINES)
    assert remove_block(there, LINES.place) == data
    assert insert_block(there, LINES) == there
    assert all(line.encode() in there for line in LINES.lines)


@given(texts, texts)
def test_a_text_after_the_block_stays(before, after):
    data, more = before.encode("utf-8", "replace"), after.encode("utf-8", "replace")
    there = insert_block(data + b"\n", LINES) + more
    assert remove_block(there, LINES.place) == data + b"\n" + more
    assert insert_block(there, LINES) == there


def test_a_new_file_goes_and_an_empty_one_stays():
    there = insert_block(None, LINES)
    assert there == b";; >>> thinklsp setup, new file >>>\n" + "\n".join(LINES.lines).encode() + (
        b"\n;; <<< thinklsp setup <<<\n"
    )
    assert remove_block(there, LINES.place) is None
    assert remove_block(insert_block(b"", LINES), LINES.place) == b""
    assert remove_block(there + b"mine\n", LINES.place) == b"mine\n"
    assert insert_block(there, LINES) == there


@pytest.mark.parametrize("text", ["a\r\nb\r\n", "a\r\nb", "\r\na"])
def test_a_block_has_the_line_breaks_of_its_file(text):
    there = insert_block(text.encode(), LINES)
    assert there.count(b"\n") == there.count(b"\r\n")
    assert remove_block(there, LINES.place) == text.encode()


def test_an_older_block_is_replaced_where_it_is():
    older = Block(LINES.place, ("(old)",))
    there = insert_block(b"first\n", older) + b"last"
    assert insert_block(there, LINES) == insert_block(b"first\n", LINES) + b"last"
    new = insert_block(insert_block(None, older) + b"mine\n", LINES)
    assert b"new file" in new
    assert remove_block(new, LINES.place) == b"mine\n"


def test_a_block_without_an_end_is_named():
    there = insert_block(b"first\n", LINES)[:-20]
    with pytest.raises(BrokenBlock, match=r"init\.el has no end"):
        remove_block(there, LINES.place)


@pytest.mark.parametrize("block", [LINES, TOP])
def test_other_encodings_are_refused(block):
    with pytest.raises(ThinkLspError, match="not encoded in UTF-8"):
        insert_block("naïve\n".encode("latin-1"), block)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["b", "{", "//", '"', "clients"]), values, max_size=4),
    st.sampled_from([None, 0, 2, "\t"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["", "\ufeff", "// {\n", "/* } */ "]),
    st.sampled_from(["", "\n", "\n// }"]),
)
def test_a_member_leaves_no_trace(value, indent, newline, head, tail):
    text = (head + json.dumps(value, indent=indent) + tail).replace("\n", newline)
    data = text.encode()
    added = {"a": 1}
    there = insert_block(data, TOP)
    assert parse_jsonc(there.decode()) == value | added
    assert insert_block(there, TOP) == there
    assert remove_block(there, TOP.place) == data
    inner = value.get("clients", {})
    if isinstance(inner, dict):
        there = insert_block(data, CLIENTS)
        assert parse_jsonc(there.decode()) == value | {"clients": inner | {"thinklsp": {}}}
        assert remove_block(there, CLIENTS.place) == data
    else:
        with pytest.raises(ThinkLspError, match="not valid JSON with an object"):
            insert_block(data, CLIENTS)


@pytest.mark.parametrize("block", [TOP, CLIENTS])
def test_json_that_is_new_or_empty(block):
    there = insert_block(None, block)
    assert isinstance(parse_jsonc(there.decode()), dict)
    assert insert_block(there, block) == there
    assert remove_block(there, block.place) is None
    for empty in (b"", b"  \n", b"{}", b"{ // nothing\n}", b'{"a b": [1, 2,],}'):
        there = insert_block(empty, block)
        assert isinstance(parse_jsonc(there.decode()), dict)
        assert insert_block(there, block) == there
        assert remove_block(there, block.place) == empty
    # What the editor has added in the meantime stays.
    there = insert_block(None, TOP).replace(b'"a": 1', b'"a": 1,').replace(b"\n}", b'\n"mine": 2\n}')
    assert parse_jsonc(there.decode()) == {"a": 1, "mine": 2}
    assert parse_jsonc(remove_block(there, TOP.place).decode()) == {"mine": 2}


@pytest.mark.parametrize("text", ["[]", "{", "1", '{"a"}', "{'a': 1}", "{}}", '"unclosed', "{} /* open"])
def test_json_that_is_not_an_object_is_refused(text):
    assert find_object(text, ()) is None
    with pytest.raises(ThinkLspError, match="nothing was changed"):
        insert_block(text.encode(), TOP)
