"""The engine of a client, the sessions that the client has opened, and their prompts."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from thinklsp.acp.acp_turn import AcpTurn, PromptStopReason
from thinklsp.acp.edit_writer import settle_killed_edits, undo_last_turn
from thinklsp.acp.initialization import KEY_METHOD, SETUP_HINT, SETUP_METHOD, AnnouncedFeatures
from thinklsp.acp.open_session import OpenSession, build_modes, build_options, choose_option, parse_mode
from thinklsp.acp.params import (
    AuthenticateParams,
    ListSessionsParams,
    McpServer,
    NewSessionParams,
    OpenSessionParams,
    PromptContent,
    PromptParams,
    SessionParams,
    SetConfigOptionParams,
    SetModeParams,
    parse_params,
    read_prompt,
)
from thinklsp.acp.peer import AUTHENTICATION_REQUIRED, RESOURCE_NOT_FOUND, AcpError, AcpPeer, Handler, Params, Reply
from thinklsp.acp.session_client import PermissionCancelled, SessionClient, SessionFolders, check_directory, check_path
from thinklsp.acp.updates import build_chunks, build_replay
from thinklsp.core.errors import PathRefused, SessionError, ThinkLspError
from thinklsp.core.images import find_image_type
from thinklsp.core.prompt_syntax import (
    SLASH_COMMANDS,
    Invocation,
    ParsedPrompt,
    find_mentions,
    format_help,
    parse_slash_commands,
)
from thinklsp.engine import ActionRequest, ChatRequest, CompactRequest, Engine
from thinklsp.engine.instructions import find_all_skills
from thinklsp.engine.session_commands import format_undo
from thinklsp.engine.session_stores import open_session_store
from thinklsp.engine.turn_request import find_file_references
from thinklsp.jsonrpc.rpc_messages import INVALID_REQUEST, InvalidParams
from thinklsp.sessions.session import SessionSummary
from thinklsp.settings.sources import EditorSettings
from thinklsp.workspace.paths import compute_workspace_key
from thinklsp.workspace.uri import path_to_uri, uri_to_path
from thinklsp.workspace.view import WorkspaceView

_PAGE_SIZE = 50


def build_page(summaries: Sequence[SessionSummary], cursor: str | None) -> dict[str, Any]:
    """Return one page of sessions, newest first. `cursor` comes from the page before. Raises InvalidParams."""
    rows = sorted((summary for summary in summaries if _find_folder(summary) is not None), key=_order, reverse=True)
    if cursor is not None:
        time, separator, session_id = cursor.partition(" ")
        if not separator:
            raise InvalidParams("The field `cursor` must come from an earlier page.")
        rows = [summary for summary in rows if _order(summary) < (time, session_id)]
    page = rows[:_PAGE_SIZE]
    result: dict[str, Any] = {"sessions": [_build_entry(summary) for summary in page]}
    if len(rows) > len(page):
        result["nextCursor"] = " ".join(_order(page[-1]))
    return result


def _order(summary: SessionSummary) -> tuple[str, str]:
    return summary.updated.isoformat(timespec="microseconds"), summary.id


def _find_folder(summary: SessionSummary) -> str | None:
    """Return the folder of a session, or None for a session without a folder."""
    try:
        return uri_to_path(summary.workspace)
    except PathRefused:
        return None


def _build_entry(summary: SessionSummary) -> dict[str, Any]:
    updated = summary.updated.isoformat(timespec="seconds").replace("+00:00", "Z")
    return {"sessionId": summary.id, "cwd": _find_folder(summary), "title": summary.title, "updatedAt": updated}


_CHOICES = frozenset(("effort", "model", "think"))


class PromptRun:
    """A prompt that runs, at most one per session. `ended` is set at its end."""

    def __init__(self, opened: OpenSession, blocks: Sequence[object]) -> None:
        self._opened = opened
        self._blocks = blocks
        self._turn_id = secrets.token_hex(8)
        self._task: asyncio.Task[object] | None = None
        self._is_cancelled = False
        self.ended = asyncio.Event()

    def cancel(self) -> None:
        """Cancel the prompt at the user's request. It then ends with the stop reason `cancelled`.

        A second cancel changes nothing, because it would interrupt the records of the first one.
        """
        if self._task is not None and not self._is_cancelled:
            self._task.cancel()
        self._is_cancelled = True

    async def run(self) -> PromptStopReason:
        """Run the prompt. Raises ThinkLspError with a message for the user, and InvalidParams for wrong content."""
        self._task = asyncio.current_task()
        try:
            return "cancelled" if self._is_cancelled else await self._run()
        except PermissionCancelled:
            return "cancelled"
        except asyncio.CancelledError:
            if not self._is_cancelled or self._task is None:
                raise
            self._task.uncancel()
            return "cancelled"
        finally:
            self.ended.set()

    async def _run(self) -> PromptStopReason:
        view = self._opened.folders.create_view()
        content = await asyncio.to_thread(read_prompt, self._blocks, view)
        name, *rest = content.text.split(maxsplit=1) or [""]
        if name == "/review":
            return await self._send_review("".join(rest).strip(), view)
        parsed = parse_slash_commands(content.text)
        if not parsed:
            return await self._send_chat(content, parsed, view)
        if parsed.problems:
            self._say("\n\n".join((*parsed.problems, f"Available commands:\n\n{format_help()}")))
            return "end_turn"
        return await self._run_commands(parsed, content)

    async def _run_commands(self, parsed: ParsedPrompt, content: PromptContent) -> PromptStopReason:
        engine, session_id = self._opened.engine, self._opened.id
        release = engine.claims.claim(session_id, self._turn_id)
        try:
            if not await self._try_commands(parsed.invocations) or not parsed.remaining_prompt:
                return "end_turn"
            # A command may have changed files, so the turn gets a new view.
            return await self._send_chat(content, parsed, self._opened.folders.create_view())
        finally:
            release()
            await engine.store.release(session_id)

    async def _try_commands(self, invocations: Sequence[Invocation]) -> bool:
        """Run commands until one fails. Return False after a failure, which the user then sees."""
        try:
            for invocation in invocations:
                await self._run_command(invocation)
        except ThinkLspError as error:
            self._say(str(error))
            return False
        return True

    async def _run_command(self, invocation: Invocation) -> None:
        opened, name = self._opened, invocation.command.name
        match name:
            case "compact":
                request = CompactRequest(
                    view=opened.folders.create_view(),
                    workspace=opened.workspace,
                    session_id=opened.id,
                    instructions=invocation.argument,
                )
                await AcpTurn(opened, request, self._turn_id, self.cancel).run()
            case "undo":
                statuses = await undo_last_turn(opened.engine, opened.writer, opened.files, opened.workspace, opened.id)
                self._say(format_undo(statuses))
            case "clear":
                self._say("Start a new session in your editor instead. This session is unchanged.")
            case _:
                self._say(await opened.slash_answers.answer(invocation, opened.id))
        if name in _CHOICES and invocation.argument:
            options = await build_options(opened.sessions, opened.id, opened.mode, opened.modes)
            opened.client.send({"sessionUpdate": "config_option_update", "configOptions": options})

    async def _send_chat(self, content: PromptContent, parsed: ParsedPrompt, view: WorkspaceView) -> PromptStopReason:
        opened, text = self._opened, parsed.remaining_prompt
        paths = (mention.path for mention in find_mentions(text))
        # The client reads only texts. Images come from the disk.
        await opened.files.load_documents(view, [path for path in paths if find_image_type(path) is None])
        references, notices = find_file_references(text, view)
        opened.notices += notices
        request = ChatRequest(
            prompt=text,
            skills=parsed.skills,
            references=references,
            attachments=content.attachments,
            client_servers=opened.servers,
            images=content.images,
            mode="ask" if opened.mode == "ask" else "agent",
            view=view,
            workspace=opened.workspace,
            session_id=opened.id,
        )
        return await AcpTurn(opened, request, self._turn_id, self.cancel).run()

    async def _send_review(self, instruction: str, view: WorkspaceView) -> PromptStopReason:
        request = ActionRequest(
            title="review the working tree",
            name="review",
            place=None,
            instruction=instruction,
            changes="all",
            view=view,
            workspace=self._opened.workspace,
            session_id=self._opened.id,
        )
        return await AcpTurn(self._opened, request, self._turn_id, self.cancel).run()

    def _say(self, text: str) -> None:
        for update in build_chunks("agent_message_chunk", f"{text}\n\n", f"{self._turn_id}-{secrets.token_hex(2)}"):
            self._opened.client.send(update)


# A client starts a new session by itself. Each skill is a command of its own.
_HIDDEN_COMMANDS = frozenset(("clear", "skill"))
_MAX_DESCRIPTION_CHARACTERS = 200
_REVIEW = {
    "name": "review",
    "description": "reviews the uncommitted changes",
    "input": {"hint": "what to look at"},
}
_TURN_RUNNING = "A turn is running in this session. Cancel it or wait for its end."
# The updates that are sent before other requests get their turn.
_REPLAY_BATCH = 100


class AcpSession:
    """A session of a client, with at most one running prompt."""

    def __init__(self, opened: OpenSession) -> None:
        self._opened = opened
        self._run: PromptRun | None = None
        self._skills: tuple[tuple[str, str], ...] = ()
        self._has_settled = False

    @property
    def id(self) -> str:
        return self._opened.id

    async def describe(self) -> dict[str, Any]:
        """Return the modes and the options, for the answer to a request that opens the session."""
        modes = build_modes(self._opened.mode, self._opened.modes)
        self._skills = await self._list_skills()
        return {"modes": modes, "configOptions": await self._list_options()}

    async def _list_options(self) -> list[dict[str, Any]]:
        opened = self._opened
        return await build_options(opened.sessions, opened.id, opened.mode, opened.modes)

    def send_commands(self) -> None:
        """Send the slash commands. Clients accept them only after the session has been opened."""
        commands = [
            {"name": command.name, "description": command.description}
            | ({} if command.argument == "none" else {"input": {"hint": command.usage.partition(" ")[2]}})
            for command in SLASH_COMMANDS
            if command.name not in _HIDDEN_COMMANDS
        ]
        skills = [
            {"name": f"skill:{name}", "description": description, "input": {"hint": "what to do"}}
            for name, description in self._skills
        ]
        update = {
            "sessionUpdate": "available_commands_update",
            "availableCommands": [*commands, _REVIEW, *skills],
        }
        self._opened.client.send(update)

    async def _list_skills(self) -> tuple[tuple[str, str], ...]:
        """Return the name and the description of each skill that the user can choose."""
        opened = self._opened
        found = await asyncio.to_thread(find_all_skills, opened.folders.create_view(), opened.engine.user.path)
        return tuple(
            (skill.name, " ".join(skill.description.split())[:_MAX_DESCRIPTION_CHARACTERS]) for skill in found.skills
        )

    async def _refresh_commands(self) -> None:
        """Send the slash commands again if the skills changed."""
        skills = await self._list_skills()
        if skills != self._skills:
            self._skills = skills
            self.send_commands()

    async def settle_edits(self, *, asks_client: bool) -> None:
        """Find out which edits of killed processes were applied. If that fails, the next undo tries again."""
        opened = self._opened
        with suppress(SessionError):
            await settle_killed_edits(opened.engine, opened.files, opened.workspace, asks_client=asks_client)

    async def replay(self) -> None:
        """Send the whole stored session again."""
        opened = self._opened
        transcript = await opened.engine.store.read_transcript(opened.id, opened.workspace)
        opened.shown_title = transcript.title
        for number, update in enumerate(await asyncio.to_thread(build_replay, transcript.recover())):
            opened.client.send(update)
            if number % _REPLAY_BATCH == 0:
                await opened.client.wait_for_room()

    async def set_mode(self, mode_id: str) -> None:
        """Set the mode. The options change with it, so the client gets them again."""
        opened = self._opened
        opened.choose_mode(parse_mode(mode_id, opened.modes, "modeId"))
        opened.client.send({"sessionUpdate": "config_option_update", "configOptions": await self._list_options()})

    async def set_option(self, name: str, value: str | bool) -> list[dict[str, Any]]:
        """Set an option and return the complete list. Raises InvalidParams for a wrong name or value."""
        if not isinstance(value, str):
            raise InvalidParams("The field `value` must be a string.")
        if name == "mode":
            mode = parse_mode(value, self._opened.modes, "value")
            self._opened.choose_mode(mode)
            # Clients that know both keep the older modes, too.
            self._opened.client.send({"sessionUpdate": "current_mode_update", "currentModeId": mode})
        else:
            await choose_option(self._opened.sessions, self._opened.id, name, value)
        return await self._list_options()

    def begin_prompt(self, blocks: Sequence[object]) -> Awaitable[Reply]:
        """Begin a prompt at once, so that a cancel that follows finds it. The result is awaited later."""
        if self._run is not None:
            raise AcpError(INVALID_REQUEST, _TURN_RUNNING)
        self._run = run = PromptRun(self._opened, blocks)
        return self._finish_prompt(run)

    async def _finish_prompt(self, run: PromptRun) -> Reply:
        try:
            if not self._has_settled:
                await self.settle_edits(asks_client=True)
                self._has_settled = True
            await self._refresh_commands()
            return Reply({"stopReason": await run.run()})
        finally:
            self._run = None

    def cancel(self) -> None:
        if self._run is not None:
            self._run.cancel()

    async def close(self) -> None:
        """Cancel the running prompt and close the folders."""
        if self._run is not None:
            self._run.cancel()
            await self._run.ended.wait()
        self._opened.folders.close()

    def release_folders(self) -> None:
        """Close the folders of an idle session. The next prompt opens them again."""
        if self._run is None:
            self._opened.folders.close()


_UNKNOWN_SESSION = "This session is not open. Open it with `session/load`, `session/resume` or `session/new`."
_NO_STORED_SESSION = "This folder has no session with this id. List the sessions to find the right id."
_IN_USE = "This session is in use by another thinklsp. Wait until its turn ends, or cancel the turn there."
# The number of sessions that keep their folders open. Some clients never close a session.
_MAX_READY = 32


class SessionHost:
    """The sessions of a client. Each method handles one request, and its call comes before the next message is read."""

    def __init__(self, peer: AcpPeer, features: AnnouncedFeatures, environment: Mapping[str, str]) -> None:
        self._peer = peer
        self._features = features
        self._engine = Engine(environment, open_session_store(environment))
        self._sessions: dict[str, AcpSession] = {}
        self._edit_lock = asyncio.Lock()
        self.handlers: dict[str, Handler] = {
            "authenticate": self.authenticate,
            "session/new": self.create_session,
            "session/load": self.load_session,
            "session/resume": self.resume_session,
            "session/list": self.list_sessions,
            "session/delete": self.delete_session,
            "session/close": self.close_session,
            "session/prompt": self.prompt,
            "session/set_mode": self.set_mode,
            "session/set_config_option": self.set_config_option,
        }

    async def authenticate(self, params: Params) -> Reply:
        """Check that a provider has a key. The client calls this before its first session, if at all."""
        method = parse_params(AuthenticateParams, params).method_id
        if method != KEY_METHOD:
            hint = " It runs in a terminal." if method == SETUP_METHOD else ""
            raise InvalidParams(f"The field `methodId` must be `{KEY_METHOD}`.{hint}")
        await self._engine.config.refresh()
        try:
            self._engine.resolve_target(self._engine.resolve_settings(EditorSettings()).settings)
        except ThinkLspError as error:
            raise AcpError(AUTHENTICATION_REQUIRED, f"{error} {SETUP_HINT}") from None
        return Reply({})

    async def create_session(self, params: Params) -> Reply:
        wanted = parse_params(NewSessionParams, params)
        await self._engine.config.refresh()
        folders = self._open_folders(wanted.cwd, wanted.additional_directories)
        stored = await self._engine.open_session(None, folders.key)
        session = self._build_session(stored.id, folders, wanted.mcp_servers)
        return await self._finish_opening(session, {"sessionId": stored.id})

    async def load_session(self, params: Params) -> Reply:
        session = await self._open_stored(params)
        await session.replay()
        return await self._finish_opening(session, {})

    async def resume_session(self, params: Params) -> Reply:
        return await self._finish_opening(await self._open_stored(params), {})

    async def _open_stored(self, params: Params) -> AcpSession:
        """Open a stored session. Raises AcpError for an unknown one; a new one is never created in its place."""
        wanted = parse_params(OpenSessionParams, params)
        await self._engine.config.refresh()
        folders = self._open_folders(wanted.cwd, wanted.additional_directories)
        try:
            await self._engine.store.get(wanted.session_id, folders.key)
        except SessionError:
            raise AcpError(RESOURCE_NOT_FOUND, _NO_STORED_SESSION) from None
        if await self._engine.store.find_in_use([wanted.session_id]):
            raise SessionError(_IN_USE)
        await self._close_opened(wanted.session_id)
        session = self._build_session(wanted.session_id, folders, wanted.mcp_servers)
        await session.settle_edits(asks_client=False)
        return session

    async def _finish_opening(self, session: AcpSession, result: dict[str, Any]) -> Reply:
        """Add a session to the open ones, and return the answer to the request that opens it."""
        described = await session.describe()
        await self._close_opened(session.id)
        self._sessions[session.id] = session
        for idle in list(self._sessions.values())[:-_MAX_READY]:
            idle.release_folders()
        return Reply(result | described, session.send_commands)

    async def _close_opened(self, session_id: str) -> None:
        """Close a session if it is open. Another request may open it meanwhile, so look again."""
        while (session := self._sessions.pop(session_id, None)) is not None:
            await session.close()

    def _open_folders(self, cwd: str, additional: Sequence[str]) -> SessionFolders:
        more = [check_directory(path, "additionalDirectories") for path in additional]
        return SessionFolders(check_directory(cwd, "cwd"), more, self._engine.user)

    def _build_session(self, session_id: str, folders: SessionFolders, servers: Sequence[McpServer]) -> AcpSession:
        client = SessionClient(self._peer, self._features, session_id)
        named = tuple(server.build_client_server() for server in servers)
        return AcpSession(OpenSession(self._engine, client, folders, self._edit_lock, named))

    async def list_sessions(self, params: Params) -> Reply:
        wanted = parse_params(ListSessionsParams, params)
        workspace = None if wanted.cwd is None else compute_workspace_key(path_to_uri(check_path(wanted.cwd, "cwd")))
        summaries = await self._engine.store.list_sessions(workspace)
        return Reply(build_page(summaries, wanted.cursor))

    async def delete_session(self, params: Params) -> Reply:
        """Delete a stored session. An unknown id succeeds, because a client may repeat the request."""
        session_id = parse_params(SessionParams, params).session_id
        await self._close_opened(session_id)
        known = {summary.id for summary in await self._engine.store.list_sessions(None)}
        if session_id in known:
            await self._engine.store.delete(session_id, None)
        self._engine.forget_session(session_id)
        return Reply({})

    async def close_session(self, params: Params) -> Reply:
        session_id = parse_params(SessionParams, params).session_id
        self._find(session_id)
        await self._close_opened(session_id)
        return Reply({})

    def prompt(self, params: Params) -> Awaitable[Reply]:
        wanted = parse_params(PromptParams, params)
        return self._find(wanted.session_id).begin_prompt(wanted.prompt)

    async def set_mode(self, params: Params) -> Reply:
        wanted = parse_params(SetModeParams, params)
        await self._find(wanted.session_id).set_mode(wanted.mode_id)
        return Reply({})

    async def set_config_option(self, params: Params) -> Reply:
        wanted = parse_params(SetConfigOptionParams, params)
        options = await self._find(wanted.session_id).set_option(wanted.config_id, wanted.value)
        return Reply({"configOptions": options})

    def cancel(self, params: Params) -> None:
        session_id = params.get("sessionId")
        session = self._sessions.get(session_id) if isinstance(session_id, str) else None
        if session is not None:
            session.cancel()

    def _find(self, session_id: str) -> AcpSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise AcpError(RESOURCE_NOT_FOUND, _UNKNOWN_SESSION)
        return session

    async def close(self) -> None:
        """Close the engine. The peer has already cancelled the requests."""
        await self._engine.aclose()
