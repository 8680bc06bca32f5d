"""The `thinklsp.chat` and `thinklsp.action` commands. They build turn requests from the user's input and position."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from lsprotocol.types import Range

from thinklsp.agent.prompts import ACTIONS, CHAT_ACTIONS
from thinklsp.core.check_results import EditorDiagnostic
from thinklsp.core.comment_note import remove_comment_note
from thinklsp.core.errors import TurnRefused
from thinklsp.core.images import decode_image
from thinklsp.core.messages import ImageBlock
from thinklsp.core.slash_parser import split_skills
from thinklsp.core.text_safety import escape_invisible
from thinklsp.engine import ActionRequest, ChatRequest, Reference
from thinklsp.engine.merge_plan import Scope
from thinklsp.engine.prompt_context import format_mention
from thinklsp.engine.results import Result
from thinklsp.jsonrpc.error_responses import InvalidParams
from thinklsp.lsp.chats.chat import ChatDocuments
from thinklsp.lsp.chats.chat_documents import ChatAnswer
from thinklsp.lsp.documents.code_locations import find_comment_trigger, find_edit_subject
from thinklsp.lsp.documents.tracked_diagnostics import convert_diagnostics
from thinklsp.lsp.editor import arguments as args
from thinklsp.lsp.editor.arguments import (
    CommandTarget,
    find_known_problems,
    require_target,
    resolve_target,
    to_line_numbers,
    to_lsp_range,
)
from thinklsp.lsp.editor.client import WorkDone
from thinklsp.lsp.editor.connection_state import ConnectionState
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.edits.edit_applier import FindScope, find_no_scope
from thinklsp.lsp.turns.turn_registry import TurnRegistry
from thinklsp.lsp.turns.turn_run import AnswerSink, Delivery
from thinklsp.settings.user_file import ActionSection

_MAX_MESSAGE_CHARACTERS = 300


class TurnStarter:
    """The class that starts turns for the `chat` and `action` commands.

    The commands return a TurnResult, a TurnStarted or None. A command without a prompt returns None and opens a chat
    document that mentions the user's position. Both commands read the open documents before their first `await`.
    `read_own_actions` returns the user's custom actions.
    """

    def __init__(
        self,
        state: ConnectionState,
        snapshots: Snapshots,
        chats: ChatDocuments,
        turns: TurnRegistry,
        read_own_actions: Callable[[], Awaitable[Sequence[ActionSection]]],
    ) -> None:
        self._state = state
        self._snapshots = snapshots
        self._chats = chats
        self._turns = turns
        self._read_own_actions = read_own_actions

    async def run_chat(self, arguments: args.ChatArguments, work_done: WorkDone) -> Result | None:
        view = self._snapshots.create_view()
        uri = self._find_latest_uri() if arguments.uri is None and arguments.range is not None else arguments.uri
        images = _decode_images(arguments.images)
        prompt = arguments.prompt
        if images and not (prompt or "").strip():
            prompt = " ".join(f"[{image.name}]" for image in images)
        if prompt is None:
            await self._open_blank_chat(resolve_target(self._state, uri, arguments.range))
            return None
        references = [self._build_reference(place.uri, place.range) for place in arguments.references]
        if uri is not None:
            references.insert(0, self._build_reference(uri, arguments.range))
        prompt, skills = split_skills(prompt)
        request = ChatRequest(
            prompt=prompt,
            skills=skills,
            references=tuple(references),
            images=images,
            mode=arguments.mode,
            view=view,
            workspace=self._snapshots.key,
            session_id=arguments.session_id,
            effort=arguments.effort,
            model=arguments.model,
            thinking=arguments.thinking,
        )
        token = arguments.partial_result_token
        shows = work_done.is_watched or token is not None
        range_ = None if arguments.range is None else to_lsp_range(arguments.range)
        run = await self._turns.prepare_run(
            request,
            work_done,
            token=token,
            find_scope=find_no_scope if uri is None else self._create_scope_finder(uri, range_),
            deliver=None if shows else self._create_answer_sink(prompt),
            may_wait=arguments.queue,
        )
        return await self._turns.launch_run(run)

    async def run_action(self, arguments: args.ActionArguments, work_done: WorkDone) -> Result | None:
        if arguments.name == "review":
            return await self._run_review(arguments, work_done)
        subject = require_target(self._state, arguments.uri, arguments.range, arguments.version)
        name = arguments.name or ("fix" if subject.problems else "edit")
        if name == "edit":
            subject = self._widen_cursor(subject)
        if name in ("edit", "ask") and not (arguments.instruction or "").strip():
            await self._open_blank_chat(subject)
            return None
        problems = convert_diagnostics(arguments.diagnostics or ())
        if name == "fix" and not problems:
            problems = self._find_problems(arguments, subject)
        place = Reference(subject.uri, to_line_numbers(subject.range, subject.line_count))
        view = self._snapshots.create_view()
        find_scope = self._create_scope_finder(subject.uri, None if name == "fix" else subject.range)
        own_section = None if name in ACTIONS else find_own_action(name, await self._read_own_actions())
        request = ActionRequest(
            title=f"{name} {view.resolve(subject.uri).label}",
            name=name,
            place=place,
            problems=problems,
            instruction=arguments.instruction or "",
            own_action=own_section,
            changes="staged" if own_section is not None and own_section.scope == "staged" else "",
            view=view,
            workspace=self._snapshots.key,
            effort=arguments.effort,
            model=arguments.model,
            thinking=arguments.thinking,
        )
        token = arguments.partial_result_token
        # A work-done token does not mean that the editor shows the answer: editors send a token for every menu entry.
        shows = token is not None or (work_done.is_watched and name not in CHAT_ACTIONS)
        prompt = (
            f"{remove_comment_note(arguments.instruction or name)} {format_mention(subject.uri, view, place.lines)}"
        )
        edits = name not in CHAT_ACTIONS and (own_section is None or own_section.tools == "all")
        deliver = None if shows else self._send_message if edits else self._create_answer_sink(prompt)
        run = await self._turns.prepare_run(
            request, work_done, token=token, uri=subject.uri, find_scope=find_scope, deliver=deliver
        )
        return await self._turns.launch_run(run)

    def _widen_cursor(self, subject: CommandTarget) -> CommandTarget:
        """Return the definition around a cursor, or else its line, as the target of an edit.

        At a comment with an instruction, the target is not changed, because the comment says what to edit.
        """
        document, range_ = self._state.documents.get(subject.uri), subject.range
        if document is None or range_ is None or range_.start != range_.end:
            return subject
        line = range_.start.line
        if find_comment_trigger(document, line) is not None:
            return subject
        return replace(subject, range=find_edit_subject(document, line).to_range(document))

    def _find_problems(self, arguments: args.ActionArguments, subject: CommandTarget) -> tuple[EditorDiagnostic, ...]:
        """Find the problems for a `fix` action without diagnostics.

        Raises TurnRefused if there is no problem to fix.
        """
        latest = subject.problems if arguments.uri is None and arguments.range is None else ()
        problems = latest or find_known_problems(self._state, subject)
        # If no problems are known, the model can still request the document's diagnostics through the editor bridge.
        asks = subject.range is None and "diagnostics" in self._state.client.features.bridge_requests
        if problems or asks or (arguments.instruction or "").strip():
            return problems
        raise TurnRefused(
            "There is nothing to fix: no diagnostics are available here. Request code actions on a diagnostic, or "
            "describe the problem in an instruction."
        )

    async def _run_review(self, arguments: args.ActionArguments, work_done: WorkDone) -> Result | None:
        """Review a file or the changes in a folder. By default, review the changes in the working tree."""
        view = self._snapshots.create_view()
        latest = self._state.last_action
        uri = arguments.uri or (None if latest is None else latest.uri)
        place = None if uri is None else view.resolve(uri)
        is_folder = place is None or view.find_kind(place) == "directory"
        name = "the working tree" if place is None or place.label == "." else place.label
        request = ActionRequest(
            title=f"review {name}",
            name="review",
            place=None if uri is None else Reference(uri),
            instruction=arguments.instruction or "",
            changes="all" if is_folder else "of the place",
            view=view,
            workspace=self._snapshots.key,
            effort=arguments.effort,
            model=arguments.model,
            thinking=arguments.thinking,
        )
        token = arguments.partial_result_token
        words = arguments.instruction or "review"
        prompt = f"{words}: {name}" if uri is None or is_folder else f"{words} {format_mention(uri, view, None)}"
        deliver = None if token is not None or work_done.is_watched else self._create_answer_sink(prompt)
        run = await self._turns.prepare_run(
            request, work_done, token=token, uri=None if is_folder else uri, deliver=deliver
        )
        return await self._turns.launch_run(run)

    def _create_answer_sink(self, prompt: str) -> AnswerSink:
        def deliver(delivery: Delivery) -> asyncio.Task[None]:
            # Write no answer for a turn without any text. Its command and its progress report the reason.
            answer = (
                ChatAnswer("")
                if delivery.is_incomplete and not delivery.text
                else ChatAnswer(delivery.text, delivery.notices)
            )
            return self._state.spawn(self._chats.deliver(delivery.session_id, prompt, answer))

        return deliver

    def _send_message(self, delivery: Delivery) -> asyncio.Task[None]:
        """Show the text of an action that edits as one message. The session keeps the whole text."""

        async def send() -> None:
            text = " ".join((*delivery.notices, *delivery.text.split()))
            if not text or (delivery.is_incomplete and not delivery.text):
                return
            is_long = len(text) > _MAX_MESSAGE_CHARACTERS
            self._state.client.show_message("info", f"{text[: _MAX_MESSAGE_CHARACTERS - 1]}…" if is_long else text)

        return self._state.spawn(send())

    async def _open_blank_chat(self, subject: CommandTarget | None) -> None:
        """Open a chat document that mentions the user's position, because the command has no prompt."""
        text = ""
        if subject is not None:
            lines = to_line_numbers(subject.range, subject.line_count)
            text = format_mention(subject.uri, self._snapshots.create_view(), lines) + " "
        await self._chats.open_blank(text)

    def _find_latest_uri(self) -> str:
        """Return the URI of the document named in the latest code action request."""
        if self._state.last_location is None:
            raise InvalidParams("The field uri is missing. Specify the document that contains the range.")
        return self._state.last_location.uri

    def _build_reference(self, uri: str, range_: args.Range | None) -> Reference:
        document = self._state.documents.get(uri)
        plain = None if range_ is None else to_lsp_range(range_)
        count = document.line_count if document is not None else 2**31
        return Reference(uri, to_line_numbers(plain, count))

    def _create_scope_finder(self, uri: str, range_: Range | None) -> FindScope:
        """Return a function that returns the user's range, adjusted to later changes in the document.

        The function is called when the edit is sent.
        """
        document = self._state.documents.get(uri)
        if document is None or range_ is None or range_.start == range_.end:
            return lambda: Scope(uri)
        version, first, last = document.version, range_.start.line, range_.end.line

        def scope() -> Scope:
            now = self._state.documents.get(uri)
            begin = None if now is None else now.map_position((first, 0), version)
            end = None if now is None else now.map_position((last, 0), version)
            return Scope(uri, (first if begin is None else begin[0], last if end is None else end[0]))

        return scope


def _decode_images(images: Sequence[args.Image]) -> tuple[ImageBlock, ...]:
    """Check the images that the client sent. Raises ImageRefused for an image that cannot be sent."""
    return tuple(
        decode_image(f"Image {number}", image.data, escape_invisible(image.mime_type))
        for number, image in enumerate(images, 1)
    )


def find_own_action(name: str, own_actions: Sequence[ActionSection]) -> ActionSection:
    """Return the user's custom action with this name. Raises InvalidParams if it does not exist."""
    section = next((action for action in own_actions if action.name == name), None)
    if section is None:
        names = ", ".join((*ACTIONS, *(action.name for action in own_actions)))
        raise InvalidParams(f"The field name must be one of {names}, not {name[:40]!r}.")
    return section
