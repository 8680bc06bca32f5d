"""The commands `chat`, `action`, `compact` and `cancel`. They build turn requests from the user's input and position.

The commands that start a turn return a TurnResult if the caller gave a token, and a TurnStarted otherwise. A command
without the words that it needs returns None and opens a chat document that mentions the user's position.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from lsprotocol.types import ExecuteCommandParams, Range

from thinklsp.agent.prompts import ACTIONS, CHAT_ACTIONS
from thinklsp.core.check_results import EditorDiagnostic
from thinklsp.core.errors import SessionError, TurnRefused
from thinklsp.core.images import decode_image
from thinklsp.core.prompt_syntax import remove_comment_note, split_skills
from thinklsp.core.text_safety import escape_invisible
from thinklsp.engine import ActionRequest, ChatRequest, CompactRequest, Reference, TurnRequest
from thinklsp.engine.merge_plan import Scope
from thinklsp.engine.results import Result
from thinklsp.engine.turn_request import format_mention
from thinklsp.jsonrpc.rpc_messages import InvalidParams
from thinklsp.lsp.assistant import Assistant
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
from thinklsp.lsp.editor.connection_state import ConnectionState
from thinklsp.lsp.editor.turn_progress import TurnProgress
from thinklsp.lsp.edits.edit_applier import FindScope, find_no_scope
from thinklsp.lsp.server import ThinkLspServer
from thinklsp.lsp.turns.turn_run import AnswerSink, Delivery
from thinklsp.settings.user_file import ActionSection
from thinklsp.workspace.view import WorkspaceView

_MAX_MESSAGE_CHARACTERS = 300


def register(server: ThinkLspServer) -> None:
    @server.command("thinklsp.chat")
    async def run_chat(params: ExecuteCommandParams) -> Result | None:
        assistant = await server.load()
        return await _run_chat(
            assistant, args.parse_arguments(args.ChatArguments, params), server.find_progress(params)
        )

    @server.command("thinklsp.action")
    async def run_action(params: ExecuteCommandParams) -> Result | None:
        assistant = await server.load()
        arguments, progress = args.parse_arguments(args.ActionArguments, params), server.find_progress(params)
        run = _run_review if arguments.name == "review" else _run_action
        return await run(assistant, arguments, progress)

    @server.command("thinklsp.compact")
    async def compact(params: ExecuteCommandParams) -> Result:
        """Compact a session, by default the newest session in the workspace."""
        assistant = await server.load()
        arguments = args.parse_arguments(args.CompactArguments, params)
        session_id = arguments.session_id or await _find_newest_session(assistant)
        request = CompactRequest(**_build_common(assistant), session_id=session_id, instructions=arguments.instructions)
        return await _launch(assistant, request, server.find_progress(params))

    @server.command("thinklsp.cancel")
    async def cancel(params: ExecuteCommandParams) -> Result:
        return {"cancelled": server.cancel_turn(args.parse_arguments(args.TurnArguments, params).turn_id)}


def _build_common(
    assistant: Assistant, arguments: args.ChatArguments | args.ActionArguments | None = None
) -> dict[str, Any]:
    """Return the fields of all requests: a view of the workspace as it is now, and the choices in the arguments."""
    common: dict[str, Any] = {"view": assistant.snapshots.create_view(), "workspace": assistant.snapshots.key}
    if arguments is not None:
        common |= {"effort": arguments.effort, "model": arguments.model, "thinking": arguments.thinking}
    return common


async def _run_chat(assistant: Assistant, arguments: args.ChatArguments, progress: TurnProgress) -> Result | None:
    state, uri, prompt = assistant.state, arguments.uri, arguments.prompt
    common = _build_common(assistant, arguments)
    if uri is None and arguments.range is not None:
        if state.last_location is None:
            raise InvalidParams("The field uri is missing. Specify the document that contains the range.")
        uri = state.last_location.uri
    images = tuple(
        decode_image(f"Image {number}", image.data, escape_invisible(image.mime_type))
        for number, image in enumerate(arguments.images, 1)
    )
    if images and not (prompt or "").strip():
        prompt = " ".join(f"[{image.name}]" for image in images)
    if prompt is None:
        await _open_blank_chat(assistant, resolve_target(state, uri, arguments.range))
        return None
    places = [] if uri is None else [args.Location(uri=uri, range=arguments.range)]
    prompt, skills = split_skills(prompt)
    request = ChatRequest(
        **common,
        prompt=prompt,
        skills=skills,
        references=tuple(_build_reference(state, place) for place in (*places, *arguments.references)),
        images=images,
        mode=arguments.mode,
        session_id=arguments.session_id,
    )
    token = arguments.partial_result_token
    shows = progress.is_watched or token is not None
    return await _launch(
        assistant,
        request,
        progress,
        token=token,
        find_scope=find_no_scope if uri is None else _create_scope_finder(state, uri, _to_range(arguments.range)),
        deliver=None if shows else _create_answer_sink(assistant, prompt),
        may_wait=arguments.queue,
    )


async def _run_action(assistant: Assistant, arguments: args.ActionArguments, progress: TurnProgress) -> Result | None:
    state, instruction = assistant.state, arguments.instruction or ""
    subject = require_target(state, arguments.uri, arguments.range, arguments.version)
    name = arguments.name or ("fix" if subject.problems else "edit")
    if name == "edit":
        subject = _widen_cursor(state, subject)
    if name in ("edit", "ask") and not instruction.strip():
        await _open_blank_chat(assistant, subject)
        return None
    problems = convert_diagnostics(arguments.diagnostics or ())
    if name == "fix" and not problems:
        problems = _find_problems(state, arguments, subject)
    common = _build_common(assistant, arguments)
    view: WorkspaceView = common["view"]
    find_scope = _create_scope_finder(state, subject.uri, None if name == "fix" else subject.range)
    own_action = None if name in ACTIONS else await _find_own_action(assistant, name)
    request = ActionRequest(
        **common,
        title=f"{name} {view.resolve(subject.uri).label}",
        name=name,
        place=Reference(subject.uri, to_line_numbers(subject.range, subject.line_count)),
        problems=problems,
        instruction=instruction,
        own_action=own_action,
        changes="staged" if own_action is not None and own_action.scope == "staged" else "",
    )
    token = arguments.partial_result_token
    # A work-done token does not mean that the editor shows the answer: editors send a token for every menu entry.
    shows = token is not None or (progress.is_watched and name not in CHAT_ACTIONS)
    edits = name not in CHAT_ACTIONS and (own_action is None or own_action.tools == "all")
    mention = _format_mention(view, subject)
    prompt = f"{remove_comment_note(instruction or name)} {mention}"
    sink = _create_message_sink(state) if edits else _create_answer_sink(assistant, prompt)
    deliver = None if shows else sink
    return await _launch(
        assistant, request, progress, token=token, uri=subject.uri, find_scope=find_scope, deliver=deliver
    )


async def _run_review(assistant: Assistant, arguments: args.ActionArguments, progress: TurnProgress) -> Result | None:
    """Review a file or the changes in a folder. By default, review the changes in the working tree."""
    common = _build_common(assistant, arguments)
    view: WorkspaceView = common["view"]
    latest = assistant.state.last_action
    uri = arguments.uri or (None if latest is None else latest.uri)
    place = None if uri is None else view.resolve(uri)
    is_folder = place is None or view.find_kind(place) == "directory"
    name = "the working tree" if place is None or place.label == "." else place.label
    request = ActionRequest(
        **common,
        title=f"review {name}",
        name="review",
        place=None if uri is None else Reference(uri),
        instruction=arguments.instruction or "",
        changes="all" if is_folder else "of the place",
    )
    token = arguments.partial_result_token
    words = arguments.instruction or "review"
    prompt = f"{words}: {name}" if uri is None or is_folder else f"{words} {format_mention(uri, view, None)}"
    deliver = None if token is not None or progress.is_watched else _create_answer_sink(assistant, prompt)
    return await _launch(assistant, request, progress, token=token, uri=None if is_folder else uri, deliver=deliver)


async def _launch(assistant: Assistant, request: TurnRequest, progress: TurnProgress, **options: Any) -> Result:
    """Start a turn. `options` are those of `TurnRegistry.prepare_run`."""
    return await assistant.turns.launch_run(await assistant.turns.prepare_run(request, progress, **options))


async def _find_newest_session(assistant: Assistant) -> str:
    try:
        return (await assistant.engine.open_session("last", assistant.snapshots.key)).id
    except SessionError:
        raise TurnRefused("Nothing to compact: there is no session in this workspace.") from None


def _widen_cursor(state: ConnectionState, subject: CommandTarget) -> CommandTarget:
    """Return the definition around a cursor, or else its line, as the target of an edit.

    At a comment with an instruction, the target is not changed, because the comment says what to edit.
    """
    document, range_ = state.documents.get(subject.uri), subject.range
    if document is None or range_ is None or range_.start != range_.end:
        return subject
    line = range_.start.line
    if find_comment_trigger(document, line) is not None:
        return subject
    return replace(subject, range=find_edit_subject(document, line).to_range(document))


def _find_problems(
    state: ConnectionState, arguments: args.ActionArguments, subject: CommandTarget
) -> tuple[EditorDiagnostic, ...]:
    """Find the problems for a `fix` action without diagnostics. Raise TurnRefused if there is no problem to fix."""
    latest = subject.problems if arguments.uri is None and arguments.range is None else ()
    problems = latest or find_known_problems(state, subject)
    # If no problems are known, the model can still request the document's diagnostics through the editor bridge.
    asks = subject.range is None and "diagnostics" in state.client.features.bridge_requests
    if problems or asks or (arguments.instruction or "").strip():
        return problems
    raise TurnRefused(
        "There is nothing to fix: no diagnostics are available here. Request code actions on a diagnostic, or "
        "describe the problem in an instruction."
    )


async def _find_own_action(assistant: Assistant, name: str) -> ActionSection:
    """Return the user's custom action with this name. Raise InvalidParams if it does not exist."""
    await assistant.refresh()
    own_actions = assistant.engine.user.file.actions
    section = next((action for action in own_actions if action.name == name), None)
    if section is None:
        names = ", ".join((*ACTIONS, *(action.name for action in own_actions)))
        raise InvalidParams(f"The field name must be one of {names}, not {name[:40]!r}.")
    return section


def _create_answer_sink(assistant: Assistant, prompt: str) -> AnswerSink:
    """Return a function that writes the answer of a turn to a chat document."""

    def deliver(delivery: Delivery) -> asyncio.Task[None]:
        # Write no answer for a turn without any text. Its command and its progress report the reason.
        is_empty = delivery.is_incomplete and not delivery.text
        answer = ChatAnswer("") if is_empty else ChatAnswer(delivery.text, delivery.notices)
        return assistant.state.spawn(assistant.chat.deliver(delivery.session_id, prompt, answer))

    return deliver


def _create_message_sink(state: ConnectionState) -> AnswerSink:
    """Return a function that shows the text of an action as one message. The session keeps the whole text."""

    async def send(delivery: Delivery) -> None:
        text = " ".join((*delivery.notices, *delivery.text.split()))
        if not text or (delivery.is_incomplete and not delivery.text):
            return
        is_long = len(text) > _MAX_MESSAGE_CHARACTERS
        state.client.show_message("info", f"{text[: _MAX_MESSAGE_CHARACTERS - 1]}…" if is_long else text)

    return lambda delivery: state.spawn(send(delivery))


async def _open_blank_chat(assistant: Assistant, subject: CommandTarget | None) -> None:
    """Open a chat document that mentions the user's position, because the command has no prompt."""
    view = assistant.snapshots.create_view()
    await assistant.chat.open_blank("" if subject is None else f"{_format_mention(view, subject)} ")


def _format_mention(view: WorkspaceView, subject: CommandTarget) -> str:
    return format_mention(subject.uri, view, to_line_numbers(subject.range, subject.line_count))


def _build_reference(state: ConnectionState, place: args.Location) -> Reference:
    document = state.documents.get(place.uri)
    count = document.line_count if document is not None else 2**31
    return Reference(place.uri, to_line_numbers(_to_range(place.range), count))


def _to_range(range_: args.Range | None) -> Range | None:
    return None if range_ is None else to_lsp_range(range_)


def _create_scope_finder(state: ConnectionState, uri: str, range_: Range | None) -> FindScope:
    """Return a function that returns the user's range, adjusted to later changes in the document.

    The function is called when the edit is sent.
    """
    document = state.documents.get(uri)
    if document is None or range_ is None or range_.start == range_.end:
        return lambda: Scope(uri)
    version, first, last = document.version, range_.start.line, range_.end.line

    def find_scope() -> Scope:
        now = state.documents.get(uri)
        begin = None if now is None else now.map_position((first, 0), version)
        end = None if now is None else now.map_position((last, 0), version)
        return Scope(uri, (first if begin is None else begin[0], last if end is None else end[0]))

    return find_scope
