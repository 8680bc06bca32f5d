"""The Vim plugin beside ALE's own lists of linters, in a real Vim without a screen."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.outside import ROOT

_ALE = Path("/usr/share/vim-ale")  # Debian's package
_FILE_TYPES = ("python", "rust", "vue", "javascript", "typescriptreact", "yaml.ansible", "markdown")


@pytest.mark.skipif(shutil.which("vim") is None or not _ALE.is_dir(), reason="Vim with ALE is not installed.")
@pytest.mark.parametrize("choice", ["", "let g:ale_linters = {'python': ['flake8']}", "let g:ale_linters_explicit = 1"])
def test_ale_uses_thinklsp_beside_the_linters_of_each_file_type(choice: str, tmp_path: Path) -> None:
    before, after = (_read_linters(choice, plugin, tmp_path) for plugin in ("", "source plugin/thinklsp.vim"))
    assert after == {filetype: sorted([*linters, "thinklsp"]) for filetype, linters in before.items()}


def _read_linters(choice: str, plugin: str, folder: Path) -> dict[str, list[str]]:
    """Return the names of the linters that ALE uses for each file type."""
    names = "{type -> map(ale#linter#Get(type), 'v:val.name')}"
    lines = [
        *(
            "set nocompatible",
            f"set runtimepath^={_ALE}",
            "filetype plugin on",
            "runtime plugin/ale.vim",
            choice,
            plugin,
        ),
        *(f"new | setfiletype {filetype}" for filetype in _FILE_TYPES),
        f"let s:Names = {names}",
        f"let s:found = map({list(_FILE_TYPES)}, {{_, type -> [type, s:Names(type)]}})",
        f"call writefile([json_encode(s:found)], '{folder}/found')",
        "qall!",
    ]
    (folder / "vimrc").write_text("\n".join(lines))
    argv = ["vim", "-n", "-es", "-u", str(folder / "vimrc"), "-i", "NONE"]
    subprocess.run(argv, cwd=ROOT / "editors/vim", stdin=subprocess.DEVNULL, check=True, timeout=30)
    return {filetype: sorted(linters) for filetype, linters in json.loads((folder / "found").read_text())}
