"""What the commands do. Loaded after `initialize` has been answered, because it brings the engine with it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from thinklsp.core.errors import SessionError, TurnRefused
from thinklsp.engine import CompactTask, Engine, Turn, TurnSpec
from thinklsp.engine.doctor import diagnose, report
from thinklsp.lsp.actions.asking import Asking
from thinklsp.lsp.chats import session_commands
from thinklsp.lsp.chats.chat import ChatDocuments
from thinklsp.lsp.chats.chat_outline import session_named
from thinklsp.lsp.chats.code_lenses import ChatState, lenses_of_text
from thinklsp.lsp.chats.completion import Names, completions, wanted_at
from thinklsp.lsp.chats.file_names import FileNames
from thinklsp.lsp.chats.sending import Sending
from thinklsp.lsp.chats.sessions import Sessions
from thinklsp.lsp.chats.slash_commands import SlashCommands
from thinklsp.lsp.chats.slash_services import Services
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.editor import arguments as args
from thinklsp.lsp.editor.checked_settings import CheckedSettings
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.editor.state import State
from thinklsp.lsp.editor.work_done import Token, WorkDone
from thinklsp.lsp.edits.applying import Applying
from thinklsp.lsp.edits.hover import Format, hover
from thinklsp.lsp.edits.ledger import EditLedger
from thinklsp.lsp.edits.standing import Held, Written
from thinklsp.lsp.protocol.errors import InvalidParams
from thinklsp.lsp.protocol.forms import Position
from thinklsp.lsp.turns.turns import Asked, Turns
from thinklsp.sessions.session import Session
from thinklsp.sessions.sqlite_store import SqliteStore
from thinklsp.sessions.state_folder import state_folder
from thinklsp.settings import EditorSettings
from thinklsp.settings.own_actions import ActionSection

Arguments = Sequence[Any] | None

# Between two looks at the user's file that nobody waits for.
_LOOK_SECONDS = 1.0
_LOOK_DELAY_SECONDS = 0.1


class Face:
    """One per connection. Owns its running turns; everything else has an owner of its own."""

    def __init__(self, state: State, checked: CheckedSettings) -> None:
        self._state = state
        self._checked = checked
        self.engine = Engine(state.environment, SqliteStore(state_folder(state.environment)))
        self.settings = self.engine.resolved(EditorSettings()).settings
        workspace = self.engine.user.file.workspace
        self._snapshots = Snapshots(state, workspace.allow_protected, workspace.allow_home, workspace.extra_roots)
        self._ledger = EditLedger(state, self._snapshots, self.engine)
        self.applying = Applying(state, self._snapshots, self._ledger)
        self._sessions = Sessions(self.engine, self._snapshots)
        self._chat = ChatDocuments(state, self._snapshots, self._sessions)
        self._asking = Asking(state, self._snapshots, self._chat, self._own_actions)
        self._files = FileNames(state, self._snapshots)
        self._problems_told = 0
        self._user, self._looked_at = self.engine.user, 0.0
        self._turns = Turns(state, self.applying, self._begin, self._turn_changed)
        services = Services(self.engine, self._snapshots, self._turns, self.applying)
        commands = SlashCommands(self._sessions, services)
        self._sending = Sending(state, self._snapshots, self.engine, self._sessions, self._chat, self._turns, commands)
        checked.tell_problems(self.engine.user)
        for raw in state.unchecked():
            checked.configure(raw, self.engine.user)
        self._resolve()

    def configure(self, raw: object) -> None:
        """Take new editor settings. What is refused or ignored is told once."""
        self._checked.configure(raw, self.engine.user)
        self._resolve()
        self._changed()

    def _resolve(self) -> None:
        self._user, self._sessions.editor = self.engine.user, self._checked.editor
        self.settings = self.engine.resolved(self._sessions.editor).settings
        self._chat.suffix = self.settings.chat.file_suffix

    def look(self) -> None:
        """See soon whether the user has changed their file. Nothing is done now: the caller answers from memory."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._looked_at > _LOOK_SECONDS:
            self._looked_at = loop.time()
            loop.call_later(_LOOK_DELAY_SECONDS, self._look_now)

    def _look_now(self) -> None:
        if not self._state.stopped:
            self._state.spawn(self.refresh())

    async def refresh(self) -> None:
        """Read the user's file again if it has changed, and tell what is wrong with it."""
        for problem in await self.engine.config.refresh():
            self._state.client.show_message("warning", problem)
        if self.engine.user is not self._user:
            self._resolve()
            self._changed()

    async def _own_actions(self) -> Sequence[ActionSection]:
        await self.refresh()
        return self.engine.user.file.actions

    async def begin(self) -> None:
        """The first activity of a workspace: what an earlier process has left open is said."""
        await self._ledger.begin()

    def _tell_store_problems(self) -> None:
        """What the store has come upon since it was last asked, each once."""
        problems = self.engine.store.problems
        for problem in problems[self._problems_told :]:
            self._state.client.show_message("warning", problem)
        self._problems_told = len(problems)

    async def close(self) -> None:
        await self.engine.aclose()

    def held_for(self, uri: str) -> list[Held]:
        offered = self.applying.proposals.offered(uri)
        if self.applying.proposals.arrived():
            self._state.spawn(self.applying.settle_arrived())
        # Chats all have one title: what was asked for tells them apart, as it does where they are undone.
        return [Held(one.kept.turn_id, one.kept.known_as or one.kept.title, one.edit) for one in offered]

    def written_for(self, uri: str) -> Written | None:
        return self._ledger.written_for(uri)

    def hover(self, document: Document, position: Position) -> dict[str, Any] | None:
        origin = self._ledger.texts.at(document, position.line, position.character)
        form: Format = "markdown" if self._state.client.can.hover_markdown else "plaintext"
        return None if origin is None else hover(origin, form)

    def lenses_of_text(self, document: Document) -> list[dict[str, Any]]:
        newest = self._ledger.texts.newest(document)
        return [] if newest is None else lenses_of_text(newest[0].turn, newest[1])

    def saved(self, uri: str) -> None:
        self._ledger.texts.saved(uri)

    def running_for(self, uri: str) -> list[str]:
        return self._turns.for_document(uri)

    def not_sent(self, document: Document) -> str:
        """Why this chat document has nothing to send now. From memory."""
        return self._chat.not_sent(document) or ""

    def is_chat(self, uri: str) -> bool:
        return self._chat.is_chat(uri)

    def chat_state(self, document: Document) -> ChatState:
        """What the lenses of a chat document show. From memory; what is not there yet is looked for, and the editor
        asked to ask again."""
        named = session_named(document.lines)
        if named is not None and not self._sessions.is_remembered(named):
            self._state.spawn(self._look_up(named))
        session_id = self._chat.session_in_memory(document)
        using = self._sessions.status(session_id)
        words = "no model yet: see thinklsp doctor"
        if using is not None:
            words = f"{using.model} · effort {using.effort} · thinking {using.thinking}"
        return ChatState(self._turns.in_chat(document.uri, session_id), session_id, words)

    async def _look_up(self, session_id: str) -> None:
        await self._sessions.find(session_id)
        self._changed()

    async def complete(self, document: Document, position: Position) -> dict[str, Any]:
        encoding = self._state.documents.encoding
        wanted = wanted_at(document, position, encoding)
        if wanted is None:
            return {"isIncomplete": False, "items": []}
        models = self._sessions.models() if wanted.command == "model" else ()
        version = document.version
        names = await self._files.names(document.uri) if wanted.kind == "mention" else Names()
        if document.version != version:
            # Typed on meanwhile: the editor asks again, with what it is then.
            return {"isIncomplete": True, "items": []}
        return completions(document, position, encoding, wanted, names=names, models=models)

    async def start_turn(self, command: str, given: Arguments, work_done: WorkDone) -> Any:
        """Run a command of `TURNS`: return a TurnResult or TurnStarted by the token rule, or None if the words for a
        turn are missing."""
        start = {
            "thinklsp.chat": self.chat,
            "thinklsp.action": self.action,
            "thinklsp.send": self.send,
            "thinklsp.compact": self.compact,
        }[command]
        try:
            return await start(given, work_done)
        finally:
            self._tell_store_problems()

    async def execute(self, command: str, given: Arguments) -> Any:
        """Run any other command."""
        try:
            return await self._execute(command, given)
        finally:
            self._tell_store_problems()

    async def _execute(self, command: str, given: Arguments) -> Any:
        match command:
            case "thinklsp.cancel":
                return self.cancel(given)
            case "thinklsp.apply":
                return await self.apply(given)
            case "thinklsp.undo":
                return await self.undo(given)
            case "thinklsp.sessions":
                asked = args.parsed(args.SessionsArguments, given)
                answer = await session_commands.sessions(self.engine, self._turns, self._snapshots.key, asked)
                if asked.op == "delete":
                    self.applying.forget(answer["sessionId"])
                    self.engine.forget(answer["sessionId"])
                return answer
            case "thinklsp.usage":
                wish = args.parsed(args.UsageArguments, given).session_id
                return await session_commands.usage(self.engine, self._snapshots.key, wish)
            case "thinklsp.doctor":
                await self.refresh()
                return await self.doctor(given)
            case "thinklsp.effort" | "thinklsp.thinking" | "thinklsp.model":
                return await self.choose(command.removeprefix("thinklsp."), given)
            case _:
                raise InvalidParams(f"There is no command {command[:100]}.")

    async def chat(self, given: Arguments, work_done: WorkDone) -> Any:
        asked = await self._asking.chat(args.parsed(args.ChatArguments, given), work_done)
        return None if asked is None else await self._turns.start(asked)

    async def action(self, given: Arguments, work_done: WorkDone) -> Any:
        asked = await self._asking.action(args.parsed(args.ActionArguments, given), work_done)
        return None if asked is None else await self._turns.start(asked)

    async def send(self, given: Arguments, work_done: WorkDone) -> Any:
        return await self._sending.send(args.parsed(args.SendArguments, given).uri, work_done)

    async def compact(self, given: Arguments, work_done: WorkDone) -> Any:
        """Without a session, the newest of the workspace."""
        compact = args.parsed(args.CompactArguments, given)
        session_id = compact.session_id or (await self._newest()).id
        task = CompactTask(compact.instructions)
        spec = TurnSpec("compact", task, self._snapshots.view(), self._snapshots.key, session_id)
        return await self._turns.start(Asked(spec, work_done, None))

    async def _newest(self) -> Session:
        try:
            return await self.engine.session("last", self._snapshots.key)
        except SessionError:
            raise TurnRefused("There is nothing to shorten: this workspace has no session yet.") from None

    def cancel(self, given: Arguments) -> dict[str, Any]:
        return {"cancelled": self._turns.stop(args.parsed(args.TurnArguments, given).turn_id)}

    def cancel_progress(self, token: Token) -> bool:
        return self._turns.stop_by_token(token)

    async def apply(self, given: Arguments) -> dict[str, Any]:
        turn_id = args.parsed(args.TurnArguments, given).turn_id
        kept = self.applying.proposals.get(turn_id)
        if kept is None and turn_id is not None and self._ledger.has_written(turn_id):
            raise TurnRefused("The edit of this turn has been made already.")
        if kept is None:
            raise TurnRefused("There is no edit of a turn that waits to be applied.")
        outcome = await self.applying.apply(kept, review=self.settings.edits.review)
        return {"applied": outcome.applied, "files": [file.json() for file in outcome.files]}

    async def undo(self, given: Arguments) -> dict[str, Any]:
        """What a turn wrote, the newest that wrote where none is named, is taken back in all files."""
        turn_id = args.parsed(args.TurnArguments, given).turn_id
        outcome = await self.applying.undo(turn_id)
        return {"applied": outcome.applied, "files": [file.json() for file in outcome.files]}

    async def choose(self, key: str, given: Arguments) -> dict[str, Any]:
        """Effort, thinking or model: for a session, or for everything from now on."""
        wish = args.parsed(args.ChoiceArguments, given)
        await self.refresh()
        answer = await self._sessions.choose(key, wish.value, wish.session_id)
        self._changed()
        return answer

    @staticmethod
    async def diagnosis(environment: Mapping[str, str], given: Arguments) -> dict[str, Any]:
        """What `doctor` answers where no face can be made."""
        args.parsed(args.NoArguments, given)
        return await diagnose(environment)

    async def doctor(self, given: Arguments) -> dict[str, Any]:
        args.parsed(args.NoArguments, given)
        return await report(self.engine, self._sessions.editor, self._sessions.choices)

    async def _begin(self, spec: TurnSpec, turn_id: str) -> Turn:
        await self.refresh()
        return await self.engine.begin(spec, self._sessions.editor, self._sessions.choices, turn_id=turn_id)

    def _turn_changed(self) -> None:
        self._tell_store_problems()
        self._changed()

    def _changed(self) -> None:
        """Something that lenses show has changed."""
        if not self._state.stopped and any(self.is_chat(document.uri) for document in self._state.documents.all()):
            self._state.refresh_lenses()
