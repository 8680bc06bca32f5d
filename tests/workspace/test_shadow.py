"""The plain copy, where a system has no overlays: what git lists, within bounds."""

import pytest

from tests.support.shadowing import tree
from thinklsp.core.errors import PathRefused
from thinklsp.workspace.paths import Root
from thinklsp.workspace.shadow import copy


def test_a_copy_holds_what_git_lists(tmp_path):
    hidden = dict.fromkeys(("b.log", "ig/x", "target/x", ".git/config", ".env", "d/id_rsa"), "")
    folder = tree(tmp_path / "ws", {".gitignore": "ig/\n*.log\ntarget/\n", "a": "a", "run": "r", **hidden})
    (folder / "run").chmod(0o755)
    (folder / "link").symlink_to("/etc/passwd")
    (tmp_path / "copy").mkdir()
    with Root(str(folder)) as root:
        copied = copy(root, str(tmp_path / "copy"))
    # Builds are made anew, for a build writes into them; what else git ignores is shown as it is.
    assert sorted(copied.left_out) == [".git", "ig"]
    files = {
        path.relative_to(tmp_path / "copy").as_posix() for path in (tmp_path / "copy").rglob("*") if path.is_file()
    }
    assert files == {".gitignore", "a", "run"}
    assert (tmp_path / "copy" / "run").stat().st_mode & 0o100
    assert (copied.files, copied.size) == (3, 20)


def test_a_copy_has_a_bound_and_an_end(tmp_path):
    folder = tree(tmp_path / "ws", {str(number): "x" * 1000 for number in range(20)})
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with Root(str(folder)) as root:
        with pytest.raises(PathRefused, match="more than 0 MB"):
            copy(root, str(tmp_path / "one"), limit=10_000)
        assert copy(root, str(tmp_path / "two"), stopped=lambda: True).files == 0
