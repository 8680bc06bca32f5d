"""Folders beside the workspace: read through the same gate, never written, and named by the user's own file alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.in_process import in_process
from tests.support.shadowing import tree
from thinklsp.agent.prompts import readable_folders, without_instructions
from thinklsp.core.errors import PathRefused, SettingsError
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.settings.user_file import UserFile
from thinklsp.workspace.extra_roots import open_extra_roots
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.paths import Root
from thinklsp.workspace.protected import ProtectedPaths
from thinklsp.workspace.relpath import RelPath
from thinklsp.workspace.view import WorkspaceFolder, WorkspaceView


@contextmanager
def beside(folder: Path, *paths: str, folders: bool = True) -> Iterator[tuple[WorkspaceView, list[str]]]:
    tree(folder, {"ws/a.py": "mine\n", "lib/b.py": "theirs\n", "lib/.env": "SECRET", "other/c": "", "ws/lib/d": "d\n"})
    with ExitStack() as stack:
        root = stack.enter_context(Root(str(folder / "ws")))
        extra, problems = open_extra_roots(paths, [root] if folders else [], ProtectedPaths())
        for each in extra:
            stack.enter_context(each)
        named = [(WorkspaceFolder((folder / "ws").as_uri(), "ws"), root)] if folders else []
        yield WorkspaceView(named, extra=extra), problems


SPELLINGS = ("lib/b.py", "../lib/b.py", "../ws/../lib/b.py", "{}/lib/b.py", "file://{}/lib/b.py")


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_file_beside_the_workspace_is_read_and_never_written(tmp_path: Path, spelling: str) -> None:
    with beside(tmp_path, str(tmp_path / "lib")) as (view, problems):
        place = view.resolve(spelling.format(tmp_path))
        found = view.read(place)
        assert (place.shown, found and found.text, problems) == ("lib/b.py", "theirs\n", [])
        overlay = EditOverlay(view)
        for attempt in (lambda: overlay.write(place, "x"), lambda: overlay.delete(place)):
            with pytest.raises(PathRefused, match="may read, not change"):
                attempt()
        assert place.root is not None
        for change in (place.root.create, place.root.replace):
            with pytest.raises(PathRefused, match="may read, not change"):
                change(RelPath.of(("new",)), b"x")


def test_the_workspace_comes_first_and_secrets_stay_secret(tmp_path: Path) -> None:
    with beside(tmp_path, str(tmp_path / "lib")) as (view, _):
        own = view.resolve("ws/lib/d")
        view.check_writable(own)
        assert [place.shown for place in view.resolve_folder(None)] == ["ws"]
        with pytest.raises(PathRefused, match="may hold secrets"):
            view.read(view.resolve("lib/.env"))
        for outside in ("../other/c", "../../x", "other/c", str(tmp_path / "other/c")):
            with pytest.raises(PathRefused):
                view.resolve(outside)


def test_without_a_workspace_folder_they_are_read_all_the_same(tmp_path: Path) -> None:
    with beside(tmp_path, str(tmp_path / "lib"), folders=False) as (view, _):
        assert view.resolve(str(tmp_path / "lib" / "b.py")).shown == "b.py"
        with pytest.raises(PathRefused):
            view.resolve("../x")


def test_a_folder_of_the_workspace_needs_no_second_name_and_a_missing_one_is_told(tmp_path: Path) -> None:
    with beside(tmp_path, str(tmp_path / "ws" / "lib"), str(tmp_path / "missing")) as (view, problems):
        assert view.extra == ()
        assert view.resolve("a.py").shown == "a.py"
        assert len(problems) == 1
        assert "does not exist" in problems[0]


def test_only_whole_paths_are_taken_from_the_file() -> None:
    assert UserFile.parse({"workspace": {"extra_roots": ["/a", "~/b"]}}).workspace.extra_roots == ("/a", "~/b")
    for wrong in ("lib", "../lib", ""):
        with pytest.raises(SettingsError, match=r"workspace\.extra_roots"):
            UserFile.parse({"workspace": {"extra_roots": [wrong]}})


def test_the_model_is_told_of_them_and_they_are_not_the_words_of_the_user() -> None:
    note = readable_folders({"lib": "/home/me/lib"})
    assert "lib/ is /home/me/lib" in note
    assert without_instructions(f"Do it.\n\n{note}") == "Do it."


async def test_the_editor_s_view_has_them(tmp_path: Path) -> None:
    tree(tmp_path, {"ws/a.py": "x", "lib/b.py": "theirs"})
    async with in_process() as editor:
        await editor.initialize(root=tmp_path / "ws")
        paths = (str(tmp_path / "lib"), str(tmp_path / "missing"))
        snapshots = Snapshots(editor.server.state, extra_roots=paths)
        for _ in range(2):
            view = snapshots.view()
            found = view.read(view.resolve("../lib/b.py"))
            assert found is not None
            assert found.text == "theirs"
        present = snapshots.present((tmp_path / "lib" / "b.py").as_uri(), snapshots.disk())
        assert "may read, not change" in (present.refusal or "")
