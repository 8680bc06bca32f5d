"""README.md and docs/: size and pictures, links, commands, and the paths and names that they mention."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.editors.recording import Frame, Screen, draw
from thinklsp.core.prompt_syntax import SLASH_COMMANDS
from thinklsp.lsp.editor import arguments as args
from thinklsp.lsp.protocol.fast_initialize import COMMANDS as SERVER_COMMANDS
from thinklsp.settings.model import KEYS

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = {
    str(page.relative_to(ROOT)): page.read_text("utf-8")
    for page in (README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
}
CI = "".join((ROOT / ".ci" / name).read_text("utf-8") for name in ("run", "nightly"))

_BLOCK = re.compile(r"^ *```(?P<language>\w*)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
_PROGRAMS = ("thinklsp ", "pip ", "pipx ", "python ", "pytest", "mkdocs ", "export ")


def find_commands(text: str) -> list[str]:
    """Return the commands of a page without their comments."""
    lines = (line for each in _BLOCK.finditer(text) if each["language"] in _SHELL for line in each["text"].splitlines())
    return [re.sub(r"\s+# [^']*$", "", line).strip() for line in lines]


_SHELL = ("console", "sh", "bash")
COMMANDS = {command for text in PAGES.values() for command in find_commands(text)}

# Run by this module, in this order: a workspace, then conversations in it.
_TRY = (
    "mkdir try-it && cd try-it && git init",
    "echo 'def mean(values):' > stats.py",
    "echo '    return sum(values) / len(value)  # the name of the parameter AI!' >> stats.py",
    "export THINKLSP_PROVIDER=simulator",
)
# Run by `tests/slow/test_documented_commands.py`.
RUN = (
    "thinklsp demo",
    "thinklsp doctor",
    "thinklsp doctor --acp",
    "thinklsp mcp list",
    "thinklsp setup",
    'thinklsp ask "Why does parse() return None?" --file src/parser.py:10-40',
    'thinklsp ask --session last "And now?"',
    "thinklsp sessions list",
    "thinklsp sessions show last",
    "thinklsp sessions export 3f9c -o talk.md",
    'thinklsp sessions rename last "Prices"',
    "thinklsp sessions fork last --step 2",
    "thinklsp sessions repair last --dry-run",
    "thinklsp sessions delete 3f9c",
    "thinklsp sessions delete --older-than 90d",
)
# Run by `.ci/run` or `.ci/nightly`, in these words.
IN_CI = {
    "pip install . && thinklsp demo": "pip install -q . && thinklsp demo",
    "pip install .": "pip install -q .",
    "pip install '.[test]' && pytest": "pip install -q '.[test]' && pytest",
    "pip install -e '.[test]'": "pip install -q '.[test]'",
    "pip install -e '.[docs]'": "pip install -q '.[docs]'",
    "pip install -e '.[editors]'": "pip install -q '.[editors]'",
    "mkdocs build --strict": "mkdocs build --strict",
    "ruff check .": "ruff check .",
    "ruff format --check .": "ruff format --check .",
    "mypy": "mypy",
    "mypy --platform win32 -p thinklsp.core -p thinklsp.providers -p thinklsp.symbols": "win32 -p",
    "lint-imports": "lint-imports",
    "pytest": "pytest",
    "pytest tests/branches -n 0": "tests tests/branches -n 0",
    "SLOW=commit pytest -m '' tests/slow tests/faults tests/*/slow tests/*/*/slow": "slow tests/*/slow tests/*/*/slow",
    "python -m tests.bench --quick": "python -m tests.bench --quick",
    "python -m tests.editors": "python -m tests.editors",
    "LITELLM=litellm/bin/litellm pytest -m '' tests/gateways -n 0": "bin/litellm tests -m '' tests/gateways -n 0",
    "python -m tests.mcp_servers.install servers": "python -m tests.mcp_servers.install",
    "MCP_SERVERS=servers pytest -m '' tests/mcp_servers -n 0": "servers tests -m '' tests/mcp_servers -n 0",
}
NOT_RUN = {
    "pipx install .": "changes the machine; `pip install .` is run",
    "pip install -e '.[dev]'": "`.ci/run` installs the same extra without -e",
    "pip uninstall thinklsp": "changes the machine",
    "thinklsp uninstall-data": "asks before it deletes: tests/cli/test_uninstall_data.py",
    **dict.fromkeys(
        ("thinklsp mcp approve NAME", "thinklsp mcp tools NAME", "thinklsp mcp pin NAME", "thinklsp mcp test NAME"),
        "needs a server: tests/cli/test_mcp_command.py starts one",
    ),
    "apt install bubblewrap": "changes the machine; `.ci/nightly` installs it",
    "thinklsp setup zed": "needs the editor: tests/cli/test_setup.py sets up a home",
    "thinklsp setup jetbrains": "needs an IDE: tests/cli/test_setup.py sets up a home",
    "thinklsp acp --setup": "asks for a key: tests/cli/slow/test_key_setup.py types one",
    "thinklsp setup neovim": "needs the editor: tests/editors/setting_up.py sets up a real one",
    "thinklsp sessions restore last": "needs a compaction: tests/cli/test_sessions_command.py restores one",
    "thinklsp --tcp 127.0.0.1:9257": "serves until it is stopped: tests/e2e/conformance/slow/test_sockets.py",
    "thinklsp --ws 127.0.0.1:9258 --allow-origin https://ide.example.com": "serves until it is stopped: as --tcp",
    "pip install '.[otel,postgres,serve]'": "the packages are part of the extra `test`",
    "(umask 077 && openssl rand -hex 32 > token)": "needs openssl: tests/e2e/outside/test_refusals.py",
    "thinklsp --ws 127.0.0.1:9258 --token-file token --metrics 9464": (
        "serves until it is stopped: tests/test_teams_page.py runs the examples"
    ),
    "ssh -L 9257:127.0.0.1:9257 host": "needs another machine",
    "OLLAMA_CONTEXT_LENGTH=32768 ollama serve": "needs Ollama",
    "ollama pull qwen3:8b": "needs Ollama and 5 GB",
    "llama-server -m model.gguf --ctx-size 32768 --port 8080": "needs llama.cpp: tests/llama_server runs one",
    "mkdocs serve": "serves until it is stopped",
    "python -m tests.generated": "writes files; tests compare them",
    "python -m tests.editors --only Helix": "installs an editor; `.ci/nightly` runs all of them",
    'python -m tests.editors --only Helix "Neovim 0.12" --out DIR': "as above",
    'python -m tests.editors --only "VS Code" "VS Code chat" "VS Code answers" "VS Code review" "VS Code first run"'
    " --out DIR": "as above",
    "python -m tests.editors.pictures --docs": "needs VS Code and a browser; writes the pictures",
    "python -m tests.editors.pictures DIR": "needs the screenshots of a trial",
    "pytest -n 0 tests/tools/test_search_tool.py": "a part of the default suite",
    "python -m venv litellm && litellm/bin/pip install -r tests/gateways/requirements.txt": (
        "`.ci/nightly` does the same in a folder of its own"
    ),
    "export LLAMA_SERVER=$(tests/llama_server/scripts/build_llama_server.sh FOLDER)": "builds for 12 minutes",
    "pip install -r tests/llama_server/requirements.txt && pytest tests/llama_server -n 0": "needs the build",
    "python -m tests.soak --minutes 60": "takes an hour; `.ci/nightly` runs some minutes of it",
    "python -m tests.bench": "installs other programs; `.ci/nightly` runs it with --quick",
    "python -m tests.bench --against DIR": "needs a second checkout",
}


def test_readme_is_short_and_shows_pictures_early():
    text = README.read_text("utf-8")
    assert len(text.encode()) <= 14_000
    lines = text.splitlines()
    pictures = [number for number, line in enumerate(lines) if "](docs/pictures/" in line]
    assert pictures
    assert max(pictures) < 20
    assert len(re.findall(r"\]\(docs/pictures/", text)) == 3
    assert lines.count("pip install . && thinklsp demo") == 1
    assert lines.count("pip install '.[test]' && pytest") == 1


def test_pictures_are_small_and_recording_is_complete():
    pictures = sorted((ROOT / "docs" / "pictures").iterdir())
    names = ["demo.svg", "neovim-chat.svg", "neovim-review.svg", "vscode-action.png", "vscode-chat.png"]
    assert [each.name for each in pictures] == names
    assert [each.name for each in pictures if each.stat().st_size > 150_000] == []
    text = pictures[0].read_text("utf-8")
    shown = "\n".join(ET.fromstring(text).itertext())  # noqa: S314 - our own
    assert "prefers-reduced-motion" in text
    for words in ("thinklsp demo", "FAILED (failures=1)", "thinking · ", "The editor receives one edit", "Next steps"):
        assert words in shown, words


def test_a_recording_keeps_what_a_terminal_shows():
    screen = Screen()
    screen.feed("one\r\n\x1b[32mtwo\x1b[0m\r\nlive ")
    assert screen.view() == ("one", "\x1b[32mtwo\x1b[0m", "live ")
    screen.feed("\r\x1b[2K\x1b[1A\x1b[2Kthree\r\n\x1b[?25h")
    assert screen.view() == ("one", "three")
    drawn = draw([Frame(0.0, ("one",)), Frame(1.0, screen.view())])
    assert ET.fromstring(drawn).tag.endswith("svg")  # noqa: S314 - our own
    assert drawn.count("<text") == 2


def test_every_command_is_run_or_says_why_not():
    exported = {command for command in COMMANDS if re.match(r"export [A-Z_]+=[^$]", command)}
    accounted = {*_TRY, *RUN, *IN_CI, *NOT_RUN, *exported}
    assert COMMANDS - accounted == set()
    assert accounted - COMMANDS == set()


def test_no_command_hides_in_another_kind_of_block():
    hidden = [
        line
        for text in PAGES.values()
        for block in _BLOCK.finditer(text)
        if block["language"] in ("", "text")
        for line in block["text"].splitlines()
        if line.strip().startswith(_PROGRAMS)
    ]
    assert hidden == []


@pytest.mark.parametrize(("command", "words"), IN_CI.items(), ids=IN_CI)
def test_ci_runs_the_command(command, words):
    assert words in CI


def test_every_variable_that_is_exported_is_read():
    access = (ROOT / "thinklsp" / "settings" / "access.py").read_text("utf-8")
    settings = {f"THINKLSP_{re.sub(r'(?<=[a-z])(?=[A-Z])', '_', key.replace('.', '_')).upper()}" for key in KEYS}
    names = {name for command in COMMANDS for name in re.findall(r"\b([A-Z][A-Z_]+)=", command)}
    others = {"OLLAMA_CONTEXT_LENGTH", "SLOW", "LITELLM", "LLAMA_SERVER", "MCP_SERVERS"}
    assert [name for name in names - settings - others if f'"{name}"' not in access] == []


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """Run a command in one folder, with a state and a configuration of its own and the offline model."""
    folder = tmp_path_factory.mktemp("documentation")
    programs, work = folder / "bin", folder / "work"
    for each in (programs, work / "src"):
        each.mkdir(parents=True)
    (work / "src" / "parser.py").write_text("".join(f"line_{number} = {number}\n" for number in range(1, 41)))
    for name, argv in {"thinklsp": "-m thinklsp", "python": ""}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {argv} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "THINKLSP_PROVIDER": "simulator",
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_STATE_HOME": str(folder / "state"),
    }

    def run(command):
        done = subprocess.run(
            ["/bin/sh", "-ec", command],
            env=environment,
            cwd=work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    return run


def test_the_file_to_try_is_the_one_that_the_offline_model_fixes(shell):
    shell("\n".join((*_TRY, "pwd")))
    from tests.engine.slow.test_scenarios_everywhere import TRIED

    assert shell("cat try-it/stats.py").splitlines()[1] == TRIED.splitlines()[-1]


_LINK = re.compile(r"\]\((?P<target>[^)\s#]*)(?:#(?P<anchor>[^)\s]*))?\)")


def find_anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and mkdocs make them."""
    text = _BLOCK.sub("", text)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize(
    "page", [*PAGES, *sorted(str(each.relative_to(ROOT)) for each in ROOT.glob("editors/*/README.md"))]
)
def test_links_lead_somewhere(page):
    broken = []
    for found in _LINK.finditer(_BLOCK.sub("", (ROOT / page).read_text("utf-8"))):
        target, anchor = found["target"], found["anchor"]
        if "://" in target:
            continue
        path = (ROOT / page).parent / target if target else ROOT / page
        if not path.exists() or (anchor and anchor not in find_anchors(path.read_text("utf-8"))):
            broken.append(found[0])
    assert broken == []


CODE = {page: re.sub(r"\s+", " ", _BLOCK.sub("", text)) for page, text in PAGES.items() if "contributing" in page}


@pytest.mark.parametrize("page", CODE)
def test_paths_in_the_contributing_pages_exist(page):
    paths = re.findall(r"`((?:thinklsp|tests|editors|docs)/[^`\s]*)`", CODE[page])
    assert [
        path
        for path in paths
        if not {"NAME", "CASE", "DIR"} & set(re.split(r"\W", path)) and not (ROOT / path).exists()
    ] == []


@pytest.mark.parametrize("page", CODE)
def test_names_in_the_contributing_pages_are_in_their_files(page):
    named = re.findall(r"`(\w+)`(?:,? (?:and|or) [^`]*| to)? in `((?:thinklsp|tests)/[^`\s]*\.\w+)`", CODE[page])
    places = re.findall(r"In `((?:thinklsp|tests)/[^`\s]*\.py)`, ((?:`[^`]*`|[^.`])*)", CODE[page])
    named += [(name, path) for path, words in places for name in re.findall(r"`(test_\w+|_?[A-Z][A-Z_]+)`", words)]
    assert [(name, path) for name, path in named if not _defines((ROOT / path).read_text("utf-8"), name)] == []


def _defines(text: str, name: str) -> bool:
    """Return True if the text of a file defines the name. An import is no definition."""
    pattern = rf"^\s*(?:(?:async )?def |class |export const )?{name}\b\s*[:=(\[]"
    return re.search(pattern, text, re.MULTILINE) is not None


def test_protocol_page_has_every_command_and_field():
    models = (args.ChatArguments, args.ActionArguments, args.TurnArguments, args.ChoiceArguments, args.CompactArguments)
    models += (args.SendArguments, args.SessionsArguments, args.UsageArguments)
    names = {*SERVER_COMMANDS, *(field.alias for model in models for field in model.model_fields.values())}
    assert [name for name in sorted(names) if f"`{name}`" not in PAGES["docs/protocol.md"]] == []


def test_every_slash_command_is_on_the_page_of_chats():
    assert [each.name for each in SLASH_COMMANDS if f"| `/{each.name}" not in PAGES["docs/chat.md"]] == []


@pytest.fixture(scope="module")
def words_of_the_code():
    sources = [path for folder in ("thinklsp", "tests", "editors") for path in (ROOT / folder).rglob("*.*")]
    kinds = {".py", ".toml", ".ts", ".json", ".scm"}
    texts = [path.read_text("utf-8") for path in sources if path.suffix in kinds and "node_modules" not in path.parts]
    return {word for text in texts for word in re.findall(r"\w+", text)}


@pytest.mark.parametrize("page", [*CODE, "ARCHITECTURE.md"])
def test_names_on_developer_pages_exist_in_the_code(page, words_of_the_code):
    text = _BLOCK.sub("", (ROOT / page).read_text("utf-8"))
    names = re.findall(r"`(_?[A-Za-z]\w*(?:\.\w+)*)(?:\([^`\n]*\))?`", text)
    names = [name for name in names if not name.endswith((".md", ".toml"))]
    parts = {part for name in names for part in name.split(".")} - {"is_", "has_", "can_", "atexit"}
    assert sorted(parts - words_of_the_code) == []
