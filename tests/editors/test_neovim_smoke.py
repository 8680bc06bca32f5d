"""One real editor without a browser: `pytest tests/editors/test_neovim_smoke.py -n 0`, with the extra `test`.

`python -m tests.editors` tests the rest of the plugin. Both install Neovim into the same cache folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.editors.neovim import drive_smoke, find
from tests.editors.programs import default_cache
from tests.editors.steps import Step
from tests.editors.trial import play


@pytest.mark.skipif(sys.platform != "linux", reason="The trial looks for left processes in /proc.")
async def test_one_undo_takes_back_the_edit(tmp_path: Path) -> None:
    try:
        room = await find(default_cache())
    except RuntimeError as error:
        pytest.skip(f"Neovim 0.10 or newer is missing, and could not be installed from Debian: {error}")
    rows = await play("Neovim", drive_smoke, room, tmp_path)
    assert [f"{row.step}: {row.note}" for row in rows if row.outcome != "passed"] == []
    assert {Step.ATTACH, Step.EDIT, Step.UNDO} < {row.step for row in rows}
