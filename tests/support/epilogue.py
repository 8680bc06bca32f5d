"""What every fault ends with: the server answers, nothing is left behind, nothing has leaked, the store is sound.

`faulty` is a server for one row of the table. Shares no code with the product.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.client.actions import ResponseError
from tests.support.outside import ROOT, Outside, start
from tests.support.watching import seen

CLOCK = ROOT / "tests" / "faults" / "clock"


def clock(speed: float = 1, **jump: float) -> dict[str, str]:
    """Variables of a server whose seconds are shorter than ours."""
    named = {f"CLOCK_{name.upper()}": str(value) for name, value in jump.items()}
    return {"PYTHONPATH": f"{CLOCK}{os.pathsep}{ROOT}", "CLOCK_SPEED": str(speed), **named}


@asynccontextmanager
async def faulty(place: Path, *script: Any, code: int | None = None, **how: Any) -> AsyncIterator[Outside]:
    """Start all, and judge the end of a test that passed. `code`: of a server that the test itself has ended."""
    outside = await start(place, *script, **how)
    try:
        yield outside
        if code is None:
            await check_answers(outside)
            await check_no_children(outside.client.process.pid)
            await outside.finish()
        else:
            assert await outside.client.gone() == code
            assert [str(leak) for leak in outside.leaks()] == []
        await check_left_behind(outside)
    finally:
        await outside.stop()


async def check_answers(outside: Outside) -> None:
    """An echo, and a look at the store by the server itself."""
    with pytest.raises(ResponseError) as unknown:
        await outside.client.request("thinklsp/echo", {})
    assert unknown.value.code == -32601
    assert isinstance(await outside.client.command("thinklsp.sessions", {"op": "list"}), list)


async def check_no_children(process: int) -> None:
    await seen(lambda: not children(process), what="the end of all children")


async def check_left_behind(outside: Outside) -> None:
    """After the end: no process, and a sound database."""
    place = str(outside.home.parent)
    await seen(lambda: not living_in(place), what=f"the end of what lived in {place}")
    assert check_store(outside.home) in ("ok", "none")


def check_store(home: Path) -> str:
    """What SQLite itself says of the store; `none` where there is none, or nothing in it."""
    path = home / "state" / "sessions" / "sessions.db"
    if not path.is_file() or not path.stat().st_size:
        return "none"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        [[verdict]] = connection.execute("PRAGMA integrity_check").fetchall()
        connection.execute("SELECT count(*) FROM session").fetchone()
    return str(verdict)


def children(process: int) -> list[int]:
    """Those of the process that still run."""
    found = []
    for task in _listed(Path(f"/proc/{process}/task")):
        try:
            found += [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue  # It has just ended.
    return found


def living_in(place: str) -> list[int]:
    """Processes that were given a folder below `place`, or work there, us excepted."""
    found = []
    for process in _listed(Path("/proc")):
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        try:
            inside = os.readlink(process / "cwd").startswith(place)
            given = place.encode() in (process / "environ").read_bytes()
        except OSError:
            continue  # It has ended, or belongs to somebody else.
        if inside or given:
            found.append(int(process.name))
    return found


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def descendants(process: int) -> list[int]:
    """Its children, theirs, and so on."""
    found = children(process)
    return found + [below for child in found for below in descendants(child)]
