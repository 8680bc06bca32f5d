"""File URIs are taken strictly and compared whatever their spelling."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinklsp.core.errors import PathRefused
from thinklsp.workspace.paths import compute_workspace_key
from thinklsp.workspace.uri import normalize_uri, path_to_uri, uri_to_path

REFUSED = [
    "file://evil/share/x", "file:////evil/x", "file://evil.example/x", "file:////x", "file://127.0.0.1/x",
    "file:///ws/%2e%2e/x", "file:///ws/../x", "file:///ws/..%2fx", "file:///ws/.%2e/x", "file:///ws/%2E./x",
    "file:///a%00b", "file:///a\0b", "file:///a%5Cb", "file:///a%5cb", "file:///a\\b", "file:///..\\x",
    "file:///a?query", "file:///a#fragment", "file:///a%3", "file:///a%zz", "file:///100%",
    "file:relative", "file:", "file://", "file://host", "FILE:///x", "File:///x", "http://x/y", "untitled:Untitled-1",
    "git:/x", "", "/plain/path", "vscode-remote://ssh/x", "file://user@localhost/x", "file://localhost:80/x",
    "file:///\ud800", "file:///a\udfff%20b",
]  # fmt: skip

TAKEN = {
    "file:///": "/",
    "file:///a/b": "/a/b",
    "file:/a/b": "/a/b",
    "file://localhost/a": "/a",
    "file:///a//b/": "/a/b",
    "file:///a/./b": "/a/b",
    "file:///a%20b": "/a b",
    "file:///%E2%82%AC": "/€",
    "file:///€": "/€",
    "file:///a%253F": "/a%3F",
    "file:///...": "/...",
    "file:///a%3Fb%23c": "/a?b#c",
}

SAME = [
    ("file:///a%20b", "file:///a b"),
    ("file:///C%3A/x", "file:///C:/x"),
    ("file:///%61", "file:///a"),
    ("file://localhost/x", "file:///x"),
    ("file:/x", "file:///x"),
    ("file:///%e2%82%ac", "file:///%E2%82%AC"),
    ("file:///x@y+z(1)", "file:///x%40y%2Bz%281%29"),
    ("untitled:a%7Eb", "untitled:a~b"),
    ("Untitled:1", "untitled:1"),
]

DIFFERENT = [
    ("file:///a", "file:///A"),
    ("file:///a", "file:///a.b"),
    ("untitled:a%2Fb", "untitled:a/b"),
    ("file:///a%2Fb", "file:///a/b"),
    ("untitled:1", "file:///1"),
]


@pytest.mark.parametrize("uri", REFUSED)
def test_hostile_or_foreign_uris_are_refused(uri):
    with pytest.raises(PathRefused, match=r"\.$"):
        uri_to_path(uri)
    assert isinstance(normalize_uri(uri), str)


@pytest.mark.parametrize("uri", TAKEN)
def test_plain_uris_give_a_clean_absolute_path(uri):
    assert uri_to_path(uri) == TAKEN[uri]


@pytest.mark.parametrize(("a", "b"), [*SAME, *DIFFERENT])
def test_only_spellings_of_one_uri_have_one_key(a, b):
    assert (normalize_uri(a) == normalize_uri(b)) is ((a, b) in SAME)


component = st.binary(min_size=1, max_size=12)
names = component.filter(lambda name: not set(name) & set(b"/\0\\") and name not in (b".", b".."))


@given(st.lists(names, max_size=5))
def test_every_path_survives_the_way_there_and_back(parts):
    path = os.fsdecode(b"/" + b"/".join(parts))
    uri = path_to_uri(path)
    assert uri.isascii()
    assert uri_to_path(uri) == path
    assert normalize_uri(uri) == uri


@given(st.text())
def test_the_key_of_anything_exists_and_is_stable(uri):
    assert normalize_uri(normalize_uri(uri)) == normalize_uri(uri)


@given(st.text(alphabet="./%25eE2fF5cC0\\a:#?é\0", max_size=20))
def test_no_accepted_uri_climbs(rest):
    try:
        path = uri_to_path("file:///" + rest)
    except PathRefused:
        return
    assert path.startswith("/")
    assert "\0" not in path
    assert os.path.normpath(path) == path


def test_a_folder_has_one_key_however_it_is_spelled(tmp_path):
    (tmp_path / "ws").mkdir()
    (tmp_path / "link").symlink_to("ws")
    plain = (tmp_path / "ws").as_uri()
    for uri in (plain, f"{plain}/", (tmp_path / "link").as_uri(), plain.replace("ws", "%77s")):
        assert compute_workspace_key(uri) == plain
    # What is no folder here has the key of its URI.
    for uri in ("vscode-remote://host/ws", "file://host/ws", "untitled:x"):
        assert compute_workspace_key(uri) == normalize_uri(uri)
