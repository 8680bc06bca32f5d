"""Our server, with a look at its event loop: what kept it busy for more than a millisecond at a stretch.

Processor time, so that it does not count what else the machine does. A line for each goes to the file `BLOCKS`: when,
on the clock of the machine, and how many milliseconds.
"""

import asyncio
import os
import runpy
import sys
import time

blocks = open(os.environ["BLOCKS"], "w", buffering=1)  # noqa: SIM115 - to the end of the process
run = asyncio.Handle._run


def watched(handle: asyncio.Handle) -> None:
    begun = time.thread_time_ns()
    run(handle)
    taken = time.thread_time_ns() - begun
    if taken > 1_000_000:
        blocks.write(f"{time.monotonic()} {taken / 1e6}\n")


asyncio.Handle._run = watched  # type: ignore[method-assign] # the look at it
sys.argv = ["thinklsp"]
runpy.run_module("thinklsp", run_name="__main__", alter_sys=True)
