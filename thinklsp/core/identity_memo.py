"""A cache of values that are derived from immutable objects."""

from __future__ import annotations

from typing import Any, Generic, TypeVar
from weakref import ref

Value = TypeVar("Value")


class _Entry(ref[Any], Generic[Value]):
    """A weak reference to an object, together with a value derived from the object."""

    __slots__ = ("key", "value")

    key: int
    value: Value


class IdentityMemo(Generic[Value]):
    """A cache of values that pure functions derive from immutable objects. An object's value is freed with the object.

    Objects are compared by identity, not by equality. A value must not refer to its object, because the object is then
    never freed.
    """

    def __init__(self) -> None:
        self._entries: dict[int, _Entry[Value]] = {}

    def find(self, item: object) -> Value | None:
        """Return the object's stored value, or None if there is no stored value."""
        entry = self._entries.get(id(item))
        return None if entry is None else entry.value

    def store(self, item: object, value: Value) -> Value:
        """Store a value for the object, replacing any earlier value, and return the value."""
        entry: _Entry[Value] = _Entry(item, self._forget)
        entry.key, entry.value = id(item), value
        self._entries[entry.key] = entry
        return value

    def _forget(self, entry: _Entry[Value]) -> None:
        """Delete the entry of a freed object, because a new object may get the same `id()`."""
        del self._entries[entry.key]
