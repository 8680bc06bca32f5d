"""`thinklsp setup` in homes of all kinds: it changes what it shows, a second run nothing, and a removal restores."""

import json
import os
import shutil
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from thinklsp.cli.setup import find_state, plan_setup, run_program
from thinklsp.cli.setup.editors import EDITORS
from thinklsp.cli.setup.files import Machine, find_editor_files, find_server
from thinklsp.core.errors import ThinkLspError
from thinklsp.core.json_codec import parse_jsonc

ROOT = Path(__file__).parents[2]
HELIX = """#!/bin/sh
printf 'Configured language servers:\\n  \\033[31mX\\033[m ruff: found\\n  V pylsp: found\\n'
printf 'Configured debug adapter: None\\n'
"""
# Keeps a list of extensions like the real one.
CODE = """#!/bin/sh
list="$HOME/.vscode/extensions/extensions.json"
mkdir -p "$(dirname "$list")"
case "$1" in
  --install-extension) echo '[{"identifier": {"id": "thinklsp.thinklsp"}, "version": "0.9.1"}]' > "$list" ;;
  --uninstall-extension) echo '[]' > "$list" ;;
  *) echo "unknown option"; exit 7 ;;
esac
"""
PROGRAMS = {"nvim": "", "vim": "", "emacs": "", "kate": "", "subl": "", "hx": HELIX, "zeditor": "", "pycharm": ""}
# Editor -> the file that gets its lines, below the home folder.
FILES = {
    "neovim": ".local/share/nvim/site/plugin/thinklsp.lua",
    "vim": ".vim/after/plugin/thinklsp.vim",
    "emacs": ".emacs.d/init.el",
    "helix": ".config/helix/languages.toml",
    "kate": ".config/kate/lspclient/settings.json",
    "sublime": ".config/sublime-text/Packages/User/LSP.sublime-settings",
    "zed": ".config/zed/settings.json",
    "jetbrains": ".jetbrains/acp.json",
}


@pytest.fixture
def cli(cli):
    """The command line of a user who has every editor, in a home folder whose name is hard to quote."""
    programs = cli.home.parent / "programs"
    programs.mkdir()
    for name, text in PROGRAMS.items():
        (programs / name).write_text(text or "#!/bin/sh\n")
        (programs / name).chmod(0o755)
    cli.home = cli.home.parent / 'it\'s "home" (ö)'
    cli.home.mkdir()
    cli.environment |= {"HOME": str(cli.home), "PATH": f"{programs}:/usr/bin:/bin"}
    return cli


def files_of(home):
    """Every file and link below the folder, with its content and mode."""
    return {
        str(path.relative_to(home)): (
            os.readlink(path) if path.is_symlink() else path.read_bytes(),
            path.lstat().st_mode,
        )
        for path in sorted(home.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def machine_of(cli, files=None, platform="linux", server=(sys.executable, "-m", "thinklsp")):
    return Machine(cli.environment, platform, server, files or ROOT / "editors")


def add_program(cli, name, text=""):
    path = cli.home.parent / "programs" / name
    path.write_text(text or "#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("name", FILES)
def test_a_fresh_home_and_back(inside, cli, name):
    machine = machine_of(cli)
    assert find_state(EDITORS[name], machine) == "not set up"
    shown = inside("setup", name, "--print")
    assert (shown.returncode, shown.stderr, files_of(cli.home)) == (0, "", {})
    done = inside("setup", name, "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert shown.stdout.splitlines()[0] == "--- /dev/null"
    assert shown.stdout.rstrip() in done.stdout.replace(f"{EDITORS[name].title}: set up. Start it again.\n", "")
    after = files_of(cli.home)
    assert FILES[name] in after
    again = inside("setup", name, "--yes")
    assert again.stdout.endswith(f"{EDITORS[name].title}: nothing to change.\n")
    assert files_of(cli.home) == after
    assert "set up" in next(line for line in inside("setup").stdout.splitlines() if line.startswith(f"{name} "))
    removed = inside("setup", name, "--remove", "--yes")
    assert (removed.returncode, removed.stderr, files_of(cli.home)) == (0, "", {})
    assert inside("setup", name, "--remove").stdout == f"{EDITORS[name].title}: nothing to remove.\n"


OWN = {
    "emacs": (".emacs", b";; mine\n(setq a 1)"),
    "helix": (".config/helix/languages.toml", b'# mine\n[[language]]\nname = "rust"\nauto-format = true\n'),
    "sublime": (FILES["sublime"], b'{\r\n\t// mine\r\n\t"clients": {"ruff": {"enabled": true,},},\r\n}'),
    "zed": (FILES["zed"], b'// mine\n{\n  "theme": "One", // {\n  "agent_servers": {"x": {"command": "y"},},\n}\n'),
    "jetbrains": (FILES["jetbrains"], b'{"default_mcp_settings": {}, "agent_servers": {"x": {"command": "y"}}}'),
    "kate": (FILES["kate"], b'{\n\t"servers": {"python": {"command": ["x"]}},\n\t"other": 1.0\n}'),
    "neovim": (".config/nvim/init.lua", b"vim.g.thinklsp = { settings = { effort = 'high' } }\n"),
    "vim": (".vimrc", b"let g:thinklsp_settings = {'effort': 'high'}\n"),
}


@pytest.mark.parametrize("linked", [False, True], ids=["file", "link"])
@pytest.mark.parametrize("name", OWN)
def test_files_of_the_user_are_restored(inside, cli, name, linked):
    path, data = OWN[name]
    file = cli.home / path
    file.parent.mkdir(parents=True, exist_ok=True)
    real = cli.home / "dot files" / file.name if linked else file
    real.parent.mkdir(exist_ok=True)
    real.write_bytes(data)
    real.chmod(0o640)
    if linked:
        file.symlink_to(real)
    before = files_of(cli.home)
    done = inside("setup", name, "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    changed = real.read_bytes() != data
    assert changed == (name not in ("neovim", "vim"))
    assert (f"{file} is a link, so {real} changes." in done.stdout) == (linked and changed)
    assert real.stat().st_mode & 0o777 == 0o640
    assert file.is_symlink() == linked
    assert "nothing to change" in inside("setup", name).stdout
    # What was typed in the meantime stays.
    mine = b"" if name in ("sublime", "zed", "jetbrains", "kate") else b"\n# more"
    real.write_bytes(real.read_bytes() + mine)
    assert inside("setup", name, "--remove", "--yes").returncode == 0
    assert real.read_bytes().startswith(data)
    assert real.read_bytes().endswith(mine)
    if not mine:
        assert files_of(cli.home) == before


OWN_ENTRIES = {
    "emacs": (".emacs.d/init.el", "(require 'thinklsp)\n"),
    "helix": (".config/helix/languages.toml", '[language-server.thinklsp]\ncommand = "x"\n'),
    "sublime": (FILES["sublime"], '{"clients": {"thinklsp": {}}}'),
    "zed": (FILES["zed"], '{"agent_servers": {"My agent": {"command": "/opt/thinklsp"}}} // mine'),
    "jetbrains": (FILES["jetbrains"], '{"agent_servers": {"thinklsp": {"command": "x"}}}'),
    "neovim": (".config/nvim/lua/plugins/ai.lua", "require('thinklsp').setup({})\n"),
    "vim": (".vimrc", "call ale#linter#Define('python', {'name': 'thinklsp'})\n"),
}


@pytest.mark.parametrize("name", OWN_ENTRIES)
def test_an_own_entry_is_left_alone(inside, cli, name):
    path, text = OWN_ENTRIES[name]
    file = cli.home / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    before = files_of(cli.home)
    done = inside("setup", name, "--yes")
    assert f"{file} has an entry of your own for thinklsp, so nothing was added." in done.stdout
    assert (done.returncode, files_of(cli.home)) == (0, before)
    assert "has an entry of your own" in inside("setup").stdout


def make_read_only(file):
    file.write_text("")
    file.chmod(0o444)


HOSTILE = {
    "read-only": (make_read_only, "is read-only, so nothing was changed"),
    "folder": (Path.mkdir, "is not a regular file, so nothing was changed"),
    "latin": (lambda file: file.write_bytes(b"# \xe4\n"), "not encoded in UTF-8, so nothing was changed"),
    "dangling": (lambda file: file.symlink_to("nowhere"), "which does not exist"),
    "pipe": (os.mkfifo, "is not a regular file"),
    "loop": (lambda file: file.symlink_to(file), "Too many levels of symbolic links"),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("case", HOSTILE)
def test_what_cannot_be_changed_ends_with_a_sentence(inside, cli, name, case):
    make, words = HOSTILE[case]
    file = cli.home / FILES[name]
    file.parent.mkdir(parents=True)
    make(file)
    before = {} if case == "pipe" else files_of(cli.home)
    done = inside("setup", name, "--yes")
    assert done.returncode == 1
    assert words in done.stderr
    assert done.stderr.startswith("thinklsp setup: ")
    assert done.stderr.count("\n") == 1
    assert str(file) in done.stderr
    assert case == "pipe" or files_of(cli.home) == before
    # The list says it, too, and goes on. The lines can be copied.
    if case == "read-only":
        assert "thinklsp setup" in inside("setup", name, "--print").stdout
    assert words in inside("setup").stdout


@pytest.mark.parametrize("name", FILES)
def test_a_file_in_place_of_a_folder(inside, cli, name):
    top = Path(FILES[name]).parts[0]
    (cli.home / top).write_text("a file")
    done = inside("setup", name, "--yes")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert files_of(cli.home).keys() == {top}


def test_helix_keeps_lists_of_the_user(inside, cli):
    """What has to be added by hand is said before the question."""
    file = cli.home / FILES["helix"]
    file.parent.mkdir(parents=True)
    file.write_text('[[language]]\nname = "python"\nlanguage-servers = ["mine"]\n')
    (file.with_name("config.toml")).write_text("[editor.lsp]\nenable = true\n")
    done = inside("setup", "helix", "--yes")
    assert f'{file} has lists of your own for python: add "thinklsp" to `language-servers` there.' in done.stdout
    assert "add `display-progress-messages = true` to `[editor.lsp]`" in done.stdout
    assert done.stdout.index("lists of your own") < done.stdout.index("Helix: set up.")
    entries = {entry["name"]: entry["language-servers"] for entry in tomllib.loads(file.read_text())["language"]}
    assert entries["python"] == ["mine"]
    assert entries["rust"][:2] == ["ruff", "pylsp"]
    assert entries["rust"][2]["name"] == "thinklsp"


@pytest.mark.parametrize("text", ["language = []\n", "broken =\n", 'language-server = {a = {command = "a"}}\n'])
def test_helix_is_not_given_what_it_cannot_read(inside, cli, text):
    file = cli.home / FILES["helix"]
    file.parent.mkdir(parents=True)
    file.write_text(text)
    done = inside("setup", "helix", "--yes")
    assert (done.returncode, file.read_text()) == (1, text)
    assert f"{file} is not valid TOML" in done.stderr


def test_a_helix_that_lists_no_servers(inside, cli):
    (cli.home.parent / "programs" / "hx").write_text("#!/bin/sh\necho unknown\n")
    assert "lists no language servers" in inside("setup", "helix").stderr


def make_files(tmp_path, version="0.9.1"):
    """The editors' files as a wheel has them, with an extension."""
    folder = tmp_path / "files"
    (folder / "vscode").mkdir(parents=True)
    with zipfile.ZipFile(folder / "vscode" / "thinklsp.vsix", "w") as package:
        package.writestr("extension/package.json", json.dumps({"version": version}))
    return folder


VARIANTS = ("vscode", "vscode-insiders", "codium", "code-server", "cursor", "windsurf", "positron")


@pytest.mark.parametrize("name", VARIANTS)
def test_each_vscode_gets_extension_and_path(cli, tmp_path, name):
    add_program(cli, EDITORS[name].programs[0], CODE)
    machine = machine_of(cli, make_files(tmp_path))
    plan = plan_setup(EDITORS[name], machine)
    assert [argv[1] for argv in plan.programs] == ["--install-extension"]
    assert [parse_jsonc(change.after.decode()) for change in plan.changes] == [
        {"thinklsp.ui.server.path": sys.executable}
    ]


VSCODE = [
    ("", "0.9.1", 0, True), ("{}", "0.9.0", 1, True), ('{"a": 1, // mine\n}', None, 1, True),
    ('{"thinklsp.ui.server.path": "/mine"}', "0.9.1", 0, False),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "version", "programs", "is_changed"), VSCODE)
def test_vscode_that_has_something(cli, tmp_path, settings, version, programs, is_changed):
    add_program(cli, "code", CODE)
    file = cli.home / ".config" / "Code" / "User" / "settings.json"
    file.parent.mkdir(parents=True)
    file.write_text(settings)
    extensions = cli.home / ".vscode" / "extensions" / "extensions.json"
    extensions.parent.mkdir(parents=True)
    rows = [{"identifier": {"id": "other.thing"}, "version": "1"}, "what?"]
    found = [{"identifier": {"id": "ThinkLSP.thinklsp"}, "version": version}] if version else []
    extensions.write_text(json.dumps(found + rows))
    plan = plan_setup(EDITORS["vscode"], machine_of(cli, make_files(tmp_path)))
    assert (len(plan.programs), bool(plan.changes)) == (programs, is_changed)
    assert plan.notes == (() if is_changed else (f"{file} sets `thinklsp.ui.server.path` already, so it stays: /mine",))


def test_an_editor_that_fails_is_quoted(cli):
    program = add_program(cli, "code", "#!/bin/sh\necho no\necho the disk is full\nexit 3\n")
    with pytest.raises(ThinkLspError, match="failed with code 3: the disk is full"):
        run_program([str(program), "--install-extension", "x.vsix"])


def test_vscode_there_and_back(cli, tmp_path, inside):
    add_program(cli, "code", CODE)
    assert (
        "vscode          VS Code             This installation has no extension for VS Code\n" in inside("setup").stdout
    )
    assert "To build it, run `npm install --no-package-lock && npm run package`" in inside("setup", "vscode").stderr
    site = tmp_path / "install"
    (site / "thinklsp").mkdir(parents=True)
    for each in (ROOT / "thinklsp").iterdir():
        (site / "thinklsp" / each.name).symlink_to(each)
    # Its own file tells a package where it lies.
    (site / "thinklsp" / "__init__.py").unlink()
    shutil.copy(ROOT / "thinklsp" / "__init__.py", site / "thinklsp")
    files = make_files(site / "thinklsp")
    files.rename(site / "thinklsp" / "editors")
    (site / "thinklsp" / "editors" / "neovim" / "plugin").mkdir(parents=True)
    cli.nursery = None
    cli.environment["PYTHONPATH"] = str(site)
    settings = cli.home / ".config" / "Code" / "User" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_bytes(b'{"editor.fontSize": 12}')
    done = cli.run("setup", "vscode", "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert "$ " in done.stdout
    assert "--install-extension" in done.stdout
    assert "thinklsp.ui.server.path" in settings.read_text()
    assert cli.run("setup", "vscode").stdout == "VS Code: nothing to change.\n"
    done = cli.run("setup", "vscode", "--yes", "--remove")
    assert (done.returncode, done.stderr) == (0, "")
    assert settings.read_bytes() == b'{"editor.fontSize": 12}'
    assert (cli.home / ".vscode/extensions/extensions.json").read_text() == "[]\n"
    assert cli.run("setup", "vscode", "--remove").stdout == "VS Code: nothing to remove.\n"


def test_a_yes_is_needed(cli):
    done = cli.run("setup", "vim")
    assert (done.returncode, done.stderr) == (
        1, "thinklsp setup: Nothing was changed. Use --yes to change it without confirmation.\n"
    )  # fmt: skip
    assert files_of(cli.home) == {}
    for answer, files in (("n", 0), ("y", 1)):
        with cli.terminal("setup", "vim") as terminal:
            terminal.until("Set up Vim? [y/N]")
            terminal.type(f"{answer}\r")
            assert terminal.end() == 0
        assert len(files_of(cli.home)) == files


def test_editors_that_are_missing(inside, cli):
    assert "no such editor" not in inside("setup").stdout
    for program in PROGRAMS:
        (cli.home.parent / "programs" / program).unlink()
    cli.environment["PATH"] = str(cli.home.parent / "programs")
    assert inside("setup").stdout == "No editor was found here. `thinklsp setup --help` lists the editors.\n"
    done = inside("setup", "helix", "--yes")
    assert (
        done.stderr
        == "thinklsp setup: Helix was not found: `hx` or `helix` is not on PATH. Install it, then try again.\n"
    )
    # What was set up can be removed when the editor is gone.
    file = cli.home / FILES["vim"]
    file.parent.mkdir(parents=True)
    file.write_text('" >>> thinklsp setup, new file >>>\n" <<< thinklsp setup <<<\n')
    assert inside("setup", "vim", "--remove", "--yes").returncode == 0
    assert not file.exists()
    assert inside("setup", "--remove").returncode == 2


EMACS = [
    ([], ".emacs.d/init.el"), ([".emacs.d/"], ".emacs.d/init.el"), ([".config/emacs/"], ".config/emacs/init.el"),
    ([".config/emacs/", ".emacs"], ".emacs"), ([".emacs.d/", ".emacs.el", ".emacs"], ".emacs.el"),
    ([".config/emacs/", ".config/doom/config.el"], ".config/doom/config.el"),
]  # fmt: skip


@pytest.mark.parametrize(("there", "wanted"), EMACS)
def test_the_init_file_that_emacs_reads(cli, there, wanted):
    for name in there:
        path = cli.home / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.touch()
    (change,) = plan_setup(EDITORS["emacs"], machine_of(cli)).changes
    assert change.path == cli.home / wanted


@pytest.mark.parametrize("name", ["zed", "jetbrains"])
def test_the_command_of_an_agent_is_absolute(cli, name):
    """A client may start the agent without the variables of a shell."""
    program = str(add_program(cli, "thinklsp"))
    for server, command, args in (
        (("thinklsp",), program, ["acp"]),
        (("/opt/my tools/thinklsp",), "/opt/my tools/thinklsp", ["acp"]),
        ((sys.executable, "-m", "thinklsp"), sys.executable, ["-m", "thinklsp", "acp"]),
    ):
        (change,) = plan_setup(EDITORS[name], machine_of(cli, server=server)).changes
        agent = parse_jsonc(change.after.decode())["agent_servers"]["thinklsp"]
        assert (agent["command"], agent["args"]) == (command, args)
        assert agent.get("type") == ("custom" if name == "zed" else None)


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_zed_has_one_folder_on_each_platform(cli, platform):
    cli.environment["XDG_CONFIG_HOME"] = str(cli.home / "elsewhere")
    (change,) = plan_setup(EDITORS["zed"], machine_of(cli, platform=platform)).changes
    assert change.path == cli.home / (".config" if platform == "darwin" else "elsewhere") / "zed" / "settings.json"


def test_kate_keeps_servers_of_the_user(inside, cli):
    file = cli.home / FILES["kate"]
    file.parent.mkdir(parents=True)
    own = {"servers": {"python": {"command": ["pylsp"]}}, "other": 1}
    file.write_text(json.dumps(own))
    assert "these keep theirs: python." in inside("setup", "kate", "--yes").stdout
    there = json.loads(file.read_text())
    assert (there["servers"]["python"], there["other"]) == (own["servers"]["python"], 1)
    assert there["servers"]["rust"]["command"]
    assert inside("setup", "kate", "--remove", "--yes").returncode == 0
    assert json.loads(file.read_text()) == own
    # A file of version 0.2.0.
    file.write_text('{"written by": "thinklsp setup kate", "servers": {"python": {"command": ["thinklsp"]}}}')
    assert inside("setup", "kate", "--remove", "--yes").returncode == 0
    assert not file.exists()


def test_hints_name_files_that_exist(cli):
    """A hint must help a user who has no clone of the repository."""
    (note,) = plan_setup(EDITORS["vim"], machine_of(cli)).notes
    page = note.rpartition(" ")[2].removesuffix(".")
    assert os.path.isabs(page)
    assert Path(page).is_file()


def test_the_server_is_named_so_that_a_new_shell_finds_it(tmp_path, monkeypatch):
    mine, links, other = (tmp_path / name / "bin" for name in ("my env", "links", "other"))
    for folder in (mine, links, other):
        folder.mkdir(parents=True)
    for folder in (mine, other):
        (folder / "thinklsp").write_text("#!/bin/sh\n")
        (folder / "thinklsp").chmod(0o755)
    (links / "thinklsp").symlink_to(mine / "thinklsp")
    program = str(mine / "thinklsp")
    monkeypatch.setattr(sys, "argv", [program])
    assert find_server({"PATH": str(mine)}) == ("thinklsp",)
    assert find_server({"PATH": f"{links}:{other}"}) == ("thinklsp",)
    assert find_server({"PATH": f"{other}:{mine}"}) == (program,)
    assert find_server({"PATH": str(mine), "VIRTUAL_ENV": str(mine.parent)}) == (program,)
    assert find_server({"PATH": str(mine), "CONDA_PREFIX": str(mine.parent)}) == (program,)
    assert find_server({}) == (program,)
    monkeypatch.setattr(sys, "argv", ["-m"])
    monkeypatch.setattr(sys, "executable", str(other / "python3"))
    assert find_server({}) == (str(other / "thinklsp"),)
    (other / "thinklsp").unlink()
    assert find_server({"PATH": str(mine)}) == (str(other / "python3"), "-m", "thinklsp")


def test_a_clone_and_a_wheel_have_the_files():
    assert find_editor_files() == ROOT / "editors"
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    folders = {path.parent.name for path in (ROOT / "editors").glob("*/README.md")}
    carried = {Path(path).parts[1] for path in wheel["only-include"] if path.startswith("editors/")}
    assert carried == folders
    assert wheel["sources"]["editors"] == "thinklsp/editors"
