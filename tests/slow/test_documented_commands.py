"""Commands of README.md and docs/ that need no network, in one folder with the offline model."""

from __future__ import annotations

import pytest

from tests.test_documentation import RUN, shell  # noqa: F401 - a fixture


def test_the_commands_work(request: pytest.FixtureRequest) -> None:
    run = request.getfixturevalue("shell")
    known = ""
    for command in RUN:
        if "3f9c" in command:
            known = known or run("thinklsp sessions list --json | python -c 'import json, sys; "
            'print(json.load(sys.stdin)[0]["sessionId"][:6])\'').strip()  # fmt: skip
        # Nobody is there to say yes.
        yes = " --yes" if command.startswith("thinklsp sessions delete") else ""
        shown = run(command.replace("3f9c", known) + yes)
        if command.startswith("thinklsp ask"):
            assert shown.strip()
