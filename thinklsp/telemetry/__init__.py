"""The telemetry of a server for many clients: health, metrics and traces.

`prometheus_client` and `opentelemetry` are optional. Only the command line imports the modules that need them, and only
if they are configured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from thinklsp.core.server_context import Observer


def combine_observers(observers: Sequence[Observer]) -> Observer:
    """Return an observer that passes each call to all of these observers."""
    return cast("Observer", _Observers(observers))


class _Observers:
    """Observers of any kind. The observers that their calls return are combined, too."""

    def __init__(self, observers: Sequence[Any]) -> None:
        self._observers = observers

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args: _Observers([getattr(observer, name)(*args) for observer in self._observers])
