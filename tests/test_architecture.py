"""The shape of the house: who imports whom, how long things get, and what has one place only."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.sources import PACKAGE, list_nodes, parse_package

ROOT = Path(__file__).parent.parent
MODULES = sorted(PACKAGE.rglob("*.py"))

LONGEST_FILE = 600
LONGEST_FUNCTION = 60
VAGUE = {"utils", "util", "helpers", "helper", "common", "manager", "managers", "misc"}
# Every module with imports inside a function, and why they wait.
LATE_IMPORTS = {
    "thinklsp/__main__.py": "nothing is imported before the search path is safe",
    "thinklsp/acp/acp_server.py": "`initialize` is answered before the engine is loaded",
    "thinklsp/cli/main.py": "only the kind of server that is wanted is loaded",
    "thinklsp/cli/store.py": "psycopg is an optional package",
    "thinklsp/cli/serve_sockets.py": "as in main.py; the libraries of tokens, metrics and traces are optional",
    "thinklsp/cli/serve_stdio.py": "`initialize` is answered before the server is loaded",
    "thinklsp/engine/connections.py": "only a user who tries thinklsp offline needs the offline model",
    "thinklsp/engine/mcp_servers.py": "without a server, nothing of mcp_client/ is loaded",
    "thinklsp/lsp/editor/connection_state.py": "a server for one user hashes nothing",
    "thinklsp/lsp/server.py": "the first code action is served before settings are checked and turns start",
    "thinklsp/lsp/transport/connection.py": "the first code action is served before the engine is loaded",
    "thinklsp/mcp_client/tool_schemas.py": "jsonschema comes with the MCP SDK, and only a worker process needs it",
    "thinklsp/sessions/postgres/__init__.py": "a single user has no psycopg",
    "thinklsp/symbols/outline.py": "tree-sitter and a grammar are loaded when a symbol is first asked for",
}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def trees() -> tuple[tuple[str, ast.Module], ...]:
    return tuple((name_of(path), tree) for path, tree in parse_package().items())


@cache
def nodes() -> tuple[tuple[str, ast.AST], ...]:
    return tuple((name, node) for name, tree in trees() for node in list_nodes(tree))


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def find(matches: Callable[[ast.AST], bool]) -> list[str]:
    """Return the places of all such nodes of the package."""
    return [f"{name}:{getattr(node, 'lineno', 0)}" for name, node in nodes() if matches(node)]


def test_the_layers_hold() -> None:
    program = shutil.which("lint-imports", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip("import-linter is not installed")
    done = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_files_and_functions_stay_readable() -> None:
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}

    def is_long(node: ast.AST) -> bool:
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        return is_function and getattr(node, "end_lineno", 0) - getattr(node, "lineno", 0) + 1 > LONGEST_FUNCTION

    assert find(is_long) == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert [name_of(path) for path in MODULES if VAGUE & {path.stem, path.parent.name}] == []


def test_every_module_says_what_it_is_for() -> None:
    assert [name for name, tree in trees() if not ast.get_docstring(tree)] == []


def test_imports_inside_functions_have_a_reason() -> None:

    def imports_late(node: ast.AST) -> bool:
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        return is_function and any(isinstance(inner, ast.Import | ast.ImportFrom) for inner in ast.walk(node))

    assert {place.partition(":")[0] for place in find(imports_late)} == set(LATE_IMPORTS)
    engine = ["engine.user_config", "lsp.assistant", "lsp.commands"]
    stdio = ["lsp.protocol.fast_initialize", "cli.logs", "core.import_context", "settings.startup_settings"]
    stdio += ["lsp.transport.connection", "acp.initialization", "cli.logs", "core.import_context", "acp.acp_server"]
    sockets = ["lsp.transport.websocket", "identity.jwt_verifier", "telemetry.metrics", "telemetry.traces"]
    sockets += ["telemetry.health"]
    for module, imported in (
        ("lsp/server.py", ["settings.sources", "lsp.editor.turn_progress"]),
        ("lsp/transport/connection.py", engine),
        ("acp/acp_server.py", ["acp.host", "engine.user_config"]),
        # One subcommand does not load what another one needs.
        ("cli/main.py", ["cli", "cli.serve_sockets"]),
        ("cli/serve_sockets.py", sockets),
        ("cli/serve_stdio.py", stdio),
    ):
        tree = parse_package()[PACKAGE / module]
        inside = [node for outer in functions(tree) for node in ast.walk(outer) if isinstance(node, ast.ImportFrom)]
        assert [node.module for node in inside] == [f"thinklsp.{name}" for name in imported]


def test_everything_is_caught_in_one_place_at_most() -> None:
    """Only the dispatch boundary may stop what is no `Exception`; cancellation must pass everywhere else."""

    def catches_all(node: ast.AST) -> bool:
        caught = node.type if isinstance(node, ast.ExceptHandler) else ast.Name("nothing")
        return caught is None or "BaseException" in ast.unparse(caught)

    places = [*find(catches_all), *find(_is_guard)]
    assert [place.partition(":")[0] for place in places] == ["thinklsp/lsp/protocol/lsp_protocol.py"]


def _is_guard(node: ast.AST) -> bool:
    """An `__exit__` that swallows whatever was raised."""
    return (
        isinstance(node, ast.FunctionDef)
        and node.name in ("__exit__", "__aexit__")
        and any(isinstance(inner, ast.Return) and ast.unparse(inner) == "return True" for inner in ast.walk(node))
    )


def test_unions_are_matched_to_the_end() -> None:
    """A `match` over classes names every one and says so, or takes the rest on purpose."""

    def is_open_ended(node: ast.AST) -> bool:
        patterns = [case.pattern for case in node.cases] if isinstance(node, ast.Match) else []
        are_classes = all(isinstance(pattern, ast.MatchClass | ast.MatchOr) for pattern in patterns)
        return are_classes and any(isinstance(pattern, ast.MatchClass) for pattern in patterns)

    assert find(is_open_ended) == []


def test_async_generators_are_owned_by_whoever_reads_them() -> None:
    """A bare `async for` over a call leaves the generator open when its reader goes away."""
    assert find(lambda node: isinstance(node, ast.AsyncFor) and isinstance(node.iter, ast.Call)) == []


def test_nothing_is_yielded_inside_a_task_group() -> None:
    """Closing such a generator would cancel the wrong task."""

    def yields(node: ast.AST) -> bool:
        is_group = isinstance(node, ast.AsyncWith) and "TaskGroup" in ast.unparse(node.items[0])
        return is_group and any(isinstance(inner, ast.Yield) for inner in ast.walk(node))

    assert find(yields) == []


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
    lines = ((path, line) for path in MODULES for line in path.read_text().splitlines())
    marked = [(path, line) for path, line in lines if re.search(r"#\s*noqa|#\s*type:\s*ignore", line)]
    assert [f"{name_of(path)}: {line}" for path, line in marked if not says_why.search(line)] == []


def test_no_constant_of_a_module_is_assigned_twice() -> None:
    for name, tree in trees():
        targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
        names = [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
        assert {part for part in names if part.isupper() and names.count(part) > 1} == set(), name
