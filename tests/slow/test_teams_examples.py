"""The examples of the page for operators: their command lines serve a client and drain."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.support.client.raw import HandshakeRefused, WebSocketWire
from tests.support.outside import ROOT
from tests.support.postgres_server import PostgresServer, find_programs, run_postgres
from tests.telemetry.monitored import fetch, until_answer
from tests.test_teams_page import COMPOSE, CONFIG, CONTAINER, EXAMPLES, KUBERNETES

TOKEN = "0123456789abcdef0123456789abcdef"


async def test_the_examples_work_with_their_database(tmp_path: Path) -> None:
    """The server is not the owner, and its rights are those that the migration gives it."""
    with run_postgres() as server:
        script = re.sub(r"^--.*\n", "", (EXAMPLES / "roles.sql").read_text("utf-8"), flags=re.MULTILINE)
        for statement in script.replace("database thinklsp ", "database example ").split(";"):
            server.execute(statement)
        for service in (
            COMPOSE["services"]["migration"],
            KUBERNETES["Job"]["spec"]["template"]["spec"]["containers"][0],
        ):
            assert service["command"] == ["thinklsp", "store", "migrate", "--role", "thinklsp_server"]
        check_database_command(server)
        address = f"127.0.0.1:{server.port}/example"
        owner = environment(tmp_path) | {"THINKLSP_STORE_URL": f"postgresql://thinklsp_owner@{address}"}
        migration = await asyncio.create_subprocess_exec(*service["command"], cwd=tmp_path, env=owner)
        assert await migration.wait() == 0
        command, ports = (COMPOSE["services"]["server"][name] for name in ("command", "ports"))
        assert [published.rpartition(":")[2] for published in ports] == ["9258", "9464"]
        store = {"THINKLSP_STORE_URL": f"postgresql://thinklsp_server@{address}"}
        async with serving(command, tmp_path, "/run/secrets/token", store) as (process, port, health):
            assert (await until_answer(health, "/ready", 200)).json == {"ok": True, "store": "ok"}
            await check_health_command(tmp_path, health)
            await check_server(process, port, health)
        for service in ("migration", "server"):
            options = conninfo_to_dict(COMPOSE["services"][service]["environment"]["THINKLSP_STORE_URL"])
            assert options["host"] == "/var/run/postgresql"
            assert f"role {options['user']} login" in script
            assert f"database {options['dbname']} " in script


def check_database_command(server: PostgresServer) -> None:
    """A server that is not process 1 is the temporary one of the image."""
    kind, command = COMPOSE["services"]["database"]["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    variables = {"PGDATA": str(server.data), "PGHOST": "127.0.0.1", "PGPORT": str(server.port)}
    variables["PATH"] = f"{find_programs()}{os.pathsep}{os.environ['PATH']}"
    first = (server.data / "postmaster.pid").read_text().split()[0]
    for process, code in (("1", 1), (first, 0)):
        shell = ["sh", "-c", command.replace("$$", "$").replace(" -qx 1 ", f" -qx {process} ")]
        assert subprocess.run(shell, env=variables, check=False).returncode == code


def environment(folder: Path) -> dict[str, str]:
    programs = folder / "bin"
    for name in ("bin", "state"):
        (folder / name).mkdir(mode=0o700, exist_ok=True)
    (programs / "thinklsp").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m thinklsp "$@"\n')
    if not (programs / "python").exists():
        (programs / "python").symlink_to(sys.executable)
    (programs / "thinklsp").chmod(0o755)
    config = folder / "config.toml"
    config.write_text(CONFIG)
    config.chmod(0o644)
    variables = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    return variables | {"THINKLSP_CONFIG": str(config), "THINKLSP_STATE_DIR": str(folder / "state")}


@asynccontextmanager
async def serving(
    command: list[str], folder: Path, secret: str, variables: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[tuple[Any, int, int]]:
    """Run the command of a container on free ports, with its files in a folder. Yield the process and both ports."""
    (folder / "token").write_text(f"{TOKEN}\n")
    (folder / "token").chmod(0o644)
    changes = {secret: str(folder / "token"), "/tmp/token": str(folder / "copy"), ":9258": ":0", ":9464": ":0"}  # noqa: S108 - of the container
    argv = [replace(word, changes) for word in command]
    assert argv != command
    process = await asyncio.create_subprocess_exec(
        *argv, cwd=folder, env=environment(folder) | variables, stderr=asyncio.subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        ports = []
        for line in ("metrics on http://0.0.0.0:", "listening on ws://0.0.0.0:"):
            async with asyncio.timeout(60):
                told = (await process.stderr.readline()).decode()
            assert told.startswith(f"thinklsp: {line}"), told
            ports.append(int(re.findall(r":(\d+)", told)[-1]))
        yield process, ports[1], ports[0]
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def replace(text: str, changes: Mapping[str, str]) -> str:
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


async def check_health_command(folder: Path, health: int) -> None:
    kind, *probe = COMPOSE["services"]["server"]["healthcheck"]["test"]
    assert kind == "CMD"
    words = [word.replace(":9464", f":{health}") for word in probe]
    variables = {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    checking = await asyncio.create_subprocess_exec(*words, env=variables)
    assert await checking.wait() == 0


async def check_server(process: Any, port: int, health: int) -> None:
    assert (await fetch(health, "/health")).status == 200
    await until_answer(health, "/ready", 200)
    client = await WebSocketWire.upgraded(port, f"Authorization: Bearer {TOKEN}")
    with pytest.raises(HandshakeRefused) as refused:
        await WebSocketWire.upgraded(port, "Authorization: Bearer no token at all")
    assert refused.value.status == 401
    process.send_signal(signal.SIGTERM)
    while await client.read():
        pass
    assert client.closed == 1001
    client.close()
    assert await process.wait() == 143


async def test_the_server_of_kubernetes_serves(tmp_path: Path) -> None:
    mount = next(mount["mountPath"] for mount in CONTAINER["volumeMounts"] if mount["name"] == "token")
    async with serving(CONTAINER["command"], tmp_path, f"{mount}/token") as (process, port, health):
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            await until_answer(health, CONTAINER[probe]["httpGet"]["path"], 200)
        await check_server(process, port, health)
