"""The server on real trees: a copy of Python's standard library, and this repository.

A twelve-step turn lists, searches, reads files of over 100 KB, edits five files – one of them open and unsaved, one of
them renamed – and makes a new one. What lies on disk and in the buffers afterwards is compared byte for byte.
"""

from __future__ import annotations

import shutil
import sysconfig
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.outside import MODEL, Outside, start, statuses
from thinklsp.simulator.scenario import Scenario
from thinklsp.simulator.server import Simulator

REPOSITORY = Path(__file__).parents[2]
MARK = "  # looked at by a scripted turn"
UNSAVED = "# 🙂 typed, not saved\n"


@dataclass(frozen=True)
class Tree:
    source: Path
    pattern: str
    edited: tuple[str, ...]
    """Five files; the first is open with unsaved text, the last is renamed after its edit."""
    read: tuple[str, ...]


STDLIB = Tree(
    Path(sysconfig.get_path("stdlib")),
    "def __reduce__",
    ("argparse.py", "_pydecimal.py", "asyncio/base_events.py", "json/decoder.py", "colorsys.py"),
    ("_pydecimal.py", "turtle.py", "typing.py"),
)
OWN = Tree(
    REPOSITORY,
    "assert_never",
    (
        "thinklsp/core/accumulator.py",
        "thinklsp/lsp/face.py",
        "thinklsp/workspace/view.py",
        "tests/support/canary.py",
        "thinklsp/core/usage.py",
    ),
    ("thinklsp/core/accumulator.py", "ARCHITECTURE.md", "README.md"),
)


def unique_line(text: str) -> str:
    """A line that occurs once and carries a definition: something that a model would aim at."""
    lines = text.splitlines()
    return next(
        line
        for line in lines
        if line.lstrip().startswith(("def ", "class ")) and line.endswith(":") and text.count(line) == 1
    )


def block(**keys: Any) -> dict[str, Any]:
    return keys


def scenario(tree: Tree, texts: dict[str, str]) -> Scenario:
    def edit(name: str) -> dict[str, Any]:
        line = unique_line(texts[name])
        return block(tool="edit_file", input={"path": name, "old_text": line, "new_text": line + MARK})

    def read(name: str, **lines: int) -> dict[str, Any]:
        return block(tool="read_file", input={"path": name, **lines})

    first, *others, last = tree.edited
    steps = [
        [block(thinking="What is here?"), block(tool="list_files", input={"limit": 200})],
        [
            block(tool="search_text", input={"pattern": tree.pattern, "literal": True, "glob": "*.py"}),
            block(tool="search_text", input={"pattern": "import +os$"}),
        ],
        [block(thinking="The large ones together."), *(read(name) for name in tree.read)],
        [read(tree.read[0], start_line=100, end_line=200)],
        [edit(first)],
        [edit(others[0]), block(thinking="Next."), edit(others[1])],
        [edit(others[2])],
        [block(tool="search_text", input={"pattern": MARK.strip(), "literal": True})],
        [edit(last)],
        [block(tool="rename_file", input={"path": last, "new_path": last.replace(".py", "_renamed.py")})],
        [block(tool="write_file", input={"path": "made/by_a_turn.py", "content": "VALUE = '🙂'\n"})],
        [block(text="Done: {{result:1}}")],
    ]
    turn = {"step": [{"block": blocks} for blocks in steps]}
    return Scenario.model_validate({"turn": [turn], "pacing": {"chunk_chars": 4096, "interval_ms": 0}})


@pytest.fixture
async def outside(tmp_path: Path, tree: Tree) -> AsyncIterator[tuple[Outside, Simulator]]:
    texts = {name: (tree.source / name).read_text("utf-8") for name in tree.edited}
    texts[tree.edited[0]] = UNSAVED + texts[tree.edited[0]]
    async with Simulator(scenario(tree, texts)) as simulator:
        started = await start(tmp_path, env={"ANTHROPIC_BASE_URL": simulator.base_url})
        copy_tree(tree.source, started.root)
        try:
            yield started, simulator
        finally:
            await started.stop()


def copy_tree(source: Path, target: Path) -> None:
    skip = shutil.ignore_patterns("__pycache__", "site-packages", ".git", ".venv", "*.so", "*.a", ".*_cache", "idlelib")
    shutil.copytree(source, target, ignore=skip, dirs_exist_ok=True)


@pytest.mark.parametrize("tree", [STDLIB, OWN], ids=["standard library", "this repository"])
async def test_a_twelve_step_turn(outside: tuple[Outside, Simulator], tree: Tree) -> None:
    editor, simulator = outside
    before = {path: path.read_bytes() for path in editor.root.rglob("*") if path.is_file()}
    first, *_, last = tree.edited
    opened = UNSAVED + before[editor.root / first].decode()
    uri = editor.open(first, opened)

    result = await editor.turn("thinklsp.chat", {"prompt": "Go through it."})

    assert result["stopReason"] == "end_turn"
    assert set(statuses(result).values()) == {"applied"}
    assert len(simulator.requests) == 12
    assert [request.status for request in simulator.requests] == [200] * 12

    expected = dict(before)
    for name in tree.edited:
        text = before[editor.root / name].decode()
        line = unique_line(opened if name == first else text)
        expected[editor.root / name] = text.replace(line, line + MARK).encode()
    # The open document is the editor's to save; the renamed one has moved.
    expected[editor.root / first] = before[editor.root / first]
    expected[editor.root / last.replace(".py", "_renamed.py")] = expected.pop(editor.root / last)
    expected[editor.root / "made/by_a_turn.py"] = "VALUE = '🙂'\n".encode()
    after = {path: path.read_bytes() for path in editor.root.rglob("*") if path.is_file()}
    assert after.keys() == expected.keys()
    assert [path for path in after if after[path] != expected[path]] == []
    line = unique_line(opened)
    assert editor.client.text(uri) == opened.replace(line, line + MARK)

    texts = [str(request.body["messages"][-1]) for request in simulator.requests[1:]]
    assert MARK.strip() in texts[7], "a search sees the edits of its own turn"
    assert "is_error': True" not in "".join(texts)
    usage = result["usage"]
    assert usage["cacheReadTokens"] / usage["inputTokens"] > 0.6
    assert editor.client.checker.violations == []
    assert simulator.requests[0].body["model"] == MODEL
