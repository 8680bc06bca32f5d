"""Opaque state at rest: encrypted where a keyring holds the key, told where it does not, never lost without a word."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

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
    opened_with_session,
    sealed,
)
from thinklsp.sessions.codec import compute_crc
from thinklsp.sessions.encryption import (
    FILE_MODE_PROTECTION,
    KEYRING_PROTECTION,
    Keyring,
    OpaqueCipher,
    OpaqueRow,
    load_cipher,
)


def broken() -> NoReturn:
    raise RuntimeError(f"no backend, {SECRET}")


@dataclass
class Keeping:
    """A keyring that works, unless `reading` says otherwise."""

    secret: str | None = None
    reading: Callable[[], str | None] | None = None

    def get_password(self, *_: str) -> str | None:
        return self.secret if self.reading is None else self.reading()

    def set_password(self, _service: str, _name: str, secret: str) -> None:
        self.secret = secret


def encrypting(secret: str = "") -> OpaqueCipher:
    vault = Keeping(secret or None)
    return load_cipher(lambda: vault)


def test_a_working_keyring_is_used_and_its_key_kept() -> None:
    vault = Keeping()
    first, second = load_cipher(lambda: vault), load_cipher(lambda: vault)
    assert first.protection == second.protection == KEYRING_PROTECTION
    row = first.encrypt(sealed())
    assert SECRET.encode() not in row.content
    assert second.decrypt(row, ORIGIN) == sealed()
    assert row.content != first.encrypt(sealed()).content, "two rows never look the same"


NO_RESPONSE = "did not respond"
BAD_VAULTS: dict[str, tuple[Callable[[], Keyring], str]] = {
    "none": (NoVault, "pip install"),
    "no backend": (broken, "(RuntimeError)"),
    "locked": (lambda: Keeping(reading=broken), "(RuntimeError)"),
    "hanging": (lambda: Keeping(reading=lambda: str(threading.Event().wait(60))), NO_RESPONSE),
    "forgetful": (lambda: Keeping(reading=lambda: None), "holds no key"),
    "foreign": (lambda: Keeping(reading=lambda: "not a key of ours"), "(ValueError)"),
}


@pytest.mark.parametrize(("vault", "said"), BAD_VAULTS.values(), ids=BAD_VAULTS)
def test_without_a_keyring_that_works_it_says_so(vault: Callable[[], Keyring], said: str) -> None:
    seals = load_cipher(vault, timeout_seconds=0.2 if said == NO_RESPONSE else 60)
    assert seals.protection.startswith(FILE_MODE_PROTECTION)
    assert said in seals.protection
    assert SECRET not in seals.protection
    assert seals.decrypt(seals.encrypt(sealed()), ORIGIN) == sealed()


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
    first, second = load_cipher(), load_cipher()
    monkeypatch.delitem(sys.modules, "keyring")
    assert first.protection == second.protection == KEYRING_PROTECTION
    assert second.decrypt(first.encrypt(sealed()), ORIGIN) == sealed()
    assert len((tmp_path / "kept").read_text("utf-8")) == 64


def test_a_row_that_is_no_text_is_left_out() -> None:
    assert OpaqueCipher().decrypt(OpaqueRow("", 0, b"\xff", compute_crc(b"\xff")), ORIGIN) is None


@pytest.mark.parametrize("seals", [OpaqueCipher(), encrypting()], ids=["plain", "encrypted"])
def test_every_flipped_bit_is_noticed(seals: OpaqueCipher) -> None:
    row = seals.encrypt(sealed())
    for at in range(len(row.content)):
        content = bytearray(row.content)
        content[at] ^= 1 << at % 8
        assert seals.decrypt(row._replace(content=bytes(content)), ORIGIN) is None
    for content in (None, 5, "text", b""):
        assert seals.decrypt(row._replace(content=content), ORIGIN) is None


def test_an_encrypted_row_belongs_to_its_issuer() -> None:
    """With a name of another service it cannot be opened, so it can never be sent there."""
    seals = encrypting()
    foreign = seals.encrypt(sealed(origin=OTHER))
    row = seals.encrypt(sealed())
    assert seals.decrypt(row._replace(origin=foreign.origin), OTHER) is None
    assert encrypting("ab" * 32).decrypt(row, ORIGIN) is None


async def test_nothing_sealed_is_readable_on_disk_with_a_key(tmp_path: Path) -> None:
    vault = Keeping()
    async with opened_with_session(tmp_path, vault=lambda: vault) as (store, session):
        assert holding(tmp_path, SECRET) == []
        assert holding(tmp_path, "The end.") != []
        assert (await store.read_status()).protection == KEYRING_PROTECTION
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
        assert "cannot be decrypted" in store.problems[0]
    async with opened(tmp_path, vault=lambda: vault) as store:
        assert await store.get(session.id, "w") == session, "reading has lost nothing"
    async with opened(tmp_path) as store:
        await store.update(session.id, lambda now: one_turn(0, now))
    async with opened(tmp_path, vault=lambda: vault) as store:
        [archive] = await store.list_archives(session.id)
        assert (await store.read_archive(session.id, archive.id)).conversation == session.conversation


async def test_rows_from_before_the_keyring_are_still_read(tmp_path: Path) -> None:
    vault = Keeping()
    async with opened(tmp_path) as store:
        session = await store.update((await store.create("w")).id, full_session)
    async with opened(tmp_path, vault=lambda: vault) as store:
        grown = await store.update(session.id, lambda now: one_turn(0, now))
    async with opened(tmp_path, vault=lambda: vault) as store:
        assert await store.get(session.id, "w") == grown
        assert store.problems == ()
