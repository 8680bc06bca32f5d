"""Cancelling in every phase of a turn, by clients that answer their open request at once, late or never."""

from __future__ import annotations

import asyncio
import time
from typing import get_args

import pytest

from tests.acp.conftest import Begin
from tests.acp.slow.test_acp_cancel import FILES, MAX_SECONDS, check_goes_on
from tests.acp.talk import Talk
from tests.acp.turn_phases import COMMANDS, NEW, OLD, PHASES, Way, reach
from tests.slow.running import Tally, spread
from tests.slow.running import say as write_line
from tests.support.shadowing import PROBLEM
from tests.support.watching import HANG_SECONDS

pytestmark = pytest.mark.timing


# A client that reports no cancel of a write has written.
WRITTEN = {("writing", "as the protocol says"), ("writing", "late")}


async def cancel_in(talk: Talk, name: str, way: Way) -> float:
    """Cancel in a phase; the client treats its open request in this way. Return the seconds to the end of the turn."""
    reached = await reach(talk, name, way)
    begun = time.monotonic()
    talk.client.cancel(talk.session)
    if reached.held is not None and way == "as the protocol says":
        reached.held.release()
    assert (await reached.running)["stopReason"] == "cancelled"
    took = time.monotonic() - begun
    assert took < MAX_SECONDS
    if reached.held is not None and way == "late":
        reached.held.release()
        async with asyncio.timeout(HANG_SECONDS):
            await reached.held.answered.wait()
    reached.hold.release()
    await check_goes_on(talk)
    assert (talk.root / "a.py").read_text() == (NEW if (name, way) in WRITTEN else OLD)
    await check_undo(talk, is_written=(name, way) in WRITTEN)
    return took


async def check_undo(talk: Talk, *, is_written: bool) -> None:
    """The agent knows whether the edit is in the file."""
    assert await talk.prompt("/undo") == "end_turn"
    assert (talk.root / "a.py").read_text() == OLD
    assert ("Nothing to undo" in talk.text) is not is_written


@pytest.mark.parametrize("way", get_args(Way))
async def test_cancel_in_each_phase(begin: Begin, way: Way, tally: Tally) -> None:
    talk = await begin(files=FILES, own=COMMANDS, session=False)
    names = [name for name in PHASES if PROBLEM is None or name != "a command"]
    seconds = {}
    for name in names:
        try:
            seconds[name] = await cancel_in(talk, name, way)
        except BaseException as error:
            error.add_note(f"in the phase {name!r}, after {talk.text[-300:]!r}")
            raise
    write_line(f"{way}: {spread(seconds.values())}")
    tally("A-42", len(names))
