"""Our server, with a look at its event loop: what kept it busy for more than a millisecond at a stretch.

Processor time, so that it does not count what else the machine does. At the end a line for each goes to `BLOCKS`:
when, on the clock of the machine, and how many milliseconds.
"""

import asyncio
import atexit
import os
import runpy
import sys
import time

blocks: list[str] = []
run = asyncio.Handle._run


def watched(handle: asyncio.Handle) -> None:
    begun = time.thread_time_ns()
    run(handle)
    taken = time.thread_time_ns() - begun
    if taken > 1_000_000:
        blocks.append(f"{time.monotonic()} {taken / 1e6}\n")


def tell() -> None:
    with open(os.environ["BLOCKS"], "w") as file:
        file.writelines(blocks)


asyncio.Handle._run = watched  # type: ignore[method-assign] # the look at it
atexit.register(tell)
sys.argv = ["thinklsp"]
runpy.run_module("thinklsp", run_name="__main__", alter_sys=True)
