"""The part of the doctor report about the model of the next turn, which never contains a key."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pydantic.alias_generators import to_camel

from thinklsp.engine.turn_config import build_thinking_plan
from thinklsp.providers.model_info import Capabilities, ModelInfo
from thinklsp.settings.access import Access
from thinklsp.settings.sources import ResolvedSettings


def describe_model(resolved: ResolvedSettings, model: ModelInfo, access: Access | None) -> dict[str, Any]:
    plan = build_thinking_plan(resolved.settings, model)
    return {
        "provider": model.provider if access is None else access.provider,
        "providerSource": _find_source(resolved, "provider", "auto: the first provider with a key or a base URL"),
        "id": model.id,
        "idSource": _find_source(resolved, "model", "the provider's default"),
        "known": model.known,
        "contextWindow": model.context_window,
        "catalogue": _describe_catalogue_entry(model),
        "baseUrl": None if access is None else _hide_secrets(access.base_url),
        "baseUrlSource": "in-process" if access is None else access.base_url_source,
        "keySource": "none needed" if access is None else access.source,
        "thinking": plan.thinking.form,
        "thinkingSource": _find_source(resolved, "thinking.mode", "auto: the model's best mode"),
        "budgetTokens": plan.thinking.budget_tokens,
        "summary": plan.thinking.summary if plan.thinking.summarized else None,
        "effort": plan.thinking.effort or _format_default_effort(model),
        "effortSource": _find_source(resolved, "effort", "auto: the model decides"),
        "maxTokens": plan.max_tokens,
        "notices": list(plan.notices),
        "capabilities": None,
    }


def _format_default_effort(model: ModelInfo) -> str:
    return f"{model.default_effort} (the model's default)" if model.default_effort else "the model's default"


def _describe_catalogue_entry(model: ModelInfo) -> dict[str, Any]:
    """Describe the model's catalogue entry, including the user's changes to it.

    Prices are in US dollars per million tokens. An unknown value is null.
    """
    return {to_camel(key): value for key, value in asdict(model).items() if key not in ("provider", "id", "known")}


def describe_capabilities(capabilities: Capabilities | None, model_id: str) -> dict[str, Any] | None:
    if capabilities is None:
        return None
    return {
        "thinking": None if capabilities.thinking is None else list(capabilities.thinking),
        "efforts": None if capabilities.efforts is None else list(capabilities.efforts),
        "contextWindow": capabilities.find_window(model_id),
        "maxTokens": capabilities.max_tokens,
        "models": None if capabilities.models is None else list(capabilities.models),
    }


def _hide_secrets(url: str) -> str:
    """Remove the user name, password and query from a base URL, because they may contain an API key."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _find_source(resolved: ResolvedSettings, key: str, default: str) -> str:
    return resolved.sources.get(key, default)
