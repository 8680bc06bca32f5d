"""The long texts that a session keeps in files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from thinklsp.core.tool_type import is_kept_path
from thinklsp.sessions import store_folder
from thinklsp.sessions.sqlite_store import MemoryStore, SqliteStore
from thinklsp.sessions.store_folder import KeptTexts

TEXT = "a\nb\ud800"


def test_text_is_read_only_in_its_session(tmp_path: Path) -> None:
    texts = KeptTexts(str(tmp_path / "texts"))
    path = texts.keep("one", TEXT)
    assert path is not None
    assert is_kept_path(path)
    assert texts.read("one", path) == "a\nb?"
    assert texts.read("two", path) is None
    assert texts.read("one", "result:00000000") is None
    files = list((tmp_path / "texts").rglob("*"))
    assert {entry.stat().st_mode & 0o077 for entry in files} == {0}
    texts.forget("one")
    assert texts.read("one", path) is None
    assert not (tmp_path / "texts" / "one").exists()


@pytest.mark.parametrize("path", ["result:../../x", "result:", "result:0000000g", "x", "../one/00000000"])
def test_other_paths_are_no_kept_texts(tmp_path: Path, path: str) -> None:
    (tmp_path / "x").write_text("secret")
    assert KeptTexts(str(tmp_path / "texts")).read("one", path) is None


@pytest.mark.parametrize("session", ["", "..", "a/b", "a\n", "x" * 101])
def test_no_session_is_outside_of_the_folder(tmp_path: Path, session: str) -> None:
    texts = KeptTexts(str(tmp_path))
    assert texts.keep(session, "x") is None
    texts.forget(session)
    assert tmp_path.exists()


def test_oldest_texts_make_room(tmp_path: Path) -> None:
    texts = KeptTexts(str(tmp_path))
    third = "x" * (store_folder.MAX_SESSION_BYTES // 3)
    paths = []
    for number in range(5):
        path = texts.keep("one", third)
        assert path is not None
        paths.append(path)
        os.utime(tmp_path / "one" / path.removeprefix("result:"), (number, number))
    assert [texts.read("one", path) is not None for path in paths] == [False, False, True, True, True]
    assert texts.keep("one", "x" * (store_folder.MAX_SESSION_BYTES + 1)) is None


def test_without_a_folder_no_text_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert KeptTexts(None).keep("one", "x") is None
    assert KeptTexts(str(tmp_path / "file" / "texts")).keep("one", "x") is None


async def test_text_is_deleted_with_its_session(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path))
    session = await store.create("file:///w")
    await store.update(session.id, lambda session: session.add_prompt("Hello.", "t"))
    path = store.kept_texts.keep(session.id, "x")
    assert path is not None
    assert store.kept_texts.read(session.id, path) == "x"
    await store.delete(session.id, "file:///w")
    assert store.kept_texts.read(session.id, path) is None
    await store.aclose()
    assert MemoryStore().kept_texts.keep(session.id, "x") is None
