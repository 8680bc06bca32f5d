"""Whether a change of model, effort or thinking makes a service forget what it has cached of a session, and what that
costs: the next request then sends it all anew."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from thinklsp.core.usage import Usage
from thinklsp.providers.base import Thinking
from thinklsp.providers.model_info import ModelInfo
from thinklsp.sessions.store import SessionStore

Sent = tuple[ModelInfo, Thinking]
"""What decides whether a service finds a session in its cache."""

_MAX_SESSIONS = 64

# How long services keep what nobody has asked for again.
_KEPT = timedelta(hours=1)
_KEPT_BY_ANTHROPIC = timedelta(minutes=5)


class LastSent:
    """What the newest turn of each session has sent. Mutable, owned by the engine; forgets the oldest session."""

    def __init__(self) -> None:
        self._sent: dict[str, Sent] = {}

    def swap(self, session_id: str, now: Sent) -> Sent | None:
        """Keep what is sent now. Return what was sent before, if known."""
        former = self._sent.pop(session_id, None)
        self._sent[session_id] = now
        if len(self._sent) > _MAX_SESSIONS:
            del self._sent[next(iter(self._sent))]
        return former


async def dropped_cache(store: SessionStore, session_id: str, then: Sent, now: Sent) -> str | None:
    """Return a sentence with the tokens and their cost; None if nothing is lost."""
    last = None if then == now else await store.last_step(session_id)
    if last is None or not _drops(then, now) or last.spent.model != then[0].id:
        return None
    kept = _KEPT_BY_ANTHROPIC if last.spent.provider == "anthropic" else _KEPT
    tokens = (last.spent.usage.cache_read_tokens or 0) + (last.spent.usage.cache_write_tokens or 0)
    if not tokens or datetime.now(UTC) - last.at > kept:
        return None
    price = now[0].price
    cost = None if price is None else price.cost(Usage(tokens, 0, cache_write_tokens=tokens))
    dear = "its cost is unknown" if cost is None else f"about ${cost:.4f}"
    return f"This drops the service's prompt cache: the next request sends {tokens:,} cached tokens anew, {dear}."


def _drops(then: Sent, now: Sent) -> bool:
    """No service shares a cache between models; Anthropic's also ends where thinking or effort change."""
    if then[0].id != now[0].id or then[0].provider != now[0].provider:
        return True
    return then[0].provider in ("anthropic", "simulator")
