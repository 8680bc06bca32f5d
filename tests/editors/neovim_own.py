"""What the plugin for Neovim does beyond the nine steps."""

from __future__ import annotations

from pathlib import Path

from tests.editors.neovim_seat import Seat
from tests.editors.steps import Step
from tests.editors.trial import BROKEN, FILE, FIXED, OTHER_FILE, effort_of, prompt_of, result_of

_STORY = "Tell it slowly"
_BEGINNING, _LATER, _END = "Once there was a river", "and the fish had", "downhill ever since."


async def rows(seat: Seat) -> None:
    """In a Neovim whose current buffer is a chat document."""
    trial = seat.trial
    with trial.check("shows the answer while it is written, once, and keeps what is typed meanwhile"):
        await _streams(seat)
    with trial.check("attaches to files of every kind, and to nothing else"):
        await _attaches(seat)
    with trial.check("no keystroke and no edit is lost where both come at once"):
        await _races(seat)
    with trial.check("edits, explains and undoes a range"):
        await _edits(seat)
    with trial.check(Step.KNOWS):
        await _knows(seat)
    with trial.check("maps edit a selection and stop a turn"):
        await _maps(seat)
    with trial.check("tells and sets effort, thinking and model; usage, doctor, log, apply and actions answer"):
        await _tells(seat)
    with trial.check("completes subcommands and their values"):
        await _completes(seat)
    with trial.check("picks a session to show, fork, resume or delete"):
        await _picks(seat)
    with trial.check("says in :checkhealth what there is"):
        await _is_healthy(seat)


async def _streams(seat: Seat) -> None:
    nvim = seat.nvim
    await seat.new_chat()
    await nvim.type(f"Go{_STORY}<Esc>")
    await nvim.lua("trial.doubles = 0; trial.watch(vim.api.nvim_get_current_buf(), ...)", _BEGINNING)
    await nvim.command("Thinklsp send")
    await seat.shows(_BEGINNING)
    assert _BEGINNING not in await seat.text()
    (row, lines), *others = await nvim.lua("return trial.shown(0)")
    assert others == []
    assert (await seat.text()).splitlines()[row] == _STORY
    assert "writing · " in lines[0], lines
    await nvim.type("Gomy next words<Esc>")
    await seat.shows(_LATER)
    [(_, lines)] = await nvim.lua("return trial.shown(0)")
    assert "\n".join(lines).count(_BEGINNING) == 1, lines
    await seat.idle()
    text = await seat.text()
    assert text.count(_BEGINNING) == text.count(_END) == 1, text
    assert text.endswith("\n## You\nmy next words\n"), text
    assert await nvim.lua("return { trial.doubles, trial.shown(0) }") == [0, []]
    await nvim.command("write")


async def _attaches(seat: Seat) -> None:
    trial, nvim = seat.trial, seat.nvim
    (trial.workspace / "NOTES").write_text("no file type\n")
    (trial.workspace / "notes.txt").write_text("text\n")
    for name in ("NOTES", "notes.txt"):
        await nvim.command(f"split {name}")
        await seat.until("vim.deep_equal(trial.servers(), { 'thinklsp' })", f"the server of {name}")
    for command in ("help", "new", "enew | setlocal buftype=nofile filetype=python"):
        await nvim.command(command)
        assert "thinklsp" not in await nvim.lua("return trial.servers()"), command
    await nvim.command(f"only! | edit! {FILE}")
    await seat.until("vim.deep_equal(trial.servers(), { 'lint', 'thinklsp' })", "both servers")
    # One process serves them all.
    assert await nvim.lua("return #vim.lsp.get_clients({ name = 'thinklsp' })") == 1


async def _races(seat: Seat) -> None:
    trial, nvim = seat.trial, seat.nvim
    before, typed = len(trial.requests), 0
    await nvim.command("Thinklsp edit fix the mean")
    await nvim.type("ggO# <Esc>")
    # Through the whole turn; the server waits with its edit until nobody types.
    while len(trial.requests) < before + 3 or trial.requests[-1].finished_at is None:
        await nvim.type("cc# <Esc>")
        await nvim.type(f"a{(typed := typed + 1)}<Esc>")
    await seat.text_is(f"# {typed}\n{FIXED}")
    await seat.idle()
    # An edit for a text that has gone on is refused, so that the server merges it; Neovim alone would call it applied.
    refused = await nvim.lua("return trial.receives_edit(-1, 'lost')")
    assert refused == {"applied": False, "failureReason": "the document has changed"}
    assert (await nvim.lua("return trial.receives_edit(0, '# in time')"))["applied"]
    await seat.text_is(f"# in time# {typed}\n{FIXED}")
    await nvim.command("edit!")


async def _edits(seat: Seat) -> None:
    trial, nvim = seat.trial, seat.nvim
    await seat.text_is(BROKEN)
    await nvim.command("2Thinklsp edit fix the mean")
    await seat.text_is(FIXED)
    await seat.idle()
    edit = next(request for request in reversed(trial.requests) if "fix the mean" in prompt_of(request))
    assert "stats.py, lines 2-2" in prompt_of(edit), prompt_of(edit)
    await nvim.command("Thinklsp undo")
    await seat.text_is(BROKEN)
    await seat.said("undone, 1 file")
    await nvim.command("1,2Thinklsp explain")
    await seat.until("trial.any_text('Heard: ')", "the explanation in a chat document")
    await seat.idle()
    assert "stats.py, lines 1-2" in prompt_of(trial.requests[-1]), prompt_of(trial.requests[-1])
    assert await seat.text() == BROKEN


async def _knows(seat: Seat) -> None:
    """What Neovim has from ruff, for the text as it stands when the model asks and not as it stood before."""
    trial, nvim = seat.trial, seat.nvim
    await nvim.command(f"edit! {OTHER_FILE}")
    await nvim.lua("vim.lsp.start({ name = 'ruff', cmd = { 'ruff', 'server' } })")
    await seat.until("vim.tbl_contains(trial.servers(), 'ruff')", "ruff")
    await seat.until("#vim.diagnostic.get(0) == 1", "ruff's diagnostic")
    await nvim.type("ggoimport sys<Esc>")
    asked = len(trial.requests)
    await nvim.command("Thinklsp chat what does the editor say")
    await trial.until(lambda: len(trial.requests) > asked + 1, "the request with the tool's result")
    said = result_of(trial.requests[-1])
    assert "2 problems in 1 file, by all servers" in said, said
    assert "line 1: warning: `os` imported but unused" in said, said
    assert "line 2: warning: `sys` imported but unused" in said, said
    await seat.idle()
    await nvim.command(f"edit! {FILE} | bwipeout! {OTHER_FILE}")


async def _maps(seat: Seat) -> None:
    trial, nvim = seat.trial, seat.nvim
    await nvim.lua("vim.keymap.set('x', 'ge', '<Plug>(thinklsp-explain)')")
    await nvim.lua("vim.keymap.set({ 'n', 'i' }, '<F9>', '<Cmd>Thinklsp stop<CR>')")
    await nvim.lua("vim.keymap.set('n', '<F8>', '<Plug>(thinklsp-stop)')")
    before = len(trial.requests)
    await nvim.type("ggVjge")
    await trial.until(lambda: len(trial.requests) > before, "the model's call")
    await seat.idle()
    for key in ("<F8>", "i<F9><Esc>"):
        await nvim.command("Thinklsp chat take your time")
        await seat.until("trial.status_line():find('thinking', 1, true)", "the thinking in the status line")
        await nvim.type(key)
        await seat.idle()
        await trial.until(lambda: trial.requests[-1].closed_by_client, "the end of the connection")


async def _tells(seat: Seat) -> None:
    trial, nvim = seat.trial, seat.nvim
    for line, answer in {
        "effort": "effort is high",
        "effort low": "effort is low",
        "thinking": "thinking is auto",
        "thinking off": "thinking is off",
        "thinking auto": "thinking is auto (adaptive)",
        "model": "model is auto (claude-opus-5-5)",
        "effort wild": "effort must be one of auto, low",
        "usage": "this session ",
        "log": "nothing has been logged to ",
        "apply": "There is no edit of a turn that waits",
        "stop": "nothing runs",
        "nonsense": "nonsense is no subcommand; there are actions, apply, chat, ",
    }.items():
        await nvim.command("messages clear")
        await nvim.command(f"Thinklsp {line}")
        await seat.said(answer)
    await nvim.command("Thinklsp chat good morning")
    await seat.until("trial.any_text('Heard: good morning')", "the answer in a chat document")
    await seat.idle()
    assert effort_of(trial.requests[-1]) == "low"
    # The user's own choice while working beats the configuration; without it that counts from the next turn on.
    await nvim.lua("require('thinklsp').setup({ settings = { effort = 'medium', ['thinking.display'] = 'off' } })")
    await nvim.command("Thinklsp doctor")
    await seat.until("trial.text():find('A turn could run now', 1, true)", "the doctor's report")
    await nvim.command("close")
    await nvim.command("2")
    offered = await seat.choosing("thinklsp: document", "vim.cmd('1Thinklsp actions')")
    assert all(one.startswith("thinklsp: ") for one in offered), offered
    await seat.until("require('thinklsp').status() ~= ''", "the action's turn")
    await seat.idle()
    await nvim.command("messages clear")
    await nvim.command("Thinklsp compact")
    await seat.said("nothing to shorten")


async def _completes(seat: Seat) -> None:
    for typed, wanted in {
        "Thinklsp e": ["edit", "effort", "explain"],
        "'<,'>Thinklsp ed": ["edit"],
        "Thinklsp effort ": ["auto", "high", "low", "max", "medium", "xhigh"],
        "Thinklsp thinking a": ["adaptive", "auto"],
        "Thinklsp model claude-opus-5-": ["claude-opus-5-5"],
        "Thinklsp sessions ": ["delete", "fork", "restore", "resume", "show"],
        "Thinklsp edit f": [],
    }.items():
        found = await seat.nvim.ask("nvim_call_function", "getcompletion", [typed, "cmdline"])
        assert found == wanted, (typed, found)


async def _picks(seat: Seat) -> None:
    trial, nvim = seat.trial, seat.nvim
    document = next(path for path in trial.workspace.rglob("*.chat.md") if _BEGINNING in path.read_text())
    session = _session_in(document.read_text())
    await nvim.command("only")
    await seat.choosing(_STORY, "vim.cmd('Thinklsp sessions show')")
    await seat.until("trial.text():find(..., 1, true)", "the session's text", _BEGINNING)
    assert await nvim.lua("return vim.bo.buftype") == "nofile"
    await nvim.command("close")
    await seat.choosing(_STORY, "trial.also = 'resume'; vim.cmd('Thinklsp sessions')")
    await seat.until("vim.api.nvim_buf_get_name(0) == ...", "its chat document", str(document))
    await nvim.command("only")
    await seat.choosing(_STORY, "vim.cmd('Thinklsp sessions fork')")
    await seat.until(
        "vim.api.nvim_buf_get_name(0) ~= ... and #trial.text() < 100", "the fork's document", str(document)
    )
    assert _session_in(await seat.text()) != session
    await seat.until("vim.tbl_contains(trial.servers(), 'thinklsp')", "its server")
    await nvim.type("Gogo on<Esc>")
    await nvim.command("Thinklsp send")
    await seat.until("trial.text():find('Heard: go on', 1, true)", "the answer to the fork")
    assert _BEGINNING in str(trial.requests[-1].body["messages"])
    await seat.idle()
    await nvim.command("write")
    assert Path(str(await nvim.lua("return vim.api.nvim_buf_get_name(0)"))).parent == document.parent
    await nvim.command("messages clear")
    await seat.choosing(_STORY, "trial.also = 'Delete it'; vim.cmd('Thinklsp sessions delete')")
    await seat.said(f"deleted {_STORY}")


def _session_in(text: str) -> str:
    return text.split("session: ")[1].split(" ", maxsplit=1)[0]


async def _is_healthy(seat: Seat) -> None:
    await seat.nvim.command("checkhealth thinklsp")
    await seat.until("trial.text():find('A turn could run now', 1, true)", "the report")
    text = await seat.text()
    assert "OK Neovim " in text, text
    assert "attached to " in text, text
    assert "model claude-opus-5-5 of anthropic" in text, text
    assert "ERROR" not in text, text
    assert "WARNING" not in text, text
