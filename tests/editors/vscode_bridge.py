"""What VS Code has from a server of another extension, on its way to the model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tests.editors.trial import OTHER_FILE, Trial, result_of
from tests.editors.waiting import until

if TYPE_CHECKING:
    from tests.editors.workbench import Workbench


async def another_server_is_heard(trial: Trial, window: Workbench, ask_to: Callable[[str], Awaitable[None]]) -> None:
    """For the text as it stands when the model asks, and not as it stood before. The file stays open, and changed."""
    keys = window.page.keyboard
    await window.open(OTHER_FILE)
    await window.page.locator(".squiggly-warning, .squiggly-unnecessary").first.wait_for()
    for key in ("Control+Home", "End", "Enter"):
        await keys.press(key)
    await keys.type("import sys")
    await keys.press("Escape")
    asked = len(trial.requests)
    await ask_to("what does the editor say")
    await until(lambda: len(trial.requests) > asked + 1, "the request with the tool's result")
    said = result_of(trial.requests[-1])
    assert "2 problems in 1 file, according to all servers" in said, said
    assert "line 1: warning: `os` imported but unused" in said, said
    assert "line 2: warning: `sys` imported but unused" in said, said
