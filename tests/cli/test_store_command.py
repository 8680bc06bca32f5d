"""`thinklsp store` and `[store]`: the tables are made, checked, filled from the folder and pruned from the terminal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, Done
from tests.support.postgres_server import PostgresServer
from tests.support.stored_sessions import full_session, opened
from thinklsp.workspace.paths import compute_workspace_key
from thinklsp.workspace.uri import path_to_uri

Inside = Callable[..., Done]
VARIABLE = "THINKLSP_STORE_URL"


@pytest.fixture
def empty(postgres: PostgresServer) -> Iterator[str]:
    """The name of an empty database."""
    postgres.execute("CREATE DATABASE store_command")
    yield "store_command"
    postgres.execute("DROP DATABASE store_command WITH (FORCE)")


def address(url: str, database: str) -> str:
    return url.rpartition("/")[0] + "/" + database


def fill_folder(cli: Cli) -> str:
    """Keep a session of the current folder in the state folder, and return its id."""
    cli.environment["THINKLSP_STATE_DIR"] = str(cli.home / "state")

    async def keep() -> str:
        async with opened(cli.home / "state") as store:
            workspace = compute_workspace_key(path_to_uri(str(cli.folder)))
            return (await store.update((await store.create(workspace)).id, full_session)).id

    return asyncio.run(keep())


def test_a_team_begins_with_the_sessions_of_the_folder(
    cli: Cli, inside: Inside, postgres: PostgresServer, empty: str
) -> None:
    session_id = fill_folder(cli)
    cli.environment[VARIABLE] = address(postgres.owner_url, empty)
    assert (
        "The tables were created, at version 4.\nThe role thinklsp can use them."
        in inside("store", "migrate", "--role", "thinklsp").stdout
    )
    assert "The tables are at version 4 already." in inside("store", "migrate").stdout
    refused = inside("store", "check")
    assert (refused.returncode, "would see the sessions of all users" in refused.stdout) == (1, True)
    uncopied = inside("store", "copy", "to-database")
    assert (uncopied.returncode, uncopied.stdout) == (1, "")
    assert uncopied.stderr.startswith("thinklsp store: The session store at ")
    cli.environment[VARIABLE] = address(postgres.url, empty)
    checked = inside("store", "check")
    assert (checked.returncode, "Problem" in checked.stdout) == (0, False)
    assert f"address     postgresql://127.0.0.1:{postgres.port}/{empty}" in checked.stdout
    assert json.loads(inside("sessions", "list", "--json").stdout) == []
    assert inside("store", "copy", "to-database").stdout == "Copied and compared: 1. Already there: 0. Failed: 0.\n"
    assert inside("store", "copy", "to-database").stdout == "Copied and compared: 0. Already there: 1. Failed: 0.\n"
    [listed] = json.loads(inside("sessions", "list", "--json").stdout)
    assert listed["sessionId"] == session_id
    assert json.loads(inside("sessions", "list", "--json", "--all").stdout) == [listed]
    assert inside("store", "copy", "to-folder").stdout == "Copied and compared: 0. Already there: 1. Failed: 0.\n"
    store = json.loads(inside("doctor", "--json").stdout)["store"]
    assert (store["kind"], store["sessions"]) == ("postgresql", 1)
    assert store["path"] == f"postgresql://127.0.0.1:{postgres.port}/{empty}"
    assert inside("store", "prune", "--older-than", "1d").returncode == 1
    cli.environment[VARIABLE] = address(postgres.owner_url, empty)
    postgres.execute("UPDATE session SET updated = 0", url=cli.environment[VARIABLE])
    assert inside("store", "prune", "--older-than", "1d").stdout == "1 session was deleted.\n"
    assert inside("store", "prune", "--older-than", "1d").stdout == "0 sessions were deleted.\n"


def test_a_team_encrypts_its_sessions(cli: Cli, inside: Inside, postgres: PostgresServer, empty: str) -> None:
    session_id = fill_folder(cli)
    own = cli.home / "config.toml"
    cli.environment |= {"THINKLSP_CONFIG": str(own), VARIABLE: address(postgres.owner_url, empty)}
    inside("store", "migrate", "--role", "thinklsp")
    refused = inside("store", "rewrap")
    assert (refused.returncode, "Set [store] key_command" in refused.stderr) == (1, True)
    # The key depends on the tenant.
    own.write_text("""[store]\nkey_command = ["sh", "-c", "printf %s $THINKLSP_TENANT | sha256sum | cut -c1-64"]\n""")
    cli.environment[VARIABLE] = address(postgres.url, empty)
    assert inside("store", "copy", "to-database").returncode == 0
    assert inside("store", "rewrap").returncode == 1
    cli.environment[VARIABLE] = address(postgres.owner_url, empty)
    done = inside("store", "rewrap")
    assert (done.returncode, done.stdout) == (0, "Keys encrypted with the current tenant key: 0.\n")
    cli.environment[VARIABLE] = address(postgres.url, empty)
    assert "The end." in inside("sessions", "show", session_id).stdout
    assert "texts       encrypted with [store] key_command\n" in inside("store", "check").stdout
    assert "encrypted in the database with a key for each session" in inside("doctor").stdout
    deleted = inside("sessions", "delete", session_id, "--yes")
    assert "backups" in deleted.stdout + deleted.stderr
    own.write_text('[store]\nkey_command = ["false"]\n')
    failed = inside("sessions", "list")
    assert "The command in [store] key_command for the tenant local failed." in failed.stderr
    del cli.environment[VARIABLE]
    alone = inside("sessions", "list")
    assert (alone.returncode, "store.key_command, which encrypts sessions in a database" in alone.stderr) == (1, True)


def test_the_first_source_of_the_address_wins(
    cli: Cli, inside: Inside, postgres: PostgresServer, tmp_path: Path
) -> None:
    """The administrator's file, then the environment, then the user's file; a wrong one is never skipped."""
    admin, own = tmp_path / "admin.toml", tmp_path / "config.toml"
    cli.environment |= {"THINKLSP_ADMIN_CONFIG": str(admin), "THINKLSP_CONFIG": str(own)}
    unset = inside("store", "check")
    assert (unset.returncode, "No database is configured. Set THINKLSP_STORE_URL or [store] url" in unset.stderr) == (
        1,
        True,
    )
    own.write_text(f'[store]\nurl_command = ["echo", "{postgres.url}"]\n')
    assert inside("store", "check").returncode == 0
    cli.environment[VARIABLE] = "postgresql://127.0.0.1:1/by-variable"
    assert "127.0.0.1:1/by-variable is not reachable" in inside("store", "check").stderr
    admin.write_text(f'[store]\nurl = "{postgres.url}"\n')
    assert inside("store", "check").returncode == 0
    # A key that encrypts nothing is never skipped, either.
    own.write_text('[store]\nkey_command = ["true"]\n')
    refused = inside("store", "check")
    assert (refused.returncode, "the administrator's file decides where and how" in refused.stderr) == (1, True)
    own.unlink()
    # Operations of the owner of the tables need another address than the servers.
    cli.environment[VARIABLE] = postgres.owner_url
    assert inside("store", "prune", "--older-than", "900w").returncode == 0
    for text, problem in (
        ('[store]\nkey_command = ["true"]\n', "encrypts sessions in a database, but no store.url"),
        ('[store]\nurl = "mysql://h/d"\n', "has a mistake at store.url"),
        ('[store]\nurl = "postgresql://h/d"\nurl_command = ["x"]\n', "both store.url and store.url_command"),
        ("[store]\nport = 5\n", "Unknown setting `store.port`"),
        ("[store\n", "is not valid TOML"),
        ('[store]\nurl_command = ["false"]\n', "The command in [store] url_command failed"),
    ):
        admin.write_text(text)
        refused = inside("store", "check")
        assert (refused.returncode, problem in refused.stderr) == (1, True), (text, refused.stderr)


def test_an_unreachable_database_is_a_problem_without_fallback(cli: Cli, inside: Inside) -> None:
    session_id = fill_folder(cli)
    cli.environment[VARIABLE] = "postgresql://somebody:canary-password@127.0.0.1:1/lost"
    refused = inside("sessions", "show", session_id)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "postgresql://127.0.0.1:1/lost is not reachable" in refused.stderr
    report = inside("doctor")
    assert "postgresql://127.0.0.1:1/lost is not reachable" in report.stdout
    assert "canary" not in refused.stderr + report.stdout + report.stderr
