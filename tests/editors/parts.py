"""The story of an edit of three files of which the user takes one: what every editor's driver asserts of it.

A driver makes the user's choice in its own way (`vscode_parts`, `neovim_own`); another way of review needs its own
choice and nothing else.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.editors.trial import OTHER_FILE, UNUSED, Trial, result_of

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


def offer_server(trial: Trial) -> Path:
    """Let the project name an MCP server. Return its program, which notes in a file `.ran` that it was started."""
    program = trial.workspace / "sky-server.py"
    program.write_text("from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\n")
    entry = {"command": sys.executable, "args": [str(program)]}
    (trial.workspace / ".mcp.json").write_text(json.dumps({"mcpServers": {"sky": entry}}))
    return program
