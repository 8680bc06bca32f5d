"""One prompt of a client: its slash commands, then a turn."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence

from thinklsp.acp.acp_turn import AcpTurn, PromptStopReason
from thinklsp.acp.config_options import build_options
from thinklsp.acp.open_session import OpenSession
from thinklsp.acp.prompt_content import PromptContent, read_prompt
from thinklsp.acp.session_client import PermissionCancelled
from thinklsp.acp.undo import undo_last_turn
from thinklsp.acp.updates import build_chunks
from thinklsp.core.errors import ThinkLspError
from thinklsp.core.images import find_image_type
from thinklsp.core.prompt_syntax import Invocation, ParsedPrompt, find_mentions, format_help, parse_slash_commands
from thinklsp.engine import ActionRequest, ChatRequest, CompactRequest
from thinklsp.engine.session_commands import format_undo
from thinklsp.engine.turn_request import find_file_references
from thinklsp.workspace.view import WorkspaceView

_REVIEW = "/review"
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
        if name == _REVIEW:
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
