"""What is loaded for the suite stays loaded: the garbage collector need not walk through it after every few objects."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from thinklsp.core.loading import uncollected


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    with uncollected():
        return (yield)
