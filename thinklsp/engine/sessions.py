"""What people do with their sessions, for editors and the terminal alike: list, show, export, delete, repair, restore,
fork.

Answers are plain JSON values. A session is found by its id, by the beginning of one, or as `last`. Nothing that a
service has sealed is in any of them.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal, Protocol

from thinklsp.agent.compaction import free_from_past
from thinklsp.core.errors import SessionError
from thinklsp.core.messages import Conversation, UserMessage
from thinklsp.core.usage import usage_json
from thinklsp.engine.usage import cost_told
from thinklsp.sessions.export import model_texts, to_json, to_markdown
from thinklsp.sessions.repair import mend
from thinklsp.sessions.session import Session
from thinklsp.sessions.store import SessionStore
from thinklsp.sessions.values import Archive, Archived, Summary
from thinklsp.tools.inert import make_inert

Form = Literal["markdown", "json"]
_SHORTEST = 4
_UNKNOWN = "There is no such session here. The list of sessions names those that there are."
_TOO_SHORT = "The beginning of an id must have at least four letters. The list of sessions names them."
_NONE_YET = "There is no session here yet."
_NO_ARCHIVE = "This session has no archive: no compaction or repair can be undone."
_RUNNING = "A turn of this session is running. Stop it or wait for it first."


@dataclass(frozen=True, slots=True)
class Reach:
    """Whose sessions are meant: those of the workspace `here`, or with `everywhere` also all others by their id."""

    here: str
    everywhere: bool = False

    @property
    def workspace(self) -> str | None:
        return None if self.everywhere else self.here


class Claims(Protocol):
    """Who works on which session in this process."""

    def is_busy(self, session_id: str) -> bool: ...

    def claim(self, session_id: str, turn_id: str) -> Callable[[], None]:
        """Keeps turns away until what it gives is called. Raises SessionError while one works on it."""


class Alone:
    """A process that runs no turns."""

    def is_busy(self, session_id: str) -> bool:  # noqa: ARG002 - see Claims
        return False

    def claim(self, session_id: str, turn_id: str) -> Callable[[], None]:  # noqa: ARG002 - see Claims
        return lambda: None


class SessionCommands:
    def __init__(self, store: SessionStore, reach: Reach, claims: Claims | None = None) -> None:
        self._store = store
        self._reach = reach
        self._claims = claims or Alone()

    async def list(self) -> list[dict[str, Any]]:
        """Newest first."""
        summaries = await self._store.list(self._reach.workspace)
        elsewhere = await self._store.in_use([summary.id for summary in summaries])
        return [_entry(summary, summary.id in elsewhere or self._claims.is_busy(summary.id)) for summary in summaries]

    async def _is_busy(self, session_id: str) -> bool:
        return self._claims.is_busy(session_id) or bool(await self._store.in_use([session_id]))

    async def find(self, wish: str | None) -> Summary:
        """None and `last`: the newest of the workspace. Raises SessionError."""
        summaries = await self._store.list(self._reach.workspace)
        if wish is None or wish == "last":
            newest = next((summary for summary in summaries if summary.workspace == self._reach.here), None)
            if newest is None:
                raise SessionError(_NONE_YET)
            return newest
        found = [summary for summary in summaries if summary.id == wish]
        if not found and len(wish) >= _SHORTEST:
            found = [summary for summary in summaries if summary.id.startswith(wish)]
        if not found:
            raise SessionError(_TOO_SHORT if 0 < len(wish) < _SHORTEST else _UNKNOWN)
        if len(found) > 1:
            raise SessionError(f"{len(found)} sessions begin with {wish}. Give more of the id.")
        return found[0]

    async def show(self, wish: str | None, archive_id: str | None = None, *, thinking: bool = False) -> dict[str, Any]:
        """As `export`, with a list of the archives."""
        exported = await self.export(wish, "markdown", archive_id, thinking=thinking)
        archives = await self._store.archives(exported["sessionId"])
        del exported["format"]
        return exported | {"archives": [_archive(archive) for archive in archives]}

    async def export(
        self, wish: str | None, form: Form, archive_id: str | None = None, *, thinking: bool = False
    ) -> dict[str, Any]:
        """The whole session as one text, with what compactions have replaced. `archive_id`: one of its archives."""
        summary = await self.find(wish)
        if archive_id is None:
            session = await self._store.transcript(summary.id, self._reach.workspace)
            if not await self._is_busy(summary.id):
                # What a process left that ended in the middle of a turn.
                session = session.recovered()
        else:
            session = await self._store.get(summary.id, self._reach.workspace)
            session = _as_it_was(session, await self._store.archived(summary.id, archive_id))
        write: Callable[..., str] = to_json
        if form == "markdown":
            inert = {text: await make_inert(text) for text in model_texts(session, thinking=thinking)}
            write = partial(to_markdown, answered=inert.__getitem__)
        text = await asyncio.to_thread(write, session, summary, thinking=thinking)
        return {
            "sessionId": summary.id,
            "title": summary.title,
            "archiveId": archive_id,
            "format": form,
            "text": text,
        }

    async def delete(self, wish: str) -> dict[str, Any]:
        """For good. Refused while a turn runs in it, here or in another process."""
        summary = await self.find(wish)
        with self._claimed(summary.id):
            await self._store.delete(summary.id, self._reach.workspace)
        return {"sessionId": summary.id, "title": summary.title, "deleted": True}

    async def delete_all(self, session_ids: Sequence[str]) -> dict[str, Any]:
        """For good. What a turn works on stays, with the sentence why."""
        done = await self._store.delete_all(session_ids, self._reach.workspace)
        kept = [{"sessionId": session_id, "reason": why} for session_id, why in done.items() if why is not None]
        return {"deleted": [session_id for session_id, why in done.items() if why is None], "kept": kept}

    async def repair(self, wish: str | None, *, apply: bool = True) -> dict[str, Any]:
        """What is wrong in the conversation, in sentences, and mended unless `apply` is False. What stood there before
        is kept as an archive."""
        summary = await self.find(wish)
        with self._claimed(summary.id):
            return await self._repair(summary, apply=apply)

    async def _repair(self, summary: Summary, *, apply: bool) -> dict[str, Any]:
        session = await self._store.get(summary.id, self._reach.workspace)
        found = mend(session.recovered().conversation)
        after = len(found.conversation)
        answer = {"sessionId": summary.id, "title": summary.title, "findings": list(found.findings), "repaired": False}
        answer["messages"] = {"before": len(session.conversation), "after": after}
        answer["archiveId"] = None
        if not found.findings or not apply:
            return answer
        try:
            _, archive_id = await self._store.compact(summary.id, _repaired, "Before it was repaired.")
        finally:
            await self._store.release(summary.id)
        return answer | {"repaired": True, "archiveId": archive_id}

    async def restore(self, wish: str | None, archive_id: str | None = None) -> dict[str, Any]:
        """Undo a compaction or a repair: make an archive the conversation again, followed by what was said since.

        `archive_id` None: the newest archive. Refused while a turn of the session runs.
        """
        summary = await self.find(wish)
        with self._claimed(summary.id):
            try:
                return await self.restore_claimed(summary.id, archive_id)
            finally:
                await self._store.release(summary.id)

    async def restore_claimed(self, session_id: str, archive_id: str | None) -> dict[str, Any]:
        """As `restore`, for a caller that has claimed the session and releases it."""
        before = await self._store.get(session_id, self._reach.workspace)
        if archive_id is None:
            archives = await self._store.archives(session_id)
            if not archives:
                raise SessionError(_NO_ARCHIVE)
            archive_id = archives[-1].id
        after = await self._store.restore(session_id, archive_id, free_from_past)
        counts = {"before": len(before.conversation), "after": len(after.conversation)}
        return {"sessionId": session_id, "title": after.title, "messages": counts, "archiveId": archive_id}

    async def fork(self, wish: str | None, step: int | None = None) -> dict[str, Any]:
        """A new session that knows what this one knew after `step` steps; None: all."""
        summary = await self.find(wish)
        fork = await self._store.fork(summary.id, self._reach.workspace, step)
        await self._store.release(fork.id)
        return {"sessionId": fork.id, "title": fork.title, "steps": fork.steps, "forkedFrom": summary.id}

    @contextmanager
    def _claimed(self, session_id: str) -> Iterator[None]:
        """No turn begins in the session until this is left. Raises SessionError where one runs."""
        try:
            free = self._claims.claim(session_id, f"change-{secrets.token_hex(8)}")
        except SessionError:
            raise SessionError(_RUNNING) from None
        try:
            yield
        finally:
            free()


def older_than(entries: list[dict[str, Any]], age: timedelta) -> list[dict[str, Any]]:
    """Of a list of sessions those that were last used longer ago."""
    limit = datetime.now(UTC) - age
    return [entry for entry in entries if datetime.fromisoformat(entry["updated"]) < limit]


def sessions_told(entries: list[dict[str, Any]]) -> str:
    """A list of sessions as Markdown for people."""
    if not entries:
        return _NONE_YET
    head = "| session | title | model | steps | cost | last used (UTC) |\n|---|---|---|---|---|---|"
    return "\n".join((head, *(_told(entry) for entry in entries)))


def restored_told(answer: Mapping[str, Any]) -> str:
    """Return what `restore` did, as a sentence."""
    before, after = answer["messages"]["before"], answer["messages"]["after"]
    return f"Archive `{answer['archiveId']}` is the conversation again: {before} messages became {after}."


def _told(entry: dict[str, Any]) -> str:
    title = entry["title"].replace("|", "\\|") + (" (a turn is running)" if entry["busy"] else "")
    used = datetime.fromisoformat(entry["updated"])
    cells = (f"`{entry['sessionId']}`", title, entry["model"] or "–", str(entry["steps"]))
    return f"| {' | '.join((*cells, cost_told(entry['usage']['costUsd']), f'{used:%Y-%m-%d %H:%M}'))} |"


def _entry(summary: Summary, busy: bool) -> dict[str, Any]:
    return {
        "sessionId": summary.id,
        "title": summary.title,
        "workspace": summary.workspace,
        "model": summary.model or None,
        "steps": summary.steps,
        "messages": summary.messages,
        "usage": usage_json(summary.usage),
        "created": _time(summary.created),
        "updated": _time(summary.updated),
        "size": summary.size,
        "busy": busy,
    }


def _archive(archive: Archive) -> dict[str, Any]:
    return {
        "archiveId": archive.id,
        "note": archive.note,
        "messages": archive.messages,
        "steps": archive.steps,
        "made": _time(archive.made),
    }


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _as_it_was(session: Session, archived: Archived) -> Session:
    return replace(session, conversation=archived.conversation, steps=archived.archive.steps)


def _repaired(session: Session) -> Session:
    conversation = mend(session.conversation).conversation
    return replace(session.compacted(conversation), unanswered=session.unanswered and _ends_with_prompt(conversation))


def _ends_with_prompt(conversation: Conversation) -> bool:
    return bool(conversation) and isinstance(conversation[-1], UserMessage)
