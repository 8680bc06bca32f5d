"""Blocks and entries in files of the user: whatever the text, a removal gives back each byte or value."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinklsp.cli.setup.files import BlockPlace, EntryPlace, apply_changes, plan_change
from thinklsp.core.errors import ThinkLspError
from thinklsp.core.json_codec import find_object, parse_jsonc

ROOT = Path("/root-of-nothing")
LINES = BlockPlace(ROOT / "init.el", ";;")
TOP = BlockPlace(ROOT / "settings.json", "//", ())
CLIENTS = BlockPlace(ROOT / "LSP.sublime-settings", "//", ("clients",))
ENTRIES = EntryPlace(ROOT / "acp.json", "agents", ("env", "BY"), "us")
CONTENTS = {LINES: ('(setq a "1")', '(setq b "2")'), TOP: ('"a": 1',), CLIENTS: ('"thinklsp": {}',)}
SKELETON = b"{\n}\n"


def insert(place, data):
    """Insert the content of the place, and check that a second time changes nothing."""
    there = place.insert(data, CONTENTS[place])
    assert place.insert(there, CONTENTS[place]) == there
    return there


# Pieces that are hard: line breaks of each kind, none at the end, a byte order mark, comment signs.
PIECES = ["a", "\n", "\r\n", "\r", "\ufeff", ";;", ";; >>> other setup >>>", "ä", " ", "\t", "\x0c", "\u2028"]
texts = st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text()


@given(texts, texts)
def test_a_block_of_lines_leaves_no_trace(before, after):
    data, more = before.encode("utf-8", "replace"), after.encode("utf-8", "replace")
    there = insert(LINES, data)
    assert all(line.encode() in there for line in CONTENTS[LINES])
    assert (LINES.remove(there) or b"") == data
    # A text that is typed behind the block stays.
    there = insert(LINES, data + b"\n") + more
    assert LINES.insert(there, CONTENTS[LINES]) == there
    assert LINES.remove(there) == data + b"\n" + more


def test_a_new_file_goes_and_an_older_block_is_replaced():
    there = insert(LINES, None)
    lines = "\n".join(CONTENTS[LINES]).encode()
    assert there == b";; >>> thinklsp setup >>>\n" + lines + b"\n;; <<< thinklsp setup <<<\n"
    assert LINES.remove(there) is None
    assert LINES.remove(there + b"mine\n") == b"mine\n"
    older = there.replace(b'(setq a "1")', b"(old)").replace(b"setup >>>", b"setup, new file >>>") + b"mine\n"
    assert LINES.insert(older, CONTENTS[LINES]) == there + b"mine\n"
    with pytest.raises(ThinkLspError, match=r"init\.el has no end"):
        LINES.remove(there[:-20])


@pytest.mark.parametrize("place", [LINES, TOP])
def test_other_encodings_are_refused(place):
    with pytest.raises(ThinkLspError, match="not encoded in UTF-8"):
        place.insert("naïve\n".encode("latin-1"), CONTENTS[place])


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from(["b", "{", "//", '"', "clients", "agents"]), values, max_size=4)


@given(
    OBJECTS,
    st.sampled_from([None, 0, 2, "\t"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["", "\ufeff", "// {\n", "/* } */ "]),
    st.sampled_from(["", "\n", "\n// }"]),
)
def test_a_member_leaves_no_trace(value, indent, newline, head, tail):
    data = (head + json.dumps(value, indent=indent) + tail).replace("\n", newline).encode()
    there = insert(TOP, data)
    assert parse_jsonc(there.decode()) == value | {"a": 1}
    assert TOP.remove(there) == data
    inner = value.get("clients", {})
    if isinstance(inner, dict):
        there = insert(CLIENTS, data)
        assert parse_jsonc(there.decode()) == value | {"clients": inner | {"thinklsp": {}}}
        assert CLIENTS.remove(there) == data
    else:
        with pytest.raises(ThinkLspError, match="not valid JSON with an object"):
            insert(CLIENTS, data)


@pytest.mark.parametrize("place", [TOP, CLIENTS])
def test_json_that_is_new_or_empty(place):
    for data in (None, b"", b"  \n", SKELETON):
        there = insert(place, data)
        assert isinstance(parse_jsonc(there.decode()), dict)
        assert place.remove(there) is None
    for data in (b"{}", b"{ // nothing\n}", b'{"a b": [1, 2,],}'):
        assert place.remove(insert(place, data)) == data
    # What the editor has added in the meantime stays.
    there = insert(TOP, None).replace(b'"a": 1', b'"a": 1,').replace(b"\n}", b'\n"mine": 2\n}')
    assert parse_jsonc(there.decode()) == {"a": 1, "mine": 2}
    assert parse_jsonc(TOP.remove(there).decode()) == {"mine": 2}


@pytest.mark.parametrize("text", ["[]", "{", "1", '{"a"}', "{'a': 1}", "{}}", '"unclosed', "{} /* open"])
def test_json_that_is_not_an_object_is_refused(text):
    assert find_object(text, ()) is None
    for place, content in ((TOP, CONTENTS[TOP]), (ENTRIES, {"thinklsp": {}})):
        with pytest.raises(ThinkLspError, match="nothing was changed"):
            place.insert(text.encode(), content)


@given(OBJECTS, st.sampled_from([None, 4]))
def test_entries_are_ours_by_their_mark(value, indent):
    mine, agents = json.dumps(value, indent=indent).encode(), value.get("agents", {})
    data = mine
    if not isinstance(agents, dict):
        with pytest.raises(ThinkLspError, match="not valid JSON with an object"):
            ENTRIES.insert(data, {})
        return
    assert ENTRIES.remove(ENTRIES.insert(mine, {"a": {"command": "/a"}, "b ä": {}})) == mine
    for command in ("/first", "/moved"):
        data = ENTRIES.insert(data, {"thinklsp": {"command": command}})
        ours = {"thinklsp": {"command": command, "env": {"BY": "us"}}}
        assert json.loads(data) == value | {"agents": agents | ours}
        # Another program may write the file again, in its own format.
        again = json.dumps(json.loads(data), indent=7).encode()
        assert ENTRIES.insert(again, {"thinklsp": {"command": command}}) == again
    expected = {key: each for key, each in value.items() if key != "agents" or each}
    assert json.loads(ENTRIES.remove(data) or b"{}") == expected
    assert ENTRIES.remove(None) is None


def test_a_file_that_changed_meanwhile_is_not_overwritten(tmp_path):
    path = tmp_path / "new" / "file"
    changes = plan_change(path, lambda _: b"ours")
    path.parent.mkdir()
    path.write_bytes(b"typed in the meantime")
    with pytest.raises(ThinkLspError, match="file has changed in the meantime"):
        apply_changes(changes)
    assert path.read_bytes() == b"typed in the meantime"
