"""Conversations that are kept: list, show, export, delete, repair, restore and fork them."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from thinklsp.cli.terminal import console_for, current_folder, harmless, size_told
from thinklsp.cli.terminal_question import can_ask, confirm
from thinklsp.core.errors import ThinkLspError
from thinklsp.engine.sessions import Reach, SessionCommands, older_than, restored_told
from thinklsp.engine.usage import cost_told
from thinklsp.sessions.sqlite_store import SqliteStore
from thinklsp.sessions.state_folder import state_folder
from thinklsp.settings.own_folder import unused_path
from thinklsp.tools.shown import visible
from thinklsp.workspace.paths import workspace_key
from thinklsp.workspace.uri import path_to_uri, uri_to_path

_ID = 8
_AGE = re.compile(r"([0-9]{1,4})([dw])")
_UNITS = {"d": "days", "w": "weeks"}
_TEXTS = ("id", "title", "model", "folder")
# What is left out where there is little room, first to last.
_LEAST_FIRST = ("size", "model", "steps", "cost", "folder", "age")
_LEAST, _LEAST_OF_TWO = 30, 45
_GAP = 2
_MODEL = 22
_ID_HELP = "its id, the beginning of it, or `last`: this folder's newest"

Act = Callable[[SessionCommands, argparse.Namespace], Awaitable[int]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    ops = parser.add_subparsers(dest="op", metavar="{list,show,export,delete,repair,restore,fork}")
    parser.set_defaults(op="list", all=False, json=False)
    listing = ops.add_parser("list", help="those of this folder, newest first (default)")
    listing.add_argument("--all", action="store_true", help="those of every folder")
    show = _with_id(ops.add_parser("show", help="read one as Markdown"))
    export = _with_id(ops.add_parser("export", help="the same for a file, or as data"))
    export.add_argument("--format", choices=("markdown", "json"), default="markdown")
    export.add_argument("-o", "--output", metavar="FILE", help="write to a new file that only you can read")
    for op in (show, export):
        op.add_argument("--archive", metavar="ID", help="a conversation that a compaction has replaced")
        op.add_argument("--thinking", action="store_true", help="with the model's summaries of its thinking")
    delete = ops.add_parser("delete", help="delete one for good, or all that are old")
    which = delete.add_mutually_exclusive_group(required=True)
    which.add_argument("id", nargs="?", metavar="ID", help=_ID_HELP)
    which.add_argument(
        "--older-than", metavar="AGE", type=_an_age, help="those that were last used longer ago, such as 90d or 12w"
    )
    delete.add_argument("--all", action="store_true", help="with --older-than: those of every folder")
    delete.add_argument("--yes", action="store_true", help="do not ask")
    repair = _with_id(ops.add_parser("repair", help="find and mend what no service would accept"))
    repair.add_argument("--dry-run", action="store_true", help="only say what would change")
    restore = _with_id(ops.add_parser("restore", help="undo a compaction or a repair"))
    restore.add_argument("--archive", metavar="ID", help="the archive to restore; without: the newest")
    fork = _with_id(ops.add_parser("fork", help="begin a new one that knows what this one knew"))
    fork.add_argument("--step", type=int, metavar="N", help="after its first N steps; without: all of them")
    for op in (listing, show, delete, repair, restore, fork):
        op.add_argument("--json", action="store_true", help="print the result as JSON")


def _with_id(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("id", nargs="?", metavar="ID", help=_ID_HELP)
    return parser


def _an_age(written: str) -> timedelta:
    found = _AGE.fullmatch(written)
    if found is None:
        raise argparse.ArgumentTypeError(f"{written!r} is no age; write 90d for 90 days, 12w for 12 weeks")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def run(args: argparse.Namespace) -> int:
    return asyncio.run(_run(args))


async def _run(args: argparse.Namespace) -> int:
    store = SqliteStore(state_folder(os.environ))
    # Ids are found wherever they are: this is the user's own terminal. A list is of this folder unless all are wished.
    several = args.op == "list" or getattr(args, "older_than", None) is not None
    everywhere = args.all if several else True
    commands = SessionCommands(store, Reach(workspace_key(path_to_uri(current_folder())), everywhere))
    try:
        return await _ACTS[args.op](commands, args)
    finally:
        for problem in filter(None, (unused_path(os.environ, "THINKLSP_STATE_DIR"), *store.problems)):
            sys.stderr.write(f"thinklsp sessions: {harmless(problem)}\n")
        await store.aclose()


async def _list(commands: SessionCommands, args: argparse.Namespace) -> int:
    entries = await commands.list()
    if args.json:
        print(json.dumps(entries, indent=2))
    elif entries:
        _print_table(entries, with_folder=args.all)
    else:
        sys.stderr.write("There is no session yet.\n" if args.all else "This folder has no session; --all lists all.\n")
    return 0


def _print_table(entries: Sequence[Mapping[str, Any]], *, with_folder: bool) -> None:
    """In a terminal every session is one line: what matters least gives way to the title."""
    console = console_for(sys.stdout)
    columns = _columns(entries, with_folder=with_folder)
    if console.is_terminal:
        columns = _fitting(columns, console.width)
    else:
        console.width = 400
    table = Table(box=None, pad_edge=False, header_style="dim", show_edge=False)
    for name, cells in columns.items():
        table.add_column(name, no_wrap=True, width=_width(name, cells), justify="left" if name in _TEXTS else "right")
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    console.print(table)


def _width(name: str, cells: Iterable[Text]) -> int:
    return max(len(name), *(cell.cell_len for cell in cells))


def _columns(entries: Sequence[Mapping[str, Any]], *, with_folder: bool) -> dict[str, list[Text]]:
    length = _telling([entry["sessionId"] for entry in entries])
    columns = {
        "id": [Text(entry["sessionId"][:length]) for entry in entries],
        "title": [_titled(entry) for entry in entries],
        "model": [Text(visible(entry["model"] or "–")) for entry in entries],
        "steps": [Text(str(entry["steps"])) for entry in entries],
        "cost": [Text(cost_told(entry["usage"]["costUsd"])) for entry in entries],
        "size": [Text(size_told(entry["size"])) for entry in entries],
        "age": [Text(_age(entry["updated"])) for entry in entries],
    }
    if with_folder:
        columns["folder"] = [Text(visible(_folder(entry["workspace"]))) for entry in entries]
    return columns


def _fitting(columns: Mapping[str, list[Text]], width: int) -> dict[str, list[Text]]:
    """Without as many columns as it takes to leave room for titles, and with folders by their end."""
    fitting = dict(columns)
    fitting["model"] = [_tail(cell.plain, _MODEL) for cell in columns["model"]]
    for name in _LEAST_FIRST:
        if _room(fitting, width) >= (_LEAST_OF_TWO if "folder" in fitting else _LEAST):
            break
        fitting.pop(name, None)
    room = max(1, _room(fitting, width))
    if "folder" in fitting:
        own = min(_width("folder", fitting["folder"]), max(room // 3, room - _width("title", fitting["title"])))
        fitting["folder"] = [_tail(cell.plain, own) for cell in fitting["folder"]]
        room -= own
    for title in fitting["title"]:
        title.truncate(max(1, room), overflow="ellipsis")
    return fitting


def _room(columns: Mapping[str, list[Text]], width: int) -> int:
    """What the other columns and the gaps leave for titles and folders."""
    others = sum(_width(name, cells) for name, cells in columns.items() if name not in ("title", "folder"))
    return width - others - _GAP * (len(columns) - 1)


def _titled(entry: Mapping[str, Any]) -> Text:
    """That a turn runs comes first: the end of a title may not be seen."""
    running = Text("(running) " if entry["busy"] else "", style="yellow")
    return running.append(visible(entry["title"]), style="bold")


def _tail(text: str, width: int) -> Text:
    """The end of a path or a name tells more than its beginning."""
    if cell_len(text) <= width:
        return Text(text)
    while text and cell_len(text) >= width:
        text = text[1:]
    return Text(f"…{text}")


def _telling(ids: Sequence[str]) -> int:
    """How many letters tell these ids apart, at least eight."""
    return next(length for length in range(_ID, 65) if len({name[:length] for name in ids}) == len(ids))


async def _show(commands: SessionCommands, args: argparse.Namespace) -> int:
    shown = await commands.show(args.id, args.archive, thinking=args.thinking)
    if args.json:
        print(json.dumps(shown, indent=2))
        return 0
    sys.stdout.write(harmless(shown["text"]))
    for archive in shown["archives"] if args.archive is None else ():
        sys.stderr.write(
            f"An earlier state of {archive['messages']} messages ({harmless(archive['note'])}) is shown with "
            f"--archive {archive['archiveId']}\n"
        )
    return 0


async def _export(commands: SessionCommands, args: argparse.Namespace) -> int:
    text = (await commands.export(args.id, args.format, args.archive, thinking=args.thinking))["text"]
    if args.output is not None:
        _write(args.output, text)
    else:
        # Markdown is for people, also through a pager. JSON spells these characters anyway.
        sys.stdout.write(harmless(text))
    return 0


def _write(path: str, text: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ThinkLspError(f"{path} exists already. Name a new file.") from None
    except OSError as error:
        raise ThinkLspError(f"{path} cannot be written: {error.strerror}.") from None


async def _delete(commands: SessionCommands, args: argparse.Namespace) -> int:
    if args.older_than is not None:
        return await _delete_old(commands, args)
    summary = await commands.find(args.id)
    if not args.yes:
        if not can_ask():
            raise ThinkLspError("Nothing was deleted. Give --yes to delete without a question.")
        if not confirm(f"Delete “{harmless(summary.title)}” ({summary.steps} steps) for good?"):
            return 1
    deleted = await commands.delete(summary.id)
    _tell(args, deleted, f"“{deleted['title']}” is deleted.")
    return 0


async def _delete_old(commands: SessionCommands, args: argparse.Namespace) -> int:
    entries = older_than(await commands.list(), args.older_than)
    if not args.json and entries:
        _print_table(entries, with_folder=args.all)
    if entries and not args.yes:
        if not can_ask():
            raise ThinkLspError("Nothing was deleted. Give --yes to delete without a question.")
        if not confirm(f"Delete {_several(entries)} for good?"):
            return 1
    answer = await commands.delete_all([entry["sessionId"] for entry in entries])
    gone = [entry for entry in entries if entry["sessionId"] in answer["deleted"]]
    nothing = "Nothing was deleted." if entries else "There is no session that old."
    _tell(args, answer, f"Deleted: {_several(gone)}." if gone else nothing)
    for reason in dict.fromkeys(kept["reason"] for kept in answer["kept"]):
        sys.stderr.write(f"thinklsp sessions: {harmless(reason)}\n")
    return 1 if answer["kept"] else 0


def _several(entries: Sequence[Mapping[str, Any]]) -> str:
    size = size_told(sum(entry["size"] for entry in entries))
    return f"1 session of {size}" if len(entries) == 1 else f"{len(entries)} sessions of {size}"


async def _repair(commands: SessionCommands, args: argparse.Namespace) -> int:
    if not args.json and not args.dry_run:
        # What it would change is shown before anything is changed.
        for finding in (await commands.repair(args.id, apply=False))["findings"]:
            print(harmless(finding))
    answer = await commands.repair(args.id, apply=not args.dry_run)
    if args.dry_run and not args.json:
        for finding in answer["findings"]:
            print(harmless(finding))
    if not answer["findings"]:
        said = "Nothing is wrong with it."
    elif answer["repaired"]:
        said = f"It is mended. What stood there before is kept: show it with --archive {answer['archiveId']}"
    else:
        said = "Nothing was changed."
    _tell(args, answer, said)
    return 0


async def _restore(commands: SessionCommands, args: argparse.Namespace) -> int:
    answer = await commands.restore(args.id, args.archive)
    _tell(args, answer, restored_told(answer))
    return 0


async def _fork(commands: SessionCommands, args: argparse.Namespace) -> int:
    if args.step is not None and args.step < 0:
        raise ThinkLspError("Steps are counted from 0.")
    fork = await commands.fork(args.id, args.step)
    _tell(args, fork, f"“{fork['title']}” is {fork['sessionId']}")
    return 0


_ACTS: Mapping[str, Act] = {
    "list": _list,
    "show": _show,
    "export": _export,
    "delete": _delete,
    "repair": _repair,
    "restore": _restore,
    "fork": _fork,
}


def _tell(args: argparse.Namespace, answer: Mapping[str, Any], said: str) -> None:
    print(json.dumps(answer, indent=2) if args.json else harmless(said))


def _folder(workspace: str) -> str:
    try:
        return uri_to_path(workspace)
    except ThinkLspError:
        return workspace


def _age(updated: str) -> str:
    passed = datetime.now(UTC) - datetime.fromisoformat(updated)
    for unit, name in ((timedelta(days=1), "d"), (timedelta(hours=1), "h"), (timedelta(minutes=1), "min")):
        if passed >= unit:
            return f"{passed // unit} {name}"
    return "now"
