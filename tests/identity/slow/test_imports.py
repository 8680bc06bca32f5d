"""A server for one user loads nothing that identifies users."""

from __future__ import annotations

import subprocess
import sys

import pytest

LISTED = """
print(*sorted(name for name in sys.modules if name.partition(".")[0] == "jwt" or name.startswith("thinklsp.identity")))
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


def test_socket_without_users_loads_no_jwt_library() -> None:
    loaded = list_loaded("thinklsp.cli.serve_sockets", "thinklsp.lsp.transport.websocket", "thinklsp.lsp.commands")
    assert [name for name in loaded if name.startswith("jwt")] == []
    assert "thinklsp.identity.jwt_verifier" not in loaded
    assert "jwt" in list_loaded("thinklsp.identity.jwt_verifier")
