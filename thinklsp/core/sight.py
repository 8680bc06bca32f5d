"""What the model knows of the files of a session: the texts that it was shown or wrote, by digest.

The blocks of a conversation carry this knowledge, so it is stored, copied and cut together with them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from thinklsp.core.messages import Conversation, FileSight, UserMessage

_MAX_FILES = 1_000
_DIGEST_CHARACTERS = 32


class Sight:
    """The model's present knowledge of each file, oldest first. It covers the latest 1,000 files."""

    def __init__(self, sights: Iterable[FileSight] = ()) -> None:
        self._files: dict[str, FileSight] = {}
        self.learn(sights)

    @property
    def files(self) -> tuple[FileSight, ...]:
        return tuple(self._files.values())

    def learn(self, sights: Iterable[FileSight]) -> None:
        """Add what the model has been shown or has written. A part of a known text keeps the text known as a whole."""
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
    """Return what the model knows after it has read a conversation."""
    messages = (message for message in conversation if isinstance(message, UserMessage))
    return Sight(sight for message in messages for sight in message.sight)


def collect_held_sight(conversation: Conversation, end: int) -> Sight:
    """Return what the model knows from the messages before `end`.

    Results that it has not answered do not count, because no model call may have held them. Its own texts do.
    """
    answered = next((at for at in reversed(range(len(conversation))) if conversation[at].role == "assistant"), 0)
    sight = collect_sight(conversation[: min(end, answered)])
    sight.learn(own for own in collect_sight(conversation[answered:end]).files if own.is_own)
    return sight


def describe_text(key: str, text: str | None, *, is_whole: bool = False, is_own: bool = False) -> FileSight:
    """Return the knowledge of a file with this text, or of a missing file if the text is None."""
    return FileSight(key, compute_digest(text), is_whole, is_own)


def compute_digest(text: str | None) -> str | None:
    """Return the digest of a text, or None for a missing file.

    Line endings and a byte order mark do not count, because they are not shown and `write_file` keeps them.
    """
    if text is None:
        return None
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARACTERS]
