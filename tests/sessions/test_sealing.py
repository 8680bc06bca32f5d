"""Opaque state at rest: encrypted where a keyring holds the key, told where it does not, never lost without a word."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.stored_sessions import (
    ORIGIN,
    OTHER,
    SECRET,
    NoVault,
    files_of,
    full_session,
    holding,
    one_turn,
    opened,
    sealed,
)
from thinklsp.sessions.codec import crc
from thinklsp.sessions.sealing import BY_KEYRING, BY_MODE, SealedRow, Seals, Vault, load_seals


class Keeping:
    """A keyring that works."""

    def __init__(self) -> None:
        self.secret: str | None = None

    def read(self) -> str | None:
        return self.secret

    def write(self, secret: str) -> None:
        self.secret = secret


class Forgetful(Keeping):
    def write(self, secret: str) -> None:
        pass


class Locked(Keeping):
    def read(self) -> str | None:
        raise RuntimeError(f"the collection is locked, {SECRET}")


class Hanging(Keeping):
    def read(self) -> str | None:
        threading.Event().wait(60)
        return None


class Foreign(Keeping):
    def read(self) -> str | None:
        return "not a key of ours"


def broken() -> Vault:
    raise RuntimeError(f"no backend, {SECRET}")


def encrypting(secret: str = "") -> Seals:
    vault = Keeping()
    vault.secret = secret or None
    return load_seals(lambda: vault)


def test_a_working_keyring_is_used_and_its_key_kept() -> None:
    vault = Keeping()
    first, second = load_seals(lambda: vault), load_seals(lambda: vault)
    assert first.protection == second.protection == BY_KEYRING
    row = first.close(sealed())
    assert SECRET.encode() not in row.content
    assert second.open(row, ORIGIN) == sealed()
    assert row.content != first.close(sealed()).content, "two rows never look the same"


@pytest.mark.parametrize(
    ("vault", "said"),
    [
        (NoVault, "pip install"),
        (Locked, "(RuntimeError)"),
        (Hanging, "did not answer"),
        (broken, "(RuntimeError)"),
        (Forgetful, "holds no key"),
        (Foreign, "(ValueError)"),
    ],
)
def test_without_a_keyring_that_works_it_says_so(vault: Callable[[], Vault], said: str) -> None:
    seals = load_seals(vault, patience=0.2)
    assert seals.protection.startswith(BY_MODE)
    assert said in seals.protection
    assert SECRET not in seals.protection
    assert seals.open(seals.close(sealed()), ORIGIN) == sealed()


# As much of the optional package as is used; it keeps what it is given in a file.
KEYRING = """
from pathlib import Path
kept = Path(__file__).with_name("kept")
def get_password(service, name):
    return kept.read_text() if kept.exists() else None
def set_password(service, name, secret):
    kept.write_text(secret)
"""


def test_the_keyring_package_is_used_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keyring.py").write_text(KEYRING, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "keyring", raising=False)
    first, second = load_seals(), load_seals()
    monkeypatch.delitem(sys.modules, "keyring")
    assert first.protection == second.protection == BY_KEYRING
    assert second.open(first.close(sealed()), ORIGIN) == sealed()
    assert len((tmp_path / "kept").read_text("utf-8")) == 64


def test_a_row_that_is_no_text_is_left_out() -> None:
    assert Seals().open(SealedRow("", 0, b"\xff", crc(b"\xff")), ORIGIN) is None


@pytest.mark.parametrize("seals", [Seals(), encrypting()], ids=["plain", "encrypted"])
def test_every_flipped_bit_is_noticed(seals: Seals) -> None:
    row = seals.close(sealed())
    for at in range(len(row.content)):
        content = bytearray(row.content)
        content[at] ^= 1 << at % 8
        assert seals.open(row._replace(content=bytes(content)), ORIGIN) is None
    for content in (None, 5, "text", b""):
        assert seals.open(row._replace(content=content), ORIGIN) is None


def test_an_encrypted_row_belongs_to_its_issuer() -> None:
    """With a name of another service it cannot be opened, so it can never be sent there."""
    seals = encrypting()
    foreign = seals.close(sealed(origin=OTHER))
    row = seals.close(sealed())
    assert seals.open(row._replace(origin=foreign.origin), OTHER) is None
    assert encrypting("ab" * 32).open(row, ORIGIN) is None


async def test_nothing_sealed_is_readable_on_disk_with_a_key(tmp_path: Path) -> None:
    vault = Keeping()
    async with opened(tmp_path, vault=lambda: vault) as store:
        session = await store.update((await store.create("w")).id, full_session)
        assert holding(tmp_path, SECRET) == []
        assert holding(tmp_path, "The end.") != []
        assert (await store.condition()).protection == BY_KEYRING
    async with opened(tmp_path, vault=lambda: vault) as store:
        assert await store.get(session.id, "w") == session
    assert vault.secret is not None
    assert holding(tmp_path, vault.secret) == [] != files_of(tmp_path)


async def test_without_its_key_a_session_keeps_its_text_and_its_rows(tmp_path: Path) -> None:
    vault = Keeping()
    async with opened(tmp_path, vault=lambda: vault) as store:
        session = await store.update((await store.create("w")).id, full_session)
    async with opened(tmp_path) as store:
        found = await store.get(session.id, "w")
        assert [message.role for message in found.conversation] == [message.role for message in session.conversation]
        kinds = [block.kind for block in found.conversation[1].blocks]
        assert kinds == ["text", "text", "tool_use", "tool_use"]
        assert all(block.raw is None for block in found.conversation[1].blocks)  # type: ignore[union-attr]  # an answer
        assert "could not be decrypted" in store.problems[0]
    async with opened(tmp_path, vault=lambda: vault) as store:
        assert await store.get(session.id, "w") == session, "reading has lost nothing"
    async with opened(tmp_path) as store:
        await store.update(session.id, lambda now: one_turn(0, now))
    async with opened(tmp_path, vault=lambda: vault) as store:
        [archive] = await store.archives(session.id)
        assert (await store.archived(session.id, archive.id)).conversation == session.conversation


async def test_rows_from_before_the_keyring_are_still_read(tmp_path: Path) -> None:
    vault = Keeping()
    async with opened(tmp_path) as store:
        session = await store.update((await store.create("w")).id, full_session)
    async with opened(tmp_path, vault=lambda: vault) as store:
        grown = await store.update(session.id, lambda now: one_turn(0, now))
    async with opened(tmp_path, vault=lambda: vault) as store:
        assert await store.get(session.id, "w") == grown
        assert store.problems == ()
