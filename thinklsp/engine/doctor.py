"""The report of `thinklsp doctor`: what would be used, why, and how to mend what is wrong. Never a key."""

from __future__ import annotations

import asyncio
from typing import Any

from thinklsp import __version__
from thinklsp.core.errors import ThinkLspError
from thinklsp.engine.engine import Engine, plan_for
from thinklsp.engine.turn import Choices
from thinklsp.settings import Access, EditorSettings, keyed_providers
from thinklsp.tools.ripgrep import find_ripgrep

_PROBE_SECONDS = 3.0


async def report(engine: Engine, editor: EditorSettings, choices: Choices, *, probe: bool = True) -> dict[str, Any]:
    """Plain JSON values. `problems` are sentences that each name a fix; network probes take at most three seconds."""
    problems: list[str] = list(engine.user.problems)
    resolved = engine.resolved(editor, ("choice", choices))
    found: dict[str, Any] = {
        "version": __version__,
        "settings": {
            "file": engine.user.path,
            "sources": dict(resolved.sources),
            "values": resolved.settings.model_dump(by_alias=True),
        },
        "providers": {"keyed": list(keyed_providers(engine.user))},
        "tools": _tools(problems),
        "store": {"kind": "memory", "note": "sessions last as long as the server"},
    }
    try:
        provider, model = engine.target(resolved.settings)
        plan = plan_for(resolved.settings, model)
        access = engine.access(provider)
    except ThinkLspError as error:
        problems.append(str(error))
        return {**found, "model": None, "reachable": None, "problems": problems}
    found["model"] = {
        "provider": provider,
        "id": model.id,
        "known": model.known,
        "contextWindow": model.context_window,
        "baseUrl": None if access is None else access.base_url,
        "baseUrlSource": "in-process" if access is None else access.base_url_source,
        "keySource": "none needed" if access is None else access.source,
        "thinking": plan.thinking.form,
        "budgetTokens": plan.thinking.budget_tokens,
        "effort": plan.thinking.effort or f"{model.default_effort or 'none'} (the model's default)",
        "maxTokens": plan.max_tokens,
        "notices": list(plan.notices),
    }
    found["reachable"] = await _reachable(engine, access, problems) if probe and access is not None else None
    return {**found, "problems": problems}


def _tools(problems: list[str]) -> dict[str, Any]:
    ripgrep = find_ripgrep(())
    if ripgrep is None:
        problems.append("ripgrep was not found; search uses a slower fallback. Install the package ripgrep.")
    return {"ripgrep": ripgrep is not None}


async def _reachable(engine: Engine, access: Access, problems: list[str]) -> bool:
    """Any HTTP answer counts, a refusal too: the question is whether the way there is open. Costs no tokens."""
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            async with engine.transport.post(access.base_url, {}, b""):
                return True
    except (ThinkLspError, TimeoutError) as error:
        reason = str(error) or "It did not answer within 3 seconds."
        problems.append(f"{access.provider} cannot be reached. {reason}")
        return False
