"""Sources to judge outlines by: what Python, universal-ctags and public repositories have."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
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


_SECONDS = 300.0
_LARGEST = 400_000


@dataclass(frozen=True)
class Packages:
    """What to fetch for a language, and how its files end."""

    endings: tuple[str, ...]
    npm: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    apt: tuple[str, ...] = ()


PACKAGES = {
    "javascript": Packages(
        (".js", ".mjs", ".cjs"),
        npm=("eslint@9.9.0", "express@4.19.2", "webpack@5.94.0", "lodash@4.17.21", "rxjs@7.8.1", "zod@3.25.76",
             "@reduxjs/toolkit@2.2.7"),
    ),
    "typescript": Packages((".ts", ".mts"), npm=("rxjs@7.8.1", "zod@3.25.76", "@reduxjs/toolkit@2.2.7")),
    "go": Packages((".go",), apt=("golang-1.19-src", "golang-1.24-src")),
    "rust": Packages(
        (".rs",),
        apt=("librust-tokio-dev", "librust-regex-dev", "librust-serde-dev", "librust-syn-dev", "librust-hashbrown-dev"),
    ),
    "c": Packages((".c", ".h"), pip=("zstandard==0.23.0", "hiredis==3.0.0", "brotli==1.1.0")),
}  # fmt: skip


class NotFetched(Exception):
    """Why the sources are not there."""


def fetch(packages: Packages, folder: Path) -> None:
    """Raises NotFetched where a client is missing or gets nothing."""
    if packages.npm:
        _run([_client("npm"), "pack", "--silent", *packages.npm], folder)
    if packages.pip:
        options = ("--quiet", "--no-deps", "--no-binary", ":all:")
        _run([sys.executable, "-m", "pip", "download", *options, *packages.pip], folder)
    for name in packages.apt:
        # Which of them there are depends on the release.
        argv = [_client("apt-get"), "download", "-qq", name]
        subprocess.run(argv, cwd=folder, capture_output=True, timeout=_SECONDS, check=False)
    archives = [path for path in folder.iterdir() if path.name.endswith((".tgz", ".tar.gz"))]
    for path in archives:
        with tarfile.open(path) as archive:
            archive.extractall(folder / path.stem, filter="data")
    debian = list(folder.glob("*.deb"))
    for path in debian:
        _run([_client("dpkg-deb"), "-x", path.name, path.stem.partition("_")[0]], folder)
    if not archives and not debian:
        raise NotFetched(f"no package of {', '.join(packages.apt)} could be downloaded")


def sample(packages: Packages, folder: Path, most: int) -> list[Path]:
    """In the order of the hash of their paths. Declarations of types and what a program has written are left out."""
    named = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if _is_source(path, packages)}
    ordered = sorted(named, key=lambda name: sha256(name.encode()).digest())
    return [named[name] for name in ordered[:most]]


def _is_source(path: Path, packages: Packages) -> bool:
    kept = path.suffix in packages.endings and not path.name.endswith((".d.ts", ".d.mts", ".min.js"))
    return kept and path.is_file() and not path.is_symlink() and path.stat().st_size < _LARGEST


def _client(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise NotFetched(f"{name} is not installed")
    return found


def _run(argv: Sequence[str], folder: Path) -> None:
    try:
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise NotFetched(f"{argv[0]} did not end") from None
    if done.returncode:
        raise NotFetched(f"{argv[0]}: {done.stderr.strip()[-300:]}")


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


def ctags_definitions(ctags: str, language: str, paths: Sequence[Path]) -> dict[Path, set[tuple[str, int]]]:
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
