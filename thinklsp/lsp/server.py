"""The language server of one connection: its registration table, and its life from `initialize` to `exit`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Any

from cattrs import Converter
from lsprotocol import types
from lsprotocol.converters import get_converter
from pygls.lsp.server import LanguageServer

from thinklsp import __version__
from thinklsp.lsp import code_actions
from thinklsp.lsp.announced import COMMANDS, COMPLETION_TRIGGERS, QUICKFIX, REWRITE, TURNS
from thinklsp.lsp.client import Abilities, Client
from thinklsp.lsp.code_lenses import ChatState, lenses
from thinklsp.lsp.diagnostics import see
from thinklsp.lsp.progress import TurnProgress
from thinklsp.lsp.protocol import errors
from thinklsp.lsp.protocol.dispatch import Protocol
from thinklsp.lsp.protocol.envelope import is_id
from thinklsp.lsp.protocol.errors import InvalidParams
from thinklsp.lsp.state import ActionContext, State


@cache
def _converter() -> Converter:
    """One for all connections of the process: it writes code for each type that it meets, and that takes time.

    What does not fit ends it at once: an account of all that is wrong with a long list would take minutes.
    """
    return get_converter(Converter(detailed_validation=False))


class Server(LanguageServer):
    """pygls' server with our protocol; errors of handlers go to the log and never into a pop-up."""

    protocol: Protocol

    def __init__(self) -> None:
        super().__init__("thinklsp", __version__, protocol_cls=Protocol, converter_factory=_converter, max_workers=1)
        self.state = State(self.protocol, Client(self.protocol))
        _register(self)

    def report_server_error(self, error: Exception, source: Any) -> None:
        del error, source

    async def close(self) -> None:
        """Ends every turn and lets go of connections and files."""
        self.state.stop()
        await asyncio.gather(*self.state.tasks, return_exceptions=True)
        if self.state.face is not None:
            await self.state.face.close()


def _register(server: Server) -> None:
    state, protocol = server.state, server.protocol
    features = server.protocol.fm
    builtin: dict[str, Callable[..., Any]] = {
        types.TEXT_DOCUMENT_DID_OPEN: state.documents.opened,
        types.TEXT_DOCUMENT_DID_CHANGE: state.documents.changed,
        types.TEXT_DOCUMENT_DID_CLOSE: state.documents.closed,
        types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS: lambda params: state.set_folders(
            params.event.added, params.event.removed
        ),
        types.WINDOW_WORK_DONE_PROGRESS_CANCEL: lambda params: _cancel_progress(state, params),
        types.INITIALIZED: lambda _: _initialized(state),
    }
    for method, handler in builtin.items():
        features.add_builtin_feature(method, handler)
    server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)(lambda params: _configured(state, params))
    server.feature(types.TEXT_DOCUMENT_DID_SAVE)(lambda params: _saved(state, params))
    server.feature(types.TEXT_DOCUMENT_HOVER)(lambda params: _hover(state, params))
    kinds = [QUICKFIX, REWRITE]
    server.feature(types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(code_action_kinds=kinds))(
        lambda params: _code_actions(state, params)
    )
    server.feature(types.TEXT_DOCUMENT_CODE_LENS, types.CodeLensOptions(resolve_provider=False))(
        lambda params: _code_lenses(state, params)
    )

    async def complete(params: types.CompletionParams) -> Any:
        return await _completion(state, params)

    server.feature(
        types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=list(COMPLETION_TRIGGERS))
    )(complete)
    for command in COMMANDS:
        server.command(command)(_never_called)
    protocol.execute = lambda params: _execute(state, params)
    protocol.on_shutdown = state.stop
    protocol.on_initialize = lambda params: _initialize(state, params)


def _never_called() -> None:
    """Commands are announced through pygls and run by `_execute`."""


def _initialize(state: State, params: types.InitializeParams) -> None:
    state.client.can = Abilities.of(state.protocol.capabilities)
    state.documents.encoding = state.protocol.position_encoding()
    folders = list(params.workspace_folders or [])
    if not folders and params.root_uri:
        folders = [types.WorkspaceFolder(params.root_uri, "")]
    state.set_folders(folders, [])
    if params.initialization_options is not None:
        state.raw_configurations.append(params.initialization_options)


def _initialized(state: State) -> None:
    state.spawn(_settle_in(state))


async def _settle_in(state: State) -> None:
    """After the handshake: settings as the editor has them, and the engine, loaded while nobody waits for it."""
    if state.client.can.watch_configuration:
        await state.client.watch_configuration()
    if state.client.can.configuration:
        _configure(state, await state.client.configuration())
    face = await state.load_face()
    state.refresh_lenses()
    await face.begin()


def _configured(state: State, params: types.DidChangeConfigurationParams) -> None:
    if params.settings is not None:
        _configure(state, params.settings)
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


def _cancel_progress(state: State, params: types.WorkDoneProgressCancelParams) -> None:
    # The types of params say what a token is, and are not checked for it.
    if not is_id(params.token):
        return
    if (starting := state.starting.get(params.token)) is not None:
        starting.cancelled = True
    if state.face is not None:
        state.face.cancel_progress(params.token)


def _code_actions(state: State, params: types.CodeActionParams) -> list[dict[str, Any]]:
    document = state.documents.get(params.text_document.uri)
    if document is None:
        return []
    context = params.context
    diagnostics = [state.protocol.plain(diagnostic) for diagnostic in context.diagnostics]
    is_chat = _is_chat(state, document.uri)
    seen = see(document, params.range, diagnostics)
    state.last_action = ActionContext(document.uri, document.version, params.range, seen)
    if not is_chat:
        state.last_place = state.last_action
    face = state.face
    situation = code_actions.Situation(
        document=document,
        range=params.range,
        diagnostics=diagnostics,
        automatic=code_actions.is_automatic(context),
        held=[] if face is None else face.held_for(document.uri),
        written=None if face is None else face.written_for(document.uri),
        running=[] if face is None else face.running_for(document.uri),
        is_chat=is_chat,
        disabled=_disabled(state) if face is None else frozenset(face.settings.actions.disabled),
        own=() if face is None else face.engine.user.file.actions,
    )
    only = None if context.only is None else [getattr(kind, "value", kind) for kind in context.only]
    return [
        code_actions.dressed(offer, state.client.can)
        for offer in code_actions.offers(situation)
        if code_actions.wanted(offer.kind, only)
    ]


def _is_chat(state: State, uri: str) -> bool:
    return uri.endswith(".chat.md") if state.face is None else state.face.is_chat(uri)


def _code_lenses(state: State, params: types.CodeLensParams) -> list[dict[str, Any]]:
    document = state.documents.get(params.text_document.uri)
    if document is None:
        return []
    if not _is_chat(state, document.uri):
        return [] if state.face is None else state.face.lenses_of_text(document)
    return lenses(document, ChatState() if state.face is None else state.face.chat_state(document))


def _hover(state: State, params: types.HoverParams) -> dict[str, Any] | None:
    document = state.documents.get(params.text_document.uri)
    return None if document is None or state.face is None else state.face.hover(document, params.position)


def _saved(state: State, params: types.DidSaveTextDocumentParams) -> None:
    if state.face is not None:
        state.face.saved(params.text_document.uri)


async def _completion(state: State, params: types.CompletionParams) -> Any:
    document = state.documents.get(params.text_document.uri)
    if document is None or not _is_chat(state, document.uri):
        return None
    return await (await state.load_face()).complete(document, params.position)


def _disabled(state: State) -> frozenset[str]:
    """While the engine is still loading, the newest settings count as they came."""
    return code_actions.disabled_in(state.raw_configurations[-1]) if state.raw_configurations else frozenset()


async def _execute(state: State, params: types.ExecuteCommandParams) -> Any:
    if params.command not in COMMANDS:
        raise InvalidParams(f"There is no command {params.command[:100]}.")
    if params.work_done_token is not None and not is_id(params.work_done_token):
        raise InvalidParams("The field workDoneToken must be an integer or a short text.")
    if params.work_done_token in state.starting:
        raise InvalidParams("The field workDoneToken names a token that is in use.")
    progress: TurnProgress | None = None
    if params.command in TURNS and params.work_done_token is not None:
        progress = TurnProgress(state.client)
        progress.begin(params.command.removeprefix("thinklsp."), params.work_done_token)
        state.starting[params.work_done_token] = progress
    try:
        face = await state.load_face()
        result = await face.execute(params.command, params.arguments, progress)
    except Exception as error:
        if progress is not None:
            progress.end(errors.spoken(error))
        raise
    else:
        if progress is not None:
            progress.end("done")
        return result
    finally:
        if progress is not None:
            # A turn ends its progress itself, and only the first end counts.
            progress.end("cancelled")
            state.starting = {token: other for token, other in state.starting.items() if other is not progress}
