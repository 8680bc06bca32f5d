"""The answers to the slash commands about a session, and to `/help` and `/undo`. Each answer is Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from thinklsp.core.prompt_syntax import Invocation, format_help
from thinklsp.engine.engine import Engine
from thinklsp.engine.results import FileStatus
from thinklsp.engine.session_access import SessionCommands, SessionScope, format_restored, format_sessions
from thinklsp.engine.usage_report import build_usage_report, format_usage
from thinklsp.engine.workspace_sessions import WorkspaceSessions

_MAX_CHOICES = 30


class SlashAnswers:
    """The slash commands that need only the sessions of a workspace.

    `get_workspace` returns the key of the workspace. The caller must claim the session, so that no turn uses it at the
    same time. The front end itself runs `/compact`, `/undo` and `/clear`.
    """

    def __init__(self, sessions: WorkspaceSessions, engine: Engine, get_workspace: Callable[[], str]) -> None:
        self._sessions = sessions
        self._engine = engine
        self._get_workspace = get_workspace

    async def answer(self, invocation: Invocation, session_id: str) -> str:
        """Run a command and return its answer. Raise ThinkLspError if the command fails."""
        argument = invocation.argument
        match invocation.command.name:
            case "effort" | "model" as key:
                return await self._choose(key, argument, session_id)
            case "think":
                return await self._choose("thinking", " ".join(argument.split()), session_id)
            case "restore":
                return await self._restore(session_id, argument.strip("`") or None)
            case "usage":
                return format_usage(await build_usage_report(self._engine.store, session_id))
            case "sessions":
                return format_sessions(await self._create_session_commands().list())
            case _:
                return format_help()

    async def _choose(self, key: str, argument: str, session_id: str) -> str:
        """Set a choice and return a message about it.

        If no value is given, return the current value and the choices.
        """
        answer = await self._sessions.choose(key, argument or None, session_id)
        value, effective = answer["value"], answer["effective"]
        effective_text = f" ({effective} is used)" if effective not in (None, value, value.partition(" ")[0]) else ""
        choices = "" if argument else f"Choices: {', '.join(answer['choices'][:_MAX_CHOICES])}."
        return " ".join(filter(None, (f"{key.capitalize()}: {value}{effective_text}.", choices, answer["notice"])))

    async def _restore(self, session_id: str, archive_id: str | None) -> str:
        return format_restored(await self._create_session_commands().restore_claimed(session_id, archive_id))

    def _create_session_commands(self) -> SessionCommands:
        return SessionCommands(self._engine.store, SessionScope(self._get_workspace()), self._engine)


def format_undo(files: Iterable[FileStatus]) -> str:
    """Format the answer of `/undo`, a list with the outcome of each file."""
    return "\n".join(_format_file_status(file) for file in files)


def _format_file_status(file: FileStatus) -> str:
    name = file.uri.rpartition("/")[2]
    if file.status == "applied":
        return f"- {name} was restored to its state before the turn."
    return f"- {name} was not changed: {file.reason or file.status}."
