"""Whether a change of model, effort or thinking makes a service forget what it has cached of a session, and what that
costs: the next request then sends it all anew."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from thinklsp.core.errors import ThinkLspError
from thinklsp.core.usage import Usage
from thinklsp.engine.engine import Engine
from thinklsp.engine.turn import Choices
from thinklsp.engine.turn_config import plan_for
from thinklsp.providers.base import Thinking
from thinklsp.providers.model_info import ModelInfo
from thinklsp.sessions.session import Session
from thinklsp.settings import EditorSettings

Chosen = tuple[Choices, Choices]
"""The choices of the connection and of the session."""

# How long services keep what nobody has asked for again.
_KEPT = timedelta(hours=1)
_KEPT_BY_ANTHROPIC = timedelta(minutes=5)


async def dropped_cache(
    engine: Engine, editor: EditorSettings, session: Session, before: Chosen, after: Chosen
) -> str | None:
    """A sentence with the amount; None where nothing is lost."""
    try:
        then, now = _sent(engine, editor, *before), _sent(engine, editor, *after)
    except ThinkLspError:
        return None
    last = None if then == now else await engine.store.last_step(session.id)
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


def _sent(engine: Engine, editor: EditorSettings, connection: Choices, session: Choices) -> tuple[ModelInfo, Thinking]:
    settings = engine.resolved(editor, ("choice", connection), ("session", session)).settings
    _, model = engine.target(settings)
    return model, plan_for(settings, model).thinking


def _drops(then: tuple[ModelInfo, Thinking], now: tuple[ModelInfo, Thinking]) -> bool:
    """No service shares a cache between models; Anthropic's also ends where thinking or effort change."""
    if then[0].id != now[0].id or then[0].provider != now[0].provider:
        return True
    return then[0].provider in ("anthropic", "simulator")
