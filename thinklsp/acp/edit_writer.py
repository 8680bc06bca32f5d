"""The edit of a turn, written file by file through the client, and the undo of a turn.

For each file, the user sees a diff and answers a question. Then the file is read as a whole, the edit is merged with
that text, written at once, and read again. The ledger records the edit before it is sent, and the text that the file
has afterwards, so that an undo or another process works with the real text.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from thinklsp.acp.session_client import ClientFiles, NoAnswer, Option, SessionClient
from thinklsp.acp.updates import (
    MAX_DIFF_BYTES,
    ToolKind,
    build_locations,
    build_text_content,
    build_tool_call,
    build_tool_update,
)
from thinklsp.core.edits import EditSet, FileEdit, compute_hunks, format_diff
from thinklsp.core.errors import SessionError, TurnRefused
from thinklsp.core.json_codec import encode_json
from thinklsp.engine import Engine
from thinklsp.engine.edit_records import build_turn_title, settle_unconfirmed, to_planned_write
from thinklsp.engine.merge_plan import FileState, MergedFile, build_sent_edit, plan_merge, plan_undo
from thinklsp.engine.results import FileStatus
from thinklsp.jsonrpc.rpc_messages import ClientError
from thinklsp.sessions.ledger import EditIntent, WriteOutcome
from thinklsp.workspace.merge import MergedText, merge_onto
from thinklsp.workspace.overlay import apply_to_disk

_log = logging.getLogger(__name__)

_ONCE = Option("allow_once", "Apply", "allow_once")
_ALWAYS = Option("allow_always", "Apply all edits of this session", "allow_always")
_REJECT = Option("reject_once", "Reject", "reject_once")
_NO_WRITE = (
    "this client does not let thinklsp write files; copy the change from the diff, or set `write_disk = true` in the "
    "section `[acp]` of your config.toml"
)
_NO_OPERATION = "the protocol has no way to {} a file; do it yourself"
_CANCEL_SECONDS = 0.5
_NOTHING_TO_UNDO = "Nothing to undo: no turn of this session has changed a file, or every change was undone already."


class _Origin(NamedTuple):
    """The place of a file in the edit of a turn. `is_undo` is True if the edit reverts earlier edits of the turn."""

    turn_id: str
    number: int
    is_undo: bool

    @property
    def call_id(self) -> str:
        return f"{self.turn_id}-{'undo' if self.is_undo else 'edit'}-{self.number}"


@dataclass(frozen=True, slots=True)
class _Write:
    """The result of writing a file. `before` and `after` are its texts without and with the edit, for the ledger."""

    outcome: WriteOutcome
    reason: str = ""
    before: str | None = None
    after: str | None = None


class EditWriter:
    """The writer of a session.

    A write runs in a task of its own, so that the ledger records its end even if the turn is cancelled. `lock` is
    shared by all sessions of a client: an edit that is merged while another one is written would replace it.
    """

    def __init__(self, engine: Engine, client: SessionClient, files: ClientFiles, lock: asyncio.Lock) -> None:
        self._engine = engine
        self._store = engine.store
        self._client = client
        self._session_id = client.session_id
        self._folders = files.folders
        self._files = files
        self._lock = lock
        # Whether the user lets thinklsp write files that the client cannot write.
        self._writes_disk = engine.user.file.acp.write_disk
        self.allows_all = False
        # The writes that run. The event loop itself keeps no reference to a task.
        self._running: set[asyncio.Task[FileStatus]] = set()

    async def settle_killed_edits(self, *, asks_client: bool = True) -> None:
        """Record whether the edits that killed processes have sent were applied. Raises SessionError.

        A client answers only during a prompt. Without its texts, only edits that the files on disk contain are
        recorded.
        """
        read_state = self._files.read_state if asks_client else self._files.read_disk_state
        for edit in await self._store.list_unknown_edits(self._folders.key):
            await settle_unconfirmed(self._store, self._folders.key, edit, read_state, only_applied=not asks_client)

    async def undo_last_turn(self) -> tuple[FileStatus, ...]:
        """Undo the newest turn of the session that wrote files. Later changes of the user are kept.

        Raises TurnRefused if there is nothing to undo.
        """
        await self.settle_killed_edits()
        turn = await self._store.find_written_turn(self._folders.key, None, self._session_id)
        if turn is None:
            raise TurnRefused(_NOTHING_TO_UNDO)
        plan = plan_undo(turn, build_turn_title(turn))
        statuses: list[FileStatus] = []
        try:
            await self.write(turn.turn_id, plan.files, lambda _: False, statuses, is_undo=True)
        finally:
            # Record the files that have their earlier text again, also after a cancel.
            applied = [status.uri for status in statuses if status.status == "applied"]
            if undone := [uri for changed in applied for uri in plan.ledger_uris.get(changed, ())]:
                await self._store.mark_undone(turn, undone)
                await self._engine.record_undo(self._session_id)
        return (*statuses, *plan.rejected)

    async def write(
        self,
        turn_id: str,
        files: Sequence[FileEdit],
        should_ask: Callable[[MergedFile], bool],
        statuses: list[FileStatus],
        *,
        is_undo: bool = False,
    ) -> None:
        """Write the files one after the other. `should_ask` decides about a question.

        The status of each file is added to `statuses`. After a cancel, the list ends with the file that was reached.
        """
        for number, file in enumerate(files, 1):
            await self._write_file(_Origin(turn_id, number, is_undo), file, should_ask, statuses)

    async def _write_file(
        self,
        origin: _Origin,
        file: FileEdit,
        should_ask: Callable[[MergedFile], bool],
        statuses: list[FileStatus],
    ) -> None:
        planned = await self._plan(file)
        # Comparing two large texts takes too long for the event loop.
        call = await asyncio.to_thread(self._build_call, file, planned, origin.call_id)
        self._client.send(call)
        statuses.append(FileStatus(file.uri, "held", "the turn was cancelled"))
        try:
            if isinstance(planned, FileStatus):
                statuses[-1] = planned
                return
            refusal = self._find_refusal(file)
            if refusal is None and should_ask(planned):
                refusal = await self._ask(call)
            if refusal is None:
                await self._merge_and_write(origin, file, statuses)
            else:
                statuses[-1] = _refuse(file, refusal)
        finally:
            self._send_end(origin.call_id, file, statuses[-1])

    def _find_refusal(self, file: FileEdit) -> str | None:
        """Return the reason why a file cannot be written at all, or None."""
        if self._writes_disk:
            return None
        if not self._client.features.can_write:
            return _NO_WRITE
        if file.after is None:
            return _NO_OPERATION.format("delete")
        return _NO_OPERATION.format("rename") if file.new_uri is not None else None

    async def _plan(self, file: FileEdit) -> MergedFile | FileStatus:
        """Read the file and merge the edit with its text. A file that cannot be merged has a status with the reason."""
        uris = [file.uri] if file.new_uri is None else [file.uri, file.new_uri]
        current = {uri: await self._files.read_state(uri) for uri in uris}
        operations = frozenset(("create", "rename", "delete"))
        plan = await asyncio.to_thread(plan_merge, (file,), current, operations)
        return plan.mergeable[0] if plan.mergeable else plan.rejected[0]

    async def _ask(self, call: dict[str, Any]) -> str | None:
        """Ask the user about an edit, and return why it is rejected, or None if it is allowed."""
        if self.allows_all:
            return None
        try:
            answer = await self._client.request_permission(call, (_ONCE, _ALWAYS, _REJECT))
        except NoAnswer as reason:
            return str(reason)
        self.allows_all = answer is _ALWAYS
        return "you rejected it" if answer is _REJECT else None

    async def _merge_and_write(self, origin: _Origin, file: FileEdit, statuses: list[FileStatus]) -> None:
        """Merge the edit with the text that is there now, and write it. A cancel counts until the write begins."""
        writing: asyncio.Task[FileStatus] | None = None
        await self._lock.acquire()
        try:
            planned = await self._plan(file)
            if isinstance(planned, FileStatus):
                statuses[-1] = planned
                return
            writing = asyncio.create_task(self._write_and_record(origin, file, build_sent_edit(planned)))
            self._running.add(writing)
            writing.add_done_callback(self._running.discard)
        finally:
            if writing is None:
                self._lock.release()
            else:
                writing.add_done_callback(lambda _: self._lock.release())
        statuses[-1] = FileStatus(file.uri, "unknown", "the turn was cancelled meanwhile")
        try:
            statuses[-1] = await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait([writing], timeout=_CANCEL_SECONDS)
            if writing.done() and writing.exception() is None:
                statuses[-1] = writing.result()
            raise

    async def _write_and_record(self, origin: _Origin, file: FileEdit, sent: FileEdit) -> FileStatus:
        """Record an edit, write it and record the result."""
        try:
            intent = await self._store.record_intent(
                self._session_id, self._folders.key, origin.turn_id, [to_planned_write(sent)], is_undo=origin.is_undo
            )
        except SessionError as error:
            return _refuse(file, str(error))
        write = await self._write_text(sent)
        await self._settle(intent, sent, write)
        return FileStatus(file.uri, write.outcome, write.reason or None)

    async def _write_text(self, sent: FileEdit) -> _Write:
        if sent.after is None or sent.new_uri is not None or not self._client.features.can_write:
            return await self._write_disk(sent)
        path = self._folders.find_path(sent.uri)
        if path is None:
            return _Write("refused", "the file is outside the folders of this session")
        reason, state, earlier = "", None, await self._files.read_disk_state(sent.uri)
        try:
            await self._client.write_text(path, sent.after)
            if "\r\n" in (earlier.text or "") and "\r" not in sent.after and await self._is_on_disk(sent):
                # Some clients, such as avante.nvim, show line feeds for all line breaks, and write them.
                await self._client.write_text(path, sent.after.replace("\n", "\r\n"))
            state = await self._files.read_state(sent.uri)
            if _has_added_line(state, sent.after):
                state = None
                await self._client.write_text(path, sent.after.removesuffix("\n"))
        except ClientError:
            if sent.before is None and self._writes_disk:
                return await self._write_disk(sent)  # Some clients do not create the folder of a new file.
            reason = "the editor could not write the file"
        except TimeoutError:
            reason = "the editor did not answer when it was asked to write the file"
        state = state or await self._files.read_state(sent.uri)
        write = await asyncio.to_thread(_judge, sent, state, path, reason)
        if write.outcome == "refused" and await self._is_on_disk(sent):
            return _Write("unknown", "the file on disk has the edit, but the editor shows its earlier text")
        return write

    async def _is_on_disk(self, sent: FileEdit) -> bool:
        return (await self._files.read_disk_state(sent.uri)).text == sent.after

    async def _write_disk(self, sent: FileEdit) -> _Write:
        outcome = (await asyncio.to_thread(apply_to_disk, EditSet((sent,)), self._folders.create_view()))[0]
        if outcome.reason is not None:
            return _Write("refused", outcome.reason)
        return _Write("applied", before=sent.before, after=sent.after)

    async def _settle(self, intent: EditIntent, sent: FileEdit, write: _Write) -> None:
        is_same = (write.before, write.after) == (sent.before, sent.after)
        part = replace(sent, before=write.before, after=write.after)
        parts = [to_planned_write(part)] if write.outcome == "applied" and not is_same else []
        try:
            await self._store.settle_edit(intent, {sent.uri: write.outcome}, parts)
        except SessionError:
            _log.exception("the outcome of an edit could not be recorded")

    def _build_call(self, file: FileEdit, planned: MergedFile | FileStatus, call_id: str) -> dict[str, Any]:
        """Return the tool call that shows the edit of a file, with its diff and its first changed line."""
        before, after = file.before, file.after
        if isinstance(planned, MergedFile):
            before, after = planned.current.text, planned.after
        path = self._folders.find_path(file.uri)
        title, kind = _name_change(file)
        line = None if before is None or after is None else _find_first_line(before, after)
        fields = {"content": _build_content(file, path, before, after), "locations": build_locations(path, line)}
        return dict(build_tool_call(call_id, title, kind, "pending", **fields))

    def _send_end(self, call_id: str, file: FileEdit, status: FileStatus) -> None:
        if status.status == "applied":
            self._client.send(build_tool_update(call_id, "completed"))
        else:
            self._client.send(build_tool_update(call_id, "failed", rawOutput=format_status(file, status)))


def format_status(file: FileEdit, status: FileStatus) -> str:
    """Return a sentence about a file that was not written."""
    if status.status == "unknown":
        return f"{file.path} may have been changed: {status.reason}. Look at the file."
    return f"{file.path} was not {'created' if file.is_creation else 'changed'}: {status.reason or status.status}."


def _refuse(file: FileEdit, reason: str) -> FileStatus:
    return FileStatus(file.uri, "refused", reason)


def _has_added_line(state: FileState, text: str) -> bool:
    """Return whether the client has added an empty line, as codecompanion.nvim does to an open file with each write.

    That client makes an empty line of the last line break, and then ends the last line itself.
    """
    return text.endswith("\n") and state.text == f"{text}\n"


def _judge(sent: FileEdit, state: FileState, path: str, reason: str) -> _Write:
    """Compare the text after a write with the text that was sent."""
    now = state.text
    if state.refusal is not None:
        return _Write("unknown", reason or state.refusal)
    if now == sent.after:
        return _Write("applied", before=sent.before, after=now)
    if now is None or now == sent.before:
        if not os.path.isdir(os.path.dirname(path)):
            reason = "its folder does not exist, and the editor did not create it"
        return _Write("refused", reason or "the editor did not change the file")
    if reason:
        return _Write("unknown", reason)
    # The user typed, or the editor formatted the text.
    again = merge_onto(now, sent.before or "", sent.after or "")
    if isinstance(again, MergedText) and again.text != now:
        return _Write("unknown", "the editor did not keep the whole change")
    # Keep the other changes out of the edit, so that an undo keeps them.
    undone = merge_onto(now, sent.after or "", sent.before or "") if sent.before is not None else None
    return _Write("applied", before=undone.text if isinstance(undone, MergedText) else sent.before, after=now)


def _name_change(file: FileEdit) -> tuple[str, ToolKind]:
    if file.after is None:
        return f"delete {file.path}", "delete"
    if file.new_uri is not None:
        return f"rename {file.path} to {file.new_path}", "move"
    return f"{'create' if file.before is None else 'edit'} {file.path}", "edit"


def _build_content(file: FileEdit, path: str | None, before: str | None, after: str | None) -> list[Any]:
    size = len(encode_json([before, after]))
    if path is not None and after is not None and before != after and size <= MAX_DIFF_BYTES:
        return [{"type": "diff", "path": path, "oldText": before, "newText": after}]
    text = format_diff(EditSet((replace(file, before=before, after=after),)))
    # A character takes at most six bytes in JSON.
    return [build_text_content(text[: MAX_DIFF_BYTES // 6])]


def _find_first_line(before: str, after: str) -> int:
    hunks = compute_hunks(before, after)
    return before.count("\n", 0, hunks[0].start) + 1 if hunks else 1
