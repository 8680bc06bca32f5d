"""A memo of values that pure functions derive from immutable objects."""

from __future__ import annotations

from typing import Any, Generic, TypeVar
from weakref import ref

Value = TypeVar("Value")


class _Entry(ref[Any], Generic[Value]):
    """A weak reference to the object, with the value."""

    __slots__ = ("key", "value")

    key: int
    value: Value


class IdentityMemo(Generic[Value]):
    """Mutable: one value for each object, found by its identity and kept as long as the object lives.

    Equal objects have a value each. A value must not refer to its own object, which would then live forever.
    """

    def __init__(self) -> None:
        self._entries: dict[int, _Entry[Value]] = {}

    def find(self, item: object) -> Value | None:
        """Return the value of an object; None if there is none."""
        entry = self._entries.get(id(item))
        return None if entry is None else entry.value

    def keep(self, item: object, value: Value) -> Value:
        """Keep the value of an object, in place of a former one, and return the value."""
        entry: _Entry[Value] = _Entry(item, self._forget)
        entry.key, entry.value = id(item), value
        self._entries[entry.key] = entry
        return value

    def _forget(self, entry: _Entry[Value]) -> None:
        """Drop the value of an object that is freed; its identity may belong to a new object from then on."""
        del self._entries[entry.key]
