"""The findings of a review are read from the model's list, in the forms that models write."""

from __future__ import annotations

import pytest

from thinklsp.engine.results import parse_findings
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceView

URI = "untitled:a.py"
VIEW = WorkspaceView((), [DocumentSnapshot(URI, 1, "x = 1\n")])


@pytest.mark.parametrize(
    ("line", "severity", "message"),
    [
        ("- untitled:a.py:2: error: It subtracts; add.", "error", "It subtracts; add."),
        ("* `untitled:a.py:2`: Note: Slow.", "note", "Slow."),
        ("1. **untitled:a.py:2**: **warning**: Slow.", "warning", "Slow."),
        ("- untitled:a.py:2: It subtracts.", "warning", "It subtracts."),
    ],
)
def test_a_finding(line: str, severity: str, message: str) -> None:
    [finding] = parse_findings(f"Here:\n{line}\n\nFine otherwise.", VIEW)
    assert (finding["uri"], finding["severity"], finding["message"]) == (URI, severity, message)
    assert finding["range"]["start"] == {"line": 1, "character": 0}


def test_other_lines_are_no_findings() -> None:
    assert parse_findings("All good.\n- a point\n- at 12:30 we meet\n- ../../etc/passwd:1: error: x\n", VIEW) == []
