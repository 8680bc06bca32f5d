"""The observation of store calls: their duration, and whether the store answered."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from thinklsp.core.errors import SessionError, StoreUnreachable
from thinklsp.core.server_context import Observer, StoreOutcome


@contextmanager
def observe_call(observer: Observer, operation: str) -> Iterator[None]:
    """Report a store call to the observer. A cancelled call is not reported, because it still runs.

    A SessionError is an answer of the store, for example that the session is unknown or in use, unless the store is
    unreachable.
    """
    began = time.perf_counter()
    try:
        yield
    except SessionError as error:
        outcome: StoreOutcome = "failed" if isinstance(error, StoreUnreachable) else "refused"
        observer.report_store_call(operation, time.perf_counter() - began, outcome)
        raise
    except Exception:
        observer.report_store_call(operation, time.perf_counter() - began, "failed")
        raise
    observer.report_store_call(operation, time.perf_counter() - began, "ok")
