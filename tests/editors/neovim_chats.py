"""Chats of Neovim in the side window: completion, what is on disk, what goes wrong, and the pictures of the page."""

from __future__ import annotations

from tests.editors.neovim_seat import Seat
from tests.editors.parts import FIRST, new_file
from tests.editors.trial import BROKEN, FILE, OTHER_FILE, UNUSED

_COLUMNS, _LINES = 104, 26


async def rows(seat: Seat) -> None:
    """In a Neovim whose current buffer is the broken file, with a key."""
    for step, run in (
        ("a chat document is saved after the answer, and nothing else is open", _saves),
        ("each answer of a long chat is on the screen", _scrolls),
        ("completes @files and /commands in a chat document", _completes),
        ("a broken file type plugin is told once and stops no chat", _survives_a_plugin),
        ("a chat that cannot be made says why, and leaves no file", _says_why),
        ("draws the pictures of the page", _draws),
    ):
        with seat.trial.check(step):
            await run(seat)


async def _saves(seat: Seat) -> None:
    await seat.nvim.command(f"only! | edit! {FILE}")
    await seat.nvim.command("Thinklsp chat good morning")
    await seat.until("trial.chat_text():find('Heard: good morning', 1, true)", "the answer in the chat window")
    await seat.idle()
    await seat.until("trial.is_saved('Heard: good morning')", "the saved chat document")
    names = await seat.nvim.lua("return vim.tbl_map(function(one) return one.name end, vim.fn.getbufinfo())")
    assert not [name for name in names if "gitignore" in name], names


async def _scrolls(seat: Seat) -> None:
    nvim = seat.nvim
    await nvim.command("wincmd l")
    for turn in range(6):
        # Such a line is wrapped in the window at the side.
        await nvim.type(f"GAturn {turn} {'and so on ' * 5}<Esc>")
        await nvim.command("Thinklsp send")
        answer = f"Heard: turn {turn}"
        await seat.until("trial.chat_text():find(..., 1, true)", "the answer in the chat", answer)
        await seat.idle()
        await nvim.command("redraw!")
        await seat.trial.until(lambda answer=answer: answer in nvim.screen.text(), "the answer on the screen")
    await nvim.command("wincmd h")


async def _completes(seat: Seat) -> None:
    await seat.nvim.command("wincmd l")
    await seat.until("vim.tbl_contains(trial.servers(), 'thinklsp')", "its server")
    for typed, wanted in {"look at @sta": f"@{FILE}", "/effo": "/effort"}.items():
        await seat.nvim.type(f"Go{typed}")
        await seat.until("trial.text():find(..., 1, true)", "the words", typed)
        await seat.until("vim.tbl_contains(trial.completions(), (...))", f"{wanted} for {typed}", wanted)
        await seat.nvim.type("<Esc>u")
    await seat.nvim.command("wincmd h | only!")


async def _survives_a_plugin(seat: Seat) -> None:
    await seat.nvim.command("messages clear")
    await seat.nvim.command("autocmd FileType markdown ++once throw 'broken plugin'")
    await seat.nvim.command("Thinklsp chat good afternoon")
    await seat.until("trial.chat_text():find('Heard: good afternoon', 1, true)", "the answer in the chat window")
    await seat.idle()
    said = str(await seat.nvim.lua("return trial.own_messages()"))
    assert said.count("your configuration failed") == 1, said
    await seat.nvim.command("only!")


async def _says_why(seat: Seat) -> None:
    folder = seat.trial.workspace / ".thinklsp" / "chat"
    before = set(folder.iterdir())
    await seat.nvim.command("messages clear")
    await seat.nvim.command("augroup trial | autocmd FileType markdown setlocal nomodifiable | augroup END")
    await seat.nvim.command("Thinklsp chat")
    await seat.said("The chat document was not created: the editor refused it: ")
    await seat.nvim.command("autocmd! trial")
    assert set(folder.iterdir()) == before


async def _draws(seat: Seat) -> None:
    nvim, pictures = seat.nvim, seat.trial.pictures
    await nvim.ask("nvim_ui_try_resize", _COLUMNS, _LINES)
    files = (seat.trial.file, seat.trial.workspace / OTHER_FILE, new_file(seat.trial))
    await nvim.lua("trial.forget(...)", [str(file) for file in files])
    (seat.trial.workspace / OTHER_FILE).write_text(UNUSED)
    new_file(seat.trial).unlink(missing_ok=True)
    seat.trial.file.write_text(BROKEN)
    await nvim.command(f"edit! {FILE}")
    await nvim.command("1,2Thinklsp explain")
    await seat.until("trial.chat_text():find('It divides at', 1, true)", "the explanation")
    await seat.idle()
    await nvim.lua("trial.forget({}); vim.cmd('edit! stats.py | redraw!')")
    await seat.trial.until(lambda: "It divides at" in nvim.screen.text(), "the chat on the screen")
    (pictures / "neovim-chat.svg").write_text(nvim.screen.draw("A chat at the side in Neovim"))
    await nvim.command(f"only | 1,2Thinklsp edit {FIRST}")
    await seat.until("trial.float()", "the float")
    await seat.trial.until(lambda: "+def test_tally" in nvim.screen.text(), "the float on the screen")
    (pictures / "neovim-review.svg").write_text(nvim.screen.draw("The review of an edit in Neovim"))
    await nvim.type("q")
    await seat.idle()
    await nvim.ask("nvim_ui_try_resize", 80, 24)
