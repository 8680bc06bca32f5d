"""The language server for a connection. It loads the engine on demand."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from thinklsp import __version__
from thinklsp.core.errors import PathRefused
from thinklsp.core.import_context import reduce_gc, switch_threads_often
from thinklsp.core.server_context import LOCAL_IDENTITY
from thinklsp.jsonrpc.framing import BadFrame
from thinklsp.jsonrpc.rpc_messages import InvalidParams, format_error, is_id
from thinklsp.jsonrpc.stdio import ExitCode
from thinklsp.lsp.chats.chat_outline import parse_chat
from thinklsp.lsp.documents.open_documents import Documents
from thinklsp.lsp.editor.client import Client, Token
from thinklsp.lsp.editor.connection_state import ConnectionState, build_client_environment, list_private_folders
from thinklsp.lsp.protocol.converter import load_converter
from thinklsp.lsp.protocol.fast_initialize import COMMANDS, TURN_COMMANDS
from thinklsp.lsp.protocol.lsp_protocol import LspProtocol
from thinklsp.sessions.titles import MAX_TITLE_LENGTH, derive_title, truncate_title
from thinklsp.settings.startup_settings import StartupSettings, StartupSettingsReader
from thinklsp.workspace.uri import uri_to_path

if TYPE_CHECKING:
    from thinklsp.identity.tokens import ClientAccess
    from thinklsp.lsp.assistant import Assistant
    from thinklsp.lsp.editor.turn_progress import TurnProgress
    from thinklsp.settings.sources import CheckedSettings
    from thinklsp.settings.user_file import UserSettings

    EngineLoader = Callable[[], tuple[type[Assistant], Callable[["ThinkLspServer"], None]]]

# A prompt can be a megabyte long, but a title needs only the first line.
_MAX_PROMPT_CHARACTERS = 10_000
_MAX_NAME_CHARACTERS = 40
STOPPING = "This server is about to stop. Connect again in a moment."
_STOPPING_AFTER_TURNS = "This server is about to stop. It first finishes the running turn and starts no new one."


class ThinkLspServer(LanguageServer):
    """The language server for a client.

    `assistant` is the engine with all objects that depend on it, or None before the engine is loaded.
    `starting_progress` maps tokens to the progress of commands that are starting a turn. `early_settings` contains the
    effective settings until the engine is loaded. `access` is the access of a client that is identified by a token.
    `load_engine` imports the engine. It returns the class Assistant and the function that registers the commands.
    """

    protocol: LspProtocol

    def __init__(
        self,
        load_engine: EngineLoader,
        early_reading: StartupSettingsReader | None = None,
        access: ClientAccess | None = None,
    ) -> None:
        super().__init__(
            "thinklsp", __version__, protocol_cls=LspProtocol, converter_factory=load_converter, max_workers=1
        )
        self.protocol.execute_command = self.execute_command
        self.exit_code = ExitCode()
        self.protocol.on_exit = self.exit_code.set
        self.access = access
        identity = LOCAL_IDENTITY if access is None else access.identity
        self.state = ConnectionState(
            Client(self, self.protocol),
            build_client_environment(os.environ, identity),
            identity,
            list_private_folders(os.environ, identity),
        )
        self.assistant: Assistant | None = None
        self.starting_progress: dict[Token, TurnProgress] = {}
        self._load_engine = load_engine
        self._early_reading = early_reading or StartupSettingsReader(os.environ)
        # Editor settings that arrived before the engine was loaded, oldest first.
        self._configurations: list[object] = []
        self._load_task: asyncio.Task[Assistant] | None = None

    @property
    def workspace(self) -> Documents:
        """The open documents and the workspace folders."""
        return self.state.documents

    def report_server_error(self, error: Exception, source: object) -> None:
        """Ignore the error, which has been logged, because pygls would show it to the user."""

    @property
    def early_settings(self) -> StartupSettings:
        """The effective settings until the engine is loaded."""
        return self._early_reading.current.merge_editor_settings(self._configurations)

    def is_chat(self, uri: str) -> bool:
        """Return whether a document is a chat document."""
        return (
            uri.endswith(self.early_settings.file_suffix)
            if self.assistant is None
            else self.assistant.chat.is_chat(uri)
        )

    def configure(self, raw: object) -> None:
        """Apply new editor settings."""
        if self.assistant is None:
            self._configurations.append(raw)
        else:
            self.assistant.configure(raw)

    async def load(self) -> Assistant:
        """Return the assistant. The first call loads the engine in a thread, so that the server stays responsive.

        Raise ThinkLspError if the user's settings file is invalid. The next call reads the file again.
        """
        if self.assistant is None:
            if self._load_task is None:
                self._load_task = self.state.spawn(self._load(), is_awaited=True)
            loading = self._load_task
            # Do not await the task directly, because cancelling a request must not cancel the shared load.
            await asyncio.wait([loading])
            if loading.exception() is not None and self._load_task is loading:
                self._load_task = None
            return loading.result()
        return self.assistant

    async def _load(self) -> Assistant:
        # Load the settings first, because the user then sees errors in the settings about a second earlier.
        make_checked, user = await asyncio.to_thread(_load_settings, self.state.environment)
        checked = make_checked(partial(self.state.client.show_message, "warning"))
        checked.report_problems(user)
        configured_count = len(self._configurations)
        for raw in self._configurations:
            checked.configure(raw, user)
        make_assistant = await self._load_commands()
        self.assistant = make_assistant(self.state, checked)
        for raw in self._configurations[configured_count:]:
            self.assistant.configure(raw)
        self.state.refresh_lenses()
        self.state.spawn(self.assistant.ledger.load())
        return self.assistant

    async def _load_commands(self) -> type[Assistant]:
        """Import the engine and register the commands. This does not create the engine."""
        make_assistant, register_commands = await asyncio.to_thread(self._load_engine)
        if not self.protocol.fm.commands:
            register_commands(self)
        return make_assistant

    def find_progress(self, params: types.ExecuteCommandParams) -> TurnProgress:
        """Return the progress of a command that starts a turn."""
        if params.work_done_token is None:
            raise AssertionError("the token was set when the progress began")
        return self.starting_progress[params.work_done_token]

    def cancel_progress(self, token: Token) -> bool:
        """Cancel the turn that reports progress under a token. Return False if there is no such turn."""
        if (starting := self.starting_progress.get(token)) is not None:
            starting.is_cancelled = True
        stopped = self.assistant is not None and self.assistant.turns.stop_by_token(token)
        return starting is not None or stopped

    def cancel_turn(self, turn_id: str | None) -> list[str]:
        """Cancel a turn, by default the newest, and return a list with its id. The turn may still be starting."""
        starting = [
            progress
            for progress in self.starting_progress.values()
            if not progress.is_launched and turn_id in (None, progress.turn_id)
        ]
        if starting:
            starting[-1].is_cancelled = True
            return [starting[-1].turn_id]
        return [] if self.assistant is None else self.assistant.turns.stop_run(turn_id)

    async def execute_command(self, params: types.ExecuteCommandParams) -> object:
        """Run a command. If it starts a turn, its progress begins before the engine is loaded."""
        name, token = params.command, params.work_done_token
        if name not in COMMANDS:
            raise InvalidParams(f"Unknown command {name[:100]}.")
        if token is not None and not is_id(token):
            raise InvalidParams("`workDoneToken` must be an integer or a short string.")
        if token in self.starting_progress:
            raise InvalidParams("The token in `workDoneToken` is already in use.")
        if name not in TURN_COMMANDS:
            return await self._run_command(params)
        progress = self._begin_progress(params)
        params.work_done_token = progress.token
        self.starting_progress[progress.token] = progress
        outcome = "cancelled"
        try:
            result = await self._run_command(params)
            outcome = "done"
        except Exception as error:
            outcome = format_error(error)
            raise
        finally:
            del self.starting_progress[progress.token]
            if not progress.is_launched:
                progress.end(outcome)
        return result

    def _begin_progress(self, params: types.ExecuteCommandParams) -> TurnProgress:
        """Begin the progress of a turn.

        Without a token from the caller, the progress begins now only if the engine is not loaded yet. Otherwise, the
        progress begins when the turn starts.
        """
        from thinklsp.lsp.editor.turn_progress import TurnProgress  # noqa: PLC0415 - imported late to keep the start fast

        progress = TurnProgress(self.state.client, _build_turn_title(self.state, params), params.work_done_token)
        if progress.is_watched:
            progress.begin()
        elif self.assistant is None and _has_words(params):
            self.state.spawn(progress.offer())
        return progress

    async def _run_command(self, params: types.ExecuteCommandParams) -> object:
        if self.assistant is None:
            await self._load_commands()
        try:
            return await self.protocol.fm.commands[params.command](params)
        finally:
            if self.assistant is not None:
                self.assistant.report_store_problems()

    def receive(self, frame: bytes | BadFrame) -> None:
        """Handle a message, or ignore it if the connection has ended. This method never raises."""
        if self.exit_code.value is None:
            self.protocol.receive(frame)

    def drain(self) -> None:
        """Tell the client that the server is about to stop. From now on, start no new turn. Running turns continue."""
        self.state.is_draining = True
        self.state.client.show_message("info", _STOPPING_AFTER_TURNS if self.is_busy else STOPPING)

    @property
    def is_busy(self) -> bool:
        """Whether a turn is starting or running."""
        return bool(self.starting_progress) or (self.assistant is not None and self.assistant.turns.has_runs)

    async def close(self) -> None:
        """End every turn, and close connections and files. The engine may still be loading."""
        running = self.protocol.cancel_requests()
        self.state.stop()
        await asyncio.gather(*running, *self.state.tasks, return_exceptions=True)
        await asyncio.sleep(0)  # The callbacks of requests that had just ended send their answers.
        if self.assistant is not None:
            await self.assistant.close()


def _load_settings(environment: Mapping[str, str]) -> tuple[type[CheckedSettings], UserSettings]:
    """Import the settings checker and read the user's settings. Raise SettingsError if they are invalid."""
    with pause_collection("thinklsp.settings.sources"), switch_threads_often():
        from thinklsp.settings.sources import CheckedSettings, load_user_settings  # noqa: PLC0415 - imported late to keep the start fast
    return CheckedSettings, load_user_settings(environment)


def pause_collection(name: str) -> AbstractContextManager[None]:
    """Pause garbage collection while a module is imported for the first time.

    Objects that exist at the end of the pause are never collected, so a server for many clients imports the module
    before the first client connects.
    """
    return nullcontext() if name in sys.modules else reduce_gc()


def _build_turn_title(state: ConnectionState, params: types.ExecuteCommandParams) -> str:
    """Return the title of the turn that a command starts. The arguments have not been validated yet."""
    kind, argument = params.command.removeprefix("thinklsp."), _get_argument(params)
    match kind:
        case "chat":
            title = derive_title(_get_text(argument, "prompt")[:_MAX_PROMPT_CHARACTERS])
        case "send":
            document = state.documents.get(_get_text(argument, "uri"))
            title = "" if document is None else derive_title(parse_chat(document.text).prompt[:_MAX_PROMPT_CHARACTERS])
        case "action":
            title = _build_action_title(state, argument)
        case _:
            title = ""
    return title or kind


def _has_words(params: types.ExecuteCommandParams) -> bool:
    """Return True if a command has the prompt or instruction that it requires."""
    argument = _get_argument(params)
    if params.command == "thinklsp.chat":
        return bool(_get_text(argument, "prompt"))
    if params.command == "thinklsp.action" and argument.get("name") in (None, "edit", "ask"):
        return bool(_get_text(argument, "instruction").strip())
    return True


def _build_action_title(state: ConnectionState, argument: Mapping[str, object]) -> str:
    latest = state.last_action
    uri = _get_text(argument, "uri") or ("" if latest is None else latest.uri)
    has_problems = not _get_text(argument, "uri") and latest is not None and bool(latest.diagnostics)
    name = _get_text(argument, "name")[:_MAX_NAME_CHARACTERS] or ("fix" if has_problems else "edit")
    path = _format_path(state, uri)
    if name == "review" and path in ("", "."):
        path = "the working tree"
    return truncate_title(f"{name} {path}".rstrip(), 2 * MAX_TITLE_LENGTH)


def _format_path(state: ConnectionState, uri: str) -> str:
    """Return a document's path in its innermost workspace folder, or its URI if it is in no folder.

    Symbolic links are not followed.
    """
    try:
        path = uri_to_path(uri)
        folders = {uri_to_path(uri): folder.name for uri, folder in state.documents.folders.items()}
    except (PathRefused, UnicodeError):
        return uri
    above = max((folder for folder in folders if f"{path}/".startswith(f"{folder}/")), key=len, default=None)
    if above is None:
        return uri
    below = path[len(above) :].lstrip("/")
    return "/".join(filter(None, (folders[above] if len(folders) > 1 else "", below))) or "."


def _get_argument(params: types.ExecuteCommandParams) -> Mapping[str, object]:
    first = params.arguments[0] if params.arguments else None
    return first if isinstance(first, Mapping) else {}


def _get_text(argument: Mapping[str, object], field: str) -> str:
    value = argument.get(field)
    return value if isinstance(value, str) else ""
