"""A turn, which the engine starts and a front end runs.

The turn stores each step, reports its model calls and tool calls to the observer of the process, and stops if another
process has taken over its session.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, Self

from thinklsp.agent.budget import ContextMeter, Emit, MeteredCaller, TurnConfig, UsageLedger
from thinklsp.agent.compaction import compact_now
from thinklsp.agent.model_call import ModelCaller
from thinklsp.agent.prompts import Excerpt, build_instructions, find_sent_digests, find_sent_list
from thinklsp.agent.turn_loop import TurnLoop
from thinklsp.core.choices import BUDGET_ANSWERS, BudgetAnswer, Review, ThinkingDisplay
from thinklsp.core.edits import FileEdit
from thinklsp.core.errors import (
    PathRefused,
    SessionError,
    ThinkLspError,
)
from thinklsp.core.events import (
    ContextCompacted,
    Fallback,
    Notice,
    ReminderAdded,
    RetryScheduled,
    StepCommitted,
    TextStreamed,
    ToolFinished,
    ToolStarted,
    TurnAnswer,
    TurnEvent,
    TurnFinished,
    TurnStopReason,
)
from thinklsp.core.messages import FileSight, ImageBlock, Sight, TextBlock, UserPrompt, collect_sight, compute_digest
from thinklsp.core.server_context import (
    OTHER,
    Observer,
    ToolObserver,
    TurnLabels,
    TurnObserver,
)
from thinklsp.core.text_safety import escape_invisible, format_path
from thinklsp.core.tool_type import Ask, AskText
from thinklsp.core.usage import Usage
from thinklsp.engine.instructions import ShowDocument, TurnInstructions, build_skill_texts
from thinklsp.engine.turn_request import (
    ChatRequest,
    CompactRequest,
    TurnRequest,
    build_user_text,
    check_images,
    read_changes,
)
from thinklsp.engine.user_commands import UserCommands
from thinklsp.sessions.session import PromptOutcome, Session
from thinklsp.sessions.spending import CallUsage, Purpose
from thinklsp.sessions.store import SessionStore
from thinklsp.sessions.store_folder import SessionTexts
from thinklsp.settings.model import Settings
from thinklsp.settings.user_file import UserSettings
from thinklsp.tools.registry import READ_SKILL, TOOLS
from thinklsp.tools.tool import Editor, NoEditor, ToolContext
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.view import WorkspaceView

if TYPE_CHECKING:
    from thinklsp.engine.engine import Engine

# The maximum number of changed files that a prompt names.
_MAX_NAMES = 50
_LOST = "The turn was stopped, because another thinklsp has taken over its session. Open the session again."


@asynccontextmanager
async def guard_lease(store: SessionStore, session_id: str) -> AsyncIterator[None]:
    """Cancel the context if another process takes over the session. It then raises SessionError."""
    lease = asyncio.timeout(None)
    try:
        async with lease:
            store.lease_watchers[session_id] = lambda: None if lease.expired() else lease.reschedule(0)
            yield
    except (TimeoutError, SessionError):
        if lease.expired():
            raise SessionError(_LOST) from None
        raise
    finally:
        del store.lease_watchers[session_id]


ShowEvent = Callable[[TurnEvent], None]
Connect = Callable[[Sequence[Fallback]], Awaitable[ModelCaller]]
"""Connects to the model, with the fallbacks that earlier processes have stored."""


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """The callbacks of the front end that runs a turn.

    The store saves an event's data before `show` receives the event. `unapplied_edits` is text that informs the model
    about edits of this session that were not applied. `show_document` is None if the front end cannot show documents,
    and `ask_text` if it cannot ask for a text.
    """

    show: ShowEvent
    ask: Ask
    editor: Editor = field(default_factory=NoEditor)
    unapplied_edits: str = ""
    show_document: ShowDocument | None = None
    ask_text: AskText | None = None


_BUILT_IN_TOOLS = frozenset(tool.name for tool in (*TOOLS, READ_SKILL))
_MCP_PREFIX = "mcp__"


class ObservedTurn:
    """The observation of a turn and its tool calls, from entering the context to its exit."""

    def __init__(self, observer: Observer, labels: TurnLabels, usage: UsageLedger) -> None:
        self._observer = observer
        self._labels = labels
        self._usage = usage
        self.turn = TurnObserver()
        self._finished: TurnFinished | None = None
        self._tools: dict[str, ToolObserver] = {}

    def __enter__(self) -> Self:
        self.turn = self._observer.begin_turn(self._labels)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        for tool in self._tools.values():
            tool.end("cancelled")
        outcome = "error" if isinstance(error, Exception) else "cancelled"
        if self._finished is not None and error is None:
            outcome = self._finished.stop_reason
        self.turn.end(outcome, self._usage.total)

    def observe(self, event: TurnEvent) -> None:
        """Report an event that the user is about to see."""
        if isinstance(event, ToolStarted):
            self._tools[event.call_id] = self.turn.begin_tool(label_tool(event.name))
        elif isinstance(event, ToolFinished):
            # The call of an unknown tool ends without a start.
            tool = self._tools.pop(event.call_id, None) or self.turn.begin_tool(label_tool(event.name))
            tool.end("error" if event.is_error else "ok")
        elif isinstance(event, TurnFinished):
            self._finished = event


def label_tool(name: str) -> str:
    """Return the label of a tool. The tools of MCP servers are one label."""
    if name in _BUILT_IN_TOOLS:
        return name
    return "mcp" if name.startswith(_MCP_PREFIX) else OTHER


_log = logging.getLogger(__name__)
_RESTORE_HINT = "To undo this, restore archive `{}` with `/restore` in a chat or `thinklsp sessions restore`."


@dataclass(frozen=True, slots=True)
class CompactionRecord:
    """The latest compaction in a turn, with the id of the archive that contains the previous conversation."""

    event: ContextCompacted
    archive_id: str


@dataclass(slots=True)
class TurnOutput:
    """The output of a turn so far, without its edits. `text` is the text of the last step or of the compaction.

    `joining` contains the turn ids of the queued prompts that the turn has taken, until they are stored with a step.
    `partial_text` contains the pieces of text since the last step.
    """

    notices: list[str] = field(default_factory=list)
    answers: TurnAnswer = field(default_factory=TurnAnswer)
    text: str = ""
    compaction: CompactionRecord | None = None
    instructions: TurnInstructions = field(default_factory=TurnInstructions)
    joining: set[str] = field(default_factory=set)
    partial_text: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Turn:
    """A turn that the engine has started. The turn writes its edits to `overlay`.

    The turn claims its session until its context exits. Fallbacks are stored under `service_id` unless it is empty.
    """

    id: str
    engine: Engine
    request: TurnRequest
    session: Session
    config: TurnConfig
    user: UserSettings
    settings: Settings
    notices: tuple[str, ...]
    excerpts: tuple[Excerpt, ...]
    images: tuple[ImageBlock, ...]
    connect: Connect
    service_id: str
    commands: UserCommands | None
    usage: UsageLedger
    overlay: EditOverlay
    output: TurnOutput = field(default_factory=TurnOutput)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Make the session available to other turns."""
        self.engine.claims.release(self.session.id, self.id)

    @property
    def store(self) -> SessionStore:
        return self.engine.store

    @property
    def meter(self) -> ContextMeter:
        return self.engine.get_meter(self.session.id)

    @property
    def display(self) -> ThinkingDisplay:
        return self.settings.thinking.display

    @property
    def review(self) -> Review:
        return self.settings.edits.review

    async def run(self, front: FrontEnd) -> TurnFinished:
        """Run the turn and return its last event. After an error or a cancellation, stored data is kept."""
        async with AsyncExitStack() as cleanup:  # The stack calls every callback, even after a second cancellation.
            if self.commands is not None:
                cleanup.push_async_callback(self.commands.aclose)
            cleanup.push_async_callback(self.store.release, self.session.id)
            kind: Literal["chat", "compact"] = "compact" if isinstance(self.request, CompactRequest) else "chat"
            with ObservedTurn(self.store.observer, TurnLabels(self.id, self.session.id, kind), self.usage) as observed:
                async with guard_lease(self.store, self.session.id):
                    return await self._run(front, observed)

    async def _run(self, front: FrontEnd, observed: ObservedTurn) -> TurnFinished:
        self._show_notices(self.notices, front.show)
        finished: TurnFinished | None = None
        is_started = False
        try:
            self.usage.spending.raise_to((await self.store.sum_day(self.usage.spending.day)).cost_usd)
            changes = await read_changes(self.request)
            text = build_user_text(self.request, self.excerpts, changes, self.images)
            is_started = True
            await self._store_prompt(text, front)
            self.config, notices = await self.engine.complete_config(self)
            self._show_notices(notices, front.show)
            check_images(self.images, self.config.model, ())
            tools, notices = await self.engine.mcp_servers.prepare_tools(
                self.request, self.user, self.session.id, self.output.instructions, front.ask
            )
            self._show_notices(notices, front.show)
            # The built-in tools come first, so that their bytes stay the same.
            self.config = replace(self.config, tools=(*self.config.tools, *tools))
            fallbacks = await self.store.list_fallbacks(self.session.id, self.service_id) if self.service_id else ()
            self.config = self.config.apply_fallbacks(fallbacks)
            # A session that has had skills keeps the tool, because a change of tools invalidates the prompt cache.
            if self.output.instructions.skills or find_sent_list(self.session.conversation) is not None:
                self.config = self.config.offer_skills()
            finished = await self._run_model(await self.connect(fallbacks), front, observed)
            await self._store_ending(finished.stop_reason, "")
            observed.observe(finished)
            front.show(finished)
            return finished
        finally:
            if is_started and finished is None:
                await self._store_ending(*_classify_ending(sys.exception()))

    def is_untrusted(self, file: FileEdit) -> bool:
        """Return True if the file, or its target in a rename, is inside a folder with untrusted instructions."""
        uris = (file.uri,) if file.new_uri is None else (file.uri, file.new_uri)
        return any(self.output.instructions.is_untrusted(self.request.view.resolve(uri)) for uri in uris)

    async def record_unapplied_edits(self) -> None:
        """Record that some edits were not applied, so that the next prompt informs the model.

        Call this method after the turn. It does nothing if the session is not stored or another process has claimed it.
        """
        with suppress(SessionError):
            await self._update(lambda session: session.mark_undone())
            await self.store.release(self.session.id)

    async def _store_prompt(self, text: str, front: FrontEnd) -> None:
        """Store the user's prompt with the instruction files that the model has not read yet."""
        if not text:
            return
        references = (*(excerpt.place for excerpt in self.excerpts), *(image.name for image in self.images))
        await self._update(lambda session: session.add_prompt(self.request.user_words, self.id, references=references))
        is_chat = isinstance(self.request, ChatRequest)
        about = tuple(place.uri for place in self.request.places)
        followed = await self.engine.instructions.select_instructions(
            self.request.view, about, front.ask, all_folders=is_chat, show_document=front.show_document
        )
        self.output.instructions = followed
        instructions, notices = build_instructions(followed.files, find_sent_digests(self.session.conversation))
        self._show_notices((*followed.notices, *notices), front.show)
        names = self.request.skills if isinstance(self.request, ChatRequest) else ()
        skills = build_skill_texts(names, followed.skills, followed.untrusted_skills, self.session.conversation)
        prompt = "\n\n".join(filter(None, (text, *skills, instructions)))
        words = text if is_chat else self.request.user_words
        user_prompt = UserPrompt(self.request.user_words, self.id)
        changed_files = await _describe_changed_files(
            collect_sight(self.session.conversation), self.request.view, front.editor
        )
        await self._update(
            lambda session: session.add_user_message(
                prompt,
                words,
                front.unapplied_edits,
                prompt=user_prompt,
                images=self.images,
                sight=_join_sight(self.excerpts),
                changed_files=changed_files,
            )
        )

    async def _take_prompts(self) -> tuple[TextBlock | ImageBlock, ...]:
        """Return the queued prompts that join the turn before its next model call. Images precede their prompt."""
        prompts = self.engine.claims.take(self.session.id, self.id, self.request, self.config.model)
        self.output.joining |= {prompt.turn_id for prompt in prompts}
        blocks: list[TextBlock | ImageBlock] = []
        for prompt in prompts:
            text = build_user_text(prompt.request, prompt.excerpts, "", prompt.images)
            user_prompt = UserPrompt(prompt.request.user_words, prompt.turn_id)
            blocks += (*prompt.images, TextBlock(text, prompt=user_prompt, sight=_join_sight(prompt.excerpts)))
        return tuple(blocks)

    async def _run_model(self, model: ModelCaller, front: FrontEnd, observed: ObservedTurn) -> TurnFinished:
        emit: Emit = partial(self._store_and_show, front.show, observed)
        conversation, config = self.session.conversation, self.config
        caller = MeteredCaller(
            model,
            config.limits,
            usage=self.usage,
            meter=self.meter,
            ask=partial(_ask_budget, front.ask),
            admit_call=partial(self.engine.budgets.admit_call, self.session.id),
            observer=observed.turn,
        )
        if isinstance(self.request, CompactRequest):
            instructions = self.request.instructions
            await compact_now(conversation, config, caller=caller, emit=emit, instructions=instructions)
            return TurnFinished("end_turn", self.output.text, "", self.usage.total)
        commands = None if self.commands is None else replace(self.commands, ask=front.ask)
        skills = self.output.instructions.skills or ()
        texts = SessionTexts(self.store.kept_texts, self.session.id)
        context = ToolContext(self.overlay, front.ask, front.editor, commands, skills, texts, front.ask_text)
        return await TurnLoop(
            conversation, config, caller=caller, context=context, emit=emit, take_prompts=self._take_prompts
        ).run()

    async def _store_and_show(self, show: ShowEvent, observed: ObservedTurn, event: TurnEvent) -> None:
        """Show an event to the user. Data that must survive a crash is stored first."""
        match event:
            case StepCommitted():
                await self._commit_step(event)
            case ReminderAdded(message):
                await self._update(lambda session: session.add_reminder(message))
                self.output.joining.clear()
            case ContextCompacted():
                event = await self._store_compaction(event)
                if isinstance(self.request, CompactRequest):
                    self.output.text = event.text
                else:
                    self.output.notices.append(event.text)
            case Notice():
                if event.text in self.output.notices:
                    return  # Each model call may repeat a notice, but the user sees it once.
                self.output.notices.append(event.text)
                if event.fallback is not None and self.service_id:
                    await self.store.keep_fallback(self.session.id, self.service_id, event.fallback)
            case TextStreamed():
                self.output.partial_text.append(event.delta)
            case RetryScheduled() if event.restart:
                self.output.partial_text.clear()
            case _:
                pass
        observed.observe(event)
        show(event)

    def _show_notices(self, sentences: Sequence[str], show: ShowEvent) -> None:
        self.output.notices.extend(sentences)
        for text in sentences:
            show(Notice("info", text))

    async def _commit_step(self, step: StepCommitted) -> None:
        spent = self._book(step.usage, "step")
        await self._update(lambda session: session.add_step(step.assistant, step.results, step.usage), spent)
        self.output.joining.clear()
        self.output.partial_text.clear()
        _log.info("turn %s: step ended with %s, %s", self.id, step.assistant.stop_reason, step.usage)
        self.output.answers = self.output.answers.append(step.assistant)
        self.output.text = self.output.answers.text

    async def _store_compaction(self, compaction: ContextCompacted) -> ContextCompacted:
        """Store the compacted conversation and archive the previous one. Return the event with the archive id."""
        choices = {"thinking.mode": "off"} if compaction.thinking_off else {}
        spent = self._book(compaction.usage, "compaction")

        def change(session: Session) -> Session:
            return session.replace_conversation(compaction.after).add_usage(compaction.usage).add_choices(choices)

        self.session, archive = await self.store.compact(self.session.id, change, compaction.text, spent)
        self.output.compaction = CompactionRecord(compaction, archive)
        _log.info("turn %s: compacted %d messages to %d", self.id, len(compaction.before), len(compaction.after))
        return replace(compaction, text=f"{compaction.text} {_RESTORE_HINT.format(archive)}")

    async def _store_ending(self, stop_reason: TurnStopReason, reason: str) -> None:
        """Record the end of the turn, and the usage of interrupted model calls.

        Interrupted calls are not stored as steps, but they cost tokens. `reason` is the error message if the turn
        failed.
        """
        lost_usage = self.usage.unstored_usage
        costs = bool(lost_usage.input_tokens or lost_usage.output_tokens)
        is_cut = stop_reason in ("cancelled", "error") and not isinstance(self.request, CompactRequest)
        outcome: PromptOutcome = "error" if stop_reason == "end_turn" else stop_reason
        must_end_prompt = is_cut or self.session.unanswered or self.session.running_prompt is not None

        def change(session: Session) -> Session:
            session = session.add_usage(lost_usage) if costs else session
            session = session.end_queued(self.output.joining, outcome, reason)
            if not must_end_prompt:
                return session
            return session.cut_short(outcome, reason, turn_id=self.id, partial_text="".join(self.output.partial_text))

        if costs or must_end_prompt or self.output.joining:
            # Store the usage and the end of the turn together, because a second cancellation could interrupt a second
            # update.
            await self._update(change, self._book(lost_usage, "lost") if costs else None)

    def _book(self, usage: Usage, purpose: Purpose) -> CallUsage:
        """Record usage and return the usage entry. The caller must store the entry immediately."""
        self.usage.stored_usage += usage
        return CallUsage(self.id, self.config.model.provider, self.config.model.id, usage, purpose)

    async def _update(self, change: Callable[[Session], Session], spent: CallUsage | None = None) -> None:
        self.session = await self.store.update(self.session.id, change, spent)


async def _ask_budget(ask: Ask, question: str) -> BudgetAnswer:
    """Ask whether a turn that has reached a budget continues. Without an answer, it stops."""
    return BUDGET_ANSWERS.get(await ask(question, tuple(BUDGET_ANSWERS)) or "", "stop")


def _join_sight(excerpts: Sequence[Excerpt]) -> tuple[FileSight, ...]:
    return tuple(sight for excerpt in excerpts for sight in excerpt.sight)


def _classify_ending(error: BaseException | None) -> tuple[TurnStopReason, str]:
    """Return the stop reason of a turn that ended with an exception, and the error message if the turn failed."""
    if not isinstance(error, Exception):
        return "cancelled", ""
    return "error", str(error) if isinstance(error, ThinkLspError) else ""


@dataclass(frozen=True, slots=True)
class _ChangedFile:
    """A file whose text differs from the one that the model knows. `digest` is None for a missing file."""

    label: str
    known: FileSight
    digest: str | None


async def _describe_changed_files(sight: Sight, view: WorkspaceView, editor: Editor) -> TextBlock | None:
    """Return a note for the model about the changed files, or None if it knows all files as they are.

    The note covers every change: by the user, another turn or another program, and edits that were never applied.
    """
    # Some editors announce no open documents. The model may know more files, but each is a request to the editor.
    await editor.load_documents(view, [file.key for file in sight.files[-_MAX_NAMES:]])
    changed = await asyncio.to_thread(_find_changed, sight.files, view)
    if not changed:
        return None
    lines = [
        *_format_names("Not as you wrote them", (file for file in changed if file.known.is_own)),
        *_format_names("Changed since you last saw them", (file for file in changed if not file.known.is_own)),
    ]
    text = "\n".join(("Files are not as you know them. Read them again before you rely on their contents.", *lines))
    return TextBlock(f"<note>{text}</note>", sight=tuple(FileSight(file.known.key, file.digest) for file in changed))


def _find_changed(files: Sequence[FileSight], view: WorkspaceView) -> list[_ChangedFile]:
    changed = []
    for known in files:
        try:
            place = view.resolve(known.key)
            file = view.peek(place)
        except PathRefused:
            continue  # The document was closed, or tools may no longer read the file.
        digest = compute_digest(None if file is None else file.text)
        if digest != known.digest:
            changed.append(_ChangedFile(place.label, known, digest))
    return changed


def _format_names(heading: str, files: Iterable[_ChangedFile]) -> list[str]:
    names = [
        escape_invisible(format_path(file.label)) + (" (does not exist)" if file.digest is None else "")
        for file in files
    ]
    more = [f"and {len(names) - _MAX_NAMES} more"] if len(names) > _MAX_NAMES else []
    return [f"{heading}: {', '.join((*names[:_MAX_NAMES], *more))}"] if names else []
