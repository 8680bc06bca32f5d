"""The shape of the house: who imports whom, how long things get, and what has one place only."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "thinklsp"
MODULES = sorted(PACKAGE.rglob("*.py"))

LONGEST_FILE = 350
LONGEST_FUNCTION = 60
VAGUE = {"utils", "util", "helpers", "helper", "common", "manager", "managers", "misc"}
# Heavy imports wait here: the commands of the terminal, the scripts' entry, the room behind the first answer, and the
# simulator behind the first turn that asks for it.
LATE_IMPORTS = ("thinklsp/__main__.py", "thinklsp/cli/", "thinklsp/lsp/late.py", "thinklsp/engine/connections.py")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def trees() -> tuple[tuple[str, ast.Module], ...]:
    return tuple((name_of(path), ast.parse(path.read_text())) for path in MODULES)


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_the_layers_hold() -> None:
    program = shutil.which("lint-imports", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip("import-linter is not installed")
    done = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_files_and_functions_stay_readable() -> None:
    long_files = {
        name_of(path): count for path in MODULES if (count := len(path.read_text().splitlines())) > LONGEST_FILE
    }
    assert long_files == {}
    long_functions = [
        f"{name}: {function.name}"
        for name, tree in trees()
        for function in functions(tree)
        if (function.end_lineno or 0) - function.lineno + 1 > LONGEST_FUNCTION
    ]
    assert long_functions == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert [name_of(path) for path in MODULES if VAGUE & {path.stem, path.parent.name}] == []


def test_every_module_says_what_it_is_for() -> None:
    assert [name for name, tree in trees() if not ast.get_docstring(tree)] == []


def test_own_modules_are_not_imported_inside_functions() -> None:
    late = {
        name
        for name, tree in trees()
        for function in functions(tree)
        for node in ast.walk(function)
        if (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("thinklsp"))
        or (isinstance(node, ast.Import) and any(alias.name.startswith("thinklsp") for alias in node.names))
    }
    assert {name for name in late if not name.startswith(LATE_IMPORTS)} == set()
    for module, imported in (
        (
            "lsp/late.py",
            [
                "thinklsp.lsp.editor.checked_settings",
                "thinklsp.settings",
                "thinklsp.engine.user_config",
                "thinklsp.lsp.face",
                "thinklsp.lsp.protocol",
                "thinklsp.lsp.actions",
                "thinklsp.lsp.chats",
            ],
        ),
        ("engine/connections.py", ["thinklsp.simulator.scenario", "thinklsp.simulator.server"]),
    ):
        tree = ast.parse((PACKAGE / module).read_text())
        inside = [node for outer in functions(tree) for node in ast.walk(outer) if isinstance(node, ast.ImportFrom)]
        assert [node.module for node in inside] == imported


def test_everything_is_caught_in_one_place_at_most() -> None:
    """Only the dispatch boundary may stop what is no `Exception`; cancellation must pass everywhere else."""
    catching = [
        name
        for name, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler) and (node.type is None or "BaseException" in ast.unparse(node.type))
    ]
    guards = [name for name, tree in trees() for node in ast.walk(tree) if _is_guard(node)]
    assert catching + guards == ["thinklsp/lsp/protocol/dispatch.py"]


def _is_guard(node: ast.AST) -> bool:
    """An `__exit__` that swallows whatever was raised."""
    return (
        isinstance(node, ast.FunctionDef)
        and node.name in ("__exit__", "__aexit__")
        and any(isinstance(inner, ast.Return) and ast.unparse(inner) == "return True" for inner in ast.walk(node))
    )


def test_unions_are_matched_to_the_end() -> None:
    """A `match` over classes names every one and says so, or takes the rest on purpose."""
    open_ended = [
        f"{name}:{node.lineno}"
        for name, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Match)
        and all(isinstance(case.pattern, ast.MatchClass | ast.MatchOr) for case in node.cases)
        and any(isinstance(case.pattern, ast.MatchClass) for case in node.cases)
    ]
    assert open_ended == []


def test_async_generators_are_owned_by_whoever_reads_them() -> None:
    """A bare `async for` over a call leaves the generator open when its reader goes away."""
    bare = [
        f"{name}:{node.lineno}"
        for name, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncFor) and isinstance(node.iter, ast.Call)
    ]
    assert bare == []


def test_nothing_is_yielded_inside_a_task_group() -> None:
    """Closing such a generator would cancel the wrong task."""
    found = [
        f"{name}:{node.lineno}"
        for name, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncWith) and "TaskGroup" in ast.unparse(node.items[0])
        for inner in ast.walk(node)
        if isinstance(inner, ast.Yield)
    ]
    assert found == []


def test_the_tree_does_not_know_where_it_lies() -> None:
    found = [
        name_of(path)
        for top in ("thinklsp", "tests", "editors", ".ci")
        for path in sorted((ROOT / top).rglob("*"))
        if path.is_file() and path.suffix != ".pyc" and f"{ROOT}/".encode() in path.read_bytes()
    ]
    assert found == []


def test_nothing_is_left_for_later() -> None:
    left = re.compile(r"#\s*(?:TODO|FIXME|XXX|HACK)\b")
    assert [name_of(path) for path in MODULES if left.search(path.read_text())] == []


def test_exceptions_to_the_checks_say_why() -> None:
    says_why = re.compile(r"(?:noqa: [A-Z0-9, ]+|type: ignore\[[a-z, -]+\])\s*(?:-|#)\s*\w+.*\w+")
    assert [
        f"{name_of(path)}: {line}"
        for path in MODULES
        for line in path.read_text().splitlines()
        if re.search(r"#\s*noqa|#\s*type:\s*ignore", line) and not says_why.search(line)
    ] == []
