"""List, show, export, rename, delete, repair, restore or fork stored sessions."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from thinklsp.cli.terminal import (
    create_console,
    find_current_folder,
    is_confirmed,
    parse_age,
    print_json,
    sanitize_text,
)
from thinklsp.core.errors import ThinkLspError
from thinklsp.core.text_safety import escape_invisible, format_size
from thinklsp.engine.session_commands import (
    SessionCommands,
    filter_older_than,
    format_cost,
    format_restored,
)
from thinklsp.engine.session_stores import open_session_store
from thinklsp.settings.config_files import explain_unused_paths
from thinklsp.workspace.paths import compute_workspace_key
from thinklsp.workspace.uri import format_uri, path_to_uri

_MIN_ID_CHARACTERS = 8
_TEXT_COLUMNS = ("id", "title", "model", "folder")
# The width of the terminal from which on a column is shown.
_MIN_WIDTHS = {"age": 60, "folder": 80, "cost": 80, "steps": 90, "model": 110, "size": 120}
# The longest texts of these columns on a terminal.
_MAX_WIDTHS = {"model": 22, "folder": 24}
_ID_HELP = "the session's id, the beginning of its id, or `last` for this folder's newest session"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    ops = parser.add_subparsers(dest="op", metavar="{list,show,export,rename,delete,repair,restore,fork}")
    parser.set_defaults(op="list", all=False, json=False)
    listing = ops.add_parser("list", help="list this folder's sessions, newest first (default)")
    listing.add_argument("--all", action="store_true", help="list sessions from all folders")
    show = ops.add_parser("show", help="print a session as Markdown")
    export = ops.add_parser("export", help="export a session as Markdown or JSON")
    export.add_argument("--format", choices=("markdown", "json"), default="markdown")
    export.add_argument("-o", "--output", metavar="FILE", help="write to a new file that only you can read")
    for op in (show, export):
        op.add_argument("--archive", metavar="ID", help="show an archive: the messages before a compaction or repair")
        op.add_argument("--thinking", action="store_true", help="include the model's summaries of its thinking")
    rename = ops.add_parser("rename", help="give a session another title")
    rename.add_argument("id", metavar="ID", help=_ID_HELP)
    rename.add_argument("title", metavar="TITLE", help="the new title, at most 60 characters")
    delete = ops.add_parser("delete", help="permanently delete a session, or all old sessions")
    which = delete.add_mutually_exclusive_group(required=True)
    which.add_argument("id", nargs="?", metavar="ID", help=_ID_HELP)
    which.add_argument(
        "--older-than",
        metavar="AGE",
        type=parse_age,
        help="delete sessions that have not been used for this long, for example 90d or 12w",
    )
    delete.add_argument("--all", action="store_true", help="with --older-than: include sessions from all folders")
    delete.add_argument("--yes", action="store_true", help="delete without asking")
    repair = ops.add_parser("repair", help="repair a session that providers reject")
    repair.add_argument("--dry-run", action="store_true", help="only show the problems")
    restore = ops.add_parser("restore", help="undo a compaction or a repair")
    restore.add_argument("--archive", metavar="ID", help="the archive to restore (default: the newest)")
    fork = ops.add_parser("fork", help="copy a session into a new session")
    fork.add_argument("--step", type=int, metavar="N", help="copy only the first N steps (default: all)")
    for op in (show, export, repair, restore, fork):
        op.add_argument("id", nargs="?", metavar="ID", help=_ID_HELP)
    for op in (listing, show, rename, delete, repair, restore, fork):
        op.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    return asyncio.run(_run(args))


async def _run(args: argparse.Namespace) -> int:
    store = open_session_store(os.environ)
    # An ID can refer to a session in any folder. A list contains only the sessions of the current folder, unless the
    # user specifies --all.
    several = args.op == "list" or getattr(args, "older_than", None) is not None
    everywhere = args.all if several else True
    commands = SessionCommands(store, compute_workspace_key(path_to_uri(find_current_folder())), everywhere=everywhere)
    try:
        return await _OPERATIONS.get(args.op, _change)(commands, args)
    finally:
        for problem in (*explain_unused_paths(os.environ), *store.problems):
            sys.stderr.write(f"thinklsp sessions: {sanitize_text(problem)}\n")
        await store.aclose()


async def _list(commands: SessionCommands, args: argparse.Namespace) -> int:
    entries = await commands.list()
    if args.json:
        print_json(entries)
    elif entries:
        _print_table(entries, with_folder=args.all)
    else:
        sys.stderr.write("There are no sessions yet.\n" if args.all else "This folder has no sessions; try --all.\n")
    return 0


def _print_table(entries: Sequence[Mapping[str, Any]], *, with_folder: bool) -> None:
    """Print a table of sessions. A narrow terminal gets fewer columns, so that each session fits on one line."""
    console = create_console(sys.stdout)
    columns = _build_columns(entries)
    if not with_folder:
        del columns["folder"]
    if console.is_terminal:
        columns = {name: cells for name, cells in columns.items() if console.width >= _MIN_WIDTHS.get(name, 0)}
        for name in _MAX_WIDTHS.keys() & columns.keys():
            columns[name] = [_truncate_start(cell.plain, _MAX_WIDTHS[name]) for cell in columns[name]]
    else:
        console.width = 400
    table = Table(box=None, pad_edge=False, header_style="dim", show_edge=False, expand=console.is_terminal)
    for name in columns:
        justify: Literal["left", "right"] = "left" if name in _TEXT_COLUMNS else "right"
        # The title gets the room that is left.
        table.add_column(name, no_wrap=True, justify=justify, ratio=1 if name == "title" else None)
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    console.print(table)


def _build_columns(entries: Sequence[Mapping[str, Any]]) -> dict[str, list[Text]]:
    ids = [entry["sessionId"] for entry in entries]
    # Show only as many characters of each ID as are needed to tell the IDs apart.
    length = next(
        length for length in range(_MIN_ID_CHARACTERS, 65) if len({name[:length] for name in ids}) == len(ids)
    )
    return {
        "id": [Text(name[:length]) for name in ids],
        "title": [_format_title(entry) for entry in entries],
        "model": [Text(escape_invisible(entry["model"] or "–")) for entry in entries],
        "steps": [Text(str(entry["steps"])) for entry in entries],
        "cost": [Text(format_cost(entry["usage"]["costUsd"])) for entry in entries],
        "size": [Text(format_size(entry["size"])) for entry in entries],
        "age": [Text(_format_age(entry["updated"])) for entry in entries],
        "folder": [Text(escape_invisible(format_uri(entry["workspace"]))) for entry in entries],
    }


def _format_title(entry: Mapping[str, Any]) -> Text:
    """Format a title. The mark for a running turn comes first, because the end of the title may be cut off."""
    running = Text("(running) " if entry["busy"] else "", style="yellow")
    return running.append(escape_invisible(entry["title"]), style="bold")


def _truncate_start(text: str, width: int) -> Text:
    """Shorten a path or a name at the beginning, because the end is more distinctive."""
    if cell_len(text) <= width:
        return Text(text)
    while text and cell_len(text) >= width:
        text = text[1:]
    return Text(f"…{text}")


def _format_age(updated: str) -> str:
    passed = datetime.now(UTC) - datetime.fromisoformat(updated)
    for unit, name in ((timedelta(days=1), "d"), (timedelta(hours=1), "h"), (timedelta(minutes=1), "min")):
        if passed >= unit:
            return f"{passed // unit} {name}"
    return "now"


async def _show(commands: SessionCommands, args: argparse.Namespace) -> int:
    answer = await commands.show(args.id, args.archive, thinking=args.thinking)
    if args.json:
        print_json(answer)
        return 0
    sys.stdout.write(sanitize_text(answer["text"]))
    for archive in answer["archives"] if args.archive is None else ():
        sys.stderr.write(
            f"An archive has {archive['messages']} earlier messages ({sanitize_text(archive['note'])}). "
            f"To show it, use --archive {archive['archiveId']}\n"
        )
    return 0


async def _export(commands: SessionCommands, args: argparse.Namespace) -> int:
    text = (await commands.export(args.id, args.format, args.archive, thinking=args.thinking))["text"]
    if args.output is not None:
        _write(args.output, text)
    else:
        # Escape control characters, because the output may go to a terminal.
        sys.stdout.write(sanitize_text(text))
    return 0


def _write(path: str, text: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ThinkLspError(f"{path} already exists. Choose a new file name.") from None
    except OSError as error:
        raise ThinkLspError(f"{path} cannot be written: {error.strerror}.") from None


async def _delete(commands: SessionCommands, args: argparse.Namespace) -> int:
    if args.older_than is not None:
        return await _delete_old(commands, args)
    summary = await commands.find(args.id)
    if not _may_delete(args, f"“{sanitize_text(summary.title)}” ({summary.steps} steps)"):
        return 1
    answer = await commands.delete(summary.id)
    _print_answer(args, answer, f"Deleted “{answer['title']}”. {answer.get('notice', '')}".rstrip())
    return 0


async def _delete_old(commands: SessionCommands, args: argparse.Namespace) -> int:
    entries = filter_older_than(await commands.list(), args.older_than)
    if not args.json and entries:
        _print_table(entries, with_folder=args.all)
    if entries and not _may_delete(args, _format_sessions(entries)):
        return 1
    answer = await commands.delete_all([entry["sessionId"] for entry in entries])
    gone = [entry for entry in entries if entry["sessionId"] in answer["deleted"]]
    deleted = f"Deleted: {_format_sessions(gone)}. {answer.get('notice', '')}".rstrip()
    nothing = "Nothing was deleted." if entries else "No session is that old."
    _print_answer(args, answer, deleted if gone else nothing)
    for reason in dict.fromkeys(kept["reason"] for kept in answer["kept"]):
        sys.stderr.write(f"thinklsp sessions: {sanitize_text(reason)}\n")
    return 1 if answer["kept"] else 0


def _may_delete(args: argparse.Namespace, description: str) -> bool:
    refusal = "Nothing was deleted. Use --yes to delete without confirmation."
    return is_confirmed(f"Delete {description} permanently?", yes=args.yes, refusal=refusal)


def _format_sessions(entries: Sequence[Mapping[str, Any]]) -> str:
    size = format_size(sum(entry["size"] for entry in entries))
    return f"1 session of {size}" if len(entries) == 1 else f"{len(entries)} sessions of {size}"


async def _change(commands: SessionCommands, args: argparse.Namespace) -> int:
    """Rename, repair, restore or fork a session."""
    findings: Sequence[str] = ()
    if args.op == "rename":
        answer = await commands.rename(args.id, args.title)
        message = f"Renamed to “{answer['title']}”."
    elif args.op == "restore":
        answer = await commands.restore(args.id, args.archive)
        message = format_restored(answer)
    elif args.op == "fork":
        if args.step is not None and args.step < 0:
            raise ThinkLspError("--step must be 0 or more.")
        answer = await commands.fork(args.id, args.step)
        message = f"Created session {answer['sessionId']} (“{answer['title']}”)"
    else:
        answer = await commands.repair(args.id, apply=not args.dry_run)
        findings = answer["findings"]
        way = f"To show the messages before the repair, use --archive {answer['archiveId']}"
        unchanged = "Nothing was changed." if findings else "The session has no problems."
        message = f"The session is repaired. {way}" if answer["repaired"] else unchanged
    _print_answer(args, answer, "\n".join([*findings, message]))
    return 0


def _print_answer(args: argparse.Namespace, answer: Mapping[str, Any], message: str) -> None:
    if args.json:
        print_json(answer)
    else:
        print(sanitize_text(message))


_OPERATIONS = {"list": _list, "show": _show, "export": _export, "delete": _delete}
