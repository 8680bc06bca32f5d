"""The keys of a tenant: when they are loaded again, and what happens while their command is slow or fails."""

from __future__ import annotations

import secrets
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from thinklsp.core.errors import SessionError
from thinklsp.sessions.postgres.team_cipher import TenantKeys, WrappedKey

KEY, NEW = secrets.token_hex(32), secrets.token_hex(32)
THEIRS = ("t", "u", "s")


def load_theirs() -> WrappedKey:
    keys = TenantKeys(lambda: NEW)
    keys.refresh()
    return keys.wrap(b"k" * 32, THEIRS)


def test_keys_are_loaded_again_while_they_are_used() -> None:
    printed, moments = [KEY], [0.0]
    calls: list[str] = []

    def load() -> str:
        calls.append(printed[0])
        return printed[0]

    keys, theirs = TenantKeys(load, lambda: moments[0]), load_theirs()
    keys.refresh()
    assert keys.can_reload(theirs.tenant_key)
    keys.reload(theirs.tenant_key)
    # An unknown key is looked for every 30 seconds.
    for moments[0], expected in ((29.0, False), (30.0, True)):
        assert keys.can_reload(theirs.tenant_key) is expected
    with pytest.raises(SessionError, match="print this key, too"):
        keys.unwrap(theirs, THEIRS)
    printed[0] = f"{NEW}\n{KEY}"
    keys.reload(theirs.tenant_key)
    assert keys.unwrap(theirs, THEIRS) == b"k" * 32
    assert not keys.can_reload(theirs.tenant_key)
    with pytest.raises(SessionError, match="is damaged"):
        keys.unwrap(theirs, ("t", "u", "other"))
    assert keys.get_current_id() == theirs.tenant_key
    # The keys are refreshed after five minutes. If the command fails, it is tried again every 30 seconds, and the known
    # keys encrypt no new session after ten minutes.
    printed[0] = "broken"
    count = len(calls)
    for moments[0], tries in ((329.0, 0), (330.0, 1), (359.0, 1), (360.0, 2)):
        keys.refresh()
        assert len(calls) - count == tries, moments
    moments[0] = 629.0
    assert keys.wrap(b"", THEIRS).tenant_key == theirs.tenant_key
    moments[0] = 630.0
    with pytest.raises(SessionError, match="No session can be encrypted"):
        keys.wrap(b"", THEIRS)
    assert keys.unwrap(theirs, THEIRS) == b"k" * 32
    printed[0] = KEY
    keys.refresh()
    assert keys.wrap(b"", THEIRS).tenant_key != theirs.tenant_key


def test_a_slow_command_blocks_no_store_with_keys() -> None:
    moments, asked, may_answer = [0.0], threading.Event(), threading.Event()
    may_answer.set()

    def load() -> str:
        asked.set()
        assert may_answer.wait(60)
        return NEW

    keys, theirs = TenantKeys(load, lambda: moments[0]), load_theirs()
    keys.refresh()
    moments[0] = 300.0
    asked.clear()
    may_answer.clear()
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(keys.refresh)
        assert asked.wait(60)
        keys.refresh()
        assert keys.unwrap(theirs, THEIRS) == b"k" * 32
        assert not waiting.done()
        may_answer.set()
        waiting.result()


def test_stores_wait_together_for_keys_that_are_too_old() -> None:
    """After a quiet night, several users start at once."""
    moments, calls = [0.0], []
    barrier = threading.Barrier(8)

    def load() -> str:
        calls.append(moments[0])
        return NEW

    keys = TenantKeys(load, lambda: moments[0])
    keys.refresh()
    moments[0] = 40_000.0

    def start(_: int) -> str:
        barrier.wait(60)
        keys.refresh()
        return keys.wrap(b"", THEIRS).tenant_key

    with ThreadPoolExecutor(8) as users:
        assert set(users.map(start, range(8))) == {keys.get_current_id()}
    assert calls == [0.0, 40_000.0]
