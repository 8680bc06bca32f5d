"""For tests that run commands: where there can be no sandbox they are skipped, and pytest's summary says why."""

from __future__ import annotations

import pytest

from thinklsp.tools.shadow_runner import sandbox_problem

_PROBLEM = sandbox_problem()
needs_sandbox = pytest.mark.skipif(_PROBLEM is not None, reason=f"NO COMMAND WAS RUN IN A SANDBOX: {_PROBLEM}")
