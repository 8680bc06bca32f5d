"""`python -m tests.language [--worst N]` measures how plainly the sources speak, and lists the places to fix first.

It reads the docstrings, comments and names of `thinklsp/`, the comments of `editors/` and the names of tests. The words
and the bounds are in `tests/language.toml`; `tests/test_language.py` checks the bounds.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tests.support.sources import list_nodes, parse_package

ROOT = Path(__file__).parent.parent
RULES: dict[str, Any] = tomllib.loads((ROOT / "tests/language.toml").read_text(encoding="utf-8"))
VERBS, ODD, FRAGMENTS, EMPTY_VERBS, FIXED_NAMES = (
    frozenset(RULES["words"][kind].split()) for kind in ("verbs", "odd", "fragments", "empty_verbs", "fixed_names")
)
MAX_TEST_NAME = 60
EDITOR_COMMENTS = {".ts": r"^\s*(?://|/?\*+)(.*)", ".lua": r"--(.*)", ".el": r";+(.*)", ".vim": r'^\s*"(.*)'}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Measure:
    """Counts of good and bad places, and a line for each bad one."""

    counts: Counter[str] = field(default_factory=Counter)
    worst: list[str] = field(default_factory=list)

    def count(self, kind: str, *, of: str, good: bool, place: str) -> None:
        """Count one place of a population; a bad place is listed."""
        self.counts[of] += 1
        if good:
            self.counts[kind] += 1
        else:
            self.worst.append(f"{place}: not {kind.replace('_', ' ')}")

    def share(self, kind: str, of: str) -> float:
        """Return the good places in percent."""
        return 100 * self.counts[kind] / max(self.counts[of], 1)


def begins_with_verb(text: str) -> bool:
    """Return whether the first word is a verb, in the imperative or the third person."""
    first = re.match(r"[`\"'_]*([A-Za-z]+)", text)
    if first is None:
        return False
    word = first[1].lower()
    stems = (word, word.removesuffix("s"), word.removesuffix("es"), re.sub("ies$", "y", word))
    return any(stem in VERBS for stem in stems)


def begins_with_fragment(text: str) -> bool:
    """Return whether a docstring continues the function's name instead of saying what the function does."""
    first = re.match(r"[A-Za-z]+", text)
    if first is None or first[0] not in FRAGMENTS:
        return False
    return first[0] not in ("The", "That", "If") or text.startswith(("The same", "If "))


def measure() -> tuple[dict[str, float], list[str]]:
    """Return each figure by its name, and a line for each place that makes one worse."""
    seen = Measure()
    for path, tree in parse_package().items():
        measure_words(seen, path, read_prose(path, tree))
        for node in list_nodes(tree):
            if isinstance(node, Function):
                measure_function(seen, path, node)
    for path in sorted((ROOT / "editors").rglob("*")):
        if path.suffix in EDITOR_COMMENTS and "node_modules" not in path.parts:
            measure_words(seen, path, read_comments(path), of="editors")
    long_names = list(find_long_test_names())
    twice = find_repeated_names()
    figures = {
        "docstrings_verb_first_percent": seen.share("verb_first", "docstrings"),
        "docstrings_fragment_first_percent": 100 - seen.share("whole_sentence", "docstrings_too"),
        "what_per_1000": 1000 * seen.counts["what"] / max(seen.counts["words"], 1),
        "odd_words": seen.counts["odd"],
        "names_verb_first_percent": seen.share("named_by_verb", "names"),
        "public_types_defined_twice": len(twice["type"]),
        "module_names_used_twice": len(twice["module"]),
        "public_functions_documented_percent": seen.share("documented", "public_functions"),
        "empty_verbs": seen.counts["empty_verbs"],
        "odd_words_in_editors": seen.counts["odd_in_editors"],
        "long_test_names": len(long_names),
    }
    repeated = [
        f"{kind} {name} is defined twice: {', '.join(at)}" for kind in twice for name, at in twice[kind].items()
    ]
    return figures, seen.worst + repeated + long_names


def measure_function(seen: Measure, path: Path, node: Function) -> None:
    """Measure the name and the docstring of a function that is not a property or a dunder method."""
    place = f"{name_of(path)}:{node.lineno}: {node.name}"
    decorators = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
    dunder = node.name.startswith("__")
    is_property = "property" in decorators
    if not dunder and not is_property:
        seen.count("named_by_verb", of="names", good=begins_with_verb(node.name), place=place)
        if node.name.strip("_").split("_")[0] in EMPTY_VERBS and node.name not in FIXED_NAMES:
            seen.counts["empty_verbs"] += 1
            seen.worst.append(f"{place}: empty verb")
    docstring = ast.get_docstring(node)
    if not node.name.startswith("_"):
        seen.counts["public_functions"] += 1
        seen.counts["documented"] += docstring is not None
    if docstring is not None and not is_property:
        first = f"{place}: {docstring.splitlines()[0]!r}"
        fragment = begins_with_fragment(docstring)
        seen.count("whole_sentence", of="docstrings_too", good=not fragment, place=first)
        good = begins_with_verb(docstring) and not fragment
        seen.count("verb_first", of="docstrings", good=good, place=first)


def measure_words(seen: Measure, path: Path, prose: Iterator[tuple[int, str]], of: str = "") -> None:
    """Count the words of a file's prose, the word "what" and the odd words."""
    for line, text in prose:
        words = re.findall(r"[a-z']+", text.lower())
        odd = ODD.intersection(words)
        seen.counts[f"odd_in_{of}" if of else "odd"] += sum(word in ODD for word in words)
        if not of:
            seen.counts["words"] += len(words)
            seen.counts["what"] += words.count("what")
        if odd or ("what" in words and not of):
            seen.worst.append(f"{name_of(path)}:{line}: odd words {sorted(odd) or ['what']}: {text.splitlines()[0]!r}")


def read_prose(path: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the docstrings and comments of a module with their lines; linter directives are left out."""
    for node in list_nodes(tree):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and (docstring := ast.get_docstring(node)):
            yield node.body[0].lineno, docstring
    source = path.read_text(encoding="utf-8")
    if "#" not in source:
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and "noqa" not in token.string:
            yield token.start[0], token.string


def read_comments(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the comments of a plug-in's source file with their lines."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if comment := re.search(EDITOR_COMMENTS[path.suffix], line):
            yield number, comment[1]


def find_repeated_names() -> dict[str, dict[str, list[str]]]:
    """Return the public types and the modules whose name occurs more than once, with their files."""
    found: dict[str, dict[str, list[str]]] = {"type": defaultdict(list), "module": defaultdict(list)}
    for path, tree in parse_package().items():
        if not path.name.startswith("__") and not has_role(path):
            found["module"][path.stem].append(name_of(path))
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found["type"][node.name].append(name_of(path))
    return {kind: {name: at for name, at in names.items() if len(at) > 1} for kind, names in found.items()}


def has_role(path: Path) -> bool:
    """Return whether a module has the name of its role, which other packages of its kind have too."""
    folder = name_of(path.parent)
    return any(fnmatch(folder, kind) and (names == "*" or path.stem in names) for kind, names in RULES["roles"].items())


def find_long_test_names() -> Iterator[str]:
    """Yield a line for each test whose name is too long to read in a report."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        for name in re.finditer(r"^ *(?:async )?def (test_\w+)", source, re.MULTILINE):
            if len(name[1]) > MAX_TEST_NAME:
                line = source.count("\n", 0, name.start()) + 1
                yield f"{name_of(path)}:{line}: {len(name[1])} characters: {name[1]}"


def name_of(path: Path) -> str:
    """Return the path of a file in the project."""
    return path.relative_to(ROOT).as_posix()


def main() -> int:
    """Print the worst places and the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.language", description="Measure how plainly the sources speak."
    )
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="also list at most N places to fix")
    options = parser.parse_args()
    figures, worst = measure()
    for line in worst[: options.worst]:
        print(line)
    for name, figure in figures.items():
        print(f"{name:40} {figure:8.1f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
