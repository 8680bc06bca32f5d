"""Text that arrives in very many pieces. Appending to a string would be quadratic, and a piece costs some 80 bytes
beside its letters: so they are joined many at a time, and all of them when somebody asks."""

from __future__ import annotations

_MANY = 500


class Pieces:
    """`str` of it is the text so far. That takes time with its length, so it is no question for each piece."""

    __slots__ = ("_joined", "_loose")

    def __init__(self, text: str = "") -> None:
        self._joined = [text] if text else []
        self._loose: list[str] = []

    def append(self, text: str) -> None:
        self._loose.append(text)
        if len(self._loose) == _MANY:
            self._joined.append("".join(self._loose))
            self._loose.clear()

    def __bool__(self) -> bool:
        return bool(self._joined or self._loose)

    def __str__(self) -> str:
        if self._loose or len(self._joined) > 1:
            self._joined = ["".join([*self._joined, *self._loose])]
            self._loose.clear()
        return self._joined[0] if self._joined else ""
