"""What the plugin for Neovim does beyond the nine steps."""

from __future__ import annotations

from tests.editors.neovim_seat import Seat


async def rows(seat: Seat) -> None:
    """In a Neovim whose current buffer is a chat document."""
    del seat
