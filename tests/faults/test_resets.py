"""Connections that break at byte offsets of recorded answers, in the four dialects: the edit comes once and whole."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.slow.running import running, say
from tests.support.cutting import CutService
from tests.support.epilogue import clock
from tests.support.outside import Connect, Outside, own_server, server_with
from tests.support.raw_client import ResponseError
from tests.support.services import WAYS
from tests.support.sizes import SEED, lots, tries
from thinklsp.simulator.scenario import Scenario

Json = Any
Tally = Callable[[str, int], None]
DIALECTS = ("anthropic", "openai", "google", "deepseek")
PER_SERVER = 500
BEFORE, AFTER = "x = 1\ny = 1\n", "x = 2\ny = 2\n"
STEPS: list[Json] = [
    [
        {"thinking": "I look first, at two places 🙂.", "summary": "Looks."},
        {"text": "I look. "},
        {"tool": "read_file", "input": {"path": "a.py"}},
        {"tool": "search_text", "input": {"pattern": "x", "literal": True}},
    ],
    [
        {"thinking": "Two edits, which are one.", "summary": "Edits."},
        {"tool": "edit_file", "input": {"path": "a.py", "old_text": "x = 1", "new_text": "x = 2"}},
        {"tool": "edit_file", "input": {"path": "a.py", "old_text": "y = 1", "new_text": "y = 2"}},
    ],
    [{"thinking": "That is all."}, {"text": "Done 🙂."}],
]
SCENARIO = {"pacing": {"chunk_chars": 40}, "turn": [{"when": "Round", "step": [{"block": step} for step in STEPS]}]}


async def turn(outside: Outside, uri: str, service: CutService, cut: tuple[int, int] | None) -> None:
    """One turn with one break; it comes to what it comes to without."""
    client = outside.client
    service.begin(cut)
    edits = len(client.edits())
    result = await outside.edit(uri, "Round.")
    assert (result["stopReason"], result["text"]) == ("end_turn", "Done 🙂."), cut
    assert result["edits"]["applied"] == "all", cut
    assert client.text(uri) == AFTER, cut
    assert len(client.edits()) == edits + 1, cut
    assert len(service.answers) <= len(STEPS) + service.was_cut, cut
    assert service.violations == [], cut
    client.change(uri, AFTER, BEFORE)


async def breaks(place: Path, dialect: str, lot: int, count: int, connect: Connect = own_server) -> int:
    """So many turns with a break each; how many of them came to it."""
    chance, way, made = random.Random(f"{SEED} {dialect} {lot}"), WAYS[dialect], 0
    service = CutService(Scenario.model_validate(SCENARIO))
    options = {"provider": way.provider, "model": way.model}
    # Before it asks again the server waits for a while, of its own time.
    how = {"provider": service, "options": options, "connect": connect, "env": clock(100)}
    async with running(place, files={"a.py": BEFORE}, **how) as outside:
        uri = outside.open("a.py")
        await turn(outside, uri, service, None)
        sizes = [len(answer) for answer in service.answers]
        offsets = [(nth, offset) for nth, size in enumerate(sizes) for offset in range(size)]
        for cut in chance.sample(offsets, min(count, len(offsets))):
            await turn(outside, uri, service, cut)
            made += service.was_cut
    say(f"{dialect}: {made} of {count} turns were broken, at one of {len(offsets):,} offsets of {len(sizes)} streams")
    # Identifiers differ in length from turn to turn, so that the last offsets of an answer may not be there.
    assert made > 0.95 * count
    return made


# A fifth falls to the signing provider of `test_streams.py`.
LOTS = list(enumerate(lots(tries("A-07", 0.2), PER_SERVER)))


@pytest.mark.parametrize(("lot", "count"), LOTS)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_breaks_at_offsets(tmp_path: Path, dialect: str, lot: int, count: int, tally: Tally) -> None:
    tally("A-07", await breaks(tmp_path, dialect, lot, count))


TWICE = """
from thinklsp.lsp.protocol.writer import FrameWriter
write = FrameWriter.write
def twice(self, body, **more):
    write(self, body, **more)
    if b'"workspace/applyEdit"' in body:
        write(self, body.replace(b'"id":', b'"id":77', 1), **more)
FrameWriter.write = twice
"""
ONCE_ONLY = """
from thinklsp.core.errors import StreamProtocolError, TransportFailed
kept = TransportFailed.__init__
TransportFailed.__init__ = lambda self, message, **_: kept(self, message, retryable=False)
StreamProtocolError.retryable = False
"""


@pytest.mark.parametrize("program", [TWICE, ONCE_ONLY], ids=["an edit twice", "no second try"])
async def test_a_server_that_breaks_with_the_stream_is_noticed(tmp_path: Path, program: str) -> None:
    with pytest.raises((AssertionError, ResponseError)):
        await breaks(tmp_path, "anthropic", 0, 5, server_with(program))
