"""User, second program and model change the same files: no line disappears that the model was never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slow.running import Tally, running
from tests.slow.shared_files import EDITORS, play_sessions
from tests.support.outside import Connect, server_with
from tests.support.sizes import SEED, lots, tries

PER_SERVER = 25
LOTS = lots(tries("A-48"), PER_SERVER)


@pytest.mark.parametrize("lot", range(len(LOTS)))
async def test_unseen_lines_stay(tmp_path: Path, servers: Connect, tally: Tally, lot: int) -> None:
    tally("A-48", LOTS[lot])
    editor = list(EDITORS.values())[lot % len(EDITORS)]
    async with running(tmp_path, connect=servers, **editor) as outside:
        await play_sessions(outside, SEED, range(lot * PER_SERVER, lot * PER_SERVER + LOTS[lot]))


PLANTED = {
    "no proof of sight": "from thinklsp.tools import edit\nedit._check_seen = lambda *_: None",
    "an old view counts": """
from thinklsp.core.messages import Sight
from thinklsp.engine import turn
turn._find_changed = lambda *_: []
Sight.knows_whole = lambda sight, key, text: any(known.key == key and known.is_whole for known in sight.files)
""",
}


@pytest.mark.parametrize("fault", PLANTED)
async def test_a_server_without_proof_of_sight_is_found(tmp_path: Path, fault: str) -> None:
    async with running(tmp_path, connect=server_with(PLANTED[fault]), finish=False) as outside:
        with pytest.raises(AssertionError, match="model of chat"):
            await play_sessions(outside, SEED, range(2 * PER_SERVER))
