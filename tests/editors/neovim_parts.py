"""The review of edits in Neovim's float: what was skipped waits, and nothing is made up."""

from __future__ import annotations

from tests.editors.neovim_seat import Seat
from tests.editors.parts import BOTH, FIRST, NEW_FILE, NEW_TEXT, SECOND, TWICE, new_file, nothing_phantom, offer_server
from tests.editors.trial import BROKEN, FIXED, OTHER_FILE, UNUSED


async def rows(seat: Seat) -> None:
    """In a Neovim whose current buffer is the broken file."""
    trial = seat.trial
    for step, run in (
        ("the float shows the diff and writes nothing before an answer", _nothing),
        ("what is kept is written, and one message names the rest", _one_of_three),
        ("the next turn reads and edits what is in the buffer and on disk", _next_turn),
        ("apply completes the rest", _apply),
        ("undo takes the turn back", _undo),
        ("the MCP servers of the project are listed, and none is started", _lists_servers),
    ):
        with trial.check(step):
            await run(seat)


async def _nothing(seat: Seat) -> None:
    await seat.text_is(BROKEN)
    shown = await _asked(seat, FIRST)
    for line in (
        "-    return sum(values) / len(value)",
        "+    return sum(values) / len(values)",
        "in a different file",
        "+from decimal import Decimal",
        "-import os",
        "new file",
        "+def test_tally():",
    ):
        assert line in shown, (line, shown)
    (seat.trial.pictures / f"{seat.trial.editor}-review.txt".replace(" ", "-")).write_text(shown)
    await seat.nvim.type("d")
    await seat.until("not trial.float():find('+from decimal', 1, true)", "the float without the diff")
    assert (seat.trial.workspace / OTHER_FILE).read_text() == UNUSED
    await seat.nvim.type("q")
    await seat.idle()
    await seat.text_is(BROKEN)
    assert not new_file(seat.trial).exists()


async def _one_of_three(seat: Seat) -> None:
    await seat.nvim.command("messages clear")
    await _asked(seat, FIRST)
    for key in "ynn":
        await seat.nvim.type(key)
    await seat.text_is(FIXED)
    await seat.idle()
    await seat.said("thinklsp: apply")
    assert (seat.trial.workspace / OTHER_FILE).read_text() == UNUSED
    assert not new_file(seat.trial).exists()


async def _next_turn(seat: Seat) -> None:
    await _asked(seat, SECOND)
    await seat.nvim.type("y")
    await seat.idle()
    nothing_phantom(seat.trial, new_text=None)
    await _holds(seat, OTHER_FILE, TWICE)


async def _apply(seat: Seat) -> None:
    await seat.nvim.command("Thinklsp apply")
    await _holds(seat, OTHER_FILE, BOTH)
    await _holds(seat, f"tests/{NEW_FILE}", NEW_TEXT)


async def _undo(seat: Seat) -> None:
    await seat.choosing("thinklsp: undo “edit stats.py”", "vim.lsp.buf.code_action()")
    await seat.text_is(BROKEN)
    await _holds(seat, OTHER_FILE, TWICE)
    await seat.trial.until(lambda: not new_file(seat.trial).exists(), "the end of the new file")


async def _lists_servers(seat: Seat) -> None:
    program = offer_server(seat.trial)
    await seat.nvim.command("Thinklsp mcp")
    for line in ("sky: not approved (", "  Command: ", "  Hash: "):
        await seat.until("trial.text():find(..., 1, true)", f"the line {line!r} of the report", line)
    assert not program.with_suffix(".ran").exists()
    await seat.nvim.command("close")
    (seat.trial.workspace / ".mcp.json").unlink()
    await seat.nvim.command("Thinklsp mcp")
    await seat.until("trial.text():find('There are no MCP servers.', 1, true)", "the report without servers")
    await seat.nvim.command("close")


async def _asked(seat: Seat, instruction: str) -> str:
    """The text of the float that asks about the edit."""
    await seat.nvim.command(f"1,2Thinklsp edit {instruction}")
    return str(await seat.until("trial.float()", "the float"))


async def _holds(seat: Seat, name: str, text: str) -> None:
    path = str(seat.trial.workspace / name)
    holds = "vim.fn.bufexists((...)) == 1 and trial.text(vim.fn.bufnr((...))) == select(2, ...)"
    try:
        await seat.until(holds, f"the text of {name}", path, text)
    except AssertionError as error:
        raise AssertionError(f"{error}, after {await seat.nvim.lua('return trial.messages()')!r}") from None
