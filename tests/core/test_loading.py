"""Loading in several threads at once: afterwards the collector and the threads run as they did before."""

from __future__ import annotations

import gc
import sys
from contextlib import AbstractContextManager, ExitStack

import pytest

from thinklsp.core.import_context import reduce_gc, switch_threads_often


@pytest.mark.parametrize("first_to_leave", [0, 1])
def test_the_last_of_several_loads_restores_what_was_usual(first_to_leave: int) -> None:
    def usual() -> tuple[object, ...]:
        return gc.get_threshold(), sys.getswitchinterval(), gc.isenabled()

    before = usual()
    loads: list[ExitStack] = [ExitStack(), ExitStack()]
    for load in loads:
        contexts: list[AbstractContextManager[None]] = [reduce_gc(), switch_threads_often()]
        for context in contexts:
            load.enter_context(context)
    assert usual() != before
    loads.pop(first_to_leave).close()
    assert usual() != before
    loads.pop().close()
    assert usual() == before
