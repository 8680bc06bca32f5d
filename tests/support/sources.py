"""The modules of the package, parsed once for all tests of a process that read them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from thinklsp.core.import_context import reduce_gc

PACKAGE = Path(__file__).parents[2] / "thinklsp"


@cache
def parse_package() -> dict[Path, ast.Module]:
    """Return the tree of each module. The collector would walk through all of them after every few."""
    with reduce_gc():
        return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def list_nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Return all that `ast.walk` finds in a tree of the package, which many tests look through."""
    with reduce_gc():
        return tuple(ast.walk(tree))


def unparse_function(call: ast.Call) -> str:
    """Return the name by which a function is called; `ast.unparse` takes long to say `a.b`."""
    names, function = [], call.func
    while isinstance(function, ast.Attribute):
        names.append(function.attr)
        function = function.value
    if not isinstance(function, ast.Name):
        return ast.unparse(call.func)
    return ".".join([function.id, *reversed(names)])
