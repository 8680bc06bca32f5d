"""Random sessions against the strict simulator, by the thousand: nothing that is stored is ever refused.

`THINKLSP_TEST_TURNS` says how many turns in all: 300 for a commit, 10,000 (the default) for a release.
"""

from __future__ import annotations

import os

import pytest

from tests.support.histories import play_histories

TURNS = int(os.environ.get("THINKLSP_TEST_TURNS", "10000"))
PORTIONS = 10
KINDS = ("end_turn", "cancelled", "left", "error", "refusal", "max_tokens", "context_window")
EVENTS = ("tool", "failed tool", "retry", "restart", "notice", "kept thinking", "answered 200", "answered 400")


@pytest.mark.parametrize("portion", range(PORTIONS))
async def test_every_stored_conversation_can_be_sent(portion: int) -> None:
    outcome = await play_histories(1000 + portion, -(-TURNS // PORTIONS))
    assert outcome.refused == []
    assert outcome.turns >= TURNS // PORTIONS
    print(dict(sorted(outcome.seen.items())))  # noqa: T201 - `pytest -s` shows what has come about
    if outcome.turns >= 300:
        assert [kind for kind in (*KINDS, *EVENTS) if not outcome.seen[kind]] == []
