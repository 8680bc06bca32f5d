"""The definitions in Python sources, by Python's own parser."""

from __future__ import annotations

import ast
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path


def definitions(source: bytes) -> list[tuple[str, str, int, int, int]] | None:
    """Kind, name, first and last line, depth, in the order of the text; None where Python cannot parse it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return None
    return sorted(_walk(tree), key=lambda row: row[2:])


def _walk(tree: ast.AST) -> Iterator[tuple[str, str, int, int, int]]:
    waiting: list[tuple[ast.AST, int, bool]] = [(tree, 0, False)]
    while waiting:
        node, depth, in_class = waiting.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                is_class = isinstance(child, ast.ClassDef)
                kind = "class" if is_class else "method" if in_class else "function"
                yield kind, child.name, child.lineno, child.end_lineno or 0, depth
                waiting.append((child, depth + 1, is_class))
            else:
                waiting.append((child, depth, in_class))


def standard_library() -> list[Path]:
    """All of its sources, in the order of their names; what pip has installed is none of it."""
    root = Path(sysconfig.get_path("stdlib"))
    return sorted(path for path in root.rglob("*.py") if "site-packages" not in path.parts)
