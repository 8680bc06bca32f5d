"""Create, check, prune, rewrap or copy the database in which a team keeps its sessions."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from functools import partial
from typing import TYPE_CHECKING

from thinklsp.cli.terminal import create_console, parse_age, sanitize_text
from thinklsp.core.errors import SessionError
from thinklsp.core.server_context import LOCAL_IDENTITY, ClientIdentity
from thinklsp.engine.session_stores import TenantKeyCommand, load_store_url
from thinklsp.sessions.postgres import PostgresStore, require_packages
from thinklsp.sessions.sqlite_store import SqliteStore
from thinklsp.sessions.state_folder import resolve_state_folder
from thinklsp.sessions.store import SessionStore, copy_sessions
from thinklsp.settings.admin_file import URL_VARIABLE, load_store_section

if TYPE_CHECKING:
    from thinklsp.sessions.postgres.maintenance import RewrapReport

_NO_ADDRESS = (
    f"No database is configured. Set {URL_VARIABLE} or [store] url to postgresql://USER@HOST:PORT/DATABASE, or [store] "
    "url_command."
)

_OWNER_OPS = frozenset({"migrate", "prune", "rewrap"})
_NO_KEY_COMMAND = (
    "No command for the keys of the tenants is configured. Set [store] key_command, for example to a command that "
    "reads the key from your secret manager."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = f"{parser.description} The address comes from {URL_VARIABLE} or [store] url."
    ops = parser.add_subparsers(dest="op", metavar="{migrate,check,prune,rewrap,copy}", required=True)
    migrate = ops.add_parser("migrate", help="create or update the tables, as the role that owns them")
    migrate.add_argument(
        "--role", metavar="ROLE", help="give this role, with which thinklsp connects, the rights that it needs"
    )
    ops.add_parser("check", help="check the connection, the tables, the role and the replicas")
    prune = ops.add_parser("prune", help="delete old sessions of all users, as the role that owns the tables")
    prune.add_argument(
        "--older-than",
        metavar="AGE",
        type=parse_age,
        required=True,
        help="delete sessions that have not been used for this long, for example 90d or 12w",
    )
    ops.add_parser(
        "rewrap", help="encrypt the keys of sessions with the current tenant keys, as the role that owns the tables"
    )
    copy = ops.add_parser("copy", help="copy sessions between this machine's state folder and the database")
    copy.add_argument("direction", choices=("to-database", "to-folder"), help="where to copy the sessions")
    copy.add_argument("--tenant", default=LOCAL_IDENTITY.tenant, help="tenant of the sessions in the database")
    copy.add_argument("--user", default=LOCAL_IDENTITY.user, help="user of the sessions in the database")


def run(args: argparse.Namespace) -> int:
    """Run the operation. Returns 1 if `check` finds a problem, or if a session or a key failed."""
    section = load_store_section(os.environ)
    if not section.is_shared:
        raise SessionError(_NO_ADDRESS)
    # Some operations need the owner's address, which differs from the address of the servers.
    owner_url = os.environ.get(URL_VARIABLE, "").strip() if args.op in _OWNER_OPS else ""
    url = owner_url or load_store_url(section)
    if args.op == "copy":
        identity = ClientIdentity(args.tenant, args.user)
        command = section.key_command
        load_keys = None if command is None else TenantKeyCommand(command, identity.tenant)
        store = PostgresStore(lambda: url, identity, load_keys=load_keys)
        return asyncio.run(_copy(store, to_database=args.direction == "to-database"))
    return _maintain(args, url, section.key_command)


def _maintain(args: argparse.Namespace, url: str, key_command: tuple[str, ...] | None) -> int:
    require_packages()
    from thinklsp.sessions.postgres import maintenance  # noqa: PLC0415 - an optional extra

    if args.op == "migrate":
        before, after = maintenance.migrate(url, args.role)
        state = (
            f"are at version {after} already" if before == after else f"were updated from version {before} to {after}"
        )
        print(f"The tables {state}." if before else f"The tables were created, at version {after}.")
        if args.role is not None:
            print(f"The role {args.role} can use them.")
        return 0
    if args.op == "prune":
        count = maintenance.prune(url, args.older_than)
        print("1 session was deleted." if count == 1 else f"{count} sessions were deleted.")
        return 0
    if args.op == "rewrap":
        if key_command is None:
            raise SessionError(_NO_KEY_COMMAND)
        return _print_report(maintenance.rewrap_keys(url, partial(TenantKeyCommand, key_command)))
    check = maintenance.check_store(url)
    state = "not encrypted" if key_command is None else "encrypted with [store] key_command"
    for name, value in (*check.facts, ("texts", state)):
        print(f"{name:<12}{value}")
    console = create_console(sys.stdout)
    for problem in check.problems:
        console.print(f"\nProblem: {problem}", markup=False, highlight=False, soft_wrap=True)
    return 1 if check.problems else 0


def _print_report(report: RewrapReport) -> int:
    print(f"Keys encrypted with the current tenant key: {report.rewrapped}.")
    problems = [f"{tenant}: {error}" for tenant, error in report.errors.items()]
    problems += [f"{' / '.join(owner)}: no key of the tenant decrypts the key of the session." for owner in report.lost]
    for problem in problems:
        print(sanitize_text(problem), file=sys.stderr)
    return 1 if problems else 0


async def _copy(database: SessionStore, *, to_database: bool) -> int:
    folder = SqliteStore(resolve_state_folder(os.environ))
    source, target = (folder, database) if to_database else (database, folder)
    try:
        report = await copy_sessions(source, target)
    finally:
        await source.aclose()
        await target.aclose()
    print(f"Copied and compared: {report.copied}. Already there: {report.present}. Failed: {len(report.errors)}.")
    for session_id, error in report.errors.items():
        print(f"{session_id}: {error}", file=sys.stderr)
    return 1 if report.errors else 0
