"""thinklsp with a log of event loop callbacks that take more than a millisecond.

Processor time is measured, so that other load on the machine does not count. Each line in the file `BLOCKS` contains
the monotonic time and the duration in milliseconds.
"""

import asyncio
import os
import runpy
import sys
import time

blocks = open(os.environ["BLOCKS"], "w", buffering=1)  # noqa: SIM115 - open until the process ends
run = asyncio.Handle._run


def watched(handle: asyncio.Handle) -> None:
    begun = time.thread_time_ns()
    run(handle)
    taken = time.thread_time_ns() - begun
    if taken > 1_000_000:
        blocks.write(f"{time.monotonic()} {taken / 1e6}\n")


asyncio.Handle._run = watched  # type: ignore[method-assign] # measures each callback
sys.argv = ["thinklsp"]
runpy.run_module("thinklsp", run_name="__main__", alter_sys=True)
