"""A server for one user loads nothing of the optional parts: identification, PostgreSQL, metrics and traces."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
