"""Encrypted sessions in PostgreSQL: the contents of the database, lost and rotated keys, and moved rows."""

from __future__ import annotations

import base64
import hashlib
import secrets
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from tests.support.images import image
from tests.support.postgres_server import PostgresServer
from tests.support.stored_sessions import SPENT, answer, full_session, one_turn, opened
from thinklsp.core.errors import SessionError
from thinklsp.core.messages import ImageBlock, ThinkingBlock
from thinklsp.core.server_context import ClientIdentity
from thinklsp.sessions.ledger import PlannedWrite
from thinklsp.sessions.postgres import PostgresStore
from thinklsp.sessions.postgres.maintenance import RewrapReport, prune, rewrap_keys
from thinklsp.sessions.postgres.team_cipher import TenantKeys, WrappedKey
from thinklsp.sessions.session import Session
from thinklsp.sessions.store import CopyReport, copy_sessions

CANARY = "canary-5f1e"
EDIT = PlannedWrite("file:///a", "a", f"{CANARY} before", f"{CANARY} after")
PICTURE = image()
UNREADABLE = "(cannot be decrypted)"
SINCE = datetime.now(UTC) - timedelta(days=1)
TABLES = (
    "session", "message", "opaque", "archive", "ledger", "image", "session_key", "origin", "usage", "remedy", "lease",
)  # fmt: skip
PLAIN_TABLES = ["session", "message", "opaque", "archive", "ledger", "image"]


def create_key() -> str:
    return secrets.token_hex(32)


KEY = create_key()


OPENED: list[PostgresStore] = []


@pytest.fixture(autouse=True)
async def close_stores() -> AsyncIterator[None]:
    yield
    while OPENED:
        await OPENED.pop().aclose()


def open_store(server: PostgresServer, identity: ClientIdentity, *keys: str) -> PostgresStore:
    """Return a store whose tenant has these keys. Without keys, it encrypts nothing."""
    OPENED.append(server.create_store(identity, load_keys=(lambda: "\n".join(keys)) if keys else None))
    return OPENED[-1]


def fill_session(session: Session) -> Session:
    """Put the canary in every text of a user or a model."""
    asked = session.rename(f"{CANARY} title").add_user_message(f"{CANARY} prompt", images=(PICTURE,))
    told = asked.add_step(answer(f"{CANARY} answer " * 20, secret=CANARY), None, SPENT.usage)
    return told.add_prompt(f"{CANARY} waiting", "t", is_queued=True)


async def fill(store: PostgresStore) -> Session:
    session = await store.update((await store.create("w")).id, fill_session, SPENT)
    session, _ = await store.compact(session.id, partial(one_turn, 1), f"{CANARY} note", SPENT)
    intent = await store.record_intent(session.id, "w", "t", [EDIT])
    await store.settle_edit(intent, {EDIT.uri: "applied"})
    await store.release(session.id)
    return session


def dump(server: PostgresServer, identity: ClientIdentity) -> dict[str, list[tuple[object, ...]]]:
    query = "SELECT * FROM {} WHERE tenant = %s AND account = %s ORDER BY 1, 2, 3"
    return {table: server.execute(query.format(table), identity.tenant, identity.user) for table in TABLES}


def find_kept(server: PostgresServer, identity: ClientIdentity) -> list[str]:
    """Return the tables that contain rows of sessions or their keys."""
    tables = dump(server, identity)
    return [table for table in (*PLAIN_TABLES, "session_key") if tables[table]]


def find_traces(server: PostgresServer, identity: ClientIdentity) -> list[str]:
    """Return the tables in which the canary, the image or the hash of an edited text can be read."""
    hashes = (hashlib.sha256(str(text).encode()).hexdigest().encode() for text in (EDIT.before, EDIT.after))
    shifted = (base64.b64encode(b" " * shift + CANARY.encode())[4:12] for shift in range(3))
    needles = (CANARY.encode(), PICTURE.data, *shifted, *hashes)

    def has_trace(value: object) -> bool:
        content = value if isinstance(value, bytes) else str(value).encode()
        return any(needle in content for needle in needles)

    return [
        table
        for table, rows in dump(server, identity).items()
        if any(has_trace(value) for row in rows for value in row)
    ]


async def read_all(store: PostgresStore, session_id: str) -> tuple[object, ...]:
    """Read a session in every way."""
    [archive] = await store.list_archives(session_id)
    turn = await store.find_written_turn("w")
    assert turn is not None
    return (
        await store.get(session_id, "w"),
        [summary.title for summary in await store.list_sessions("w")],
        archive.note,
        (await store.read_archive(session_id, archive.id)).conversation,
        (await store.read_transcript(session_id, "w")).conversation,
        [entry.write for edit in turn.edits for entry in edit.entries],
        [entry.is_damaged for edit in turn.edits for entry in edit.entries],
        [(file.uri, file.title) for file in await store.list_written_files("w", SINCE)],
    )


@pytest.mark.parametrize("is_encrypted", [True, False])
async def test_the_database_sees_no_text(
    postgres: PostgresServer, somebody: ClientIdentity, is_encrypted: bool
) -> None:
    keys = [create_key()] * is_encrypted
    store, other = (open_store(postgres, somebody, *keys) for _ in range(2))
    session = await fill(store)
    everything = await read_all(store, session.id)
    assert everything == await read_all(other, session.id)
    assert everything[1:3] == ([f"{CANARY} title"], f"{CANARY} note")
    assert everything[5:7] == ([EDIT], [False])
    # The control: without a key, the search finds the canary everywhere.
    assert find_traces(postgres, somebody) == ([] if is_encrypted else PLAIN_TABLES)
    assert ("encrypted in the database" in (await store.read_status()).protection) is is_encrypted
    [earlier] = await other.list_earlier_edits("w", [EDIT.uri], SINCE, 9)
    assert (earlier.before, earlier.after) == (EDIT.before, EDIT.after)


# From where to where somebody who can write in the database moves an encrypted message, by generation and sequence.
MOVES = {
    "another session": ("one", (1, 0), (1, 0)),
    "another message": ("two", (1, 0), (1, 2)),
    "an archived message": ("two", (0, 0), (1, 0)),
}


@pytest.mark.parametrize("case", MOVES)
async def test_a_message_in_another_place_counts_as_damaged(
    postgres: PostgresServer, somebody: ClientIdentity, case: str
) -> None:
    store, reader = (open_store(postgres, somebody, KEY) for _ in range(2))
    one, two = await fill(store), await fill(store)
    source, place, target = MOVES[case]
    postgres.execute(
        "UPDATE message SET (blocks, crc) = (SELECT blocks, crc FROM message AS other WHERE session = %s AND "
        "generation = %s AND sequence = %s) WHERE session = %s AND generation = %s AND sequence = %s",
        *(one.id if source == "one" else two.id, *place, two.id, *target),
    )
    found = await reader.get(two.id, "w")
    assert two.conversation[target[1]] not in found.conversation
    assert two.conversation[-1] in found.conversation
    assert "damaged or cannot be decrypted" in reader.problems[0]
    assert await reader.get(one.id, "w") == one


async def test_other_contents_in_another_place_count_as_damaged(
    postgres: PostgresServer, somebody: ClientIdentity
) -> None:
    store, reader = (open_store(postgres, somebody, KEY) for _ in range(2))
    one, two = await fill(store), await fill(store)
    for move in (
        "UPDATE session SET title = (SELECT title FROM session WHERE id = '{one}'), prompts = title WHERE id = '{two}'",
        "UPDATE archive SET note = (SELECT note FROM archive WHERE session = '{one}') WHERE session = '{two}'",
        "UPDATE ledger SET before = after, before_sha256 = 'not base64' WHERE session = '{two}'",
        "UPDATE opaque SET content = sha256(content) WHERE session = '{two}'",
        "UPDATE image SET content = (SELECT content FROM image WHERE session = '{one}') WHERE session = '{two}'",
    ):
        postgres.execute(move.format(one=one.id, two=two.id))
    assert {summary.id: summary.title for summary in await reader.list_sessions("w")} == {
        one.id: one.title,
        two.id: UNREADABLE,
    }
    found = await reader.get(two.id, "w")
    assert (found.title, found.prompts) == (UNREADABLE, ())
    assert CANARY not in repr([archive.note for archive in await reader.list_archives(two.id)])
    blocks = [block for message in found.conversation for block in message.blocks]
    assert not any(isinstance(block, ImageBlock) for block in blocks)
    assert [block for block in blocks if isinstance(block, ThinkingBlock) and block.raw is not None] == []
    turn = await reader.find_written_turn("w", session_id=two.id)
    assert turn is not None
    assert [entry.is_damaged for edit in turn.edits for entry in edit.entries] == [True]


async def test_without_its_key_a_session_is_neither_read_nor_changed(
    postgres: PostgresServer, somebody: ClientIdentity
) -> None:
    store = open_store(postgres, somebody, KEY)
    session = await fill(store)
    await store.aclose()
    before = dump(postgres, somebody)
    key_id = before["session_key"][0][1]
    for keys, reason in (
        ((), "The session is encrypted, but [store] key_command is not set"),
        (
            (create_key(),),
            f"The session is encrypted with the tenant key {key_id}. Let the command in [store] key_command print",
        ),
    ):
        stranger = open_store(postgres, somebody, *keys)
        for call in (
            stranger.get(session.id, "w"),
            stranger.update(session.id, full_session),
            stranger.record_intent(session.id, "w", "t", [EDIT]),
            stranger.list_archives(session.id),
            stranger.read_rows(session.id),
        ):
            with pytest.raises(SessionError) as refused:
                await call
            assert reason in str(refused.value)
        assert [summary.title for summary in await stranger.list_sessions("w")] == [UNREADABLE]
        own = await stranger.update((await stranger.create("w")).id, full_session)
        assert await stranger.get(own.id, "w") == own
        # A damaged or lost key is no reason to keep a session.
        await stranger.delete(own.id, "w")
        await stranger.aclose()
        after = dump(postgres, somebody)
        assert {table: after[table] for table in PLAIN_TABLES} == {table: before[table] for table in PLAIN_TABLES}
    postgres.execute("UPDATE session_key SET content = sha256(content) WHERE session = %s", session.id)
    owner = open_store(postgres, somebody, KEY)
    with pytest.raises(SessionError, match="The key of the session is damaged"):
        await owner.get(session.id, "w")
    await owner.delete(session.id, "w")
    await owner.aclose()
    assert find_kept(postgres, somebody) == []


@pytest.mark.parametrize("printed", ["", "not a key", "abcd", CANARY * 3, f"{'0' * 64}\n{'0' * 63}"])
async def test_a_command_that_prints_no_key_is_a_sentence(
    postgres: PostgresServer, somebody: ClientIdentity, printed: str
) -> None:
    store = open_store(postgres, somebody, printed)
    with pytest.raises(SessionError, match=r"It must print 32 random bytes in hexadecimal") as refused:
        await store.list_sessions(None)
    assert CANARY not in str(refused.value)


async def test_a_rotated_key_is_found_by_running_servers(postgres: PostgresServer, somebody: ClientIdentity) -> None:
    new, printed = create_key(), [KEY]
    server = postgres.create_store(somebody, load_keys=lambda: printed[0])
    session = await fill(server)
    printed[0] = f"{new}\n{KEY}"
    assert rewrap(postgres, somebody, new, KEY) == RewrapReport(1)
    assert rewrap(postgres, somebody, new, KEY) == RewrapReport(0)
    renewed = await server.update(session.id, partial(one_turn, 9))
    await server.release(session.id)
    # A lost key concerns its sessions only.
    owner = (somebody.tenant, somebody.user, session.id)
    assert rewrap(postgres, somebody, create_key()) == RewrapReport(0, lost=(owner,))
    after, before = open_store(postgres, somebody, new), open_store(postgres, somebody, KEY)
    assert await after.get(session.id, "w") == renewed
    with pytest.raises(SessionError, match=r"Let the command in \[store\] key_command print this key, too"):
        await before.get(session.id, "w")


def test_a_tenant_without_keys_does_not_stop_the_others(postgres: PostgresServer, somebody: ClientIdentity) -> None:
    def create_loader(tenant: str) -> Callable[[], str]:
        return (lambda: "broken") if tenant == "a-broken-one" else create_key

    for tenant in ("a-broken-one", somebody.tenant):
        postgres.execute("INSERT INTO session_key VALUES ('s', 'old', 'x', %s, 'a')", tenant)
    report = rewrap_keys(postgres.owner_url, create_loader)
    postgres.execute("DELETE FROM session_key WHERE session = 's'")
    assert list(report.errors) == ["a-broken-one"]
    assert (somebody.tenant, "a", "s") in report.lost
    with pytest.raises(SessionError, match="sees only the sessions of one user"):
        rewrap_keys(postgres.url, create_loader)


async def test_a_session_from_before_the_key_is_continued_as_it_is(
    postgres: PostgresServer, somebody: ClientIdentity
) -> None:
    plain, server = open_store(postgres, somebody), open_store(postgres, somebody, KEY)
    session = await fill(plain)
    continued = await server.update(session.id, partial(one_turn, 6), SPENT)
    await server.release(session.id)
    assert await plain.get(session.id, "w") == continued
    assert find_traces(postgres, somebody) == PLAIN_TABLES


async def test_a_session_without_its_key_is_not_continued(postgres: PostgresServer, somebody: ClientIdentity) -> None:
    """The key can be lost if a restore omits a table."""
    server = open_store(postgres, somebody, KEY)
    session = await fill(server)
    postgres.execute("DELETE FROM session_key WHERE session = %s", session.id)
    before, other = dump(postgres, somebody), open_store(postgres, somebody, KEY)
    for call in (
        server.update(session.id, partial(one_turn, 3)),
        other.get(session.id, "w"),
        other.update(session.id, partial(one_turn, 3)),
    ):
        with pytest.raises(SessionError, match="The key of this session is missing in the database"):
            await call
        for each in (server, other):
            await each.release(session.id)
    after = dump(postgres, somebody)
    assert before | {"lease": ()} == after | {"lease": ()}


async def test_an_edit_that_cannot_be_decrypted_is_not_settled(
    postgres: PostgresServer, somebody: ClientIdentity
) -> None:
    server, stranger = open_store(postgres, somebody, KEY), open_store(postgres, somebody, create_key())
    session = await fill(server)
    await server.record_intent(session.id, "w", "t2", [EDIT])
    await server.aclose()
    assert await stranger.list_unknown_edits("w") == ()
    owner = open_store(postgres, somebody, KEY)
    assert [edit.turn_id for edit in await owner.list_unknown_edits("w")] == ["t2"]


async def test_a_deleted_or_pruned_session_leaves_no_key(postgres: PostgresServer, somebody: ClientIdentity) -> None:
    store = open_store(postgres, somebody, KEY)
    one, _ = await fill(store), await fill(store)
    await store.delete(one.id, "w")
    assert len(dump(postgres, somebody)["session_key"]) == 1
    postgres.execute("UPDATE session SET updated = 0 WHERE tenant = %s", somebody.tenant)
    assert prune(postgres.owner_url, timedelta(days=1)) == 1
    assert find_kept(postgres, somebody) == []


async def test_copies_are_encrypted_and_decrypted(
    postgres: PostgresServer, somebody: ClientIdentity, tmp_path: Path
) -> None:
    other = postgres.create_identity()
    first, second = open_store(postgres, somebody, KEY), open_store(postgres, other, create_key())
    session = await fill(first)
    async with opened(tmp_path) as folder:
        assert await copy_sessions(first, folder) == CopyReport(1, 0, {})
        assert await folder.get(session.id, "w") == session
        assert await copy_sessions(folder, second) == CopyReport(1, 0, {})
    assert await second.get(session.id, "w") == session
    assert find_traces(postgres, other) == []
    postgres.execute("UPDATE message SET blocks = sha256(blocks) WHERE tenant = %s AND sequence = 1", other.tenant)
    async with opened(tmp_path / "damaged") as folder:
        report = await copy_sessions(second, folder)
        assert report.copied == 0
        assert "A part of this session is damaged" in report.errors[session.id]
        assert await folder.list_sessions(None) == ()


def rewrap(server: PostgresServer, identity: ClientIdentity, *keys: str) -> RewrapReport:
    """Rewrap the keys of one tenant."""
    server.execute("DELETE FROM session_key WHERE tenant != %s", identity.tenant)
    return rewrap_keys(server.owner_url, lambda _: lambda: "\n".join(keys))


NEW = create_key()
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
    """Several users start at the same time after a long pause."""
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
