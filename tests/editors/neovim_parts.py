"""Neovim's question about change annotations, answered with No: what was left out waits, and nothing is made up."""

from __future__ import annotations

from tests.editors.neovim_seat import Seat
from tests.editors.parts import BOTH, FIRST, NEW_FILE, NEW_TEXT, SECOND, TWICE, WAITING, new_file, nothing_phantom
from tests.editors.trial import BROKEN, FIXED, OTHER_FILE, UNUSED


async def rows(seat: Seat) -> None:
    """In a Neovim whose current buffer is the broken file."""
    trial = seat.trial
    # Without a screen it asks nobody; a command line of one row would ask for Enter after each message.
    await seat.nvim.ask("nvim_ui_attach", 140, 60, {})
    await seat.nvim.command("set cmdheight=20")
    for step, run in (
        ("its question makes what is answered with Yes, and one message names the rest", _one_of_three),
        ("the next turn reads and edits what is in the buffer and on disk", _next_turn),
        ("apply completes the file that was created empty", _apply),
        ("undo takes the turn back", _undo),
    ):
        with trial.check(step):
            await run(seat)


async def _one_of_three(seat: Seat) -> None:
    await seat.text_is(BROKEN)
    await seat.nvim.command("messages clear")
    await seat.nvim.command(f"1,2Thinklsp edit {FIRST}")
    for _ in (OTHER_FILE, NEW_FILE):
        await _answer(seat, "n")
    await seat.text_is(FIXED)
    await seat.idle()
    await seat.said(WAITING)
    await seat.said(f"{NEW_FILE} is empty until then")
    assert (seat.trial.workspace / OTHER_FILE).read_text() == UNUSED
    assert new_file(seat.trial).read_text() == ""


async def _next_turn(seat: Seat) -> None:
    await seat.nvim.command(f"1,2Thinklsp edit {SECOND}")
    await _answer(seat, "y")
    await seat.idle()
    nothing_phantom(seat.trial, new_text="")
    await _holds(seat, OTHER_FILE, TWICE)


async def _apply(seat: Seat) -> None:
    await seat.nvim.command("Thinklsp apply")
    await _holds(seat, OTHER_FILE, BOTH)
    await _holds(seat, f"tests/{NEW_FILE}", NEW_TEXT)


async def _undo(seat: Seat) -> None:
    await seat.choosing("thinklsp: undo: edit stats.py", "vim.lsp.buf.code_action()")
    await seat.text_is(BROKEN)
    await _holds(seat, OTHER_FILE, TWICE)
    await seat.trial.until(lambda: not new_file(seat.trial).exists(), "the end of the new file")


async def _holds(seat: Seat, name: str, text: str) -> None:
    path = str(seat.trial.workspace / name)
    await seat.until("trial.text(vim.fn.bufnr((...))) == select(2, ...)", f"the text of {name}", path, text)


async def _answer(seat: Seat, key: str) -> None:
    """Neovim answers nothing else while it asks."""

    async def asks() -> bool:
        return bool((await seat.nvim.ask("nvim_get_mode"))["mode"] == "r?")

    await seat.trial.until(asks, "the question")
    await seat.nvim.ask("nvim_input", key)
