"""Identification, PostgreSQL, metrics and traces are optional: one user loads none, a team reads what is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.telemetry.monitored import METRICS, run_first

OPTIONAL = ("cryptography", "jwt", "opentelemetry", "prometheus_client", "psycopg", "psycopg_pool")
LISTED = f"""
names = (name for name in sys.modules if name.partition(".")[0] in {OPTIONAL} or name.startswith("thinklsp.identity"))
print(*sorted(names))
"""


def list_loaded(*modules: str) -> list[str]:
    program = f"import sys, {', '.join(modules)}\n{LISTED}"
    return subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize("front_end", ["lsp", "acp", "terminal"])
def test_one_user_loads_nothing(front_end: str) -> None:
    modules = {
        "lsp": ("thinklsp.cli.serve_stdio", "thinklsp.lsp.transport.connection", "thinklsp.lsp.commands"),
        "acp": ("thinklsp.acp.initialization", "thinklsp.acp.acp_server"),
        "terminal": ("thinklsp.cli.main", "thinklsp.cli.ask", "thinklsp.cli.doctor", "thinklsp.cli.sessions"),
    }
    assert list_loaded(*modules[front_end]) == []


def test_socket_without_users_loads_no_optional_library() -> None:
    loaded = list_loaded("thinklsp.cli.serve_sockets", "thinklsp.lsp.transport.websocket", "thinklsp.lsp.commands")
    assert loaded == ["thinklsp.identity", "thinklsp.identity.tokens"]
    assert "jwt" in list_loaded("thinklsp.identity.jwt_verifier")
    assert "psycopg" in list_loaded("thinklsp.sessions.postgres.database")


OIDC = '[serve.oidc]\nissuer = "https://login.example.com"\naudience = "thinklsp"\n'
STORE = '[store]\nurl = "postgresql:///sessions"\n'
POSTGRES = ("Sessions in PostgreSQL need more packages.", "psycopg[binary]")
# Per package: what needs it, by option or by configuration, and the sentence and the command that the server prints.
NEEDED = {
    "prometheus_client": (METRICS, "", "--metrics needs one more package.", "prometheus-client"),
    "jwt": ((), OIDC, "[serve.oidc] in your config.toml needs one more package.", "pyjwt[crypto]"),
    "psycopg": ((), STORE, *POSTGRES),
    "psycopg_pool": ((), STORE, *POSTGRES),
    "cryptography": ((), f'{STORE}fallback = "memory"\n', *POSTGRES),
}


@pytest.mark.parametrize("package", NEEDED)
def test_server_does_not_start_without_a_package(tmp_path: Path, package: str) -> None:
    options, text, sentence, requirement = NEEDED[package]
    config = tmp_path / "config.toml"
    config.write_text(text)
    config.chmod(0o600)
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "THINKLSP_CONFIG": str(config)}
    argv = (*run_first(f"import sys\nsys.modules[{package!r}] = None\n"), "--ws", "127.0.0.1:0", *options)
    done = subprocess.run(argv, check=False, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"thinklsp: {sentence} Run ")
    assert " -m pip install " in done.stderr
    assert requirement in done.stderr
    assert len(done.stderr.splitlines()) == 1
