"""What universal-ctags takes for the functions, classes and methods of a file, to judge our outline by."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

# Kinds that are functions, methods, and what has methods or members. Left out: prototypes, macros, variables,
# constants, members, properties, enumerators, type aliases, packages, labels.
KINDS = {
    "javascript": ("JavaScript", ("function", "generator", "class", "method", "getter", "setter")),
    "typescript": ("TypeScript", ("function", "generator", "class", "method", "interface", "enum")),
    "go": ("Go", ("func", "methodSpec", "struct", "interface")),
    "rust": ("Rust", ("function", "method", "struct", "enum", "interface", "implementation")),
    "c": ("C", ("function", "struct", "union", "enum")),
}


def program() -> str | None:
    """Universal ctags; other programs of the name know no JSON."""
    found = shutil.which("ctags")
    if found is None:
        return None
    told = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    return found if "Universal Ctags" in told else None


def definitions(ctags: str, language: str, paths: Sequence[Path]) -> dict[Path, set[tuple[str, int]]]:
    """Name and line of each, by file. What ctags itself has made up a name for is left out."""
    named, kinds = KINDS[language]
    done = subprocess.run(
        [ctags, "--output-format=json", f"--language-force={named}", "--fields=+neK", "--sort=no", "-f-", "-L-"],
        input="\n".join(map(str, paths)), capture_output=True, text=True, errors="replace", check=True,
    )  # fmt: skip
    found: dict[Path, set[tuple[str, int]]] = {path: set() for path in paths}
    for line in done.stdout.rstrip("\n").split("\n") if done.stdout else ():
        tag = json.loads(line)
        if tag["_type"] == "tag" and tag["kind"] in kinds and not _made_up(tag):
            found[Path(tag["path"])].add((tag["name"], tag["line"]))
    return found


def _made_up(tag: dict[str, object]) -> bool:
    return "nonymous" in str(tag.get("extras", "")) or str(tag["name"]).startswith(("__anon", "anonymous", "Anonymous"))
