"""Whether the test itself has passed, for fixtures that judge the rest at its end. `tests/conftest.py` notes it."""

from __future__ import annotations

import pytest

PASSED = pytest.StashKey[bool]()
