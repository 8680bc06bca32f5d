"""Runs slash commands on the session of a chat document. What they do is what the commands of the same name do.

What needs the store, the summaries and the ledger of edits is asked of `SessionServices`, the one seam to them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from thinklsp.core.errors import ThinkLspError
from thinklsp.lsp.chats.sessions import Sessions
from thinklsp.lsp.chats.slash import Invocation, described
from thinklsp.lsp.turns.running import Running

_CHOICES_TOLD = 30


class SessionServices(Protocol):
    """What commands ask of the rest of the house. Each answers with Markdown for the user, or raises a ThinkLspError
    with a sentence. The caller holds the session, so that no turn runs in it meanwhile; it may cancel."""

    async def compact(self, running: Running, session_id: str, instructions: str) -> str:
        """A turn of what runs the commands: it shows there what it does, and counts there what it costs."""
        ...

    async def restore(self, session_id: str, archive_id: str | None) -> str:
        """Undo a compaction or a repair. `archive_id` None: the newest."""
        ...

    async def usage(self, session_id: str) -> str: ...

    async def sessions(self) -> str:
        """Those of this workspace."""
        ...

    async def undo(self, session_id: str) -> str:
        """Takes back what the newest turn of the session that wrote has written."""
        ...


@dataclass(frozen=True, slots=True)
class Ran:
    """What has come of the commands of one prompt: the session that the document now belongs to, and what to tell.
    `left` are those that have not been run; after `failed` none of them will be."""

    session_id: str
    told: tuple[str, ...]
    left: tuple[Invocation, ...]
    failed: bool = False


class SlashCommands:
    def __init__(self, sessions: Sessions, services: SessionServices) -> None:
        self._sessions = sessions
        self._services = services

    async def run(
        self, running: Running, invocations: Sequence[Invocation], session_id: str, cleared: str
    ) -> AsyncGenerator[Ran, None]:
        """In their order, on the session; tells after each how far it has come. `cleared` is the session that `/clear`
        goes on with."""
        told: tuple[str, ...] = ()
        for number, invocation in enumerate(invocations, 1):
            left = tuple(invocations[number:])
            try:
                if invocation.command.name == "clear":
                    session_id = cleared
                    said = "A new session begins here. The model no longer knows what stands above."
                else:
                    said = await self._one(running, invocation, session_id)
            except ThinkLspError as error:
                yield Ran(session_id, (*told, str(error)), left, failed=True)
                return
            told = (*told, said)
            yield Ran(session_id, told, left)

    async def _one(self, running: Running, invocation: Invocation, session_id: str) -> str:
        argument = invocation.argument
        match invocation.command.name:
            case "effort" | "model" as key:
                return await self._choose(key, argument, session_id)
            case "think":
                return await self._choose("thinking", " ".join(argument.split()), session_id)
            case "compact":
                return await self._services.compact(running, session_id, argument)
            case "restore":
                return await self._services.restore(session_id, argument.strip("`") or None)
            case "usage":
                return await self._services.usage(session_id)
            case "sessions":
                return await self._services.sessions()
            case "undo":
                return await self._services.undo(session_id)
            case _:
                return described()

    async def _choose(self, key: str, wish: str, session_id: str) -> str:
        """The answer of the command in a sentence or two; the choices, too, where none was made."""
        answer = await self._sessions.choose(key, wish or None, session_id)
        value, effective = answer["value"], answer["effective"]
        used = f" ({effective} is used)" if effective not in (None, value, value.partition(" ")[0]) else ""
        choices = "" if wish else f"It can be {', '.join(answer['choices'][:_CHOICES_TOLD])}."
        return " ".join(filter(None, (f"{key.capitalize()}: {value}{used}.", choices, answer["notice"])))
