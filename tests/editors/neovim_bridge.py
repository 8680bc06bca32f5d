"""What the plugin for Neovim answers when the server asks: with `asking_server` in the place of thinklsp."""

from __future__ import annotations

from typing import Any

from tests.editors.neovim_seat import Seat
from tests.editors.trial import OTHER_FILE, UNUSED

_ASK = "return require('thinklsp.client').ask_now(trial.client('thinklsp'), 'trial.ask', ..., 5000)"


async def rows(seat: Seat) -> None:
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
