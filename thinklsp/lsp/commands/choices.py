"""The commands that choose the effort, the thinking mode and the model."""

from __future__ import annotations

from lsprotocol.types import ExecuteCommandParams

from thinklsp.engine.results import Result
from thinklsp.lsp.editor.arguments import ChoiceArguments, parse_arguments
from thinklsp.lsp.server import ThinkLspServer


def register(server: ThinkLspServer) -> None:
    for key in ("effort", "thinking", "model"):
        _register_choice(server, key)


def _register_choice(server: ThinkLspServer, key: str) -> None:
    @server.command(f"thinklsp.{key}")
    async def choose(params: ExecuteCommandParams) -> Result:
        """Set a choice for a session or for all later turns. If no value is given, return the current choice."""
        assistant = await server.load()
        arguments = parse_arguments(ChoiceArguments, params)
        await assistant.refresh()
        answer = await assistant.sessions.choose(key, arguments.value, arguments.session_id)
        assistant.refresh_lenses()
        return answer
