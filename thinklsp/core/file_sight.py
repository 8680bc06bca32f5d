"""The model's knowledge of a file: the text that it was shown or wrote, by digest."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

_DIGEST_CHARACTERS = 32


@dataclass(frozen=True, slots=True)
class FileSight:
    """The knowledge of a file that a block gives the model. `digest` is None for a missing file.

    `key` identifies the file. `is_whole` is true if the model knows the whole text, and `is_own` if the model wrote it.
    """

    key: str
    digest: str | None
    is_whole: bool = False
    is_own: bool = False

    def join(self, other: FileSight) -> FileSight:
        """Return the knowledge from two blocks about the same text."""
        return FileSight(self.key, self.digest, self.is_whole or other.is_whole, self.is_own or other.is_own)


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
