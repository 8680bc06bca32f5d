"""The handlers for the server's commands, grouped by topic. They are imported with the engine."""

from thinklsp.lsp.commands import edits, reports, send, sessions, turns
from thinklsp.lsp.server import ThinkLspServer


def register_commands(server: ThinkLspServer) -> None:
    """Register all commands with the server."""
    for module in (turns, send, edits, sessions, reports):
        module.register(server)
