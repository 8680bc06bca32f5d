"""The editors that are driven: a name for the table and `--only`, how it gets here, and its driver."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from tests.editors import (
    acp_sdk,
    acpx_cli,
    emacs,
    helix,
    neovim,
    neovim_avante,
    neovim_codecompanion,
    setting_up,
    vim,
    vscode,
    vscode_answers,
    vscode_chat,
    vscode_decisions,
    vscode_errors,
    vscode_first_run,
    vscode_parts,
    vscode_review,
    vscode_server,
    vscode_sessions,
    vscode_tour,
    web_client,
)
from tests.editors.trial import Trial


@dataclass(frozen=True)
class Editor:
    """`install` brings it into the folder, where it may find itself already, and answers with its version; it raises
    RuntimeError with a sentence where it cannot be had. `drive` fills the trial's rows; what it raises is a
    failed row. `room`: whose installation it is, where that is another's. `required`: that it cannot be had
    fails the run too. Editors of Debian's unstable suite, which moves, are not. `repeats`: it plays what another
    version of the editor has played.
    """

    name: str
    install: Callable[[Path], Awaitable[str]]
    drive: Callable[[Trial, Path], Awaitable[None]]
    required: bool = True
    room: str = ""
    repeats: bool = False

    def room_in(self, cache: Path) -> Path:
        """Return the folder of its installation."""
        return cache / (self.room or self.name).replace(" ", "-")


EDITORS: tuple[Editor, ...] = (
    Editor("Helix", helix.install, helix.drive, required=False),
    Editor("Vim", vim.install, vim.drive),
    Editor("Neovim 0.10", neovim.installer("trixie"), neovim.drive),
    Editor("Neovim 0.12", neovim.installer("sid"), neovim.drive, required=False, repeats=True),
    Editor("VS Code", vscode.install, vscode.drive),
    Editor("VS Code chat", vscode.install, vscode_chat.drive, room="VS Code"),
    Editor("VS Code answers", vscode.install, vscode_answers.drive, room="VS Code"),
    Editor("VS Code sessions", vscode.install, vscode_sessions.drive, room="VS Code"),
    Editor("web client", web_client.install, web_client.drive),
    Editor("ACP acpx", acpx_cli.install, acpx_cli.drive),
    Editor(
        "ACP codecompanion.nvim",
        neovim_codecompanion.install,
        neovim_codecompanion.drive,
        required=False,
        room="Neovim 0.12",
    ),
    Editor("ACP avante.nvim", neovim_avante.install, neovim_avante.drive, required=False, room="Neovim 0.12"),
    Editor("ACP TypeScript SDK", acp_sdk.install, acp_sdk.drive),
    Editor("VS Code review", vscode.install, vscode_review.drive, room="VS Code"),
    Editor("VS Code decisions", vscode.install, vscode_decisions.drive, room="VS Code"),
    Editor("VS Code first run", vscode.install, vscode_first_run.drive, room="VS Code"),
    Editor("VS Code server", vscode.install, vscode_server.drive, room="VS Code"),
    Editor("VS Code errors", vscode.install, vscode_errors.drive, room="VS Code"),
    Editor("VS Code tour", vscode.install, vscode_tour.drive, room="VS Code"),
    Editor("VS Code parts", vscode.install, vscode_parts.drive, room="VS Code"),
    Editor("Neovim 0.10 parts", neovim.installer("trixie"), neovim.drive_parts, room="Neovim 0.10"),
    Editor(
        "Neovim 0.12 parts",
        neovim.installer("sid"),
        neovim.drive_parts,
        required=False,
        room="Neovim 0.12",
        repeats=True,
    ),
    Editor("Neovim 0.10 setup", neovim.installer("trixie"), setting_up.drive_neovim, room="Neovim 0.10"),
    Editor(
        "Neovim 0.12 setup",
        neovim.installer("sid"),
        setting_up.drive_neovim,
        required=False,
        room="Neovim 0.12",
        repeats=True,
    ),
    Editor("Helix setup", helix.install, setting_up.drive_helix, required=False, room="Helix"),
    Editor("Vim setup", vim.install, setting_up.drive_vim, room="Vim"),
    Editor("VS Code setup", vscode.install, setting_up.drive_vscode, room="VS Code"),
    Editor("Emacs eglot setup", emacs.installer(emacs.EGLOT), setting_up.emacs_driver(emacs.EGLOT), room="Emacs eglot"),
    Editor(
        "Emacs 30 eglot setup",
        emacs.installer(emacs.EGLOT_30),
        setting_up.emacs_driver(emacs.EGLOT_30),
        required=False,
        room="Emacs 30 eglot",
        repeats=True,
    ),
    Editor(
        "Emacs lsp-mode setup",
        emacs.installer(emacs.LSP_MODE),
        setting_up.emacs_driver(emacs.LSP_MODE),
        room="Emacs lsp-mode",
    ),
    Editor("Emacs eglot", emacs.installer(emacs.EGLOT), emacs.driver(emacs.EGLOT)),
    Editor(
        "Emacs 30 eglot", emacs.installer(emacs.EGLOT_30), emacs.driver(emacs.EGLOT_30), required=False, repeats=True
    ),
    Editor("Emacs lsp-mode", emacs.installer(emacs.LSP_MODE), emacs.driver(emacs.LSP_MODE)),
)
