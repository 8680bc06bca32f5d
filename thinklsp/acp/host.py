"""The engine of a client, the sessions that the client has opened, and their prompts."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from thinklsp.acp.acp_session import COMMANDS, AcpSession
from thinklsp.acp.acp_turn import AcpTurn, PromptStopReason
from thinklsp.acp.initialization import KEY_METHOD, SETUP_HINT, SETUP_METHOD, AnnouncedFeatures
from thinklsp.acp.params import (
    AuthenticateParams,
    ListSessionsParams,
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
from thinklsp.acp.peer import AUTHENTICATION_REQUIRED, RESOURCE_NOT_FOUND, AcpError, AcpPeer, Params, Result
from thinklsp.acp.session_client import PermissionCancelled, SessionClient, check_directory, check_path
from thinklsp.acp.updates import build_chunks
from thinklsp.core.errors import PathRefused, SessionError, ThinkLspError
from thinklsp.core.images import find_image_type
from thinklsp.core.prompt_syntax import Invocation, ParsedPrompt, find_mentions, format_help, parse_slash_commands
from thinklsp.engine import ActionRequest, ChatRequest, CompactRequest, Engine, TurnRequest
from thinklsp.engine.session_commands import answer_slash_command, format_time, format_undo
from thinklsp.engine.session_folders import SessionFolders
from thinklsp.engine.session_stores import open_session_store
from thinklsp.engine.turn_request import find_file_references
from thinklsp.jsonrpc.rpc_messages import INVALID_REQUEST, InvalidParams
from thinklsp.sessions.session import SessionSummary
from thinklsp.settings.sources import EditorSettings
from thinklsp.workspace.paths import compute_workspace_key
from thinklsp.workspace.uri import path_to_uri, uri_to_path
from thinklsp.workspace.view import WorkspaceView

_UNKNOWN_SESSION = "This session is not open. Open it with `session/load`, `session/resume` or `session/new`."
_NO_STORED_SESSION = "This folder has no session with this id. List the sessions to find the right id."
_IN_USE = "This session is in use by another thinklsp. Wait until its turn ends, or cancel the turn there."
_TURN_RUNNING = "A turn is running in this session. Cancel it or wait for its end."
# The number of sessions that keep their folders open. Some clients never close a session.
_MAX_READY = 32
_PAGE_SIZE = 50
_CHOICES = frozenset(("effort", "model", "think"))


class SessionHost:
    """The sessions of a client. Each method handles one request, and its call comes before the next message is read."""

    def __init__(self, peer: AcpPeer, features: AnnouncedFeatures, environment: Mapping[str, str]) -> None:
        self._peer = peer
        self._features = features
        self._engine = Engine(environment, open_session_store(environment))
        self._sessions: dict[str, AcpSession] = {}
        self._prompts: dict[str, PromptRun] = {}
        self._edit_lock = asyncio.Lock()

    async def authenticate(self, params: Params) -> Result:
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
        return {}

    async def create_session(self, params: Params) -> Result:
        wanted = parse_params(NewSessionParams, params)
        await self._engine.config.refresh()
        folders = self._open_folders(wanted)
        stored = await self._engine.open_session(None, folders.key)
        session = self._build_session(stored.id, folders, wanted)
        return await self._finish_opening(session, {"sessionId": stored.id})

    async def load_session(self, params: Params) -> Result:
        session = await self._open_stored(params)
        await session.replay()
        return await self._finish_opening(session, {})

    async def resume_session(self, params: Params) -> Result:
        return await self._finish_opening(await self._open_stored(params), {})

    async def _open_stored(self, params: Params) -> AcpSession:
        """Open a stored session. Raises AcpError for an unknown one; a new one is never created in its place."""
        wanted = parse_params(OpenSessionParams, params)
        await self._engine.config.refresh()
        folders = self._open_folders(wanted)
        try:
            await self._engine.store.get(wanted.session_id, folders.key)
        except SessionError:
            raise AcpError(RESOURCE_NOT_FOUND, _NO_STORED_SESSION) from None
        if await self._engine.store.find_in_use([wanted.session_id]):
            raise SessionError(_IN_USE)
        await self._close_opened(wanted.session_id)
        session = self._build_session(wanted.session_id, folders, wanted)
        await session.settle_edits(asks_client=False)
        return session

    def _open_folders(self, wanted: NewSessionParams | OpenSessionParams) -> SessionFolders:
        more = [check_directory(path, "additionalDirectories") for path in wanted.additional_directories]
        return SessionFolders(check_directory(wanted.cwd, "cwd"), self._engine.user, more)

    def _build_session(
        self, session_id: str, folders: SessionFolders, wanted: NewSessionParams | OpenSessionParams
    ) -> AcpSession:
        client = SessionClient(self._peer, self._features, session_id)
        servers = tuple(server.build_client_entry() for server in wanted.mcp_servers)
        return AcpSession(self._engine, client, folders, self._edit_lock, servers)

    async def _finish_opening(self, session: AcpSession, result: dict[str, Any]) -> Result:
        """Add a session to the open ones, and return the answer to the request that opens it."""
        described = await session.describe()
        await self._close_opened(session.id)
        self._sessions[session.id] = session
        for idle in list(self._sessions.values())[:-_MAX_READY]:
            if idle.id not in self._prompts:
                idle.folders.close()  # The next prompt opens them again.
        # Clients accept updates only after the answer.
        asyncio.get_running_loop().call_soon(session.send_commands)
        return result | described

    async def _close_opened(self, session_id: str) -> None:
        """Close a session if it is open. Another request may open it meanwhile, so look again."""
        while (session := self._sessions.pop(session_id, None)) is not None:
            if (prompt := self._prompts.get(session_id)) is not None:
                prompt.cancel()
                await prompt.ended.wait()
            session.folders.close()

    async def list_sessions(self, params: Params) -> Result:
        wanted = parse_params(ListSessionsParams, params)
        workspace = None if wanted.cwd is None else compute_workspace_key(path_to_uri(check_path(wanted.cwd, "cwd")))
        summaries = await self._engine.store.list_sessions(workspace)
        return build_page(summaries, wanted.cursor)

    async def delete_session(self, params: Params) -> Result:
        """Delete a stored session. An unknown id succeeds, because a client may repeat the request."""
        session_id = parse_params(SessionParams, params).session_id
        await self._close_opened(session_id)
        known = {summary.id for summary in await self._engine.store.list_sessions(None)}
        if session_id in known:
            await self._engine.store.delete(session_id, None)
        self._engine.forget_session(session_id)
        return {}

    async def close_session(self, params: Params) -> Result:
        session_id = parse_params(SessionParams, params).session_id
        self._find(session_id)
        await self._close_opened(session_id)
        return {}

    def prompt(self, params: Params) -> Awaitable[Result]:
        """Begin a prompt at once, so that a cancel that follows finds it. The result is awaited later."""
        wanted = parse_params(PromptParams, params)
        session = self._find(wanted.session_id)
        if session.id in self._prompts:
            raise AcpError(INVALID_REQUEST, _TURN_RUNNING)
        self._prompts[session.id] = prompt = PromptRun(session, wanted.prompt)
        return self._finish_prompt(session, prompt)

    async def _finish_prompt(self, session: AcpSession, prompt: PromptRun) -> Result:
        try:
            await session.prepare_prompt()
            return {"stopReason": await prompt.run()}
        finally:
            del self._prompts[session.id]
            prompt.ended.set()

    async def set_mode(self, params: Params) -> Result:
        """Set the mode. The options change with it, so the client gets them again."""
        wanted = parse_params(SetModeParams, params)
        session = self._find(wanted.session_id)
        session.set_mode(wanted.mode_id, "modeId")
        await session.send_options()
        return {}

    async def set_config_option(self, params: Params) -> Result:
        wanted = parse_params(SetConfigOptionParams, params)
        options = await self._find(wanted.session_id).set_option(wanted.config_id, wanted.value)
        return {"configOptions": options}

    def cancel(self, params: Params) -> None:
        session_id = params.get("sessionId")
        prompt = self._prompts.get(session_id) if isinstance(session_id, str) else None
        if prompt is not None:
            prompt.cancel()

    def _find(self, session_id: str) -> AcpSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise AcpError(RESOURCE_NOT_FOUND, _UNKNOWN_SESSION)
        return session

    async def close(self) -> None:
        """Close the engine. The peer has already cancelled the requests."""
        await self._engine.aclose()


class PromptRun:
    """A prompt that runs, at most one per session: its slash commands, then a turn. `ended` is set at its end."""

    def __init__(self, session: AcpSession, blocks: Sequence[object]) -> None:
        self._session = session
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

    async def _run(self) -> PromptStopReason:
        view = self._session.folders.create_view()
        content = await asyncio.to_thread(read_prompt, self._blocks, view)
        name, *rest = content.text.split(maxsplit=1) or [""]
        if name == "/review":
            action = ActionRequest(
                **self._name_session(view), title="review the working tree", name="review", place=None,
                instruction="".join(rest).strip(), changes="all",
            )  # fmt: skip
            return await self._run_turn(action)
        parsed = parse_slash_commands(content.text)
        if not parsed:
            return await self._send_chat(content, parsed, view)
        if parsed.problems:
            self._say("\n\n".join((*parsed.problems, f"Available commands:\n\n{format_help(COMMANDS)}")))
            return "end_turn"
        return await self._run_commands(parsed, content)

    def _name_session(self, view: WorkspaceView) -> dict[str, Any]:
        """Return the fields of a request that name the session and its files."""
        return {"view": view, "workspace": self._session.workspace, "session_id": self._session.id}

    async def _run_turn(self, request: TurnRequest) -> PromptStopReason:
        return await AcpTurn(self._session, request, self._turn_id, self.cancel).run()

    async def _run_commands(self, parsed: ParsedPrompt, content: PromptContent) -> PromptStopReason:
        """Run the commands and then the rest of the prompt. If a command fails, the user sees what was not run."""
        engine, session_id = self._session.engine, self._session.id
        release = engine.claims.claim(session_id, self._turn_id)
        try:
            for number, invocation in enumerate(parsed.invocations, 1):
                try:
                    await self._run_command(invocation)
                except ThinkLspError as error:
                    unsent = "The rest of the prompt was not sent." if parsed.remaining_prompt else ""
                    self._say("\n\n".join(filter(None, (str(error), parsed.format_skipped(number), unsent))))
                    return "end_turn"
            if not parsed.remaining_prompt:
                return "end_turn"
            # A command may have changed files, so the turn gets a new view.
            return await self._send_chat(content, parsed, self._session.folders.create_view())
        finally:
            release()
            await engine.store.release(session_id)

    async def _run_command(self, invocation: Invocation) -> None:
        session, name = self._session, invocation.command.name
        match name:
            case "compact":
                common = self._name_session(session.folders.create_view())
                await self._run_turn(CompactRequest(**common, instructions=invocation.argument))
            case "undo":
                self._say(format_undo(await session.writer.undo_last_turn()))
            case "clear":
                self._say("Start a new session in your editor instead. This session is unchanged.")
            case "help":
                self._say(format_help(COMMANDS))
            case _:
                self._say(await answer_slash_command(session.sessions, invocation, session.id))
        if name in _CHOICES and invocation.argument:
            await session.send_options()

    async def _send_chat(self, content: PromptContent, parsed: ParsedPrompt, view: WorkspaceView) -> PromptStopReason:
        session, text = self._session, parsed.remaining_prompt
        paths = (mention.path for mention in find_mentions(text))
        # The client reads only texts. Images come from the disk.
        await session.files.load_documents(view, [path for path in paths if find_image_type(path) is None])
        references, notices = find_file_references(text, view)
        session.notices += notices
        request = ChatRequest(
            **self._name_session(view), prompt=text, skills=parsed.skills, references=references,
            attachments=content.attachments, client_servers=session.servers, images=content.images,
            mode="ask" if session.mode == "ask" else "agent",
        )  # fmt: skip
        return await self._run_turn(request)

    def _say(self, text: str) -> None:
        for update in build_chunks("agent_message_chunk", f"{text}\n\n", f"{self._turn_id}-{secrets.token_hex(2)}"):
            self._session.client.send(update)


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
    folder, updated = _find_folder(summary), format_time(summary.updated)
    return {"sessionId": summary.id, "cwd": folder, "title": summary.title, "updatedAt": updated}
