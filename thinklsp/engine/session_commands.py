"""The session commands that editors and the terminal share, such as list, export, usage and restore.

Results are JSON values without opaque state. Users identify a session by its id, by the beginning of its id, or by
`last`. The answers to slash commands are Markdown.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal

from thinklsp.agent.compaction import adapt_to_new_history
from thinklsp.agent.prompts import extract_user_text, list_excerpts
from thinklsp.agent.summary import extract_prompt, is_summary_message
from thinklsp.core.errors import SessionError
from thinklsp.core.messages import ImageBlock, Message, TextBlock, ToolResultBlock, UserBlock, UserMessage
from thinklsp.core.prompt_syntax import Invocation, format_help
from thinklsp.core.usage import Usage, serialize_usage
from thinklsp.engine.engine import Engine
from thinklsp.engine.results import FileStatus
from thinklsp.engine.workspace_sessions import WorkspaceSessions
from thinklsp.sessions.archives import Archive
from thinklsp.sessions.export import list_model_texts, to_json, to_markdown
from thinklsp.sessions.repair import repair_conversation
from thinklsp.sessions.session import Session, SessionSummary
from thinklsp.sessions.spending import UsageReport, read_utc_date
from thinklsp.sessions.store import SessionStore
from thinklsp.tools.markdown_sanitizer import sanitize_in_background


async def build_usage_report(store: SessionStore, session_id: str | None) -> dict[str, Any]:
    """Build the result of `thinklsp.usage`. Without a session, the result contains only today's figures.

    `unpriced` lists models with an unknown price. The costs do not include calls to these models.
    """
    usage_data = UsageReport(Usage(), {}, {}, {}) if session_id is None else await store.report_usage(session_id)
    return {
        "sessionId": session_id,
        "total": _build_figures(usage_data.total),
        "byTurn": [{"turnId": turn} | _build_figures(usage) for turn, usage in usage_data.by_turn.items()],
        "byDay": [{"day": day.isoformat()} | _build_figures(usage) for day, usage in usage_data.by_day.items()],
        "byModel": [{"model": model} | _build_figures(usage) for model, usage in usage_data.by_model.items()],
        "unpriced": [model for model, usage in usage_data.by_model.items() if usage.cost_usd is None],
        "today": _build_figures(await store.sum_day(read_utc_date())),
    }


def _build_figures(usage: Usage) -> dict[str, Any]:
    read, total = usage.cache_read_tokens, usage.input_tokens
    return serialize_usage(usage) | {"cacheShare": None if read is None or not total else round(read / total, 4)}


def format_usage(report: dict[str, Any]) -> str:
    """Format a usage report as Markdown."""
    if not report["byTurn"] and not report["byDay"]:
        return f"This session has not called a model yet. All sessions today: {_format_totals(report['today'])}."
    rows = [_format_usage_row("all", report["total"])]
    rows += [_format_usage_row(f"turn {number}", turn) for number, turn in enumerate(report["byTurn"], 1)]
    rows += [_format_usage_row(day["day"], day) for day in report["byDay"]]
    rows += [_format_usage_row(model["model"], model) for model in report["byModel"]]
    head = "| | input | cached | output | thinking | cost |\n|---|---|---|---|---|---|"
    parts = ["\n".join((head, *rows))]
    if report["unpriced"]:
        parts.append(f"Costs exclude calls to models with an unknown price: {', '.join(report['unpriced'])}.")
    parts.append(f"All sessions today: {_format_totals(report['today'])}.")
    return "\n\n".join(parts)


def _format_usage_row(name: str, usage: dict[str, Any]) -> str:
    share = "" if usage["cacheShare"] is None else f" ({usage['cacheShare']:.0%})"
    cells = [name.replace("|", "\\|"), _format_count(usage["inputTokens"])]
    cells += [
        _format_count(usage["cacheReadTokens"]) + share,
        _format_count(usage["outputTokens"]),
        _format_count(usage["thinkingTokens"]),
    ]
    return f"| {' | '.join((*cells, format_cost(usage['costUsd'])))} |"


def _format_totals(usage: dict[str, Any]) -> str:
    read, written = usage["inputTokens"], usage["outputTokens"]
    parts = [] if read is None else [f"{read:,} tokens in"]
    parts += [] if written is None else [f"{written:,} out"]
    parts += [] if written is None or usage["costUsd"] == 0 else [f"cost {format_cost(usage['costUsd'])}"]
    return ", ".join(parts) or "none"


def _format_count(tokens: int | None) -> str:
    return "–" if tokens is None else f"{tokens:,}"


def format_cost(usd: float | None) -> str:
    return "unknown" if usd is None else f"${usd:.4f}" if usd else "–"


def show_user_words(session: Session) -> Session:
    """Return the session with the user's own words in its prompts.

    Excerpts, instruction files, notes and reminders are removed.
    """
    shown = (_show_words(message) for message in session.conversation)
    return replace(session, conversation=tuple(message for message in shown if message is not None))


def _show_words(message: Message) -> Message | None:
    if not isinstance(message, UserMessage) or is_summary_message(message):
        return message
    # Messages that were stored without the user's words must be parsed.
    parsed = () if message.prompts else extract_prompt(message)
    blocks: list[UserBlock] = []
    for block in message.blocks:
        if isinstance(block, ToolResultBlock | ImageBlock):
            blocks.append(block)
        elif block.prompt is not None:
            blocks.append(replace(block, text=block.prompt.words))
        elif block in parsed:
            blocks.append(replace(block, text=extract_user_text(block.text)))
    return replace(message, blocks=tuple(blocks)) if blocks else None


async def describe_turns(store: SessionStore, session: Session) -> list[dict[str, Any]]:
    """Describe the usage, the files and the excerpts of each turn, for clients that show the session again.

    `session` still has the excerpts in its prompts.
    """
    references = {
        block.prompt.turn_id: list_excerpts(block.text)
        for message in session.conversation
        for block in message.blocks
        if isinstance(block, TextBlock) and block.prompt is not None
    }
    usage = (await store.report_usage(session.id)).by_turn
    written = await store.list_written_files(session.workspace, datetime.fromtimestamp(0, UTC))
    turns = []
    for turn_id in {**usage, **references}:
        files = dict.fromkeys(file.uri for file in written if file.turn_id == turn_id and not file.is_undone)
        undone = dict.fromkeys(file.uri for file in written if file.turn_id == turn_id and file.is_undone)
        turns.append(
            {
                "turnId": turn_id,
                "usage": serialize_usage(usage.get(turn_id, Usage())),
                "files": list(files),
                "undone": [uri for uri in undone if uri not in files],
                "references": references.get(turn_id, []),
            }
        )
    return turns


ExportFormat = Literal["markdown", "json"]
_MIN_ID_CHARACTERS = 4
_UNKNOWN_SESSION = "No session has this id. List the sessions to find the right id."
_ID_TOO_SHORT = "Enter at least four characters of the session id. List the sessions to see their ids."
_NO_SESSIONS = "There are no sessions yet."
_NO_ARCHIVE = "This session has no archive, so there is no compaction or repair to undo."
_EMPTY_TITLE = "The new title is empty. Enter at least one word."
_TURN_RUNNING = "A turn is running in this session. Stop it or wait for it to finish."


class SessionCommands:
    """Commands for the sessions of a workspace, or with `everywhere` for the sessions of all workspaces.

    `engine` is None if this process does not run turns.
    """

    def __init__(
        self, store: SessionStore, workspace: str, engine: Engine | None = None, *, everywhere: bool = False
    ) -> None:
        self._store = store
        self._workspace = workspace
        self._scope = None if everywhere else workspace
        self._engine = engine

    async def list(self) -> list[dict[str, Any]]:
        """Return a JSON entry for each session, newest first."""
        summaries = await self._store.list_sessions(self._scope)
        elsewhere = await self._store.find_in_use([summary.id for summary in summaries])
        return [_build_entry(summary, summary.id in elsewhere or self._is_busy(summary.id)) for summary in summaries]

    def _is_busy(self, session_id: str) -> bool:
        return self._engine is not None and self._engine.claims.is_busy(session_id)

    async def find(self, reference: str | None) -> SessionSummary:
        """Find a session by its id or the beginning of its id.

        None and `last` select the workspace's newest session. Raises SessionError.
        """
        summaries = await self._store.list_sessions(self._scope)
        if reference is None or reference == "last":
            newest = next((summary for summary in summaries if summary.workspace == self._workspace), None)
            if newest is None:
                raise SessionError(_NO_SESSIONS)
            return newest
        matches = [summary for summary in summaries if summary.id == reference]
        if not matches and len(reference) >= _MIN_ID_CHARACTERS:
            matches = [summary for summary in summaries if summary.id.startswith(reference)]
        if not matches:
            raise SessionError(_ID_TOO_SHORT if 0 < len(reference) < _MIN_ID_CHARACTERS else _UNKNOWN_SESSION)
        if len(matches) > 1:
            raise SessionError(f"{len(matches)} session ids begin with {reference}. Enter more characters of the id.")
        return matches[0]

    async def show(
        self, reference: str | None, archive_id: str | None = None, *, thinking: bool = False
    ) -> dict[str, Any]:
        """Return the session as Markdown, with a list of its archives."""
        exported = await self.export(reference, "markdown", archive_id, thinking=thinking)
        archives = await self._store.list_archives(exported["sessionId"])
        del exported["format"]
        return exported | {"archives": [_build_archive_entry(archive) for archive in archives]}

    async def export(
        self,
        reference: str | None,
        export_format: ExportFormat,
        archive_id: str | None = None,
        *,
        thinking: bool = False,
    ) -> dict[str, Any]:
        """Return the session's full text, including compacted messages, or the text of one archive."""
        summary = await self.find(reference)
        if archive_id is None:
            session = await self._store.read_transcript(summary.id, self._scope)
            if not self._is_busy(summary.id) and not await self._store.find_in_use([summary.id]):
                # End the last turn of the exported session if the turn's process has exited.
                session = session.recover()
        else:
            session = await self._store.get(summary.id, self._scope)
            archived = await self._store.read_archive(summary.id, archive_id)
            session = replace(session, conversation=archived.conversation, steps=archived.archive.steps)
        write: Callable[..., str] = partial(to_json, turns=await describe_turns(self._store, session))
        session = show_user_words(session)
        if export_format == "markdown":
            inert = {text: await sanitize_in_background(text) for text in list_model_texts(session, thinking=thinking)}
            write = partial(to_markdown, transform_text=inert.__getitem__)
        text = await asyncio.to_thread(write, session, summary, thinking=thinking)
        return {
            "sessionId": summary.id,
            "title": summary.title,
            "archiveId": archive_id,
            "format": export_format,
            "text": text,
        }

    async def delete(self, reference: str) -> dict[str, Any]:
        """Delete a session permanently. Raises SessionError if a turn is running in the session."""
        summary = await self.find(reference)
        with self._claim(summary.id):
            await self._store.delete(summary.id, self._scope)
        return {"sessionId": summary.id, "title": summary.title, "deleted": True} | self._build_deletion_notice()

    async def delete_all(self, session_ids: Sequence[str]) -> dict[str, Any]:
        """Delete sessions permanently, except sessions in use.

        For each session that was not deleted, the result contains the reason.
        """
        reasons = await self._store.delete_all(session_ids, self._scope)
        kept_sessions = [
            {"sessionId": session_id, "reason": reason} for session_id, reason in reasons.items() if reason is not None
        ]
        deleted = [session_id for session_id, reason in reasons.items() if reason is None]
        return {"deleted": deleted, "kept": kept_sessions} | (self._build_deletion_notice() if deleted else {})

    def _build_deletion_notice(self) -> dict[str, str]:
        notice = self._store.deletion_notice
        return {"notice": notice} if notice else {}

    async def repair(self, reference: str | None, *, apply: bool = True) -> dict[str, Any]:
        """Repair the conversation and describe its problems.

        If `apply` is False, only describe the problems. The repair archives the previous conversation.
        """
        summary = await self.find(reference)
        with self._claim(summary.id):
            return await self._repair(summary, apply=apply)

    async def _repair(self, summary: SessionSummary, *, apply: bool) -> dict[str, Any]:
        session = await self._store.get(summary.id, self._scope)
        repair = repair_conversation(session.recover().conversation)
        after = len(repair.conversation)
        answer = {"sessionId": summary.id, "title": summary.title, "findings": list(repair.findings), "repaired": False}
        answer["messages"] = {"before": len(session.conversation), "after": after}
        answer["archiveId"] = None
        if not repair.findings or not apply:
            return answer
        try:
            _, archive_id = await self._store.compact(summary.id, _repair_session, "Before the repair.")
        finally:
            await self._store.release(summary.id)
        return answer | {"repaired": True, "archiveId": archive_id}

    async def restore(self, reference: str | None, archive_id: str | None = None) -> dict[str, Any]:
        """Undo a compaction or a repair by restoring the archived messages.

        Later messages are kept. If `archive_id` is None, the newest archive is restored. Raises SessionError if a turn
        is running in the session.
        """
        summary = await self.find(reference)
        with self._claim(summary.id):
            try:
                return await self.restore_claimed(summary.id, archive_id)
            finally:
                await self._store.release(summary.id)

    async def restore_claimed(self, session_id: str, archive_id: str | None) -> dict[str, Any]:
        """Restore an archive in a session that the caller has claimed. The caller releases the session."""
        before = await self._store.get(session_id, self._scope)
        if archive_id is None:
            archives = await self._store.list_archives(session_id)
            if not archives:
                raise SessionError(_NO_ARCHIVE)
            archive_id = archives[-1].id
        after = await self._store.restore_archive(session_id, archive_id, adapt_to_new_history)
        counts = {"before": len(before.conversation), "after": len(after.conversation)}
        return {"sessionId": session_id, "title": after.title, "messages": counts, "archiveId": archive_id}

    async def fork(self, reference: str | None, step: int | None = None) -> dict[str, Any]:
        """Copy the first `step` steps of a session into a new session. If `step` is None, all steps are copied."""
        summary = await self.find(reference)
        fork = await self._store.fork(summary.id, self._scope, step)
        await self._store.release(fork.id)
        return {"sessionId": fork.id, "title": fork.title, "steps": fork.steps, "forkedFrom": summary.id}

    async def rename(self, reference: str | None, title: str) -> dict[str, Any]:
        """Give a session another title, the first line of `title`.

        A turn may be running in the session. Raises SessionError if the title is empty.
        """
        summary = await self.find(reference)
        if not title.strip():
            raise SessionError(_EMPTY_TITLE)
        try:
            session = await self._store.update(summary.id, lambda session: session.rename(title))
        finally:
            if not self._is_busy(summary.id):
                await self._store.release(summary.id)
        return {"sessionId": session.id, "title": session.title}

    @contextmanager
    def _claim(self, session_id: str) -> Iterator[None]:
        """Prevent new turns in the session until the context exits. Raises SessionError if a turn is running."""
        if self._is_busy(session_id):
            raise SessionError(_TURN_RUNNING)
        with ExitStack() as stack:
            if self._engine is not None:
                stack.callback(self._engine.claims.claim(session_id, f"change-{secrets.token_hex(8)}"))
            yield


def filter_older_than(entries: list[dict[str, Any]], age: timedelta) -> list[dict[str, Any]]:
    """Return the entries for sessions that have not been used for longer than `age`."""
    limit = datetime.now(UTC) - age
    return [entry for entry in entries if datetime.fromisoformat(entry["updated"]) < limit]


def format_sessions(entries: list[dict[str, Any]]) -> str:
    """Format a list of sessions as a Markdown table."""
    if not entries:
        return _NO_SESSIONS
    head = "| session | title | model | steps | cost | last used (UTC) |\n|---|---|---|---|---|---|"
    return "\n".join((head, *(_format_session_row(entry) for entry in entries)))


def format_restored(answer: Mapping[str, Any]) -> str:
    """Format the result of `restore` as a message for the user."""
    before, after = answer["messages"]["before"], answer["messages"]["after"]
    return f"Restored archive `{answer['archiveId']}`: the conversation had {before} messages and now has {after}."


def _format_session_row(entry: dict[str, Any]) -> str:
    title = entry["title"].replace("|", "\\|") + (" (a turn is running)" if entry["busy"] else "")
    last_used = datetime.fromisoformat(entry["updated"])
    cells = (f"`{entry['sessionId']}`", title, entry["model"] or "–", str(entry["steps"]))
    return f"| {' | '.join((*cells, format_cost(entry['usage']['costUsd']), f'{last_used:%Y-%m-%d %H:%M}'))} |"


def _build_entry(summary: SessionSummary, busy: bool) -> dict[str, Any]:
    return {
        "sessionId": summary.id,
        "title": summary.title,
        "workspace": summary.workspace,
        "model": summary.model or None,
        "steps": summary.steps,
        "messages": summary.messages,
        "usage": serialize_usage(summary.usage),
        "created": format_time(summary.created),
        "updated": format_time(summary.updated),
        "size": summary.size,
        "busy": busy,
    }


def _build_archive_entry(archive: Archive) -> dict[str, Any]:
    return {
        "archiveId": archive.id,
        "note": archive.note,
        "messages": archive.messages,
        "steps": archive.steps,
        "made": format_time(archive.created),
    }


def format_time(moment: datetime) -> str:
    """Format a time in UTC as in RFC 3339."""
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _repair_session(session: Session) -> Session:
    conversation = repair_conversation(session.conversation).conversation
    ends_with_prompt = bool(conversation) and isinstance(conversation[-1], UserMessage)
    return replace(session.replace_conversation(conversation), unanswered=session.unanswered and ends_with_prompt)


_MAX_CHOICES = 30


async def answer_slash_command(sessions: WorkspaceSessions, invocation: Invocation, session_id: str) -> str:
    """Run a slash command that needs only the sessions of a workspace, and return its answer.

    The caller must claim the session, so that no turn uses it at the same time. The front end itself runs `/compact`,
    `/undo` and `/clear`. Raises ThinkLspError if the command fails.
    """
    argument, engine = invocation.argument, sessions.engine
    commands = SessionCommands(engine.store, sessions.get_workspace(), engine)
    match invocation.command.name:
        case "effort" | "model" as key:
            return await _choose(sessions, key, argument, session_id)
        case "think":
            return await _choose(sessions, "thinking", " ".join(argument.split()), session_id)
        case "restore":
            return format_restored(await commands.restore_claimed(session_id, argument.strip("`") or None))
        case "usage":
            return format_usage(await build_usage_report(engine.store, session_id))
        case "sessions":
            return format_sessions(await commands.list())
        case _:
            return format_help()


async def _choose(sessions: WorkspaceSessions, key: str, argument: str, session_id: str) -> str:
    """Set a choice and return a message about it. If no value is given, return the current value and the choices."""
    answer = await sessions.choose(key, argument or None, session_id)
    value, effective = answer["value"], answer["effective"]
    effective_text = f" ({effective} is used)" if effective not in (None, value, value.partition(" ")[0]) else ""
    choices = "" if argument else f"Choices: {', '.join(answer['choices'][:_MAX_CHOICES])}."
    return " ".join(filter(None, (f"{key.capitalize()}: {value}{effective_text}.", choices, answer["notice"])))


def format_undo(files: Iterable[FileStatus]) -> str:
    """Format the answer of `/undo`, a list with the outcome of each file."""
    return "\n".join(_format_file_status(file) for file in files)


def _format_file_status(file: FileStatus) -> str:
    name = file.uri.rpartition("/")[2]
    if file.status == "applied":
        return f"- {name} was restored to its state before the turn."
    return f"- {name} was not changed: {file.reason or file.status}."
