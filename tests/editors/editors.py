"""The editors that are driven: a name for the table and `--only`, how it gets here, and its driver."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from tests.editors import emacs, helix, neovim, vim, vscode, vscode_chat, vscode_parts, web_client
from tests.editors.trial import Trial


@dataclass(frozen=True)
class Editor:
    """`install` brings it into the folder, where it may find itself already, and answers with its version; it raises
    RuntimeError with a sentence where it cannot be had. `drive` fills the trial's rows; what it raises is a
    failed row. `room`: whose installation it is, where that is another's. `required`: that it cannot be had
    fails the run too. Editors of Debian's unstable suite, which moves, are not.
    """

    name: str
    install: Callable[[Path], Awaitable[str]]
    drive: Callable[[Trial, Path], Awaitable[None]]
    required: bool = True
    room: str = ""


EDITORS: tuple[Editor, ...] = (
    Editor("Helix", helix.install, helix.drive, required=False),
    Editor("Vim", vim.install, vim.drive),
    Editor("Neovim 0.10", neovim.installer("trixie"), neovim.drive),
    Editor("Neovim 0.12", neovim.installer("sid"), neovim.drive, required=False),
    Editor("VS Code", vscode.install, vscode.drive),
    Editor("VS Code chat", vscode.install, vscode_chat.drive, room="VS Code"),
    Editor("web client", web_client.install, web_client.drive),
    Editor("VS Code parts", vscode.install, vscode_parts.drive, room="VS Code"),
    Editor("Neovim 0.12 parts", neovim.installer("sid"), neovim.drive_parts, required=False, room="Neovim 0.12"),
    Editor("Emacs eglot", emacs.installer(emacs.EGLOT), emacs.driver(emacs.EGLOT)),
    Editor("Emacs 30 eglot", emacs.installer(emacs.EGLOT_30), emacs.driver(emacs.EGLOT_30), required=False),
    Editor("Emacs lsp-mode", emacs.installer(emacs.LSP_MODE), emacs.driver(emacs.LSP_MODE)),
)
