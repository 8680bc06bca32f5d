"""Sources that others have published, fetched by the ordinary clients of npm, pip and apt into a folder of the test."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

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
        subprocess.run(
            [_client("apt-get"), "download", "-qq", name],
            cwd=folder,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
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
