"""What a store of sessions promises. Others hold values and hand back changes; the store is the sole owner.

What an awaited call has returned is committed. A change that has begun runs to its end, even if its caller is
cancelled. Every method raises SessionError with a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Literal, Protocol

from thinklsp.core.messages import Message
from thinklsp.core.remedies import Remedy
from thinklsp.core.usage import Usage
from thinklsp.sessions.ledger import Intent, LedgerEdit, Outcome, PlannedWrite, WrittenFile, WrittenTurn
from thinklsp.sessions.session import Change, Session
from thinklsp.sessions.values import Archive, Archived, LastStep, Spent, Summary, UsageReport


@dataclass(frozen=True, slots=True)
class Condition:
    """How the store is, for `doctor`. `kind` memory: nothing outlives the process. `protection` is a sentence, `size`
    the bytes that its files take."""

    kind: Literal["file", "read-only", "memory"]
    path: str
    protection: str
    problems: tuple[str, ...]
    sessions: int
    size: int


class SessionStore(Protocol):
    """A session is found only from its own workspace; workspace None is for the user's own terminal and finds all."""

    async def create(self, workspace: str) -> Session:
        """It is kept in memory until its first change."""
        ...

    async def get(self, session_id: str, workspace: str | None) -> Session: ...

    async def latest(self, workspace: str) -> Session: ...

    async def update(self, session_id: str, change: Change, spent: Spent | None = None) -> Session:
        """Replaces the session by what `change` makes of it now, so that no update is lost. A step is acknowledged
        only when this has returned.

        `change` must be pure: it runs in the store's thread, and again if the disk lets the first try down. What it
        raises changes nothing and is raised here. Refused while another process works on the session. A session that
        a process left in the middle of a turn is first recovered. `spent` is recorded in the same transaction.
        """
        ...

    async def list(self, workspace: str | None) -> tuple[Summary, ...]:
        """Newest first; those in which nothing was said are left out."""
        ...

    async def delete(self, session_id: str, workspace: str | None) -> None:
        """For good: no byte of it stays. What it has cost still counts for the day."""
        ...

    async def delete_all(self, session_ids: Sequence[str], workspace: str | None) -> Mapping[str, str | None]:
        """As `delete`, for many at once: None for each that was deleted, or the sentence why it was not."""
        ...

    async def fork(self, session_id: str, workspace: str | None, step: int | None = None) -> Session:
        """A new session that knows what this one knew after `step` steps (None: all), from before a compaction too."""
        ...

    async def release(self, session_id: str) -> None:
        """Lets other processes work on it."""
        ...

    async def compact(
        self, session_id: str, change: Change, note: str, spent: Spent | None = None
    ) -> tuple[Session, str]:
        """As `update`, for a change that puts a shorter conversation in place of the former, which becomes an archive
        in the same transaction. Gives the archive's id."""
        ...

    async def archives(self, session_id: str) -> tuple[Archive, ...]:
        """Oldest first."""
        ...

    async def archived(self, session_id: str, archive_id: str) -> Archived: ...

    async def transcript(self, session_id: str, workspace: str | None) -> Session:
        """The session with all that was ever said in it, to be read and not to be gone on with: what compactions have
        replaced stands in the place of their summaries."""
        ...

    async def restore(self, session_id: str, archive_id: str, fit: Callable[[Message], Message]) -> Session:
        """Make an archive the conversation again, followed by what was said since; it and later archives are gone.

        `fit` must be pure: it is applied to each message that was said since, in the store's thread. What a repair has
        replaced comes back as it was, even if no service accepts it.
        """
        ...

    async def record(self, session_id: str, spent: Spent) -> None:
        """A model call that belongs to no change of the session."""
        ...

    async def keep_remedy(self, session_id: str, service: str, remedy: Remedy) -> None:
        """What the session's turn found out about a service, which is told apart from others by its name."""
        ...

    async def remedies(self, session_id: str, service: str) -> tuple[Remedy, ...]:
        """What is known of the service and of this conversation there, in the order in which it was found out."""
        ...

    async def usage(self, session_id: str | None) -> UsageReport: ...

    async def last_step(self, session_id: str) -> LastStep | None: ...

    async def in_use(self, session_ids: Sequence[str]) -> frozenset[str]:
        """Those that another process works on now."""
        ...

    async def spent_on(self, day: date) -> Usage:
        """By all processes, on that UTC day."""
        ...

    async def intend(
        self, session_id: str, workspace: str, turn_id: str, writes: Sequence[PlannedWrite], *, undo: bool = False
    ) -> Intent:
        """Before an edit is sent. `undo`: it takes back what the turn wrote."""
        ...

    async def settle(self, intent: Intent, outcomes: Mapping[str, Outcome], parts: Sequence[PlannedWrite] = ()) -> None:
        """Store what the editor made of an edit: the outcome by URI, and the parts of files that were written."""
        ...

    async def unknown_edits(self, workspace: str) -> tuple[LedgerEdit, ...]:
        """Edits of processes that are gone, of which nobody knows whether they arrived. To be settled when told."""
        ...

    async def last_written(
        self, workspace: str, turn_id: str | None = None, session_id: str | None = None
    ) -> WrittenTurn | None:
        """What an undo needs: the newest turn that wrote and was not undone, of the session or of all, or the one that
        is named."""
        ...

    async def mark_undone(self, turn: WrittenTurn, uris: Iterable[str] | None = None) -> None: ...

    async def written_files(self, workspace: str, since: datetime) -> tuple[WrittenFile, ...]:
        """What turns have written since then and nobody has undone, oldest first."""
        ...

    @property
    def problems(self) -> tuple[str, ...]:
        """Sentences for people, in the order in which they came up, each once. They only grow."""
        ...

    async def condition(self) -> Condition: ...

    async def aclose(self) -> None: ...
