"""The editors that `thinklsp setup` knows: how each one is found, and which lines go to which of its files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thinklsp.cli.setup.files import BlockPlace, EntryPlace, Machine, read_file
from thinklsp.core.errors import ThinkLspError
from thinklsp.core.json_codec import parse_jsonc

Place = BlockPlace | EntryPlace
Programs = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class SetupSteps:
    """The lines or entries for each place, or None to remove ours; then programs to run, and notes for the user."""

    contents: tuple[tuple[Place, Any], ...] = ()
    programs: Programs = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SetupEditor:
    """The editor is installed if one of `programs` is found, or one of `folders` exists.

    `build_steps` gets the program, or an empty string if only a folder was found. It raises ThinkLspError if a file
    must not be changed. `build_uninstall` returns programs to run after the removal.
    """

    title: str
    programs: tuple[str, ...]
    find_places: Callable[[Machine], tuple[Place, ...]]
    build_steps: Callable[[Machine, str], SetupSteps]
    build_uninstall: Callable[[Machine, str], Programs] = lambda _, __: ()
    find_folders: Callable[[Machine], tuple[Path, ...]] = lambda _: ()

    def find(self, machine: Machine) -> str | None:
        """Return the program, an empty string if the editor is there without one, or None."""
        program = machine.find_program(self.programs)
        if program is None and any(folder.is_dir() for folder in self.find_folders(machine)):
            return ""
        return program


def _refuse_own_entry(path: Path) -> SetupSteps:
    return SetupSteps(notes=(f"{path} has an entry of your own for thinklsp, so nothing was added.",))


def _quote(value: object) -> str:
    """Return JSON. A string of JSON is also one of Lua, of Emacs Lisp and of TOML."""
    return json.dumps(value, ensure_ascii=False)


def _find_mention(files: Iterable[Path], pattern: str) -> Path | None:
    """Return the first file that has an own entry for thinklsp. Files that cannot be read have none."""
    for path in files:
        with suppress(OSError):
            if re.search(pattern, path.read_text("utf-8", "replace")):
                return path
    return None


# Neovim. How a user who has set up thinklsp by hand starts it. Options such as `vim.g.thinklsp` are something else.
_OWN_IN_NEOVIM = r"""thinklsp['"]\)?\.setup|thinklsp/editors/neovim|(?:config|enable|name =)\W*thinklsp['"]"""


def _find_neovim_place(machine: Machine) -> BlockPlace:
    # Plug-in managers such as lazy.nvim load the site folder, too, and it is not part of the user's own files.
    name = machine.environ.get("NVIM_APPNAME") or "nvim"
    return BlockPlace(machine.data / name / "site" / "plugin" / "thinklsp.lua", "--")


def _build_neovim(machine: Machine, _: str) -> SetupSteps:
    config = machine.config / (machine.environ.get("NVIM_APPNAME") or "nvim")
    if own := _find_mention([*config.rglob("*.lua"), *config.rglob("*.vim")], _OWN_IN_NEOVIM):
        return _refuse_own_entry(own)
    folder = str(machine.files / "neovim")
    command = ", ".join(map(_quote, machine.server))
    lines = (
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
    return SetupSteps(((_find_neovim_place(machine), lines),))


def _find_vim_place(machine: Machine) -> BlockPlace:
    # Vim loads this folder after plug-ins that package managers installed, so an LSP client is already available.
    home, modern = machine.home / ".vim", machine.config / "vim"
    is_classic = home.exists() or (machine.home / ".vimrc").exists() or not (modern / "vimrc").exists()
    return BlockPlace((home if is_classic else modern) / "after" / "plugin" / "thinklsp.vim", '"')


def _build_vim(machine: Machine, _: str) -> SetupSteps:
    home = machine.home
    own_files = [home / ".vimrc", home / ".vim" / "vimrc", machine.config / "vim" / "vimrc"]
    if own := _find_mention(own_files, r"""name['"]?: ?['"]thinklsp['"]"""):
        return _refuse_own_entry(own)

    def quote(text: str) -> str:
        return "'" + text.replace("'", "''") + "'"

    script = quote(str(machine.files / "vim" / "plugin" / "thinklsp.vim"))
    lines = (
        f"if filereadable({script})",
        f"  let g:thinklsp_command = get(g:, 'thinklsp_command', [{', '.join(map(quote, machine.server))}])",
        f"  execute 'source' fnameescape({script})",
        "else",
        "  echomsg 'thinklsp has moved: run `thinklsp setup vim` again'",
        "endif",
    )
    page = machine.files / "vim" / "README.md"
    note = f"Vim needs an LSP client: ALE, vim-lsp or yegappan/lsp. For coc.nvim, see {page}."
    return SetupSteps(((_find_vim_place(machine), lines),), notes=(note,))


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


def _find_emacs_places(machine: Machine) -> tuple[BlockPlace, ...]:
    return tuple(BlockPlace(path, ";;") for path, _ in _list_emacs_files(machine))


def _build_emacs(machine: Machine, _: str) -> SetupSteps:
    used = next(path for path, is_used in _list_emacs_files(machine) if is_used)
    place = next(each for each in _find_emacs_places(machine) if each.path == used)
    if re.search(r"^[^;\n]*\((?:require|use-package) '?thinklsp", place.read_own_text(), re.MULTILINE):
        return _refuse_own_entry(place.path)
    lines = (
        f"(add-to-list 'load-path {_quote(str(machine.files / 'emacs'))})",
        f"(setq thinklsp-command '({' '.join(map(_quote, machine.server))}))",
        "(if (require 'thinklsp nil t)",
        "    (with-eval-after-load 'eglot (thinklsp-eglot-add-where-none))",
        '  (message "thinklsp has moved: run `thinklsp setup emacs` again"))',
    )
    return SetupSteps(((place, lines),))


# Helix has no entry for all languages, and an entry replaces the built-in list of servers. So each language gets an
# entry with the list that this Helix has built in, and thinklsp at its end.
_HELIX_LANGUAGES = (
    "bash", "c", "c-sharp", "cpp", "go", "java", "javascript", "jsx", "lua", "markdown", "php", "python", "ruby",
    "rust", "tsx", "typescript",
)  # fmt: skip
_HELIX_FEATURES = '["code-action", "workspace-command", "completion", "hover"]'
_HELIX_PROGRESS = ("[editor.lsp]", "display-progress-messages = true")
_HELIX_TIMEOUT_SECONDS = 20


def _find_helix_places(machine: Machine) -> tuple[BlockPlace, BlockPlace]:
    folder = machine.config / "helix"
    languages, config = (BlockPlace(folder / name, "#") for name in ("languages.toml", "config.toml"))
    return languages, config


def _build_helix(machine: Machine, program: str) -> SetupSteps:
    languages, config = _find_helix_places(machine)
    own = _parse_toml(languages)
    if "thinklsp" in own.get("language-server", {}):
        return _refuse_own_entry(languages.path)
    taken = {each.get("name") for each in own.get("language", []) if "language-servers" in each}
    lines = ["[language-server.thinklsp]", f"command = {_quote(machine.server[0])}"]
    if machine.server[1:]:
        lines.append(f"args = [{', '.join(map(_quote, machine.server[1:]))}]")
    for name in (each for each in _HELIX_LANGUAGES if each not in taken):
        servers = [*map(_quote, _list_helix_servers(machine, program, name))]
        servers.append(f'{{ name = "thinklsp", only-features = {_HELIX_FEATURES} }}')
        lines += ("", "[[language]]", f"name = {_quote(name)}", f"language-servers = [{', '.join(servers)}]")
    _parse_toml(languages, lines)
    contents: list[tuple[Place, Iterable[str]]] = [(languages, lines)]
    notes = []
    if kept := [name for name in _HELIX_LANGUAGES if name in taken]:
        notes.append(
            f'{languages.path} has lists of your own for {", ".join(kept)}: add "thinklsp" to `language-servers` there.'
        )
    if "display-progress-messages" not in _parse_toml(config).get("editor", {}).get("lsp", {}):
        try:
            _parse_toml(config, _HELIX_PROGRESS)
            contents.append((config, _HELIX_PROGRESS))
        except ThinkLspError:
            progress = f"add `{_HELIX_PROGRESS[1]}` to `{_HELIX_PROGRESS[0]}` in {config.path}"
            notes.append(f"To see the progress, {progress}.")
    return SetupSteps(tuple(contents), notes=tuple(notes))


def _parse_toml(place: BlockPlace, lines: Iterable[str] = ()) -> Any:
    """Return the user's part of the file as a value, with the lines at its end. Raises ThinkLspError."""
    try:
        return tomllib.loads("\n".join([place.read_own_text(), *lines]))
    except tomllib.TOMLDecodeError as error:
        raise ThinkLspError(
            f"{place.path} is not valid TOML with the lines for thinklsp, so nothing was changed: {error}. "
            "Correct the file, or write inline tables as tables of their own."
            if lines
            else f"{place.path} is not valid TOML, so nothing was changed: {error}. Correct the file."
        ) from None


def _list_helix_servers(machine: Machine, program: str, language: str) -> list[str]:
    """Return the servers that Helix itself has for a language, without the user's configuration."""
    with tempfile.TemporaryDirectory(prefix="thinklsp-") as empty:
        environ = {**machine.environ, "XDG_CONFIG_HOME": empty, "XDG_CACHE_HOME": empty}
        try:
            done = subprocess.run(
                [program, "--health", language],
                cwd=empty, env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=False,
                timeout=_HELIX_TIMEOUT_SECONDS,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ThinkLspError(f"Cannot run {program}: {error}.") from None
    output = re.sub(r"\x1b\[[\d;]*m", "", done.stdout.decode("utf-8", "replace"))
    found = re.search(r"^Configured language servers:.*\n(?P<rows>(?:[ \t].*\n)*)", output, re.MULTILINE)
    if found is None:
        raise ThinkLspError(
            f"`{program} --health {language}` lists no language servers. Helix 23.10 or newer is needed."
        )
    return re.findall(r"^\s+\S+ ([^\s:]+)", found["rows"], re.MULTILINE)


# Kate runs one server per language, so thinklsp gets the languages for whose own server no program is installed.
_KATE_SERVERS = {
    "bash": "bash-language-server", "c": "clangd", "cpp": "clangd", "go": "gopls",
    "javascript": "typescript-language-server", "lua": "lua-language-server", "markdown": "marksman",
    "php": "intelephense", "python": "pylsp", "ruby": "solargraph", "rust": "rust-analyzer",
    "typescript": "typescript-language-server",
}  # fmt: skip


def _find_kate_place(machine: Machine) -> EntryPlace:
    root = machine.home / "Library" / "Preferences" if machine.platform == "darwin" else machine.config
    path = root / "kate" / "lspclient" / "settings.json"
    return EntryPlace(path, "servers", ("written by",), "thinklsp setup kate")


def _build_kate(machine: Machine, _: str) -> SetupSteps:
    place = _find_kate_place(machine)
    own = place.find_own_entries()
    kept = [name for name, each in _KATE_SERVERS.items() if name in own or machine.find_program([each]) is not None]
    notes = ["Enable the plug-in LSP Client in Settings → Configure Kate → Plugins."]
    if kept:
        notes.append(f"Kate runs one server per language, and these keep theirs: {', '.join(kept)}.")
    entries = {name: {"command": list(machine.server)} for name in _KATE_SERVERS if name not in kept}
    return SetupSteps(((place, entries),), notes=tuple(notes))


def _find_sublime(machine: Machine) -> Path:
    if machine.platform == "darwin":
        return machine.applications / "Sublime Text"
    older, newer = machine.config / "sublime-text-3", machine.config / "sublime-text"
    return older if older.is_dir() and not newer.is_dir() else newer


def _find_sublime_places(machine: Machine) -> tuple[BlockPlace, BlockPlace]:
    base = _find_sublime(machine)
    user = base / "Packages" / "User"
    clients = BlockPlace(user / "LSP.sublime-settings", "//", ("clients",))
    return clients, BlockPlace(user / "thinklsp.sublime-commands", "//")


def _build_sublime(machine: Machine, _: str) -> SetupSteps:
    base = _find_sublime(machine)
    clients, commands = _find_sublime_places(machine)
    if "thinklsp" in _read_member(clients, "clients"):
        return _refuse_own_entry(clients.path)
    entry = {
        "enabled": True, "command": list(machine.server), "selector": "source | text.html.markdown",
    }  # fmt: skip
    rows = [
        {"caption": f"thinklsp: {name}", "command": "lsp_execute",
         "args": {"session_name": "thinklsp", "command_name": f"thinklsp.{name}"}}
        for name in ("chat", "send", "cancel", "apply", "undo")
    ]  # fmt: skip
    lines = ["[", *(f"  {_quote(row)}{',' if row is not rows[-1] else ''}" for row in rows), "]"]
    packages = (base / "Installed Packages" / "LSP.sublime-package", base / "Packages" / "LSP")
    notes = () if any(each.exists() for each in packages) else ("Also install the LSP package with Package Control.",)
    return SetupSteps(((clients, [f'"thinklsp": {_quote(entry)}']), (commands, lines)), notes=notes)


def _read_member(place: BlockPlace, key: str | None = None) -> dict[str, Any]:
    """Return the object with this key in the user's part of a JSON file, or the whole file.

    A file that cannot be read counts as empty; an insertion refuses such a file.
    """
    try:
        value = parse_jsonc(place.read_own_text())
        value = value if key is None else value[key]
    except (ValueError, TypeError, KeyError):
        return {}
    return value if isinstance(value, dict) else {}


# The clients of the Agent Client Protocol. Distributions name the program of Zed differently.
_AGENTS = "agent_servers"
_ZED_PROGRAMS = ("zed", "zeditor", "zedit", "zed-editor", "/Applications/Zed.app/Contents/MacOS/cli")
_JETBRAINS_PROGRAMS = (
    "idea", "pycharm", "webstorm", "goland", "clion", "rider", "rubymine", "phpstorm", "rustrover", "datagrip",
)  # fmt: skip


def _find_zed_place(machine: Machine) -> BlockPlace:
    # On macOS, Zed does not read XDG_CONFIG_HOME.
    root = machine.home / ".config" if machine.platform == "darwin" else machine.config
    return BlockPlace(root / "zed" / "settings.json", "//", (_AGENTS,))


def _build_zed(machine: Machine, _: str) -> SetupSteps:
    place = _find_zed_place(machine)
    if _has_agent(_read_member(place, _AGENTS)):
        return _refuse_own_entry(place.path)
    line = f'"thinklsp": {_quote({"type": "custom", **_build_agent(machine)})}'
    note = "To use it, open the agent panel of Zed and start a new thread with thinklsp."
    return SetupSteps(((place, [line]),), notes=(note,))


def _find_jetbrains_place(machine: Machine) -> EntryPlace:
    path = machine.home / ".jetbrains" / "acp.json"
    return EntryPlace(path, _AGENTS, ("env", "SETUP_BY"), "thinklsp setup jetbrains")


def _build_jetbrains(machine: Machine, _: str) -> SetupSteps:
    place = _find_jetbrains_place(machine)
    if _has_agent(place.find_own_entries()):
        return _refuse_own_entry(place.path)
    note = "To use it, choose thinklsp in the AI chat of the IDE. The chat needs the plug-in AI Assistant."
    return SetupSteps(((place, {"thinklsp": _build_agent(machine)}),), notes=(note,))


def _build_agent(machine: Machine) -> dict[str, Any]:
    program, *args = machine.acp_command
    return {"command": program, "args": args, "env": {}}


def _has_agent(agents: Any) -> bool:
    """Return True if an agent of the user is called thinklsp or starts a program of that name."""
    commands = (each.get("command") for each in agents.values() if isinstance(each, dict))
    return "thinklsp" in agents or any(isinstance(each, str) and Path(each).name == "thinklsp" for each in commands)


# VS Code and the editors that are built from it.
_EXTENSION = "thinklsp.thinklsp"
_SERVER_PATH = "thinklsp.ui.server.path"


@dataclass(frozen=True)
class _VsCode:
    """`user_data` is its folder among the applications' settings, and `extensions` its folder in the home folder.

    `is_remote`: the extension runs on a server, for which the settings of the machine count.
    """

    user_data: str
    extensions: str
    is_remote: bool = False

    def find_places(self, machine: Machine) -> tuple[BlockPlace]:
        root = machine.data if self.is_remote else machine.applications
        scope = "Machine" if self.is_remote else "User"
        return (BlockPlace(root / self.user_data / scope / "settings.json", "//", ()),)

    def build_steps(self, machine: Machine, program: str) -> SetupSteps:
        package = machine.files / "vscode" / "thinklsp.vsix"
        if not package.is_file():
            raise ThinkLspError(
                "This installation has no extension for VS Code. To build it, run `npm install --no-package-lock && "
                "npm run package` in editors/vscode of a clone of the repository, then install it there with "
                f"`{Path(program).name} --install-extension thinklsp.vsix`."
            )
        is_current = self.find_version(machine) == _read_version(package)
        programs = () if is_current else ((program, "--install-extension", str(package), "--force"),)
        (settings,) = self.find_places(machine)
        if machine.server == ("thinklsp",):
            # The extension finds the program on PATH.
            return SetupSteps(((settings, None),), programs)
        own = _read_member(settings)
        if _SERVER_PATH in own:
            is_same = own[_SERVER_PATH] == machine.server[0]
            note = f"{settings.path} sets `{_SERVER_PATH}` already, so it stays: {own[_SERVER_PATH]}"
            return SetupSteps(programs=programs, notes=() if is_same else (note,))
        return SetupSteps(((settings, [f'"{_SERVER_PATH}": {_quote(machine.server[0])}']),), programs)

    def build_uninstall(self, machine: Machine, program: str) -> Programs:
        return ((program, "--uninstall-extension", _EXTENSION),) if self.find_version(machine) is not None else ()

    def find_version(self, machine: Machine) -> str | None:
        """Return the version of the installed extension, or None."""
        folder = machine.data / self.user_data / "extensions" if self.is_remote else machine.home / self.extensions
        try:
            rows = json.loads(read_file(folder / "extensions.json") or b"[]")
            return next((str(row["version"]) for row in rows if row["identifier"]["id"].lower() == _EXTENSION), None)
        except (ValueError, TypeError, KeyError):
            return None


def _read_version(package: Path) -> str | None:
    try:
        with zipfile.ZipFile(package) as archive:
            return str(json.loads(archive.read("extension/package.json"))["version"])
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        raise ThinkLspError(f"{package} is not an extension for VS Code. Build it again.") from None


def _list_vscodes() -> Iterator[tuple[str, SetupEditor]]:
    for name, title, programs, vscode in (
        ("vscode", "VS Code", ("code",), _VsCode("Code", ".vscode/extensions")),
        ("vscode-insiders", "VS Code Insiders", ("code-insiders",),
         _VsCode("Code - Insiders", ".vscode-insiders/extensions")),
        ("codium", "VSCodium", ("codium", "vscodium"), _VsCode("VSCodium", ".vscode-oss/extensions")),
        ("code-server", "code-server", ("code-server",), _VsCode("code-server", "", is_remote=True)),
        ("cursor", "Cursor", ("cursor",), _VsCode("Cursor", ".cursor/extensions")),
        ("windsurf", "Windsurf", ("windsurf",), _VsCode("Windsurf", ".windsurf/extensions")),
        ("positron", "Positron", ("positron",), _VsCode("Positron", ".positron/extensions")),
    ):  # fmt: skip
        # Where macOS keeps the program if the user has not put it on PATH.
        application = f"/Applications/{title}.app/Contents/Resources/app/bin/{programs[0]}"
        yield (
            name,
            SetupEditor(
                title,
                (*programs, application),
                vscode.find_places,
                vscode.build_steps,
                vscode.build_uninstall,
            ),
        )


EDITORS: dict[str, SetupEditor] = {
    **dict(_list_vscodes()),
    "neovim": SetupEditor("Neovim", ("nvim",), lambda machine: (_find_neovim_place(machine),), _build_neovim),
    "vim": SetupEditor("Vim", ("vim", "gvim", "mvim"), lambda machine: (_find_vim_place(machine),), _build_vim),
    "emacs": SetupEditor("Emacs", ("emacs",), _find_emacs_places, _build_emacs),
    "helix": SetupEditor("Helix", ("hx", "helix"), _find_helix_places, _build_helix),
    "kate": SetupEditor("Kate", ("kate",), lambda machine: (_find_kate_place(machine),), _build_kate),
    "sublime": SetupEditor(
        "Sublime Text",
        ("subl", "sublime_text"),
        _find_sublime_places,
        _build_sublime,
        find_folders=lambda machine: (_find_sublime(machine),),
    ),
    "zed": SetupEditor(
        "Zed",
        _ZED_PROGRAMS,
        lambda machine: (_find_zed_place(machine),),
        _build_zed,
        find_folders=lambda machine: (_find_zed_place(machine).path.parent,),
    ),
    "jetbrains": SetupEditor(
        "JetBrains IDE",
        _JETBRAINS_PROGRAMS,
        lambda machine: (_find_jetbrains_place(machine),),
        _build_jetbrains,
        find_folders=lambda machine: (machine.applications / "JetBrains", machine.home / ".jetbrains"),
    ),
}
