"""What `chat` and `action` ask for, from their arguments and from where the user is: a turn, ready to be started."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from thinklsp.agent.prompts import ACTIONS, ANSWERED_IN_CHATS
from thinklsp.core.errors import TurnRefused
from thinklsp.core.problems import Problem
from thinklsp.engine import ActionTask, ChatTask, Reference, TurnSpec
from thinklsp.engine.changes import Wanted
from thinklsp.lsp.actions.own_actions import own_action
from thinklsp.lsp.chats.chat import ChatDocuments
from thinklsp.lsp.chats.chat_context import mention_of
from thinklsp.lsp.chats.chat_documents import Answer
from thinklsp.lsp.documents.diagnostics import problems_of
from thinklsp.lsp.editor import arguments as args
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.editor.state import State
from thinklsp.lsp.editor.subjects import Subject, known_problems, lines_of, plain_range, required_subject, subject_of
from thinklsp.lsp.editor.work_done import WorkDone
from thinklsp.lsp.edits.drafts import Scope
from thinklsp.lsp.protocol.errors import InvalidParams
from thinklsp.lsp.protocol.forms import Range
from thinklsp.lsp.turns.running_turn import Deliver, Told
from thinklsp.lsp.turns.turns import Asked, no_scope
from thinklsp.settings.own_actions import ActionSection

_NOWHERE_TO_WRITE = "A chat document to write it in needs an open folder, and an editor that makes files."


class Asking:
    """Each answers None where there are no words yet: then a chat document with the place waits for them. They read
    what the user has open before their first `await`. `own`: reads the actions of the user's file."""

    def __init__(
        self,
        state: State,
        snapshots: Snapshots,
        chat: ChatDocuments,
        own: Callable[[], Awaitable[Sequence[ActionSection]]],
    ) -> None:
        self._state = state
        self._snapshots = snapshots
        self._chat = chat
        self._own = own

    async def chat(self, chat: args.ChatArguments, work_done: WorkDone) -> Asked | None:
        view = self._snapshots.view()
        uri = self._latest_uri() if chat.uri is None and chat.range is not None else chat.uri
        if chat.prompt is None:
            await self._blank(subject_of(self._state, uri, chat.range))
            return None
        references = [self._reference(place.uri, place.range) for place in chat.references]
        if uri is not None:
            references.insert(0, self._reference(uri, chat.range))
        spec = TurnSpec(
            "chat",
            ChatTask(chat.prompt, tuple(references), chat.mode),
            view,
            self._snapshots.key,
            chat.session_id,
            chat.effort,
            chat.model,
            chat.thinking,
        )
        token = chat.partial_result_token
        shows = work_done.is_watched or token is not None
        deliver = None if shows else self._delivery(chat.prompt)
        scope = no_scope if uri is None else self._scope(uri, None if chat.range is None else plain_range(chat.range))
        return Asked(spec, work_done, token, scope=scope, deliver=deliver)

    async def action(self, action: args.ActionArguments, work_done: WorkDone) -> Asked | None:
        if action.name == "review":
            return self._review(action, work_done)
        subject = required_subject(self._state, action.uri, action.range, action.version)
        name = action.name or ("fix" if subject.problems else "edit")
        if name in ("edit", "ask") and not (action.instruction or "").strip():
            await self._blank(subject)
            return None
        problems = problems_of(action.diagnostics or ())
        if name == "fix" and not problems:
            problems = self._known(action, subject)
        place = Reference(subject.uri, lines_of(subject.range, subject.line_count))
        view = self._snapshots.view()
        scope = self._scope(subject.uri, None if name == "fix" else subject.range)
        # All that the user has open has been read; their file is read again only for an action of their own.
        own = None if name in ACTIONS else own_action(name, await self._own())
        changes: Wanted = "staged" if own is not None and own.scope == "staged" else ""
        spec = TurnSpec(
            f"{name} {view.resolve(subject.uri).shown}",
            ActionTask(name, place, problems, action.instruction or "", own, changes),
            view,
            self._snapshots.key,
            effort=action.effort,
            model=action.model,
            thinking=action.thinking,
        )
        token = action.partial_result_token
        # Editors add a work-done token to what a user picks from a menu, and then show no text of an explanation.
        shows = token is not None or (work_done.is_watched and name not in ANSWERED_IN_CHATS)
        words = action.instruction or name
        deliver = None if shows else self._delivery(f"{words} {mention_of(subject.uri, view, place.lines)}")
        return Asked(spec, work_done, token, subject.uri, scope, deliver)

    def _known(self, action: args.ActionArguments, subject: Subject) -> tuple[Problem, ...]:
        """What a `fix` without diagnostics is about. Raises TurnRefused where nobody says what is wrong."""
        latest = subject.problems if action.uri is None and action.range is None else ()
        problems = latest or known_problems(self._state, subject)
        # The model can ask such an editor what is wrong with a document.
        asks = subject.range is None and "diagnostics" in self._state.client.can.editor
        if problems or asks or (action.instruction or "").strip():
            return problems
        raise TurnRefused(
            "There is nothing to fix: no diagnostics are known here. Ask for code actions where they stand, or say in "
            "an instruction what is wrong."
        )

    def _review(self, action: args.ActionArguments, work_done: WorkDone) -> Asked:
        """Of a whole file, or of the changes in a folder; without either, of those in the working tree."""
        view = self._snapshots.view()
        latest = self._state.last_action
        uri = action.uri or (None if latest is None else latest.uri)
        place = None if uri is None else view.resolve(uri)
        whole = place is None or view.kind(place) == "directory"
        name = "the working tree" if place is None or place.shown == "." else place.shown
        task = ActionTask(
            "review",
            None if uri is None else Reference(uri),
            instruction=action.instruction or "",
            changes="all" if whole else "of the place",
        )
        spec = TurnSpec(
            f"review {name}",
            task,
            view,
            self._snapshots.key,
            effort=action.effort,
            model=action.model,
            thinking=action.thinking,
        )
        token = action.partial_result_token
        words = action.instruction or "review"
        prompt = f"{words}: {name}" if uri is None or whole else f"{words} {mention_of(uri, view, None)}"
        deliver = None if token is not None or work_done.is_watched else self._delivery(prompt)
        return Asked(spec, work_done, token, None if whole else uri, deliver=deliver)

    def _delivery(self, prompt: str) -> Deliver:
        def deliver(told: Told) -> asyncio.Task[None]:
            # A turn that was cut before it had said anything is told of by its command and its progress.
            answer = Answer("") if told.cut and not told.text else Answer(told.text, told.notices)
            return self._state.spawn(self._chat.deliver(told.session_id, prompt, answer))

        return deliver

    async def _blank(self, subject: Subject | None) -> None:
        """No words yet: a chat document with the place is where the user writes them."""
        text = ""
        if subject is not None:
            lines = lines_of(subject.range, subject.line_count)
            text = mention_of(subject.uri, self._snapshots.view(), lines) + " "
        if not await self._chat.open_blank(text):
            raise TurnRefused(f"There is nothing to send: give a prompt or an instruction. {_NOWHERE_TO_WRITE}")

    def _latest_uri(self) -> str:
        """Of the document that a range without one is in."""
        if self._state.last_place is None:
            raise InvalidParams("The field uri is missing: nothing else says in which document the range is.")
        return self._state.last_place.uri

    def _reference(self, uri: str, range_: args.Range | None) -> Reference:
        document = self._state.documents.get(uri)
        where = None if range_ is None else plain_range(range_)
        count = document.line_count if document is not None else 2**31
        return Reference(uri, lines_of(where, count))

    def _scope(self, uri: str, where: Range | None) -> Callable[[], Scope | None]:
        """What the user pointed at, followed through what they type until the edit is sent."""
        document = self._state.documents.get(uri)
        if document is None or where is None or where.start == where.end:
            return lambda: Scope(uri)
        version, first, last = document.version, where.start.line, where.end.line

        def scope() -> Scope:
            now = self._state.documents.get(uri)
            begin = None if now is None else now.moved((first, 0), version)
            end = None if now is None else now.moved((last, 0), version)
            return Scope(uri, (first if begin is None else begin[0], last if end is None else end[0]))

        return scope
