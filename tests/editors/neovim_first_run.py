"""The first steps in Neovim without a key: three offers, and an offline edit after at most three commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.editors.neovim_seat import Seat
from tests.editors.trial import BROKEN, FIXED, OTHER_FILE

_WAYS = ["Set an API key", "Use a local server", "Try offline"]
_NO_SERVER = "no model server answers on 127.0.0.1"
_MODELS = b'HTTP/1.0 200 OK\r\n\r\n{"object": "list", "data": [{"id": "small"}]}'
_MAX_COMMANDS = 3
STRICT_PORT = 8082
_COMMENT = "# thinklsp offline: make it safe"


async def rows(seat: Seat) -> None:
    """In a Neovim whose current buffer is the broken file, without a key."""
    for step, run in (
        ("without a key: every entry offers the same three ways", _every_entry),
        ("without a key: a local server is found, and its two lines are written after a yes", _local_server),
        ("the status line says offline if only config.toml chooses the simulator", _offline_by_file),
        ("without a key: an offline edit of the user's file after at most three commands", _offline),
        ("without a key: a wrong key is told once, and a good key is tested and used at once", _key),
    ):
        with seat.trial.check(step):
            await run(seat)


async def rows_with_a_wrong_key(seat: Seat) -> None:
    """In a Neovim whose current buffer is the broken file, with a key for OpenAI that its service rejects."""
    with seat.trial.check("a turn that fails says why in one message, which names the key"):
        async with _strict_service():
            await seat.nvim.command("2Thinklsp edit fix the mean")
            await seat.said("OPENAI_API_KEY")
        await seat.idle()
        said = [line for line in str(await seat.nvim.lua("return trial.own_messages()")).splitlines() if line]
        assert len(said) == 1, said
        await seat.text_is(BROKEN)


async def _every_entry(seat: Seat) -> None:
    for entry in ("chat hello", "edit fix the mean", "explain", "review", "setup"):
        await seat.choosing(_WAYS[0], f"trial.wanted = {{}}; vim.cmd('2Thinklsp {entry}')")
        assert await seat.nvim.lua("return trial.offered") == [_WAYS], entry
    await seat.choosing("thinklsp: review", "trial.wanted = { 'thinklsp: review' }; vim.lsp.buf.code_action()")
    await seat.until("#trial.offered == 2", "the three ways")
    assert (await seat.nvim.lua("return trial.offered"))[1] == _WAYS
    await seat.new_chat()
    await seat.nvim.type("Gohello<Esc>")
    await seat.choosing(_WAYS[0], "trial.wanted = {}; vim.cmd('Thinklsp send')")
    await seat.nvim.command("bwipeout!")
    assert seat.trial.requests[-1:] == [] or "hello" not in str(seat.trial.requests[-1].body["messages"][-1])


async def _local_server(seat: Seat) -> None:
    config = seat.trial.home / "config" / "thinklsp" / "config.toml"
    await seat.choosing("Use a local server", "vim.cmd('2Thinklsp edit fix the mean')")
    await seat.said(_NO_SERVER)
    assert not config.exists()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(_MODELS)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 8000):
        await seat.nvim.lua("trial.also = '8000'")
        await seat.choosing("Use a local server", "vim.cmd('2Thinklsp edit fix the mean')")
        await seat.until("#trial.offered == 3", "the question about the two lines")
        assert not config.exists()
        await seat.nvim.command("messages clear")
        await seat.nvim.lua("trial.wanted = { 'Use a local server', '8000', 'Yes' }; trial.offered = {}")
        await seat.nvim.command("2Thinklsp edit fix the mean")
        await seat.trial.until(config.exists, "the settings file")
        # This server lists models and cannot do more, as the turn that is tried again finds out.
        await seat.until("trial.own_messages() ~= ''", "the outcome of the turn")
        await seat.idle()
    text = '[providers.openai-compatible]\nbase_url = "http://127.0.0.1:8000/v1"\n'
    assert config.read_text() == text
    assert config.stat().st_mode & 0o777 == 0o600
    config.unlink()
    await seat.nvim.lua("trial.also = nil")


async def _offline_by_file(seat: Seat) -> None:
    config = seat.trial.home / "config" / "thinklsp" / "config.toml"
    status = "require('thinklsp').status() == ..."
    config.write_text('provider = "simulator"\n')
    await seat.nvim.lua("require('thinklsp.client').restart(function() end)")
    await seat.until(status, "the word of a server that starts", "offline")
    await seat.nvim.command(f"split {config} | %delete | write")
    await seat.until(status, "a status without the word", "")
    await seat.nvim.command("undo | write")
    await seat.until("trial.status_line():find('offline', 1, true)", "the word after the file was saved")
    await seat.nvim.command("%delete | write | bwipeout!")
    await seat.until(status, "a status without the word", "")
    config.unlink()


async def _offline(seat: Seat) -> None:
    nvim = seat.nvim
    await nvim.command(f"edit! {OTHER_FILE}")
    await seat.until("vim.tbl_contains(trial.servers(), 'thinklsp')", "the server")
    environment = "vim.env.THINKLSP_PROVIDER = {}; return require('thinklsp').status()"
    for provider, status in (("'simulator'", "offline"), ("nil", "")):
        assert await nvim.lua(environment.format(provider)) == status
    asked = len(seat.trial.requests)
    # The command and the choice in its list; opening the file was the first.
    commands = 1
    await seat.choosing("Try offline", "vim.cmd('4,5Thinklsp edit make it safe')")
    commands += 1 + int(await nvim.lua("return #trial.offered"))
    await seat.until("trial.text():find(..., 1, true)", "the offline edit", _COMMENT)
    assert commands <= _MAX_COMMANDS, commands
    seat.trial.noted(f"{commands} commands")
    await seat.said("offline: a simulator answers")
    await seat.until("trial.status_line():find('offline', 1, true)", "the status line")
    await seat.idle()
    assert await nvim.lua("return require('thinklsp').status()") == "offline"
    assert len(seat.trial.requests) == asked
    await nvim.command("edit!")


async def _key(seat: Seat) -> None:
    nvim, key = seat.nvim, seat.trial.service.key
    await nvim.command("edit! stats.py")
    await nvim.command("messages clear")
    # From offline on: the user chooses again.
    async with _strict_service():
        ways = "{ 'Set an API key', 'OpenAI', 'Try again', 'Not now' }"
        await seat.choosing(_WAYS[0], f"trial.wanted = {ways}; vim.cmd('Thinklsp setup')")
        for tries in (1, 2):
            await _asks_for_key(seat, "API key for OpenAI (from https://platform.openai.com/api-keys):")
            await nvim.type("sk-wrong<CR>")
            await seat.until("#trial.offered == ...", "the reason", 2 + tries)
            why = str(await nvim.lua("return trial.prompt"))
            assert why.startswith("The key for OpenAI does not work. "), why
            assert "reject" in why, why
    await seat.until("trial.has_no_key()", "the server without the wrong key")
    await seat.choosing(_WAYS[0], "trial.wanted = { 'Set an API key', 'Anthropic' }; vim.cmd('Thinklsp setup')")
    await _asks_for_key(seat, "API key for Anthropic (from https://console.anthropic.com/settings/keys):")
    await nvim.type(f"{key}<CR>")
    await seat.said("the key works until you leave Neovim")
    said = str(await nvim.lua("return trial.own_messages()"))
    assert said.count("sk-wrong") == 0, said
    assert await nvim.lua("return require('thinklsp').status()") == ""
    asked = len(seat.trial.requests)
    await nvim.command("2Thinklsp edit fix the mean")
    await seat.text_is(FIXED)
    await seat.idle()
    assert len(seat.trial.requests) > asked


async def _asks_for_key(seat: Seat, question: str) -> None:
    """With the page where keys are made."""
    screen = seat.nvim.screen
    try:
        await seat.trial.until(lambda: screen.text().rstrip().endswith(question), "the question for the key")
    except AssertionError as error:
        raise AssertionError(f"{error}, on\n{screen.text()}") from None


@asynccontextmanager
async def _strict_service() -> AsyncIterator[None]:
    """A service that accepts no key."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b'{"error": {"message": "Incorrect API key provided.", "code": "invalid_api_key"}}'
        head = f"HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", STRICT_PORT):
        yield
