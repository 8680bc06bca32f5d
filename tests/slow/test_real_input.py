"""A twelve-step turn on real trees: a copy of Python's standard library, and this repository."""

from __future__ import annotations

import re
import shutil
import sysconfig
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.stand_ins.http_server import Simulator
from tests.support.outside import MODEL, ROOT, Outside, start, statuses
from thinklsp.offline.scenario import Scenario

MARK = "  # looked at by a scripted turn"
UNSAVED = "# 🙂 typed, not saved\n"


@dataclass(frozen=True)
class Tree:
    source: Path
    pattern: str
    edited: tuple[str, ...]
    read: tuple[str, ...]


STDLIB = Tree(
    Path(sysconfig.get_path("stdlib")),
    "def __reduce__",
    ("argparse.py", "_pydecimal.py", "asyncio/base_events.py", "json/decoder.py", "colorsys.py"),
    ("_pydecimal.py", "turtle.py", "typing.py"),
)
OWN = Tree(
    ROOT,
    "assert_never",
    (
        *("thinklsp/core/stream_events.py", "thinklsp/lsp/server.py", "thinklsp/workspace/view.py"),
        *("tests/support/canary.py", "thinklsp/core/usage.py"),
    ),
    ("thinklsp/core/stream_events.py", "ARCHITECTURE.md", "thinklsp/providers/models.toml"),
)


def unique_line(text: str) -> str:
    """Return a definition that occurs once."""
    found: list[str] = re.findall(r"^ *(?:def|class) .*:$", text, re.MULTILINE)
    return next(line for line in found if text.count(line) == 1)


def scenario(tree: Tree, texts: dict[str, str]) -> Scenario:
    def edit(name: str) -> dict[str, Any]:
        line = unique_line(texts[name])
        return {"tool": "edit_file", "input": {"path": name, "old_text": line, "new_text": line + MARK}}

    def read(name: str, **lines: int) -> dict[str, Any]:
        return {"tool": "read_file", "input": {"path": name, **lines}}

    def search(pattern: str, **options: Any) -> dict[str, Any]:
        return {"tool": "search_text", "input": {"pattern": pattern, **options}}

    first, *others, last = tree.edited
    steps = [
        [{"thinking": "What is here?"}, {"tool": "list_files", "input": {"limit": 200}}],
        [search(tree.pattern, literal=True, glob="*.py"), search("import +os$")],
        [{"thinking": "The large ones together."}, *(read(name) for name in tree.read)],
        [read(tree.read[0], start_line=100, end_line=200)],
        [edit(first)],
        [edit(others[0]), {"thinking": "Next."}, edit(others[1])],
        [edit(others[2])],
        [search(MARK.strip(), literal=True)],
        [edit(last)],
        [{"tool": "rename_file", "input": {"path": last, "new_path": last.replace(".py", "_renamed.py")}}],
        [{"tool": "write_file", "input": {"path": "made/by_a_turn.py", "content": "VALUE = '🙂'\n"}}],
        [{"text": "Done: {{result:1}}"}],
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
    # The open document is the editor's to save; the renamed one has moved.
    for name in tree.edited[1:]:
        text = before[editor.root / name].decode()
        line = unique_line(text)
        expected[editor.root / name] = text.replace(line, line + MARK).encode()
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
