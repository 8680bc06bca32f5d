"""The story of a turn that changes two files, creates one and deletes one: the disk before it and after each answer.

The scenario's prompt `modernise the shop` makes the edit. One of the files is open, the others are closed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.editors.trial import Trial

PROMPT, ANSWER = "modernise the shop", "The shop is modern now."
# The prompt as a comment, for editors without a command for it.
COMMENT = f"# {PROMPT} AI!\n"
OPEN, CLOSED, NEW, DELETED = "shop.py", "money.py", "tests/test_shop.py", "old.py"
FILES = (OPEN, CLOSED, NEW, DELETED)
# Editors change such a text when they save it: it has a byte order mark, CRLF, and no line end at its end.
FORMATTED, PLAIN = "\ufeffLEGACY = True\r\nOLD = 1", "LEGACY = True\n"
_BEFORE = {
    OPEN: "PRICE = 1\n\n\ndef total(count):\n    return PRICE\n",
    CLOSED: "RATE = 3\n\n\ndef tax(net):\n    return RATE\n",
}
_NEW_TEXT = "def test_shop():\n    assert True\n"
# Each hunk: file, number in the file, old and new text.
_HUNKS = {
    (OPEN, 0): ("PRICE = 1\n", "PRICE = 2\n"), (OPEN, 1): ("return PRICE\n", "return PRICE * count\n"),
    (CLOSED, 0): ("RATE = 3\n", "RATE = 4\n"), (CLOSED, 1): ("return RATE\n", "return RATE / 100\n"),
}  # fmt: skip


def hunks_of(*names: str) -> frozenset[tuple[str, int]]:
    return frozenset(hunk for hunk in (*_HUNKS, (NEW, 0), (DELETED, 0)) if hunk[0] in names)


@dataclass(frozen=True)
class Shop:
    """The files of a trial. `head` begins the open file; `deleted` is the text of the file that the turn deletes."""

    trial: Trial
    head: str = ""
    deleted: str = FORMATTED

    def begin(self) -> None:
        """Write the files as they are before the turn."""
        for name in (OPEN, CLOSED, DELETED):
            self._path(name).write_bytes(str(self.text_of(name, ())).encode())
        self._path(NEW).unlink(missing_ok=True)

    def text_of(self, name: str, kept: Collection[tuple[str, int]]) -> str | None:
        """Return the text of a file in which these changes are kept, or None if there is no such file then."""
        if name in (NEW, DELETED):
            is_there = ((name, 0) in kept) == (name == NEW)
            return None if not is_there else _NEW_TEXT if name == NEW else self.deleted
        text = _BEFORE[name]
        for (file, number), (old, new) in _HUNKS.items():
            if file == name and (file, number) in kept:
                text = text.replace(old, new)
        return self.head + text if name == OPEN else text

    def read(self, name: str) -> str | None:
        """Return what is on disk, byte by byte."""
        path = self._path(name)
        return path.read_bytes().decode() if path.exists() else None

    async def disk_holds(
        self,
        kept: Collection[tuple[str, int]],
        names: Sequence[str] = FILES,
        save: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Wait until these files have exactly the kept changes on disk. `save` makes the editor save them."""
        wanted = {name: self.text_of(name, kept) for name in names}
        found: dict[str, str | None] = {}

        async def holds() -> bool:
            if save is not None:
                await save()
            found.update((name, self.read(name)) for name in names)
            return found == wanted

        await self.trial.until(holds, lambda: f"on disk {wanted}, not {found}")

    def _path(self, name: str) -> Path:
        return self.trial.workspace / name


class Answering(Protocol):
    """An editor whose user is asked about the turn's edit. `no_parts`: why not in part."""

    shop: Shop
    no_parts: str

    async def begin(self) -> None:
        """Open the first file as it is on disk, and no other one."""

    async def ask(self) -> str:
        """Start the turn. Return the question about its edit, without line ends and spaces."""

    async def answer(self, kept: Sequence[str] | None) -> None:
        """Keep these files, or answer with Enter alone. Wait for the end of the turn."""

    async def save(self) -> None:
        """Save all files."""

    async def undo(self) -> None:
        """Undo the turn."""

    async def undo_here(self) -> None:
        """Undo by the editor's own key in the first file."""


async def rows(seat: Answering, step: str = "an edit of four files") -> None:
    """The answers no, yes and in part, and the undo."""
    check = seat.shop.trial.check
    for name, kept in (("Enter", None), ("no", ())):
        with check(f"{step}, answered with {name}: the disk stays"):
            await _answer(seat, kept)
            await seat.shop.disk_holds((), save=seat.save)
    with check(f"{step}, answered with yes: every byte, and again after undo"):
        await _answer(seat, FILES)
        await seat.shop.disk_holds(hunks_of(*FILES), save=seat.save)
        await _undo(seat)
    with check(f"{step}, answered in part, and undo", fallback=seat.no_parts):
        if not seat.no_parts:
            await _answer(seat, (OPEN, NEW))
            await seat.shop.disk_holds(hunks_of(OPEN, NEW), save=seat.save)
        else:
            await _answer(seat, FILES)
            await seat.shop.disk_holds(hunks_of(*FILES), save=seat.save)
            await seat.undo_here()
            await seat.shop.disk_holds(hunks_of(CLOSED, NEW, DELETED), save=seat.save)
        await _undo(seat)


async def _answer(seat: Answering, kept: Sequence[str] | None) -> None:
    seat.shop.begin()
    await seat.begin()
    question = await seat.ask()
    assert all(name in question for name in FILES), question
    await seat.shop.disk_holds(())
    await seat.answer(kept)


async def _undo(seat: Answering) -> None:
    await seat.undo()
    await seat.shop.disk_holds((), save=seat.save)
