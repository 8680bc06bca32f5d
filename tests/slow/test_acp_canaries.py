"""No secret leaves the agent by any output, in any dialect; and an agent that leaks on purpose is caught."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.acp.fake_zed import FakeZed
from tests.acp.talk import connect_by
from tests.slow.acp_course import begin_course, find_leaks, run_course
from tests.slow.leaking_agent import SINKS, make_secret
from tests.slow.running import Tally
from tests.support.canary import Leak
from tests.support.forking import Nursery
from tests.support.outside import Connect
from tests.support.services import KEYS, WAYS
from tests.support.sizes import figures

# One way for each dialect.
MAIN = ("anthropic", "openai", "google", "openrouter")


async def leaks_of(place: Path, name: str, connect: Connect, secrets: Mapping[str, str] | None = None) -> list[Leak]:
    """Run the course with a provider. `secrets` are searched in addition to those of the course."""
    talk = await begin_course(place, WAYS[name], connect)
    try:
        await run_course(talk)
        assert len(talk.provider.secrets()) > len(KEYS) or name == "openrouter"
        return await find_leaks(talk, secrets or {})
    finally:
        await talk.outside.stop()


@pytest.mark.parametrize("name", MAIN)
async def test_no_output_leaks(tmp_path: Path, nursery: Nursery | None, name: str, tally: Tally) -> None:
    assert [str(leak) for leak in await leaks_of(tmp_path, name, connect_by(FakeZed, nursery))] == []
    tally("A-44", 1)


async def test_planted_leaks_are_found(tmp_path: Path, tally: Tally) -> None:
    planted = {sink: make_secret(sink) for sink in SINKS}
    with Nursery("tests.slow.leaking_agent") as nursery:
        leaks = await leaks_of(tmp_path, "anthropic", connect_by(FakeZed, nursery), planted)
    assert {leak.secret for leak in leaks} == planted.keys()
    tally("A-45", len(SINKS))


def test_figure_counts_the_sinks() -> None:
    assert figures()["A-45"]["commit"] == len(SINKS)
