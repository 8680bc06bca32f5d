"""What the plugin for Neovim does beyond the nine steps, and what it answers when the server asks: with the server
`asking` in the place of thinklsp. Neovim's question about change annotations, answered with No: what was left out
waits, and nothing is made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.editors.neovim_seat import Seat
from tests.editors.steps import Step
from tests.editors.trial import BROKEN, FILE, FIXED, OTHER_FILE, UNUSED, effort_of, prompt_of, result_of

_STORY = "Tell it slowly"
_BEGINNING, _LATER, _END = "Once there was a river", "and the fish had", "downhill ever since."


async def rows(seat: Seat) -> None:
    """In a Neovim whose current buffer is a chat document."""
    for step, run in (
        ("shows the answer while it is written, once, and keeps what is typed meanwhile", _streams),
        ("attaches to files of every kind, and to nothing else", _attaches),
        ("no keystroke and no edit is lost where both come at once", _races),
        ("edits a range without a window and with one message, undoes it, and explains", _edits),
        (Step.KNOWS, _knows),
        ("maps edit a selection and stop a turn", _maps),
        ("tells and sets effort, thinking and model; usage, doctor, log, apply and actions answer", _tells),
        ("completes subcommands and their values", _completes),
        ("picks a session to show, fork, resume or delete", _picks),
        ("asks for the instruction and edits at the cursor", _edits_at_the_cursor),
        ("one chat window at the side, named by the session's title, opens and closes", _toggles),
        ("completes #buffer, #selection and #diagnostics to mentions", _mentions),
        ("says in :checkhealth what there is", _is_healthy),
    ):
        with seat.trial.check(step):
            await run(seat)


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
    await nvim.command("only!")
    await seat.text_is(BROKEN)
    before = await nvim.lua("return trial.windows()")
    await nvim.command("messages clear")
    await nvim.command("2Thinklsp edit fix the mean")
    await seat.text_is(FIXED)
    await seat.idle()
    await seat.said("I use it in both places now.")
    assert await nvim.lua("return trial.windows()") == before
    assert await nvim.ask("nvim_get_mode") == {"mode": "n", "blocking": False}
    shown = str(await nvim.lua("return vim.api.nvim_exec2('messages', { output = true }).output"))
    assert len([line for line in shown.splitlines() if line.strip()]) == 1, shown
    assert (trial.workspace / ".thinklsp/chat/.gitignore").read_text() == "*\n"
    edit = next(request for request in reversed(trial.requests) if "fix the mean" in prompt_of(request))
    assert "stats.py, lines 2-2" in prompt_of(edit), prompt_of(edit)
    await nvim.command("Thinklsp undo")
    await seat.text_is(BROKEN)
    await seat.said("undone, 1 file")
    await nvim.command("1,2Thinklsp explain")
    await seat.until("trial.any_text('It divides at `stats.py:2`')", "the explanation in a chat document")
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
    assert "2 problems in 1 file, according to all servers" in said, said
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
        "effort": "effort is high", "effort low": "effort is low", "thinking": "thinking is auto",
        "thinking off": "thinking is off", "thinking auto": "thinking is auto (adaptive)",
        "model": "model is auto (claude-opus-5-5)", "effort wild": "`effort` must be one of auto, low",
        "usage": "this session: ", "log": "the log is empty: ", "apply": "No edit is waiting",
        "stop": "no turn is running", "nonsense": "unknown subcommand nonsense; use one of actions, apply, changes, ",
    }.items():  # fmt: skip
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
    await seat.said("othing to compact")


async def _completes(seat: Seat) -> None:
    for typed, wanted in {
        "Thinklsp e": ["edit", "effort", "explain"], "'<,'>Thinklsp ed": ["edit"],
        "Thinklsp effort ": ["auto", "high", "low", "max", "medium", "xhigh"],
        "Thinklsp thinking a": ["adaptive", "auto"], "Thinklsp model claude-opus-5-": ["claude-opus-5-5"],
        "Thinklsp sessions ": ["delete", "fork", "restore", "resume", "show"], "Thinklsp edit f": [],
    }.items():  # fmt: skip
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


async def _edits_at_the_cursor(seat: Seat) -> None:
    await seat.nvim.command(f"only! | edit! {FILE}")
    await seat.text_is(BROKEN)
    await seat.nvim.lua("vim.ui.input = function(_, on_done) on_done('fix the mean') end")
    await seat.nvim.command("2")
    await seat.nvim.command("Thinklsp edit")
    await seat.text_is(FIXED)
    await seat.idle()
    await seat.nvim.command("undo")


async def _toggles(seat: Seat) -> None:
    nvim = seat.nvim
    await nvim.command("Thinklsp chat good evening")
    await seat.until("trial.any_text('Heard: good evening')", "the answer in a chat document")
    await seat.idle()
    await nvim.command("Thinklsp chat good night")
    await seat.until("trial.any_text('Heard: good night')", "the answer in a chat document")
    await seat.idle()
    assert (await nvim.lua("return trial.windows()"))[0] == 2
    title = "vim.wo[vim.api.nvim_tabpage_list_wins(0)[2]].winbar"
    await seat.until(f"{title}:find('good night', 1, true)", "the title of the session")
    await nvim.command("Thinklsp toggle")
    assert (await nvim.lua("return trial.windows()"))[0] == 1
    await nvim.command("Thinklsp toggle")
    await seat.until("trial.text():find('Heard: good night', 1, true)", "the chat window with the focus")


async def _mentions(seat: Seat) -> None:
    nvim = seat.nvim
    await nvim.command("wincmd p")
    await nvim.type("ggVj<Esc>")
    await nvim.command("wincmd p")
    for typed, wanted in {"#b": [f"@{FILE}"], "#sel": [f"@{FILE}:1-2"], "#d": ["@diagnostics"]}.items():
        await nvim.type(f"Golook at {typed}")
        await seat.until("vim.deep_equal(trial.completions(), ...)", f"{wanted} for {typed}", wanted)
        await nvim.type("<Esc>u")
    await nvim.command("Thinklsp toggle")


async def _is_healthy(seat: Seat) -> None:
    await seat.nvim.command("checkhealth thinklsp")
    await seat.until("trial.text():find('A turn could run now', 1, true)", "the report")
    text = await seat.text()
    assert "OK Neovim " in text, text
    assert "attached to " in text, text
    assert "model claude-opus-5-5 of anthropic" in text, text
    assert "ERROR" not in text, text
    assert "WARNING" not in text, text


_ASK = "return require('thinklsp.client').ask_now(trial.client('thinklsp'), 'trial.ask', ..., 60000)"


async def bridge_rows(seat: Seat) -> None:
    """In a Neovim that shows the other file."""
    with seat.trial.check("answers what the server asks about places, symbols and files"):
        await _answers(seat)


async def _answers(seat: Seat) -> None:
    nvim, file = seat.nvim, seat.trial.workspace / OTHER_FILE
    uri = file.as_uri()
    await nvim.lua("vim.lsp.start({ name = 'knowing', cmd = { 'thinklsp-knowing' } })")
    await seat.until("vim.tbl_contains(trial.servers(), 'knowing')", "the server that knows")
    await seat.until("trial.client('thinklsp') ~= nil", "the server that asks")

    async def ask(name: str, **params: Any) -> Any:
        return await nvim.lua(_ASK, {"method": f"thinklsp/editor/{name}", "params": params})

    # On `values` in the fifth line, which the fourth has as a parameter.
    row = UNUSED.splitlines()[4]
    place = {"textDocument": {"uri": uri}, "position": {"line": 4, "character": row.index("values") + 1}}
    [found] = await ask("definition", **place)
    assert (found["uri"], found["range"]["start"]["line"]) == (uri, 3), found
    assert [one["range"]["start"]["line"] for one in await ask("references", **place)] == [3, 4]
    assert "2 places" in str(await ask("hover", **place))
    assert [one["name"] for one in await ask("symbols", uri=uri)] == ["tally"]
    assert [one["name"] for one in await ask("symbols", query="al")] == ["tally"]
    assert not await ask("symbols", query="nothing of the kind")
    # What nobody has open nobody can say; nothing is opened for it.
    elsewhere = {"textDocument": {"uri": f"{uri}.not"}, "position": {"line": 0, "character": 0}}
    assert not await ask("definition", **elsewhere)
    [known] = await ask("diagnostics", uri=uri)
    assert (known["uri"], known["diagnostics"]) == (uri, []), known
    await nvim.type("ggOimport sys<Esc>")
    assert await ask("save", uris=[uri, f"{uri}.not"]) == {"saved": [uri]}
    assert file.read_text() == f"import sys\n{UNUSED}"
    file.write_text(UNUSED)
