"""Tests on a shadow of a large workspace: 20,000 files, of which not one is touched."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.e2e.conformance.slow.test_verified import BUFFER, DISK, EDIT, TESTS, TESTS_ON_DISK, config, state
from tests.support.outside import start
from tests.support.shadowing import needs_sandbox
from tests.support.signing_server import Text, Thinking, answer

pytestmark = [needs_sandbox, pytest.mark.kernel, pytest.mark.timing]

FOLDERS, FILES = 200, 100


async def test_a_fix_is_verified_in_a_tree_of_20_000_files(tmp_path: Path) -> None:
    files = {"app.py": DISK, "test_app.py": TESTS_ON_DISK}
    files |= {f"lib/p{n}/m{m}.py": f"VALUE = {m}\n" * 40 for n in range(FOLDERS) for m in range(FILES)}
    outside = await start(
        tmp_path,
        answer(Thinking(), EDIT),
        answer(Text("Doubled.")),
        files=files,
        env={"THINKLSP_CONFIG": str(config(tmp_path))},
    )
    try:
        uri = outside.open("app.py", BUFFER)
        outside.open("test_app.py", TESTS)
        before = state(outside.root)
        began = time.monotonic()
        result = await outside.turn("thinklsp.chat", {"prompt": "Make it double.", "uri": uri})
        took = time.monotonic() - began
        assert result["verified"] == {"command": "python3 -m unittest", "passed": 2, "failed": 0}
        assert outside.client.text(uri) == BUFFER.replace("add(a, 1)", "add(a, a)")
        assert state(outside.root) == before
        assert took < 30
    finally:
        await outside.stop()
