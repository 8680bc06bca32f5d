"""README.md and docs/: size and pictures, links, commands, and the paths and names that they mention."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from thinklsp.settings.model import KEYS

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = {
    str(page.relative_to(ROOT)): page.read_text("utf-8")
    for page in (README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
}

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
    "python -m thinklsp config efforts",
    "python -m thinklsp config table",
)


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


def test_commands_that_tests_run_are_on_the_pages():
    assert {*_TRY, *RUN} - COMMANDS == set()


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
    assert [
        (name, path) for name, path in named if not re.search(rf"\b{name}\b", (ROOT / path).read_text("utf-8"))
    ] == []


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
