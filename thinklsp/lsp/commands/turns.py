"""The commands that start and cancel turns: `chat`, `action`, `send`, `compact` and `cancel`."""

from __future__ import annotations

from lsprotocol.types import ExecuteCommandParams

from thinklsp.core.errors import SessionError, TurnRefused
from thinklsp.engine import CompactRequest
from thinklsp.engine.results import Result
from thinklsp.lsp.assistant import Assistant
from thinklsp.lsp.editor import arguments as args
from thinklsp.lsp.server import ThinkLspServer
from thinklsp.sessions.session import Session


def register(server: ThinkLspServer) -> None:
    @server.command("thinklsp.chat")
    async def run_chat(params: ExecuteCommandParams) -> Result | None:
        """Run a chat turn.

        Return a TurnResult if the caller gave a token, and a TurnStarted otherwise. Return None if there is no prompt.
        """
        assistant = await server.load()
        return await assistant.request_builder.run_chat(
            args.parse_arguments(args.ChatArguments, params), server.find_progress(params)
        )

    @server.command("thinklsp.action")
    async def run_action(params: ExecuteCommandParams) -> Result | None:
        """Run a code action.

        Return a TurnResult if the caller gave a token, and a TurnStarted otherwise. Return None if the action lacks an
        instruction.
        """
        assistant = await server.load()
        return await assistant.request_builder.run_action(
            args.parse_arguments(args.ActionArguments, params), server.find_progress(params)
        )

    @server.command("thinklsp.send")
    async def send(params: ExecuteCommandParams) -> Result:
        assistant = await server.load()
        uri = args.parse_arguments(args.SendArguments, params).uri
        return await assistant.chat_submitter.send(uri, server.find_progress(params))

    @server.command("thinklsp.compact")
    async def compact(params: ExecuteCommandParams) -> Result:
        """Compact a session, by default the newest session in the workspace."""
        assistant = await server.load()
        arguments = args.parse_arguments(args.CompactArguments, params)
        session_id = arguments.session_id or (await _find_newest_session(assistant)).id
        snapshots = assistant.snapshots
        request = CompactRequest(
            view=snapshots.create_view(),
            workspace=snapshots.key,
            session_id=session_id,
            instructions=arguments.instructions,
        )
        return await assistant.turns.launch_run(
            await assistant.turns.prepare_run(request, server.find_progress(params))
        )

    @server.command("thinklsp.cancel")
    async def cancel(params: ExecuteCommandParams) -> Result:
        return {"cancelled": server.cancel_turn(args.parse_arguments(args.TurnArguments, params).turn_id)}


async def _find_newest_session(assistant: Assistant) -> Session:
    try:
        return await assistant.engine.open_session("last", assistant.snapshots.key)
    except SessionError:
        raise TurnRefused("Nothing to compact: there is no session in this workspace.") from None
