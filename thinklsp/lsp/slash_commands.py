"""Runs slash commands on the session of a chat document. What they do is what the commands of the same name do.

What needs the store, the summaries and the ledger of edits is asked of `SessionServices`, the one seam to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from thinklsp.core.errors import ThinkLspError
from thinklsp.lsp.sessions import Sessions
from thinklsp.lsp.slash import Invocation, described

_CHOICES_TOLD = 30


class SessionServices(Protocol):
    """What commands ask of the rest of the house. Each answers with Markdown for the user, or raises a ThinkLspError
    with a sentence. The caller holds the session, so that no turn runs in it meanwhile; it may cancel."""

    async def compact(self, session_id: str, instructions: str) -> str: ...

    async def usage(self, session_id: str) -> str: ...

    async def sessions(self) -> str:
        """Those of this workspace."""
        ...

    async def undo(self, session_id: str) -> str:
        """Takes back what the newest turn of the session wrote."""
        ...


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of the commands of one prompt: the session that the document now belongs to, and what to tell.
    `failed`: one of them could not be run, and so none after it was."""

    session_id: str
    told: str
    failed: bool = False


class SlashCommands:
    def __init__(self, sessions: Sessions, services: SessionServices) -> None:
        self._sessions = sessions
        self._services = services

    async def run(self, invocations: Sequence[Invocation], session_id: str, cleared: str) -> Ran:
        """In their order, on the session. `cleared` is the one that `/clear` goes on with."""
        told: list[str] = []
        for number, invocation in enumerate(invocations, 1):
            try:
                if invocation.command.name == "clear":
                    session_id = cleared
                    told.append("A new session begins here. The model no longer knows what stands above.")
                else:
                    told.append(await self._one(invocation, session_id))
            except ThinkLspError as error:
                left = ", ".join(f"`/{other.command.name}`" for other in invocations[number:])
                left = f"After this, nothing was run of {left}." if left else ""
                return Ran(session_id, "\n\n".join(filter(None, (*told, str(error), left))), failed=True)
        return Ran(session_id, "\n\n".join(told))

    async def _one(self, invocation: Invocation, session_id: str) -> str:
        argument = invocation.argument
        match invocation.command.name:
            case "effort" | "model" as key:
                return await self._choose(key, argument, session_id)
            case "think":
                return await self._choose("thinking", " ".join(argument.split()), session_id)
            case "compact":
                return await self._services.compact(session_id, argument)
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
        value, effective = answer["value"] or "the provider's default", answer["effective"]
        used = f" ({effective} is used)" if effective not in (None, value, value.partition(" ")[0]) else ""
        choices = "" if wish else f"It can be {', '.join(answer['choices'][:_CHOICES_TOLD])}."
        return " ".join(filter(None, (f"{key.capitalize()}: {value}{used}.", choices, answer["notice"])))
