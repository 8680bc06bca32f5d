"""The packagers' files are what the generator builds from the project's metadata."""

import importlib.util
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import thinklsp
from tests.generated import ADVICE

FOLDER = Path(__file__).parents[1] / "docs" / "packaging"


def load_generator():
    spec = importlib.util.spec_from_file_location("generate", FOLDER / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FILES = load_generator().build_files()


@pytest.mark.parametrize("name", FILES)
def test_files_of_packagers_are_up_to_date(name):
    assert (FOLDER / name).read_text("utf-8") == FILES[name], ADVICE


def test_files_hold_the_version_and_nothing_unfilled():
    assert [name for name, text in FILES.items() if "@version@" in text or "@sha256@" in text] == []
    assert {name for name, text in FILES.items() if thinklsp.__version__ in text} == {
        "agent.json", "mason.yaml", "thinklsp.rb", "flake.nix",
    }  # fmt: skip


def test_agent_has_what_the_registry_requires():
    agent = json.loads(FILES["agent.json"])
    assert {"id", "name", "version", "description", "distribution"} <= agent.keys()
    assert re.fullmatch(r"[a-z][a-z0-9-]*", agent["id"])
    assert agent["distribution"] == {"uvx": {"package": f"thinklsp@{thinklsp.__version__}", "args": ["acp"]}}
    # The registry finds the icon by its name.
    assert "icon" not in agent
    icon = ET.fromstring(FILES["icon.svg"])  # noqa: S314 - our own
    assert (icon.get("width"), icon.get("height"), icon.get("viewBox")) == ("16", "16", "0 0 16 16")
    colors = {each.get(name) for each in icon.iter() for name in ("fill", "stroke")}
    assert colors == {None, "none", "currentColor"}


def test_extensions_have_the_version_of_the_server():
    editors = FOLDER.parents[1] / "editors"
    assert json.loads((editors / "vscode" / "package.json").read_text("utf-8"))["version"] == thinklsp.__version__
    assert f"\n;; Version: {thinklsp.__version__}\n" in (editors / "emacs" / "thinklsp.el").read_text("utf-8")


def test_every_file_is_described():
    described = (FOLDER / "README.md").read_text("utf-8")
    present = {path.name for path in FOLDER.iterdir() if path.is_file()} - {"README.md", "generate.py"}
    assert present == set(FILES)
    assert [name for name in FILES if f"({name})" not in described] == []
