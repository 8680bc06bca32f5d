"""The language server of one connection: its registration table, and its life from `initialize` to `exit`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

from thinklsp.core.errors import ThinkLspError
from thinklsp.lsp import late
from thinklsp.lsp.actions import code_actions
from thinklsp.lsp.announced import COMMANDS, TURNS
from thinklsp.lsp.documents.diagnostics import see
from thinklsp.lsp.editor.client import Abilities, Client
from thinklsp.lsp.editor.state import ActionContext, State
from thinklsp.lsp.editor.work_done import WorkDone
from thinklsp.lsp.protocol import errors
from thinklsp.lsp.protocol.dispatch import Protocol
from thinklsp.lsp.protocol.envelope import is_id
from thinklsp.lsp.protocol.errors import InvalidParams
from thinklsp.lsp.protocol.forms import ActionsAsked, Beginning, Command, Place
from thinklsp.settings.early import Early, EarlyReading


class Server:
    """`process_id`: the client's, where it has told. `early`: the reading of the user's file, if it has begun."""

    def __init__(self, early: EarlyReading | None = None) -> None:
        self.protocol = Protocol()
        self.state = State(self.protocol, Client(self.protocol), early or EarlyReading(os.environ))
        self.process_id: int | None = None
        self.protocol.handlers |= _handlers(self.state)
        self.protocol.on_shutdown = self.state.stop
        self.protocol.on_initialize = self._initialize

    async def close(self) -> None:
        """Ends every turn and lets go of connections and files."""
        self.state.stop()
        await asyncio.gather(*self.state.tasks, return_exceptions=True)
        if self.state.face is not None:
            await self.state.face.close()

    def _initialize(self, beginning: Beginning) -> None:
        state = self.state
        self.process_id = beginning.process_id
        state.client.can = Abilities.of(state.protocol.capabilities)
        state.documents.encoding = state.protocol.encoding
        state.begin_with(beginning.folders, beginning.root)
        if beginning.options is not None:
            state.raw_configurations.append(beginning.options)


def _handlers(state: State) -> dict[str, Callable[[Any], Any]]:
    """What is registered here is announced by `announced`, and by pygls in `protocol/whole`."""

    async def complete(place: Place) -> Any:
        return await _completion(state, place)

    async def execute(command: Command) -> Any:
        return await _execute(state, command)

    return {
        "initialized": lambda _: _initialized(state),
        "textDocument/didOpen": state.documents.opened,
        "textDocument/didChange": state.documents.changed,
        "textDocument/didClose": state.documents.closed,
        "textDocument/didSave": lambda uri: _saved(state, uri),
        "textDocument/hover": lambda place: _hover(state, place),
        "textDocument/codeAction": lambda asked: _code_actions(state, asked),
        "textDocument/codeLens": lambda uri: _code_lenses(state, uri),
        "textDocument/completion": complete,
        "workspace/didChangeWorkspaceFolders": state.set_folders,
        "workspace/didChangeConfiguration": lambda settings: _configured(state, settings),
        "workspace/executeCommand": execute,
        "window/workDoneProgress/cancel": lambda token: _cancel_progress(state, token),
    }


def _initialized(state: State) -> None:
    state.spawn(_settle_in(state))


async def _settle_in(state: State) -> None:
    """After the handshake: settings as the editor has them, and the engine, loaded while nobody waits for it."""
    if state.client.can.watch_configuration:
        # Sent before the question, so that no change falls between the two; its answer says nothing to wait for.
        state.spawn(state.client.watch_configuration())
    if state.client.can.configuration:
        await state.spawn(_pull(state), awaited=True)
    try:
        await state.load_face()
    except ThinkLspError as error:
        # Nobody may run a command for long, and would take it that all is well.
        state.client.show_message("error", f"{error} Nothing runs before this is mended; thinklsp.doctor tells more.")


def _configured(state: State, settings: object) -> None:
    if settings is not None:
        _configure(state, settings)
    elif state.client.can.configuration:
        state.spawn(_pull(state))


async def _pull(state: State) -> None:
    _configure(state, await state.client.configuration())


def _configure(state: State, raw: object) -> None:
    if raw is None:
        return
    if state.face is None:
        state.raw_configurations.append(raw)
    else:
        state.face.configure(raw)


def _cancel_progress(state: State, token: Any) -> None:
    # Nobody has looked yet whether it is one. What it belongs to may have come in the same breath, and begins now.
    if is_id(token) and not _cancelled(state, token):
        asyncio.get_running_loop().call_soon(_cancelled, state, token)


def _cancelled(state: State, token: str | int) -> bool:
    if (starting := state.starting.get(token)) is not None:
        starting.is_cancelled = True
    stopped = state.face is not None and state.face.cancel_progress(token)
    return starting is not None or stopped


def _code_actions(state: State, asked: ActionsAsked) -> list[dict[str, Any]]:
    document = state.documents.get(asked.uri)
    if document is None:
        return []
    is_chat = _is_chat(state, document.uri)
    state.documents.use(document)
    seen = see(document, asked.range, asked.diagnostics)
    state.last_action = ActionContext(document.uri, document.version, asked.range, seen)
    if not is_chat:
        state.last_place = state.last_action
    face = state.face
    if face is not None:
        face.look()
    situation = code_actions.Situation(
        document=document,
        range=asked.range,
        diagnostics=asked.diagnostics,
        automatic=asked.automatic,
        held=[] if face is None else face.held_for(document.uri),
        written=None if face is None else face.written_for(document.uri),
        running=[] if face is None else face.running_for(document.uri),
        is_chat=is_chat,
        disabled=_early(state).disabled if face is None else frozenset(face.settings.actions.disabled),
        own=_early(state).own if face is None else face.engine.user.file.actions,
        not_sent=face.not_sent(document) if face is not None and is_chat else "",
    )
    can = state.client.can
    return [
        code_actions.dressed(offer, can)
        for offer in code_actions.offers(situation)
        if code_actions.wanted(offer.kind, asked.only) and code_actions.can_be_shown(offer, can)
    ]


def _is_chat(state: State, uri: str) -> bool:
    return uri.endswith(_early(state).file_suffix) if state.face is None else state.face.is_chat(uri)


def _code_lenses(state: State, uri: str) -> list[dict[str, Any]]:
    document = state.documents.get(uri)
    if document is None:
        return []
    if not _is_chat(state, document.uri):
        return [] if state.face is None else state.face.lenses_of_text(document)
    chats = late.code_lenses()
    lenses: list[dict[str, Any]] = chats.lenses(
        document, chats.ChatState() if state.face is None else state.face.chat_state(document)
    )
    return lenses


def _hover(state: State, place: Place) -> dict[str, Any] | None:
    document = state.documents.get(place.uri)
    return None if document is None or state.face is None else state.face.hover(document, place.position)


def _saved(state: State, uri: str) -> None:
    if state.face is not None:
        state.face.saved(uri)
        state.face.look()


async def _completion(state: State, place: Place) -> Any:
    document = state.documents.get(place.uri)
    if document is None or not _is_chat(state, document.uri):
        return None
    try:
        face = await state.load_face()
    except ThinkLspError:
        # It has been told, and need not be at every key.
        return None
    return await face.complete(document, place.position)


def _early(state: State) -> Early:
    """Return the settings that count while the engine is still loading."""
    return state.early.now.under(state.raw_configurations)


async def _execute(state: State, command: Command) -> Any:
    name, token = command.name, command.token
    if name not in COMMANDS:
        raise InvalidParams(f"There is no command {name[:100]}.")
    if token is not None and not is_id(token):
        raise InvalidParams("The field workDoneToken must be an integer or a short text.")
    if token in state.starting:
        raise InvalidParams("The field workDoneToken names a token that is in use.")
    if name not in TURNS:
        return await _result(state, command, None)
    work_done = _begun(state, command)
    state.starting[work_done.token] = work_done
    outcome = "cancelled"
    try:
        result = await _result(state, command, work_done)
        outcome = "done"
    except Exception as error:
        outcome = errors.spoken(error)
        raise
    finally:
        del state.starting[work_done.token]
        if not work_done.is_launched:
            work_done.end(outcome)
    return result


def _begun(state: State, command: Command) -> WorkDone:
    """Begin the progress of a turn. Without a token of the caller it begins here if the user would wait for the engine
    to load, and otherwise when the turn is known to start."""
    titles = late.turn_titles()
    work_done = WorkDone(state.client, titles.title_of(state, command), command.token)
    if work_done.is_watched:
        work_done.begin()
    elif state.face is None and titles.has_words(command):
        state.spawn(work_done.offer())
    return work_done


async def _result(state: State, command: Command, work_done: WorkDone | None) -> Any:
    try:
        face = await state.load_face()
    except ThinkLspError:
        if command.name != "thinklsp.doctor":
            raise
        # What keeps everything else from running is what it is asked for.
        face_type = await asyncio.to_thread(late.face)
        return await face_type.diagnosis(state.environment, command.arguments)
    if work_done is not None:
        return await face.start_turn(command.name, command.arguments, work_done)
    return await face.execute(command.name, command.arguments)
