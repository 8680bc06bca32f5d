"""The commands for sessions, usage and choices. An editor can access only the sessions of its own workspace.

`engine/session_commands` reads and changes the store for these commands and for the command line.
"""

from __future__ import annotations

from typing import assert_never

from lsprotocol.types import ExecuteCommandParams

from thinklsp.core.errors import SessionError
from thinklsp.engine import Engine
from thinklsp.engine.results import Result
from thinklsp.engine.session_commands import SessionCommands, build_usage_report
from thinklsp.jsonrpc.rpc_messages import InvalidParams
from thinklsp.lsp.assistant import Assistant
from thinklsp.lsp.editor.arguments import ChoiceArguments, SessionsArguments, UsageArguments, parse_arguments
from thinklsp.lsp.server import ThinkLspServer
from thinklsp.lsp.turns.turn_registry import TurnRegistry

# The fields that each operation accepts in addition to `op` and `sessionId`.
_FIELDS = {
    "list": frozenset[str](),
    "show": frozenset({"archive_id"}),
    "export": frozenset({"archive_id", "format"}),
    "delete": frozenset[str](),
    "repair": frozenset({"apply"}),
    "restore": frozenset({"archive_id"}),
    "fork": frozenset({"step"}),
    "rename": frozenset({"title"}),
    "attach": frozenset({"partial_result_token"}),
}
_NAMES = {"archive_id": "archiveId", "partial_result_token": "partialResultToken"}


def register(server: ThinkLspServer) -> None:
    for key in ("effort", "thinking", "model"):
        _register_choice(server, key)

    @server.command("thinklsp.sessions")
    async def run_sessions(params: ExecuteCommandParams) -> object:
        assistant = await server.load()
        return await run_op(assistant, parse_arguments(SessionsArguments, params))

    @server.command("thinklsp.usage")
    async def report_usage(params: ExecuteCommandParams) -> Result:
        """Return the usage of a session, by default the newest session in the workspace."""
        assistant = await server.load()
        session_id = parse_arguments(UsageArguments, params).session_id
        return await _report_usage(assistant.engine, assistant.snapshots.key, session_id)


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


async def run_op(assistant: Assistant, arguments: SessionsArguments) -> object:
    """Run an operation and return its result.

    Raise InvalidParams for a missing or unexpected field. Raise SessionError if the session does not exist in this
    workspace or is in use.
    """
    for name in sorted(arguments.model_fields_set - {"op", "session_id"} - _FIELDS[arguments.op]):
        raise InvalidParams(f"`{_NAMES.get(name, name)}` is not a field of the op `{arguments.op}`.")
    commands = SessionCommands(assistant.engine.store, assistant.snapshots.key, assistant.engine)
    session_id = arguments.session_id
    match arguments.op:
        case "list":
            return await commands.list()
        case "show":
            return await commands.show(session_id, arguments.archive_id)
        case "export":
            return await commands.export(session_id, arguments.format, arguments.archive_id)
        case "delete":
            if session_id is None:
                raise InvalidParams("`sessionId` is required: it names the session to delete.")
            return await _delete(assistant, commands, session_id)
        case "repair":
            return await commands.repair(session_id, apply=arguments.apply)
        case "restore":
            if arguments.archive_id is None:
                raise InvalidParams("`archiveId` is required: it names the archive to restore.")
            return await commands.restore(session_id, arguments.archive_id)
        case "fork":
            return await commands.fork(session_id, arguments.step)
        case "rename":
            if arguments.title is None:
                raise InvalidParams("`title` is required: it is the new title of the session.")
            return await commands.rename(session_id, arguments.title)
        case "attach":
            return await _attach(commands, assistant.turns, arguments)
        case _:
            assert_never(arguments.op)


async def _delete(assistant: Assistant, commands: SessionCommands, session_id: str) -> Result:
    deleted = await commands.delete(session_id)
    assistant.edit_applier.forget(deleted["sessionId"])
    assistant.engine.forget_session(deleted["sessionId"])
    return deleted


async def _report_usage(engine: Engine, workspace: str, requested_id: str | None) -> Result:
    commands = SessionCommands(engine.store, workspace)
    try:
        session_id = (await commands.find(requested_id)).id
    except SessionError:
        if requested_id is not None:
            raise
        session_id = None
    return await build_usage_report(engine.store, session_id)


async def _attach(commands: SessionCommands, turns: TurnRegistry, arguments: SessionsArguments) -> Result:
    """Send the running turn's previous partial results to the token, followed by all later results."""
    token, session_id = arguments.partial_result_token, arguments.session_id
    if token is None:
        raise InvalidParams("`partialResultToken` is required: it receives the turn's partial results.")
    if turns.uses_token(token):
        raise InvalidParams("The token in `partialResultToken` is already in use. Use a new token.")
    running = turns.find_in_session(session_id) if session_id != "last" else None
    if running is None and session_id is not None:
        # The id may be abbreviated, so look up the full id.
        session_id = (await commands.find(session_id)).id
        running = turns.find_in_session(session_id)
    if running is None:
        runs_elsewhere = session_id is not None and any(
            e["busy"] for e in await commands.list() if e["sessionId"] == session_id
        )
        notice = (
            "A turn in this session is running in another thinklsp process."
            if runs_elsewhere
            else "No turn is running."
        )
        return {"attached": False, "turnId": None, "sessionId": session_id, "notice": notice}
    running.progress.attach(token)
    return {"attached": True, "turnId": running.id, "sessionId": running.session_id, "notice": None}
