"""Servers in which any statement of some modules can fail, with an error text that quotes all locals.

The process that forks them loads those modules with a call before each statement. In each turn the first statement
fails that has not failed before; `FAILED` names the file that lists them.
"""

from __future__ import annotations

import ast
import builtins
import importlib.abc
import importlib.machinery
import logging
import os
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

PACKAGE = Path(__file__).parents[2] / "thinklsp"
ROOMS = (
    *("providers/anthropic.py", "providers/failures.py", "http/sse.py"),
    *("core/stream_events.py", "core/messages.py", "agent/model_call.py"),
    *("sessions/codec.py", "sessions/session_rows.py", "sessions/session_cache.py"),
    *("sessions/store.py", "sessions/sqlite_store.py"),
)
_NOT = ("is_shallow",)
_NAME = "fail_once_here"
# If empty, nothing fails before the next turn.
_armed: list[bool] = []


def points() -> set[str]:
    return {f"{room}:{statement.lineno}" for room in ROOMS for statement in _statements(ast.parse(_source(room)))}


def _source(room: str) -> str:
    return (PACKAGE / room).read_text("utf-8")


def _statements(node: ast.AST) -> list[ast.stmt]:
    named = [n for n in ast.walk(node) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    functions = [n for n in named if n.name not in _NOT]
    inside = {n for function in functions for n in ast.walk(function) if isinstance(n, ast.stmt) and n is not function}
    texts = {n for n in inside if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)}
    return [n for n in inside - texts if not isinstance(n, ast.Global | ast.Nonlocal | ast.Pass)]


class _Planting(ast.NodeTransformer):
    def __init__(self, room: str, chosen: Sequence[ast.stmt]) -> None:
        self._room, self._chosen = room, set(chosen)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for _, value in ast.iter_fields(node):
            if isinstance(value, list):
                value[:] = [new for old in value for new in self._planted(old)]
        return node

    def _planted(self, node: Any) -> list[Any]:
        if node not in self._chosen:
            return [node]
        call = ast.parse(f"{_NAME}({f'{self._room}:{node.lineno}'!r}, locals())").body[0]
        for part in ast.walk(call):
            ast.copy_location(part, node)
        return [call, node]


class _Loader(importlib.machinery.SourceFileLoader):
    def source_to_code(self, data: Any, path: Any, **_: Any) -> CodeType:  # type: ignore[override] # for one version
        room = Path(path).relative_to(PACKAGE).as_posix()
        tree = ast.parse(data)
        planted = _Planting(room, _statements(tree)).visit(tree)
        code: CodeType = compile(ast.fix_missing_locations(planted), path, "exec")
        return code

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> Any:
        room = fullname.removeprefix("thinklsp.").replace(".", "/") + ".py"
        if room not in ROOMS:
            return None
        return importlib.machinery.ModuleSpec(fullname, _Loader(fullname, str(PACKAGE / room)), origin=room)


def fail_once(place: str, at_hand: dict[str, Any]) -> None:
    if not _armed or place in _failed():
        return
    _armed.clear()
    with open(os.environ["FAILED"], "a") as file:
        file.write(f"{place}\n")
    words = f"{place}: {at_hand!r}"[:20_000]
    raise sqlite3.OperationalError(words) if place.startswith("sessions/") else ValueError(words)


def _failed() -> list[str]:
    with open(os.environ["FAILED"]) as file:
        return file.read().split()


def arm() -> None:
    """Let one statement of each following turn fail. `WORDS`: the log repeats the texts of errors."""
    from thinklsp.cli import logs
    from thinklsp.engine.engine import Engine

    if "WORDS" in os.environ:
        logs._RedactingFormatter.formatException = logging.Formatter.formatException  # type: ignore[method-assign] # planted

    start = Engine.start_turn

    async def started(self: Engine, *given: Any, **named: Any) -> Any:
        _armed[:] = [True]
        return await start(self, *given, **named)

    Engine.start_turn = started  # type: ignore[method-assign] # the planted fault


if __name__ == "__main__":
    setattr(builtins, _NAME, fail_once)
    sys.meta_path.insert(0, _Finder())
    from tests.support.forking import fork_servers

    sys.exit(fork_servers(arm))
