"""`python -m tests.wording [PART …]` prints every sentence that a user or a model can read, with its place.

One line for each: `file:line<TAB>text`. Placeholders of f-strings and templates are shown as `{…}`. Parts are paths or
their beginnings, for example `thinklsp/lsp editors/neovim`; without one everything is printed.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.sources import list_nodes, parse_package, unparse_function

ROOT = Path(__file__).parent.parent
PLACEHOLDER = "{…}"
# Code in strings: SQL, regular expressions, CSS selectors and shell words are not sentences.
NOT_PROSE = re.compile(
    r"\b(SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|ALTER|PRAGMA|BEGIN|WHERE|ORDER BY|VALUES|PRIMARY KEY|NOT NULL)\b"
    r"|\(\?[:=!<P]|\\[bdsw]|\[\^|#\'|-hook\b|^[\w.-]+: *[\w-]+;"
)
CODE_CALLS = {"re.compile", "compile", "re.fullmatch", "re.match", "re.search", "re.sub", "execute", "executemany"}
DOUBLE_QUOTED = r"\"((?:[^\"\\\n]|\\.)*)\""
SINGLE_QUOTED = r"'((?:[^'\\\n]|\\.)*)'"
TEMPLATE = r"`((?:[^`\\\n]|\\.)*)`"
# How a language begins a comment line, and how it writes strings on one line.
SYNTAX = {
    ".ts": (("//", "*", "/*"), re.compile(f"{DOUBLE_QUOTED}|{SINGLE_QUOTED}|{TEMPLATE}")),
    ".lua": (("--",), re.compile(f"{DOUBLE_QUOTED}|{SINGLE_QUOTED}")),
    ".el": ((";",), re.compile(f"{DOUBLE_QUOTED}()")),
    ".vim": (('"',), re.compile(f"{SINGLE_QUOTED}()")),
}
IN_PACKAGE_JSON = {"title", "description", "markdownDescription", "contents", "displayName", "deprecationMessage"}


@dataclass(frozen=True, order=True)
class Wording:
    """A text that people read, with the file and the line (from 1) where it is written."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}\t{self.text!r}"


def main() -> int:
    """Print the texts of the chosen parts."""
    parts = tuple(sys.argv[1:])
    for wording in collect_wordings():
        if not parts or wording.path.startswith(parts):
            print(wording)
    return 0


def collect_wordings() -> list[Wording]:
    """Return every text of the package and of the editor plug-ins, sorted by place."""
    found: set[Wording] = set()
    for path, tree in parse_package().items():
        found.update(_read_python(path, tree))
    for path in sorted((ROOT / "editors").rglob("*")):
        if "node_modules" in path.parts or "test" in path.parts or not path.is_file():
            continue
        if path.name == "package.json":
            found.update(_read_package_json(path))
        elif path.suffix in SYNTAX:
            found.update(_read_plugin(path))
    return sorted(found)


def is_sentence(text: str) -> bool:
    """Return whether a text has at least two words of letters and is not code."""
    return len(re.findall(r"[A-Za-z]{2,}", text)) >= 2 and " " in text.strip() and not NOT_PROSE.search(text)


def _read_python(path: Path, tree: ast.Module) -> Iterator[Wording]:
    skipped = {id(part) for node in list_nodes(tree) for part in _find_code(node)}
    for node in list_nodes(tree):
        if id(node) in skipped:
            continue
        text = _text_of(node)
        if text is not None and is_sentence(text):
            yield Wording(_name(path), node.lineno, text)  # type: ignore[attr-defined]  # Strings are expressions.


def _find_code(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the strings below a node that nobody reads as sentences: docstrings, parts of f-strings, patterns."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        yield node.value
    if isinstance(node, ast.JoinedStr):
        yield from (part for part in ast.walk(node) if part is not node)
    if isinstance(node, ast.Call) and unparse_function(node).removeprefix("self.") in CODE_CALLS:
        yield from (part for argument in node.args for part in ast.walk(argument))
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("Literal"):
        yield from ast.walk(node.slice)


def _text_of(node: ast.AST) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(part.value if isinstance(part, ast.Constant) else PLACEHOLDER for part in values)
        case _:
            return None


def _read_package_json(path: Path) -> Iterator[Wording]:
    lines = path.read_text(encoding="utf-8").splitlines()
    for text in _find_titles(json.loads(path.read_text(encoding="utf-8"))):
        quoted = json.dumps(text, ensure_ascii=False)
        number = next((number for number, line in enumerate(lines, 1) if quoted in line), 1)
        yield Wording(_name(path), number, text)


def _find_titles(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, member in value.items():
            if key in IN_PACKAGE_JSON and isinstance(member, str):
                yield member
            elif key in ("enumDescriptions", "markdownEnumDescriptions"):
                yield from member
            else:
                yield from _find_titles(member)
    elif isinstance(value, list):
        for member in value:
            yield from _find_titles(member)


def _read_plugin(path: Path) -> Iterator[Wording]:
    comment_starts, quoted = SYNTAX[path.suffix]
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith(comment_starts):
            continue
        for groups in quoted.findall(line):
            text = re.sub(r"\$\{[^}]*\}|%[sd]", PLACEHOLDER, "".join(groups))
            if is_sentence(text):
                yield Wording(_name(path), number, text)


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


if __name__ == "__main__":
    raise SystemExit(main())
