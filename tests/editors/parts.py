"""The story of an edit of three files of which the user takes one: what every editor's driver asserts of it.

A driver makes the user's choice in its own way (`vscode_parts`, `neovim_parts`); another way of review needs its own
choice and nothing else.
"""

from __future__ import annotations

from pathlib import Path

from tests.editors.trial import OTHER_FILE, UNUSED, Trial, prompt_of, result_of

FIRST, SECOND = "use decimal numbers", "count twice"
NEW_FILE = "test_tally.py"
NEW_TEXT = "def test_tally():\n    assert True\n"
DECIMAL = UNUSED.replace("import os\n", "from decimal import Decimal\n")
TWICE = UNUSED.replace("return len", "return 2 * len")
BOTH = DECIMAL.replace("return len", "return 2 * len")
WAITING = f"1 of 3 files changed; {OTHER_FILE} and {NEW_FILE} are waiting"


def new_file(trial: Trial) -> Path:
    return trial.workspace / "tests" / NEW_FILE


def nothing_phantom(trial: Trial, *, new_text: str | None) -> None:
    """What the second turn has read is on disk. `new_text`: of the new file, None if there is none."""
    read = next(result_of(request) for request in reversed(trial.requests) if "import os" in result_of(request))
    assert "Decimal" not in read, read
    assert ("does not exist" in read) == (new_text is None), read
    assert "def test_tally" not in read, read


def model_is_told(trial: Trial, instruction: str) -> None:
    """For a turn in the session of the first one."""
    asked = next(request for request in trial.requests if instruction in prompt_of(request))
    assert f"{OTHER_FILE} (1 change, at line 1)" in prompt_of(asked), prompt_of(asked)
