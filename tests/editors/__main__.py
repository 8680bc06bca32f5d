"""Drives real editors, with `python -m tests.editors`; `--help` lists its options.

Installs what is missing into the cache (apt as root, npm), plays the model offline, prints the table of rows and leaves
it with screenshots in the output folder. Exit 1 when a row failed. With more attempts than one a trial that failed is
played anew; the table then shows both, and the first as unsteady.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

from tests.editors.editors import EDITORS, Editor
from tests.editors.programs import default_cache
from tests.editors.trial import Outcome, Row, play


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.editors", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=[editor.name for editor in EDITORS], help="these editors")
    parser.add_argument("--no-repeats", action="store_true", help="leave out second versions of an editor")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="each trial so often")
    parser.add_argument("--attempts", type=int, default=1, metavar="N", help="tries before a failure counts")
    parser.add_argument("--side-by-side", action="store_true", help="drive VS Code beside the other editors")
    parser.add_argument(
        "--cache", type=Path, default=default_cache(), metavar="DIR", help="where editors are installed"
    )
    parser.add_argument("--out", type=Path, default=None, metavar="DIR", help="for table and screenshots")
    chosen = parser.parse_args()
    out = chosen.out or Path(tempfile.mkdtemp(prefix="thinklsp-editors-"))
    out.mkdir(parents=True, exist_ok=True)
    editors = [editor for editor in EDITORS if not chosen.only or editor.name in chosen.only]
    if chosen.no_repeats:
        editors = [editor for editor in editors if not editor.repeats]
    rows = asyncio.run(_all(editors, chosen, out.resolve()))
    (out / "rows.json").write_text(json.dumps([asdict(row) for row in rows], indent=1))
    _print(rows)
    print(f"\nPictures and rows: {out}")
    failed = [row for row in rows if row.outcome == "failed"]
    _print(failed)  # Again, because a log that is cut keeps its end.
    skipped = sum(row.outcome == "skipped" for row in rows)
    print(f"{len(rows) - len(failed) - skipped} passed, {skipped} skipped, {len(failed)} failed")
    return 1 if failed or not rows else 0


async def _all(editors: list[Editor], chosen: argparse.Namespace, out: Path) -> list[Row]:
    """Return the rows in the order of the editors."""
    rows: dict[str, list[Row]] = {}

    async def drive(lane: list[Editor]) -> None:
        for editor in lane:
            room = editor.room_in(chosen.cache)
            room.mkdir(parents=True, exist_ok=True)
            row = await _installed(editor, room)
            rows[editor.name] = [row]
            for _ in range(chosen.repeat if row.outcome == "passed" else 0):
                rows[editor.name] += await _attempted(editor, room, out, chosen.attempts)

    async with asyncio.TaskGroup() as group:
        for lane in _split(editors) if chosen.side_by_side else [editors]:
            group.create_task(drive(lane))
    return [row for editor in editors for row in rows[editor.name]]


def _split(editors: list[Editor]) -> list[list[Editor]]:
    """Return the trials of VS Code and those of all other editors. Trials within a list use the same fixed ports."""
    is_vscode = {editor.name: "VS Code" in (editor.name, editor.room) for editor in editors}
    return [[editor for editor in editors if is_vscode[editor.name] is wanted] for wanted in (True, False)]


async def _installed(editor: Editor, room: Path) -> Row:
    began = time.monotonic()
    try:
        version = await editor.install(room)
    except RuntimeError as error:
        outcome: Outcome = "failed" if editor.required else "skipped"
        return Row(editor.name, "is there", outcome, time.monotonic() - began, str(error))
    return Row(editor.name, "is there", "passed", time.monotonic() - began, version)


async def _attempted(editor: Editor, room: Path, out: Path, attempts: int) -> list[Row]:
    rows: list[Row] = []
    for left in reversed(range(attempts)):
        played = await play(editor.name, editor.drive, room, out)
        failed = any(row.outcome == "failed" for row in played)
        if failed and left:
            played = [replace(row, outcome="unsteady") if row.outcome == "failed" else row for row in played]
        rows += played
        if not failed:
            break
    return rows


def _print(rows: list[Row]) -> None:
    width = max((len(row.editor) for row in rows), default=0)
    for row in rows:
        note = f"  ({row.note})" if row.note else ""
        print(f"{row.editor:<{width}}  {row.outcome:<9}{row.seconds:>6.1f} s  {row.step}{note}")


if __name__ == "__main__":
    sys.exit(main())
