"""A fault of our own in the rooms that hold secrets tells none of them, although its words quote all it had at hand."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slow.canary_sessions import FILES, Session, leaks_after
from tests.slow.failing import points
from tests.slow.running import running, say
from tests.support.forking import Nursery
from tests.support.outside import Connect
from tests.support.services import SeveralServices
from tests.support.sizes import sized

# A store that has failed keeps sessions in memory until a restart.
TURNS_OF_A_SERVER = 12
WITH_SECRETS = ("providers/anthropic.py", "core/stream_events.py", "sessions/codec.py")


@pytest.fixture(scope="module")
def connect() -> Iterator[Connect]:
    with Nursery("tests.slow.failing") as nursery:
        yield nursery.connect


async def failing(
    place: Path, connect: Connect, least: int, but: frozenset[str] = frozenset(), **planted: str
) -> tuple[int, list[str]]:
    """Return how many statements have failed, without those in `but`, and the leaks."""
    failed = place / "failed"
    failed.write_text("".join(f"{point}\n" for point in but))
    env: dict[str, str | None] = {"FAILED": str(failed), **planted}
    services = SeveralServices()
    async with running(place / "x", files=FILES, finish=False, env=env, provider=services, connect=connect) as outside:
        session = Session(outside, random.Random(1))
        count, before = 0, -1
        while before < count < least:
            before = count
            for number in range(TURNS_OF_A_SERVER):
                await (session.chat, session.refusal, session.error, session.compact)[number % 4]()
            await session.renew(kill=True)
            count = len(failed.read_text().split()) - len(but)
        return count, await leaks_after(outside)


async def test_whatever_fails_says_nothing_secret(tmp_path: Path, connect: Connect) -> None:
    count, leaks = await failing(tmp_path, connect, sized(commit=150, nightly=500))
    assert leaks == []
    assert "Traceback" in (tmp_path / "x/home/state/thinklsp.log").read_text()
    say(f"{count} of {len(points())} statements have failed")
    assert count >= 150


async def test_words_of_a_fault_in_the_log_are_found(tmp_path: Path, connect: Connect) -> None:
    others = frozenset(point for point in points() if not point.startswith(WITH_SECRETS))
    _, leaks = await failing(tmp_path, connect, 500, others, WORDS="1")
    assert [leak for leak in leaks if leak.endswith("in stderr")]
    assert [leak for leak in leaks if leak.endswith("thinklsp.log")]
