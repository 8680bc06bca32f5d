"""What the commands do. Loaded after `initialize` has been answered, because it brings the engine with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from thinklsp.agent.prompts import ACTIONS
from thinklsp.core.errors import ThinkLspError, TurnRefused
from thinklsp.core.events import TurnFinished
from thinklsp.engine import ActionTask, ChatTask, Choices, Engine, Reference, Turn, TurnSpec
from thinklsp.engine.choices import choose
from thinklsp.engine.doctor import report
from thinklsp.lsp import arguments as args
from thinklsp.lsp.applying import Applying
from thinklsp.lsp.chat import ChatDocuments, mention
from thinklsp.lsp.code_actions import Held
from thinklsp.lsp.edits import Scope
from thinklsp.lsp.progress import Token, TurnProgress
from thinklsp.lsp.protocol.errors import InvalidParams, spoken
from thinklsp.lsp.running import Deliver, RunningTurn
from thinklsp.lsp.snapshots import Snapshots
from thinklsp.lsp.state import State
from thinklsp.lsp.subjects import Subject, lines_of, plain_range, problems_of, required_subject, subject_of
from thinklsp.settings import EditorSettings

# Actions whose range is what the user selected: changes outside it are worth a look.
_SELECTING = frozenset(("edit", "simplify"))


Arguments = Sequence[Any] | None


class Face:
    """One per connection. Owns its running turns; everything else has an owner of its own."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.engine = Engine(state.environment)
        self.editor = EditorSettings()
        self.settings = self.engine.resolved(self.editor).settings
        self.choices: Choices = {}
        workspace = self.engine.user.file.workspace
        self._snapshots = Snapshots(state, workspace.allow_protected, workspace.allow_home)
        self.applying = Applying(state, self._snapshots)
        self._chat = ChatDocuments(state, self._snapshots, self.engine)
        self.running: dict[str, RunningTurn] = {}
        for problem in self.engine.user.problems:
            state.client.show_message("warning", problem)
        for raw in state.raw_configurations:
            self.configure(raw)

    def configure(self, raw: object) -> None:
        """New editor settings; what was refused or ignored is said once."""
        self.editor, sentences = self.editor.updated(raw)
        self.settings = self.engine.resolved(self.editor).settings
        self._chat.suffix = self.settings.chat.file_suffix
        for sentence in sentences:
            self._state.client.show_message("warning", sentence)

    async def close(self) -> None:
        await self.engine.aclose()

    def held_for(self, uri: str) -> list[Held]:
        return [Held(kept.turn_id, kept.title, edit) for kept, edit in self.applying.offers_for(uri)]

    def running_for(self, uri: str) -> list[str]:
        """Turns that work for this document, or for none in particular."""
        return [running.turn.id for running in self.running.values() if running.uri in (uri, None)]

    async def execute(self, command: str, given: Arguments, progress: TurnProgress | None) -> Any:
        match command:
            case "thinklsp.chat":
                return await self.chat(given, progress)
            case "thinklsp.action":
                return await self.action(given, progress)
            case "thinklsp.send":
                return await self.send(given, progress)
            case "thinklsp.cancel":
                return self.cancel(given)
            case "thinklsp.apply":
                return await self.apply(given)
            case "thinklsp.doctor":
                return await self.doctor(given)
            case "thinklsp.effort" | "thinklsp.thinking" | "thinklsp.model":
                return self.choose(command.removeprefix("thinklsp."), given)
            case _:
                raise InvalidParams(f"There is no command {command[:100]}.")

    async def chat(self, given: Arguments, progress: TurnProgress | None) -> Any:
        chat = args.parsed(args.ChatArguments, given)
        view = self._snapshots.view()
        if chat.prompt is None:
            subject = subject_of(self._state, chat.uri, chat.range)
            return await self._blank(subject)
        references = [Reference(r) if isinstance(r, str) else self._reference(r.uri, r.range) for r in chat.references]
        if chat.uri is not None:
            references.insert(0, self._reference(chat.uri, chat.range))
        spec = TurnSpec(
            "chat",
            ChatTask(chat.prompt, tuple(references), chat.mode),
            view,
            self._snapshots.key,
            chat.session_id,
            chat.effort,
            chat.model,
        )
        return await self._start(spec, progress, chat.partial_result_token, chat.prompt, uri=None, scope=None)

    async def action(self, given: Arguments, progress: TurnProgress | None) -> Any:
        action = args.parsed(args.ActionArguments, given)
        if action.name is not None and action.name not in ACTIONS:
            known = ", ".join(ACTIONS)
            raise InvalidParams(f"The field name must be one of {known}; {action.name[:40]!r} is none of them.")
        subject = required_subject(self._state, action.uri, action.range, action.version)
        name = action.name or ("fix" if subject.diagnostics else "edit")
        if name == "edit" and not (action.instruction or "").strip():
            return await self._blank(subject)
        diagnostics: Sequence[Mapping[str, Any]] | None = action.diagnostics
        if diagnostics is None and name == "fix":
            diagnostics = subject.diagnostics
        place = Reference(subject.uri, lines_of(subject.range, subject.line_count))
        view = self._snapshots.view()
        spec = TurnSpec(
            f"{name} {view.resolve(subject.uri).shown}",
            ActionTask(name, place, problems_of(diagnostics or ()), action.instruction or ""),
            view,
            self._snapshots.key,
            effort=action.effort,
            model=action.model,
        )
        lines = None if subject.range is None else (subject.range.start.line, subject.range.end.line)
        scope = Scope(subject.uri, lines if name in _SELECTING else None)
        words = action.instruction or name
        prompt = f"{words} {mention(subject.uri, view, place.lines)}"
        explains = name == "explain" and action.partial_result_token is None
        return await self._start(
            spec, progress, action.partial_result_token, prompt, uri=subject.uri, scope=scope, document=explains
        )

    async def send(self, given: Arguments, progress: TurnProgress | None) -> Any:
        sent = self._chat.sent_from(args.parsed(args.SendArguments, given).uri)
        spec, notice = self._chat.spec_of(sent, self._snapshots.view())

        async def answer(turn: Turn, finished: TurnFinished) -> None:
            await self._chat.answer(sent, turn, finished)

        return await self._start(spec, progress, None, "", uri=sent.uri, scope=None, deliver=answer, notice=notice)

    def cancel(self, given: Arguments) -> dict[str, Any]:
        turn_id = args.parsed(args.TurnArguments, given).turn_id
        running = next(reversed(self.running.values()), None) if turn_id is None else self.running.get(turn_id)
        if running is None:
            return {"cancelled": []}
        running.stop()
        return {"cancelled": [running.turn.id]}

    def cancel_progress(self, token: Token) -> None:
        for running in list(self.running.values()):
            if running.progress.work_token == token:
                running.stop()

    async def apply(self, given: Arguments) -> dict[str, Any]:
        turn_id = args.parsed(args.TurnArguments, given).turn_id
        kept = self.applying.kept(turn_id)
        if kept is None:
            raise TurnRefused("There is no edit of a turn that waits to be applied.")
        outcome = await self.applying.send(kept.turn_id, kept.title, kept.files, review="never", ours_wins=True)
        return {"applied": outcome.applied, "files": [file.json() for file in outcome.files]}

    def choose(self, key: str, given: Arguments) -> dict[str, Any]:
        """Effort, thinking or model: for a session, or for everything from now on."""
        wish = args.parsed(args.ChoiceArguments, given)
        session = None
        if wish.session_id is not None:
            session = self.engine.session(wish.session_id, self._snapshots.key)
        answer, made = choose(self.engine, self.editor, key, wish.value, connection=self.choices, session=session)
        if made and session is not None:
            for name, value in made.items():
                session = self.engine.store.put(session.with_choice(name, value))
        elif made:
            self.choices = {**self.choices, **made}
        return answer

    async def doctor(self, given: Arguments) -> dict[str, Any]:
        args.parsed(args.NoArguments, given)
        return await report(self.engine, self.editor, self.choices)

    async def _start(
        self,
        spec: TurnSpec,
        progress: TurnProgress | None,
        partial_token: Token | None,
        prompt: str,
        *,
        uri: str | None,
        scope: Scope | None,
        document: bool = False,
        deliver: Deliver | None = None,
        notice: str | None = None,
    ) -> Any:
        """The token rule: with a work-done token the answer is the TurnResult, without one TurnStarted at once."""
        turn = self.engine.begin(spec, self.editor, self.choices)
        if notice is not None:
            turn.said.append(notice)
        shown = progress or TurnProgress(self._state.client)
        shown.use(partial_token, turn.display)
        if deliver is None and (document or (progress is None and partial_token is None)):
            deliver = self._delivery(prompt)
        running = RunningTurn(turn, self._state.client, self.applying, shown, uri, scope, deliver)
        self.running[turn.id] = running
        if progress is not None:
            running.task = self._state.spawn(self._run(running), awaited=True)
            return await running.task
        running.task = self._state.spawn(self._run_unwatched(running))
        return {"turnId": turn.id, "sessionId": turn.session.id}

    async def _run(self, running: RunningTurn) -> dict[str, Any]:
        try:
            return await running.run()
        finally:
            self.running.pop(running.turn.id, None)

    async def _run_unwatched(self, running: RunningTurn) -> None:
        """A turn whose command has been answered already: what goes wrong is said by progress and one message."""
        token = f"thinklsp-{running.turn.id}"
        try:
            created = await self._state.client.create_progress(token)
            running.progress.begin(running.turn.spec.title, token if created else None)
            await self._run(running)
        except Exception as error:
            self._state.client.show_message("error", spoken(error))
            if not isinstance(error, ThinkLspError):
                raise
        finally:
            running.turn.release()
            self.running.pop(running.turn.id, None)

    def _delivery(self, prompt: str) -> Deliver:
        async def deliver(turn: Turn, finished: TurnFinished) -> None:
            await self._chat.deliver(turn, finished, prompt)

        return deliver

    async def _blank(self, subject: Subject | None) -> None:
        """No words yet: a chat document with the place is where the user writes them."""
        text = ""
        if subject is not None:
            lines = lines_of(subject.range, subject.line_count)
            text = mention(subject.uri, self._snapshots.view(), lines) + " "
        if not await self._chat.open_blank(text):
            raise TurnRefused("There is nothing to send: give a prompt or an instruction.")

    def _reference(self, uri: str, range_: args.Range | None) -> Reference:
        document = self._state.documents.get(uri)
        where = None if range_ is None else plain_range(range_)
        count = document.line_count if document is not None else 2**31
        return Reference(uri, lines_of(where, count))
