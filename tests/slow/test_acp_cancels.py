"""Cancels over ACP at random moments: one answer in time, no half edit, and a session that goes on.

A moment is the nth message of the agent or the nth request to the provider, and then some turns of the event loop.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.acp.client import CANCELLED, Peer
from tests.acp.talk import Talk, begin_talk
from tests.e2e.acting import edit_file, read_file, say
from tests.slow.running import Tally, spread
from tests.slow.running import say as tell
from tests.support.forking import Nursery
from tests.support.signing_rules import Conversations
from tests.support.signing_server import Redacted, Text, Thinking, answer
from tests.support.sizes import SEED, lots, tries

pytestmark = pytest.mark.timing
PER_AGENT, PER_SESSION = 50, 5
MAX_SECONDS = 1.0
OLD, NEW = "x = 1\n", "x = 2\n"
WORDS = "The quick brown fox jumps over the lazy dog; 🙂 then it reads the file again. "
_SPINS = (0, 0, 1, 3, 10, 40, 150)


def script() -> list[Any]:
    reads = answer(Thinking(), Redacted(), Text(WORDS), read_file("a.py"))
    return [reads, answer(Thinking(), edit_file("a.py", "1", "2")), answer(Thinking(), Text(WORDS))]


async def cancel_once(talk: Talk, chance: random.Random) -> tuple[str, float]:
    """Cancel a turn at a random moment. Return its stop reason and the seconds from the cancel to the answer."""
    client, provider = talk.client, talk.provider
    provider.script[:] = script()
    (talk.root / "a.py").write_text(OLD)
    talk.peer.buffers.clear()
    received, asked = len(client.received), len(provider.requests)
    running = talk.send("Change it.")
    moment, nth = chance.choice([("message", chance.randint(0, 40)), ("request", chance.randint(1, 3))])
    source = client if moment == "message" else provider
    await source.wait_for(
        lambda: (
            running.answered
            or (moment == "message" and len(client.received) >= received + nth)
            or (moment == "request" and len(provider.requests) >= asked + nth)
        ),
        what=f"{moment} {nth}",
    )
    await spin(chance.choice(_SPINS))
    begun = time.monotonic()
    client.cancel(talk.session)
    result = await running
    return str(result["stopReason"]), time.monotonic() - begun


async def spin(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


async def check_after(talk: Talk, reason: str, number: int) -> None:
    """The file is old or new, never between; and the provider takes the transcript."""
    text = (talk.root / "a.py").read_text()
    assert text in (OLD, NEW), text
    assert reason in ("cancelled", "end_turn")
    assert reason == "cancelled" or text == NEW
    talk.provider.script[:] = [say(f"Here {number}.")]
    assert await talk.prompt("Are you there?") == "end_turn"
    assert talk.text.endswith(f"Here {number}.")
    talk.outside.told()


def cancelling(peer: Peer, chance: random.Random) -> None:
    """Answer questions as a client that may have been cancelled in the meantime."""

    def choose(params: Any) -> Any:
        yes = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
        return CANCELLED if chance.random() < 0.1 else yes

    peer.choices = [choose]


async def test_cancels_at_random_moments(tmp_path: Path, nursery: Nursery | None, tally: Tally) -> None:
    total = tries("A-41")
    reasons: Counter[str] = Counter()
    seconds = []
    for lot, count in enumerate(lots(total, PER_AGENT)):
        chance = random.Random(f"{SEED} {lot}")
        talk = await begin_talk(tmp_path / str(lot), nursery=nursery, session=False, files={"a.py": OLD})
        try:
            cancelling(talk.peer, chance)
            for number in range(count):
                if number % PER_SESSION == 0:
                    await talk.new_session()
                    talk.provider.conversations = Conversations()
                reason, took = await cancel_once(talk, chance)
                reasons[reason] += 1
                seconds.append(took)
                await check_after(talk, reason, number)
            await talk.outside.finish()
        finally:
            await talk.outside.stop()
    tell(f"{total} cancels: {dict(reasons)}, {spread(seconds)}")
    assert max(seconds) < MAX_SECONDS
    assert reasons["cancelled"] > total / 2
    tally("A-41", total)
