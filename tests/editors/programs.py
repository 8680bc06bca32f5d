"""Brings programs onto a bare Debian machine: from its own suite, and from others without touching it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"


async def ran(*argv: str, folder: Path | None = None, variables: dict[str, str] | None = None) -> str:
    """What it printed. Raises RuntimeError with the last lines of what it said."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=folder,
        env={**os.environ, **(variables or {})},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, complained = await process.communicate()
    if process.returncode:
        words = (said + complained).decode("utf-8", "replace").strip().splitlines()[-5:]
        raise RuntimeError(f"{' '.join(argv[:3])} ended with {process.returncode}: {' / '.join(words)}")
    return said.decode("utf-8", "replace")


async def apt(*names: str) -> None:
    """Installs packages of the machine's own suite that are missing. Needs root."""
    missing = [name for name in names if not await _is_installed(name)]
    if not missing:
        return
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    await ran("apt-get", "update", "-qq", variables=quiet)
    await ran("apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing, variables=quiet)


async def debs(suite: str, room: Path, *names: str) -> None:
    """Packages of another suite with all their libraries below `room`; `room/run PROGRAM` starts one."""
    if not (room / "run").exists():
        await ran("bash", str(SCRIPTS / "fetch-debs"), suite, str(room), *names)


async def version_of(*argv: str) -> str:
    """The first line of what it says to that."""
    return (await ran(*argv)).strip().splitlines()[0]


async def _is_installed(name: str) -> bool:
    try:
        return "install ok installed" in await ran("dpkg-query", "-W", "-f", "${Status}", name)
    except RuntimeError:
        return False
