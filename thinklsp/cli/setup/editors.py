"""The editors that `thinklsp setup` knows: how each one is found, and which lines go to which of its files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from thinklsp.cli.setup import helix, jetbrains, kate, zed
from thinklsp.cli.setup.blocks import ConfigPlace
from thinklsp.cli.setup.machine import Machine
from thinklsp.cli.setup.steps import ConfigEdit, SetupSteps, insert, read_own_text, refuse_own_entry, remove
from thinklsp.cli.setup.vscode import IN_APPLICATION, VARIANTS
from thinklsp.core.json_codec import parse_jsonc

# How a user who has set up thinklsp by hand starts it. Options such as `vim.g.thinklsp` are something else.
_OWN_IN_NEOVIM = re.compile(
    r"""thinklsp['"]\)?\.setup|thinklsp/editors/neovim|(?:config|enable|name =)\W*thinklsp['"]"""
)
_OWN_IN_VIM = re.compile(r"""name['"]?: ?['"]thinklsp['"]""")
_OWN_IN_EMACS = re.compile(r"^[^;\n]*\((?:require|use-package) '?thinklsp", re.MULTILINE)
_COMMANDS = ("chat", "send", "cancel", "apply", "undo")


@dataclass(frozen=True)
class SetupEditor:
    """The editor is installed if one of `programs` is found, or one of `folders` exists.

    `build_steps` gets the program, or an empty string if only a folder was found. `build_uninstall` returns programs to
    run after the removal.
    """

    title: str
    programs: tuple[str, ...]
    build_steps: Callable[[Machine, str], SetupSteps]
    build_removals: Callable[[Machine], tuple[ConfigEdit, ...]]
    build_uninstall: Callable[[Machine, str], tuple[tuple[str, ...], ...]] = lambda _, __: ()
    find_folders: Callable[[Machine], tuple[Path, ...]] = lambda _: ()

    def find(self, machine: Machine) -> str | None:
        """Return the program, an empty string if the editor is there without one, or None."""
        program = machine.find_program(self.programs)
        if program is None and any(folder.is_dir() for folder in self.find_folders(machine)):
            return ""
        return program


def _find_neovim_place(machine: Machine) -> ConfigPlace:
    # Plug-in managers such as lazy.nvim load the site folder, too, and it is not part of the user's own files.
    return ConfigPlace(
        machine.data / _find_neovim_name(machine) / "site" / "plugin" / "thinklsp.lua", machine.data, "--"
    )


def _find_neovim_name(machine: Machine) -> str:
    return machine.environ.get("NVIM_APPNAME") or "nvim"


def _build_neovim(machine: Machine, _: str) -> SetupSteps:
    config = machine.config / _find_neovim_name(machine)
    if own := _find_mention([*config.rglob("*.lua"), *config.rglob("*.vim")], _OWN_IN_NEOVIM):
        return refuse_own_entry(own)
    folder = str(machine.files / "neovim")
    command = ", ".join(map(_quote, machine.server))
    return _insert(
        _find_neovim_place(machine),
        f"local folder = {_quote(folder)}",
        "if vim.fn.isdirectory(folder) == 1 then",
        # Options that the user has set in init.lua win.
        f"  vim.g.thinklsp = vim.tbl_extend('keep', vim.g.thinklsp or {{}}, {{ cmd = {{ {command} }} }})",
        f"  vim.opt.runtimepath:append({_quote(folder.replace(',', chr(92) + ','))})",
        "  dofile(folder .. '/plugin/thinklsp.lua')",
        "else",
        "  vim.notify('thinklsp has moved: run `thinklsp setup neovim` again', vim.log.levels.WARN)",
        "end",
    )


def _find_vim_place(machine: Machine) -> ConfigPlace:
    # Vim loads this folder after the plug-ins of package managers, so an LSP client is there already.
    home, modern = machine.home / ".vim", machine.config / "vim"
    is_classic = home.exists() or (machine.home / ".vimrc").exists() or not (modern / "vimrc").exists()
    root, folder = (machine.home, home) if is_classic else (machine.config, modern)
    return ConfigPlace(folder / "after" / "plugin" / "thinklsp.vim", root, '"')


def _build_vim(machine: Machine, _: str) -> SetupSteps:
    home = machine.home
    own_files = [home / ".vimrc", home / ".vim" / "vimrc", machine.config / "vim" / "vimrc"]
    if own := _find_mention(own_files, _OWN_IN_VIM):
        return refuse_own_entry(own)
    script = _quote_in_vim(str(machine.files / "vim" / "plugin" / "thinklsp.vim"))
    steps = _insert(
        _find_vim_place(machine),
        f"if filereadable({script})",
        f"  let g:thinklsp_command = get(g:, 'thinklsp_command', [{', '.join(map(_quote_in_vim, machine.server))}])",
        f"  execute 'source' fnameescape({script})",
        "else",
        "  echomsg 'thinklsp has moved: run `thinklsp setup vim` again'",
        "endif",
    )
    page = machine.files / "vim" / "README.md"
    note = f"Vim needs an LSP client: ALE, vim-lsp or yegappan/lsp. For coc.nvim, see {page}."
    return SetupSteps(steps.edits, notes=(note,))


def _list_emacs_files(machine: Machine) -> tuple[tuple[Path, bool], ...]:
    """Return the init files in the order in which Emacs looks for them, and whether each one is the one to use."""
    home = machine.home
    doom = machine.environ.get("DOOMDIR")
    doom_files = [Path(doom or machine.config / "doom", "config.el"), home / ".doom.d" / "config.el"]
    single = [home / ".emacs.el", home / ".emacs"]
    files = [(path, path.exists()) for path in doom_files] + [(path, os.path.lexists(path)) for path in single]
    modern = machine.config / "emacs"
    files.append((home / ".emacs.d" / "init.el", (home / ".emacs.d").exists() or not modern.exists()))
    return (*files, (modern / "init.el", True))


def _find_emacs_place(machine: Machine, path: Path) -> ConfigPlace:
    return ConfigPlace(path, machine.config if path.is_relative_to(machine.config) else machine.home, ";;")


def _build_emacs(machine: Machine, _: str) -> SetupSteps:
    path = next(path for path, is_used in _list_emacs_files(machine) if is_used)
    place = _find_emacs_place(machine, path)
    if _OWN_IN_EMACS.search(read_own_text(place)):
        return refuse_own_entry(path)
    return _insert(
        place,
        f"(add-to-list 'load-path {_quote(str(machine.files / 'emacs'))})",
        f"(setq thinklsp-command '({' '.join(map(_quote, machine.server))}))",
        "(if (require 'thinklsp nil t)",
        "    (with-eval-after-load 'eglot (thinklsp-eglot-add-where-none))",
        '  (message "thinklsp has moved: run `thinklsp setup emacs` again"))',
    )


def _find_sublime(machine: Machine) -> Path:
    if machine.platform == "darwin":
        return machine.applications / "Sublime Text"
    older = machine.config / "sublime-text-3"
    newer = machine.config / "sublime-text"
    return older if older.is_dir() and not newer.is_dir() else newer


def _find_sublime_places(machine: Machine) -> tuple[ConfigPlace, ConfigPlace]:
    base = _find_sublime(machine)
    user = base / "Packages" / "User"
    clients = ConfigPlace(user / "LSP.sublime-settings", base.parent, "//", ("clients",))
    return clients, ConfigPlace(user / "thinklsp.sublime-commands", base.parent, "//")


def _build_sublime(machine: Machine, _: str) -> SetupSteps:
    base = _find_sublime(machine)
    clients, commands = _find_sublime_places(machine)
    try:
        own = parse_jsonc(read_own_text(clients))
        has_entry = "thinklsp" in own["clients"]
    except (ValueError, TypeError, KeyError):
        has_entry = False
    if has_entry:
        return refuse_own_entry(clients.path)
    entry = {
        "enabled": True, "command": list(machine.server), "selector": "source | text.html.markdown",
    }  # fmt: skip
    rows = [
        {"caption": f"thinklsp: {name}", "command": "lsp_execute",
         "args": {"session_name": "thinklsp", "command_name": f"thinklsp.{name}"}}
        for name in _COMMANDS
    ]  # fmt: skip
    lines = ["[", *(f"  {_quote(row)}{',' if row is not rows[-1] else ''}" for row in rows), "]"]
    packages = (base / "Installed Packages" / "LSP.sublime-package", base / "Packages" / "LSP")
    notes = () if any(each.exists() for each in packages) else ("Install the package LSP with Package Control, too.",)
    return SetupSteps((insert(clients, [f'"thinklsp": {_quote(entry)}']), insert(commands, lines)), notes=notes)


def _find_mention(files: Iterable[Path], pattern: re.Pattern[str]) -> Path | None:
    """Return the first file that has an own entry for thinklsp. Files that cannot be read have none."""
    for path in files:
        with suppress(OSError):
            if pattern.search(path.read_text("utf-8", "replace")):
                return path
    return None


def _insert(place: ConfigPlace, *lines: str) -> SetupSteps:
    return SetupSteps((insert(place, lines),))


def _quote(value: object) -> str:
    """Return JSON. A string of JSON is also one of Lua and of Emacs Lisp."""
    return json.dumps(value, ensure_ascii=False)


def _quote_in_vim(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


EDITORS: dict[str, SetupEditor] = {
    **{
        name: SetupEditor(
            title,
            (*programs, IN_APPLICATION.format(title=title, program=programs[0])),
            variant.build_steps,
            variant.build_removals,
            variant.build_uninstall,
        )
        for name, (title, programs, variant) in VARIANTS.items()
    },
    "neovim": SetupEditor("Neovim", ("nvim",), _build_neovim, lambda machine: (remove(_find_neovim_place(machine)),)),
    "vim": SetupEditor("Vim", ("vim", "gvim", "mvim"), _build_vim, lambda machine: (remove(_find_vim_place(machine)),)),
    "emacs": SetupEditor(
        "Emacs",
        ("emacs",),
        _build_emacs,
        lambda machine: tuple(remove(_find_emacs_place(machine, path)) for path, _ in _list_emacs_files(machine)),
    ),
    "helix": SetupEditor("Helix", ("hx", "helix"), helix.build_steps, helix.build_removals),
    "kate": SetupEditor("Kate", ("kate",), kate.build_steps, kate.build_removals),
    "sublime": SetupEditor(
        "Sublime Text",
        ("subl", "sublime_text"),
        _build_sublime,
        lambda machine: tuple(map(remove, _find_sublime_places(machine))),
        find_folders=lambda machine: (_find_sublime(machine),),
    ),
    "zed": SetupEditor(
        "Zed",
        zed.PROGRAMS,
        zed.build_steps,
        zed.build_removals,
        find_folders=lambda machine: (zed.find_folder(machine),),
    ),
    "jetbrains": SetupEditor(
        "JetBrains IDE",
        jetbrains.PROGRAMS,
        jetbrains.build_steps,
        jetbrains.build_removals,
        find_folders=jetbrains.find_folders,
    ),
}
