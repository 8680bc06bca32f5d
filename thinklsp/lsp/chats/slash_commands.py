"""The slash commands for a chat document's session. Each command returns Markdown for the user."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from thinklsp.core.errors import ThinkLspError
from thinklsp.core.prompt_syntax import Invocation
from thinklsp.engine import CompactRequest
from thinklsp.engine.session_commands import SlashAnswers, format_undo
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.edits.edit_applier import EditApplier
from thinklsp.lsp.turns.turn_registry import TurnRegistry
from thinklsp.lsp.turns.turn_run import TurnRun


@dataclass(frozen=True, slots=True)
class CommandProgress:
    """The progress of a prompt's slash commands, with the document's current session and the output so far.

    `remaining` contains the commands that have not run yet. If `has_failed` is True, they will not run.
    """

    session_id: str
    output: tuple[str, ...]
    remaining: tuple[Invocation, ...]
    has_failed: bool = False


class SlashCommands:
    """The slash command runner. The caller must claim the session, so that no turn uses it at the same time."""

    def __init__(
        self,
        answers: SlashAnswers,
        snapshots: Snapshots,
        turns: TurnRegistry,
        applying: EditApplier,
    ) -> None:
        self._answers = answers
        self._snapshots = snapshots
        self._turns = turns
        self._applying = applying

    async def run(
        self, run: TurnRun, invocations: Sequence[Invocation], session_id: str, cleared_session_id: str
    ) -> AsyncGenerator[CommandProgress, None]:
        """Run the commands in order, and yield the progress after each command.

        `cleared_session_id` is the id of the session to use after `/clear`.
        """
        outputs: tuple[str, ...] = ()
        for number, invocation in enumerate(invocations, 1):
            remaining = tuple(invocations[number:])
            try:
                if invocation.command.name == "clear":
                    session_id = cleared_session_id
                    output = "A new session starts here. The model no longer sees the conversation above."
                else:
                    output = await self._run_command(run, invocation, session_id)
            except ThinkLspError as error:
                yield CommandProgress(session_id, (*outputs, str(error)), remaining, has_failed=True)
                return
            outputs = (*outputs, output)
            yield CommandProgress(session_id, outputs, remaining)

    async def _run_command(self, run: TurnRun, invocation: Invocation, session_id: str) -> str:
        match invocation.command.name:
            case "compact":
                return await self._compact(run, session_id, invocation.argument)
            case "undo":
                outcome = await self._applying.undo(None, session_id=session_id)
                return "\n\n".join(filter(None, (format_undo(outcome.files), outcome.new_text)))
            case _:
                return await self._answers.answer(invocation, session_id)

    async def _compact(self, run: TurnRun, session_id: str, instructions: str) -> str:
        view, key = self._snapshots.create_view(), self._snapshots.key
        request = CompactRequest(view=view, workspace=key, session_id=session_id, instructions=instructions)
        turn = await self._turns.start_turn(request, run.progress)
        return str((await run.run_turn(turn))["text"])
