"""The claims of turns on sessions, and the queues of prompts that wait for a claimed session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from thinklsp.agent.prompts import Excerpt
from thinklsp.core.errors import SessionError
from thinklsp.core.images import check_totals, list_images
from thinklsp.core.messages import ImageBlock
from thinklsp.engine.turn_request import ChatRequest, TurnRequest, read_excerpts, read_images
from thinklsp.providers.catalogue import ModelInfo
from thinklsp.sessions.session import PromptOutcome, SessionChange
from thinklsp.sessions.store import SessionStore

MAX_QUEUED_PROMPTS = 16
# The store writes all waiting prompts of a session with each change.
_MAX_QUEUED_CHARACTERS = 4_000_000
_BUSY = "This session is busy with another turn. Wait for it to finish or stop it."
_QUEUE_FULL = (
    f"{MAX_QUEUED_PROMPTS} prompts are already waiting in this session. Wait until a turn takes them, or remove one."
)

_QUEUE_TOO_LARGE = (
    f"The prompts that wait in this session have at most {_MAX_QUEUED_CHARACTERS:,} characters together. Wait until a "
    "turn takes them, or remove one."
)


class SessionBusy(SessionError):
    """The error raised if another turn has claimed the session."""


@dataclass(eq=False, slots=True)
class QueuedPrompt:
    """A prompt that waits until the running turn of its session takes it, or until the session is free.

    `taken` gets the id of the turn that took the prompt. It gets None when the session is claimed for the prompt's own
    turn, which has the id `turn_id`. A prompt is only taken after the store contains it. `is_settled` is true if a turn
    has taken the prompt, or if the prompt does not wait any longer.
    """

    turn_id: str
    session_id: str
    request: ChatRequest
    excerpts: tuple[Excerpt, ...]
    images: tuple[ImageBlock, ...] = ()
    taken: asyncio.Future[str | None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    is_stored: bool = False
    is_settled: bool = False


class SessionClaims:
    """The claims on the sessions of one process. Each session has at most one claim, and a queue in order of arrival.

    A released session is claimed for the first prompt of its queue, so that no later turn overtakes the prompt.
    """

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._owners: dict[str, str] = {}
        self._queues: dict[str, list[QueuedPrompt]] = {}

    def is_busy(self, session_id: str) -> bool:
        """Return True if a turn or a command in this process has claimed the session."""
        return session_id in self._owners

    def check(self, session_id: str, turn_id: str) -> None:
        """Raise SessionBusy if another turn has claimed the session."""
        if self._owners.get(session_id, turn_id) != turn_id:
            raise SessionBusy(_BUSY)

    def claim(self, session_id: str, turn_id: str) -> Callable[[], None]:
        """Claim the session for a turn or a command, and return a function that releases the session.

        Raises SessionBusy if another turn has claimed the session.
        """
        self.check(session_id, turn_id)
        self._owners[session_id] = turn_id
        return lambda: self.release(session_id, turn_id)

    def release(self, session_id: str, turn_id: str) -> None:
        """Release the session if this turn has claimed it."""
        if self._owners.get(session_id) == turn_id:
            del self._owners[session_id]
            self._hand_over(session_id)

    async def queue_prompt(self, request: ChatRequest, session_id: str, turn_id: str) -> QueuedPrompt:
        """Store a prompt that waits for the running turn of its session. A turn can take it after that.

        Raises ThinkLspError if the prompt cannot wait, and ImageRefused if the session has too many images with it.
        """
        prompt = QueuedPrompt(turn_id, session_id, request, read_excerpts(request), read_images(request))
        self._enqueue(prompt)
        try:
            if prompt.images:
                conversation = (await self._store.get(session_id, None)).conversation
                others = (each for each in self._queues.get(session_id, ()) if each is not prompt)
                check_totals(
                    prompt.images, (*list_images(conversation), *(image for each in others for image in each.images))
                )
            await self._store.update(
                session_id, lambda session: session.add_prompt(request.user_words, turn_id, is_queued=True)
            )
            prompt.is_stored = True
            self._hand_over(session_id)
        finally:
            if not prompt.is_stored:
                await asyncio.shield(self.take_back(prompt))
        return prompt

    async def take_back(self, prompt: QueuedPrompt) -> None:
        """Remove a prompt that no turn has taken from its queue and from the store."""
        await self._settle(prompt, lambda session: session.remove_queued({prompt.turn_id}))

    async def end_queued(self, prompt: QueuedPrompt, outcome: PromptOutcome, reason: str = "") -> None:
        """Record that no turn will answer a queued prompt."""
        await self._settle(prompt, lambda session: session.end_queued({prompt.turn_id}, outcome, reason))

    async def _settle(self, prompt: QueuedPrompt, change: SessionChange) -> None:
        prompt.is_settled = True
        self._withdraw(prompt)
        self.release(prompt.session_id, prompt.turn_id)
        with suppress(SessionError):
            await self._store.update(prompt.session_id, change)
            await self.release_lease(prompt.session_id)

    async def release_lease(self, session_id: str) -> None:
        """Let other processes use the session, unless this process works on it."""
        if not self.is_busy(session_id):
            await self._store.release(session_id)

    def _enqueue(self, prompt: QueuedPrompt) -> None:
        """Add a prompt at the end of its session's queue. Raises SessionError if the queue is full."""
        queue = self._queues.setdefault(prompt.session_id, [])
        if len(queue) >= MAX_QUEUED_PROMPTS:
            raise SessionError(_QUEUE_FULL)
        if queue and sum(len(each.request.prompt) for each in (*queue, prompt)) > _MAX_QUEUED_CHARACTERS:
            raise SessionError(_QUEUE_TOO_LARGE)
        queue.append(prompt)

    def _withdraw(self, prompt: QueuedPrompt) -> None:
        """Remove a prompt from its queue if no turn has taken it."""
        queue = self._queues.get(prompt.session_id, [])
        if prompt in queue:
            queue.remove(prompt)
            self._hand_over(prompt.session_id)
        if not queue:
            self._queues.pop(prompt.session_id, None)

    def take(self, session_id: str, turn_id: str, running: TurnRequest, model: ModelInfo) -> tuple[QueuedPrompt, ...]:
        """Take the prompts that can join the running turn, in order of arrival.

        The mode, the model, the effort and the thinking stay the same for a whole turn. A prompt that asks for others
        starts a turn of its own, and so do the prompts behind it. So does a prompt with images that the model cannot
        read, because its own turn explains the problem.
        """
        taken: list[QueuedPrompt] = []
        for prompt in self._queues.get(session_id, ()):
            is_readable = all(image.media_type in model.accepted_images for image in prompt.images)
            if not (prompt.is_stored and is_readable and can_join(prompt.request, running)):
                break
            taken.append(prompt)
        for prompt in taken:
            prompt.is_settled = True
            prompt.taken.set_result(turn_id)
            self._withdraw(prompt)
        return tuple(taken)

    def _hand_over(self, session_id: str) -> None:
        """Claim a free session for the first prompt in its queue."""
        queue = self._queues.get(session_id)
        if queue and queue[0].is_stored and session_id not in self._owners:
            prompt = queue.pop(0)
            self._owners[session_id] = prompt.turn_id
            prompt.taken.set_result(None)


def can_join(request: ChatRequest, running: TurnRequest) -> bool:
    """Return True if a prompt can join a running turn without a change of the turn's settings.

    A prompt for which the user chose skills starts a turn of its own, because the skills must be read and trusted.
    """
    return not request.skills and request.mode == running.mode and request.chosen.items() <= running.chosen.items()
