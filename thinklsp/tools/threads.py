"""Work of tools in threads, few at once: Python runs one of them at a time, and each more keeps the event loop waiting
longer for its turn. What waits for something else than Python, such as a name or a program, does not belong here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

_AT_ONCE = 2
# One for the process, whatever it serves: it keeps nothing of anybody's. Its threads begin with the first work.
_pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="thinklsp-tools")

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


async def in_thread(work: Callable[Given, Answer], *args: Given.args, **named: Given.kwargs) -> Answer:
    """As `asyncio.to_thread`. A call that is cancelled before its turn never begins."""
    return await asyncio.get_running_loop().run_in_executor(_pool, partial(work, *args, **named))


_FEW_CHARACTERS = 10_000


async def in_thread_if_long(
    length: int, work: Callable[Given, Answer], *args: Given.args, **named: Given.kwargs
) -> Answer:
    """As `in_thread`, but here and now for few characters: a microsecond for each keeps nobody waiting."""
    return work(*args, **named) if length <= _FEW_CHARACTERS else await in_thread(work, *args, **named)
