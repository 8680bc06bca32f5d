"""`thinklsp.sessions` and `thinklsp.usage` for one connection: which field belongs to which op, and attaching.

What they do with the store is `engine/sessions` and `engine/usage`, which the terminal shares. An editor reaches the
sessions of its own workspace only.
"""

from __future__ import annotations

from typing import Any, assert_never

from thinklsp.core.errors import SessionError
from thinklsp.engine import Engine
from thinklsp.engine.sessions import Reach, SessionCommands
from thinklsp.engine.usage import usage_report
from thinklsp.lsp.editor.arguments import SessionsArguments
from thinklsp.lsp.protocol.errors import InvalidParams
from thinklsp.lsp.turns.turns import Turns

# Beside op and sessionId.
_FIELDS = {
    "list": frozenset[str](),
    "show": frozenset({"archive_id"}),
    "export": frozenset({"archive_id", "format"}),
    "delete": frozenset[str](),
    "repair": frozenset({"apply"}),
    "restore": frozenset({"archive_id"}),
    "fork": frozenset({"step"}),
    "attach": frozenset({"partial_result_token"}),
}
_NAMES = {"archive_id": "archiveId", "partial_result_token": "partialResultToken"}


async def sessions(engine: Engine, turns: Turns, workspace: str, given: SessionsArguments) -> Any:
    """The answer by op. Raises InvalidParams for a field that is missing or belongs to another op, SessionError with a
    sentence for a session that is not known here or in use."""
    for name in sorted(given.model_fields_set - {"op", "session_id"} - _FIELDS[given.op]):
        raise InvalidParams(f"The field {_NAMES.get(name, name)} does not belong to the op {given.op}.")
    commands = SessionCommands(engine.store, Reach(workspace), engine)
    wish = given.session_id
    match given.op:
        case "list":
            return await commands.list()
        case "show":
            return await commands.show(wish, given.archive_id)
        case "export":
            return await commands.export(wish, given.format, given.archive_id)
        case "delete":
            if wish is None:
                raise InvalidParams("The field sessionId is missing: say which session to delete.")
            return await commands.delete(wish)
        case "repair":
            return await commands.repair(wish, apply=given.apply)
        case "restore":
            if given.archive_id is None:
                raise InvalidParams("The field archiveId is missing: it names the archive to restore.")
            return await commands.restore(wish, given.archive_id)
        case "fork":
            return await commands.fork(wish, given.step)
        case "attach":
            return await _attach(commands, turns, given)
        case _:
            assert_never(given.op)


async def usage(engine: Engine, workspace: str, wish: str | None) -> dict[str, Any]:
    """Of a session; without one of the workspace's newest, if it has any."""
    commands = SessionCommands(engine.store, Reach(workspace))
    try:
        session_id = (await commands.find(wish)).id
    except SessionError:
        if wish is not None:
            raise
        session_id = None
    return await usage_report(engine.store, session_id)


async def _attach(commands: SessionCommands, turns: Turns, given: SessionsArguments) -> dict[str, Any]:
    """All partial results of the running turn go to the token before this is answered, the others as they come."""
    token, wish = given.partial_result_token, given.session_id
    if token is None:
        raise InvalidParams("The field partialResultToken is missing: it takes what the turn shows.")
    if turns.uses(token):
        raise InvalidParams("The field partialResultToken names a token that is in use. Give one of its own.")
    running = turns.in_session(wish) if wish != "last" else None
    if running is None and wish is not None:
        # Not a turn of this connection by its whole id.
        wish = (await commands.find(wish)).id
        running = turns.in_session(wish)
    if running is None:
        elsewhere = wish is not None and any(e["busy"] for e in await commands.list() if e["sessionId"] == wish)
        said = "A turn of this session runs in another thinklsp." if elsewhere else "No turn is running."
        return {"attached": False, "turnId": None, "sessionId": wish, "notice": said}
    running.progress.attach(token)
    return {"attached": True, "turnId": running.id, "sessionId": running.session_id, "notice": None}
