"""The SQLite store on a full, locked, read-only or foreign disk: turns continue, and no link is followed."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from tests.support.stored_sessions import (
    EDIT,
    SECRET,
    SPENT,
    USAGE,
    connection_of,
    database,
    files_of,
    full_session,
    holding,
    one_turn,
    opened,
    opened_with_session,
    sealed,
)
from thinklsp.core.errors import SessionError
from thinklsp.core.messages import AssistantMessage, ThinkingBlock
from thinklsp.sessions.ledger import PlannedWrite
from thinklsp.sessions.session import Session
from thinklsp.sessions.spending import read_utc_date
from thinklsp.sessions.sqlite_store import SqliteStore, open_database
from thinklsp.sessions.store_folder import find_network_mount, set_aside


async def test_the_file_is_kept_as_promised(tmp_path: Path) -> None:
    """kill -9 cannot show whether a commit reaches the disk, so this test checks the settings."""
    async with opened_with_session(tmp_path) as (store, _):
        pragmas = "journal_mode synchronous foreign_keys busy_timeout wal_autocheckpoint trusted_schema secure_delete"
        found = {name: connection_of(store).execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas.split()}
        assert list(found.values()) == ["wal", 2, 1, 5000, 1000, 0, 1]
        assert (await store.read_status()).kind == "file"
        modes = {path.name: path.stat().st_mode & 0o777 for path in files_of(tmp_path)}
        assert {"sessions.db", "sessions.db-wal", "sessions.db-shm"} <= {*modes}
        assert {*modes.values()} == {0o600}
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in ("sessions", "sessions/locks")} == {0o700}


async def test_modes_do_not_depend_on_the_umask_and_are_tightened(tmp_path: Path) -> None:
    former = os.umask(0)
    try:
        async with opened(tmp_path / "state") as store:
            await store.update((await store.create("w")).id, full_session)
            assert {path.stat().st_mode & 0o077 for path in files_of(tmp_path)} == {0}
    finally:
        os.umask(former)
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    database(tmp_path / "state").chmod(0o644)
    (tmp_path / "state" / "sessions").chmod(0o755)
    async with opened(tmp_path / "state") as store:
        assert len(await store.list_sessions("w")) == 1
        assert (database(tmp_path / "state").stat().st_mode & 0o777, store.problems) == (0o600, ())
        assert (tmp_path / "state" / "sessions").stat().st_mode & 0o777 == 0o700


async def test_nothing_is_on_disk_before_something_was_said(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        session = await store.create("w")
        assert await store.get(session.id, "w") == session
    async with opened(tmp_path) as store:
        with pytest.raises(SessionError):
            await store.get(session.id, "w")


def full(store: SqliteStore) -> Callable[[], object]:
    pages = connection_of(store).execute("PRAGMA page_count").fetchone()[0]
    connection_of(store).execute(f"PRAGMA max_page_count = {pages}")
    return lambda: connection_of(store).execute("PRAGMA max_page_count = 1000000")


def read_only(store: SqliteStore) -> Callable[[], object]:
    connection_of(store).execute("PRAGMA query_only = ON")
    return lambda: connection_of(store).execute("PRAGMA query_only = OFF")


def locked(store: SqliteStore) -> Callable[[], object]:
    other = sqlite3.connect(store._database.path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    return other.close


DISKS = {"full": full, "read_only": read_only, "locked": locked}


@pytest.mark.parametrize("name", DISKS)
async def test_chat_goes_on_in_memory_and_is_written_later(name: str, tmp_path: Path) -> None:
    """The disk fails in the second turn and works again later."""
    async with opened(tmp_path, retry_seconds=0.0, timeout_seconds=0.05) as store:
        session = await store.update((await store.create("w")).id, full_session, SPENT)
        mend = await asyncio.to_thread(DISKS[name], store)
        session = await store.update(session.id, lambda now: now.add_user_message("x" * 50_000).add_choices({"a": "b"}))
        for number in range(3):
            session = await store.update(session.id, lambda now, n=number: one_turn(n, now), SPENT)
            assert await store.get(session.id, "w") == session
        intent = await store.record_intent(session.id, "w", "t", (EDIT,))
        await store.settle_edit(intent, {EDIT.uri: "applied"})
        short, _ = await store.compact(session.id, lambda now: now.replace_conversation(now.conversation[-4:]), "short")
        new = await store.update((await store.create("w")).id, full_session, SPENT)
        assert await store.find_latest("w") == new
        assert {summary.id for summary in await store.list_sessions("w")} == {session.id, new.id}
        assert await store.get(session.id, "w") == short
        written = await store.find_written_turn("w")
        assert written is not None
        assert (await store.read_status()).sessions == 2, "the file has an older copy of one of them"
        assert (await store.sum_day(read_utc_date())).input_tokens == 50
        [problem] = store.problems
        assert "cannot be written" in problem
        if name != "locked":
            with pytest.raises(SessionError, match="deleted"):
                await store.delete(new.id, "w")
        mend()
        await store.update(session.id, lambda now: now.add_user_message("After."))
    async with opened(tmp_path) as store:
        after = await store.get(session.id, "w")
        assert after.conversation[:-1] == short.conversation
        assert after.steps == 8
        [archive] = await store.list_archives(session.id)
        assert (await store.read_archive(session.id, archive.id)).conversation == session.conversation
        assert await store.get(new.id, "w") == new
        assert (await store.sum_day(read_utc_date())).input_tokens == 50
        assert await store.find_written_turn("w") == written
        assert connection_of(store).execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_what_waits_is_written_at_the_end(tmp_path: Path) -> None:
    async with opened_with_session(tmp_path) as (store, session):
        mend = read_only(store)
        session = await store.update(session.id, lambda now: one_turn(0, now))
        mend()
    async with opened(tmp_path) as store:
        assert await store.get(session.id, "w") == session


@asynccontextmanager
async def writing_behind_a_lock(folder: Path) -> AsyncIterator[asyncio.Task[Session]]:
    """Write while another program holds the lock for longer than the store waits."""
    async with opened_with_session(folder, timeout_seconds=0.3) as (store, session):
        release = locked(store)
        yield asyncio.create_task(store.update(session.id, lambda now: one_turn(0, now)))
        release()


@pytest.mark.timing
async def test_the_loop_goes_on_while_another_program_holds_the_lock(tmp_path: Path) -> None:
    async with writing_behind_a_lock(tmp_path) as writing:
        turns, longest, last = 0, 0.0, asyncio.get_running_loop().time()
        while not writing.done():
            await asyncio.sleep(0.001)
            now = asyncio.get_running_loop().time()
            turns, longest, last = turns + 1, max(longest, now - last), now
        assert turns > 50
        assert longest < 0.2


async def test_a_lock_that_is_given_back_in_time_is_waited_for(tmp_path: Path) -> None:
    async with opened_with_session(tmp_path, timeout_seconds=60.0) as (store, session):
        release = locked(store)
        writing = asyncio.create_task(store.update(session.id, lambda now: one_turn(0, now)))
        await asyncio.sleep(0.05)
        release()
        assert (await writing).steps == 4
        assert store.problems == ()


async def test_a_store_that_is_locked_from_the_start_is_tried_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        old = await store.update((await store.create("w")).id, full_session)
    with closing(sqlite3.connect(database(tmp_path), isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        async with opened(tmp_path, timeout_seconds=0.05, retry_seconds=0.0) as store:
            new = await store.update((await store.create("w")).id, full_session)
            assert (await store.read_status()).kind == "memory"
            assert "locked" in store.problems[0]
            other.close()
            new = await store.update(new.id, lambda now: one_turn(0, now))
            assert {summary.id for summary in await store.list_sessions("w")} == {old.id, new.id}
    async with opened(tmp_path) as store:
        assert await store.get(new.id, "w") == new


def make_folder(folder: Path, mode: int = 0o700) -> Path:
    folder.mkdir(parents=True)
    folder.chmod(mode)
    return folder


def give_folder_away(folder: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(make_folder(folder), 12345, 12345)


def link_file(folder: Path, name: str) -> None:
    (make_folder(folder / "sessions") / name).symlink_to(folder.parent / "elsewhere.db")


OF_ANOTHER_USER = "a folder of another user"
WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "a link for the folder": (lambda folder: folder.symlink_to("elsewhere"), "is a symbolic link"),
    "a dangling link": (lambda folder: folder.symlink_to("nowhere"), "is a symbolic link"),
    "a file for the folder": (lambda folder: folder.write_text("mine"), "is not a folder"),
    "a link for the database": (lambda folder: link_file(folder, "sessions.db"), "is a symbolic link"),
    "a link for the log": (lambda folder: link_file(folder, "sessions.db-wal"), "is a symbolic link"),
    "a folder for the database": (lambda folder: database(folder).mkdir(parents=True), "is not a file"),
    "a link for the inner folder": (
        lambda folder: (make_folder(folder) / "sessions").symlink_to("../elsewhere"),
        "is not a folder",
    ),
    "a folder that others can change": (lambda folder: make_folder(folder, 0o777), "chmod 700"),
    OF_ANOTHER_USER: (give_folder_away, "another user"),
}


def plain_files(folder: Path) -> list[tuple[str, int]]:
    return sorted((path.name, path.lstat().st_size) for path in folder.rglob("*") if not path.is_dir())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.kernel if name == OF_ANOTHER_USER else ()) for name in WRONG]
)
async def test_what_is_not_ours_is_refused_and_not_followed(name: str, tmp_path: Path) -> None:
    put, sentence = WRONG[name]
    folder = tmp_path / "state"
    (tmp_path / "elsewhere").mkdir()
    put(folder)
    before = plain_files(tmp_path)
    async with opened(folder) as store:
        session = await store.update((await store.create("w")).id, full_session, SPENT)
        assert await store.find_latest("w") == session
        assert sentence in store.problems[0]
        assert (await store.read_status()).kind == "memory"
        await store.delete(session.id, "w")
    assert plain_files(tmp_path) == before


async def test_a_deleted_session_leaves_no_byte(tmp_path: Path) -> None:
    canary = "canaryQ7xWprivate"
    async with opened(tmp_path) as store:
        others = [await store.update((await store.create("w")).id, full_session) for _ in range(3)]
        session = await store.create("w-" + canary)
        for number in range(40):
            step = AssistantMessage((ThinkingBlock("", sealed(canary * (number % 7 + 1) * 20)),))
            await store.update(session.id, lambda now, n=number: now.add_user_message(f"{canary} {n}"))
            await store.update(session.id, lambda now, step=step: now.add_step(step, None, USAGE), SPENT)
            await store.update(others[number % 3].id, lambda now, n=number: one_turn(n, now))
        await store.compact(session.id, lambda now: now.replace_conversation(now.conversation[-2:]), canary)
        edit = PlannedWrite("file:///" + canary, canary, canary, "x")
        await store.record_intent(session.id, canary, "t" + canary, (edit,))
        fork = await store.fork(session.id, None)
        shutil.copy(database(tmp_path), f"{database(tmp_path)}.before-version-1")
        assert len(holding(tmp_path, canary)) >= 2
        for each in (session, fork):
            await store.delete(each.id, None)
            assert holding(tmp_path, each.id) == []
        assert holding(tmp_path, canary) == []
        assert holding(tmp_path, "canary"), "the others are still there, or this test could not fail"
        assert len(await store.list_sessions("w")) == 3


async def test_no_error_and_no_repr_holds_what_is_sealed(tmp_path: Path) -> None:
    async with opened_with_session(tmp_path) as (store, session):
        for failing in (
            store.update(session.id, lambda now: now.add_step(now.conversation[1], None, USAGE)),  # type: ignore[arg-type]  # it is an answer
            store.fork(session.id, "w", 99),
            store.get("x", "w"),
        ):
            with pytest.raises((SessionError, ValueError)) as caught:
                await failing
            assert SECRET[:20] not in f"{caught.value!r} {caught.value}"
        assert SECRET[:20] not in f"{session!r} {await store.list_sessions('w')!r} {await store.read_status()!r}"


async def test_after_the_end_it_says_so(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path))
    await store.aclose()
    await store.aclose()
    with pytest.raises(SessionError, match="closed"):
        await store.create("w")
    assert os.listdir(tmp_path) == []


MOUNTS = """
/dev/sda / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
//server/x /mnt/with\\040space cifs rw 0 0
/dev/sdb /home/me/local xfs rw 0 0
me@h: /home/me/far fuse.sshfs rw 0 0
tmpfs /home/me/far/hidden tmpfs rw 0 0
broken
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var", None),
        ("/home", "nfs4"),
        ("/home/me/state", "nfs4"),
        ("/homestead", None),
        ("/home/me/local/state", None),
        ("/home/me/far", "fuse.sshfs"),
        ("/home/me/far/hidden", None),
        ("/mnt/with space/x", "cifs"),
    ],
)
def test_network_file_systems_are_known_by_their_mount(folder: str, kind: str | None) -> None:
    assert find_network_mount(folder, MOUNTS) == kind


async def test_over_a_network_there_is_no_shared_memory(tmp_path: Path) -> None:
    opened_ = open_database(str(tmp_path), find_network=lambda _: "nfs4")
    assert opened_.connection is not None
    assert opened_.connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert "network file system (nfs4)" in opened_.problems[0]
    opened_.connection.close()
    async with opened_with_session(tmp_path) as (store, _):
        assert connection_of(store).execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection = open_database(str(tmp_path), find_network=lambda _: "nfs4").connection
    assert connection is not None
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert connection.execute("SELECT count(*) FROM session").fetchone() == (1,)
    connection.close()


def test_nothing_that_was_set_aside_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    names = set()
    for number in range(3):
        path.write_text(str(number))
        (tmp_path / "sessions.db-wal").write_text("log")
        names.add(set_aside(str(path)))
    assert sorted(Path(name).read_text() for name in names) == ["0", "1", "2"]
    assert len(list(tmp_path.iterdir())) == 6


async def test_a_session_that_could_not_be_deleted_is_kept_from_nobody(tmp_path: Path) -> None:
    async with opened(tmp_path, timeout_seconds=0.05) as store, opened(tmp_path) as other:
        session = await store.update((await store.create("w")).id, full_session)
        await store.release(session.id)
        with closing(sqlite3.connect(database(tmp_path), isolation_level=None)) as program:
            program.execute("BEGIN IMMEDIATE")
            with pytest.raises(SessionError, match="could not be deleted"):
                await store.delete(session.id, "w")
            assert list((await store.delete_all([session.id], "w")).values()) != [None]
        assert (await other.update(session.id, lambda now: one_turn(0, now))).steps == session.steps + 2
