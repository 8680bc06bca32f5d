"""The commands that apply and undo a turn's edits, and the editor's report of hunks that the user undid."""

from __future__ import annotations

from typing import Any

from lsprotocol.types import ExecuteCommandParams

from thinklsp.core.errors import TurnRefused
from thinklsp.engine.results import EditOutcome, Result
from thinklsp.lsp.editor.arguments import TurnArguments, parse_arguments
from thinklsp.lsp.edits.edit_comparison import parse_hunks
from thinklsp.lsp.server import ThinkLspServer

_NOTHING_PENDING = "No edit is waiting to be applied."


def register(server: ThinkLspServer) -> None:
    @server.command("thinklsp.apply")
    async def apply(params: ExecuteCommandParams) -> Result:
        """Apply a pending edit, by default the newest."""
        assistant = await server.load()
        applying, turn_id = assistant.edit_applier, parse_arguments(TurnArguments, params).turn_id
        pending = applying.pending_edits.get(turn_id)
        if pending is None and turn_id is not None and assistant.ledger.has_written(turn_id):
            raise TurnRefused("The edit of this turn is already applied.")
        if pending is None:
            raise TurnRefused(_NOTHING_PENDING)
        return _answer(server, await applying.apply(pending))

    @server.command("thinklsp.discard")
    async def discard(params: ExecuteCommandParams) -> Result:
        """Drop a pending edit, by default the newest."""
        pending_edits = (await server.load()).edit_applier.pending_edits
        pending = pending_edits.get(parse_arguments(TurnArguments, params).turn_id)
        if pending is None:
            raise TurnRefused(_NOTHING_PENDING)
        pending_edits.drop(pending.turn_id)
        return {"turnId": pending.turn_id, "files": [file.uri for file in pending.files]}

    @server.command("thinklsp.undo")
    async def undo(params: ExecuteCommandParams) -> Result:
        """Undo a turn's edits in all files. By default, undo the newest turn that wrote files."""
        assistant = await server.load()
        return _answer(server, await assistant.edit_applier.undo(parse_arguments(TurnArguments, params).turn_id))

    @server.feature("thinklsp/editor/kept")
    def record_hunks(params: Any) -> None:
        """Record the hunks that the user undid in the editor. Kept hunks are already recorded as applied."""
        # pygls would pass the server to a parameter whose type is `object`.
        turn_id = params.get("turnId") if isinstance(params, dict) else None
        if server.assistant is not None and isinstance(turn_id, str):
            undone = parse_hunks(params, "undone")
            server.state.spawn(server.assistant.edit_applier.undone_hunks.undo(turn_id, undone))


def _answer(server: ThinkLspServer, outcome: EditOutcome) -> Result:
    """Return the answer of a command.

    Messages name the files that the editor has not saved, and contain the text that it does not accept as an edit.
    """
    server.state.client.show_text(outcome.new_text)
    for notice in outcome.notices:
        server.state.client.show_message("info", notice)
    return {"applied": outcome.applied, "files": [file.to_json() for file in outcome.files]}
