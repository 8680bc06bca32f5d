"""The model's knowledge of the files in a conversation.

The blocks of the conversation carry this knowledge, so it is stored, copied and cut together with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from thinklsp.core.file_sight import FileSight, compute_digest
from thinklsp.core.messages import Conversation, UserMessage

_MAX_FILES = 1_000


class Sight:
    """The model's present knowledge of each file, oldest first. It covers the latest 1,000 files."""

    def __init__(self, sights: Iterable[FileSight] = ()) -> None:
        self._files: dict[str, FileSight] = {}
        self.learn(sights)

    @property
    def files(self) -> tuple[FileSight, ...]:
        return tuple(self._files.values())

    def learn(self, sights: Iterable[FileSight]) -> None:
        """Add knowledge of files. If the model knows a whole text, a part of the same text does not change that."""
        for sight in sights:
            known = self._files.pop(sight.key, None)
            is_same = known is not None and known.digest == sight.digest
            self._files[sight.key] = known.join(sight) if known is not None and is_same else sight
        while len(self._files) > _MAX_FILES:
            del self._files[next(iter(self._files))]

    def find(self, key: str) -> FileSight | None:
        return self._files.get(key)

    def knows_whole(self, key: str, text: str) -> bool:
        """Return True if the model knows exactly this text of a file."""
        known = self._files.get(key)
        return known is not None and known.is_whole and known.digest == compute_digest(text)


def collect_sight(conversation: Conversation) -> Sight:
    """Return the knowledge of a model that has read a conversation."""
    return Sight(_list_sights(conversation))


def collect_held_sight(conversation: Conversation, end: int) -> Sight:
    """Return the model's knowledge from the messages before `end`.

    Results after the last answer do not count, because no model call has held them. The texts in the model's own calls
    do count.
    """
    answered = count_held_messages(conversation)
    own = (sight for sight in _list_sights(conversation[answered:end]) if sight.is_own)
    return Sight((*_list_sights(conversation[: min(end, answered)]), *own))


def count_held_messages(conversation: Conversation) -> int:
    """Return the number of messages before the last answer. Only these messages were certainly sent to the model."""
    return next((at for at in reversed(range(len(conversation))) if conversation[at].role == "assistant"), 0)


def _list_sights(messages: Conversation) -> Iterator[FileSight]:
    for message in messages:
        yield from message.sight if isinstance(message, UserMessage) else ()
