"""The report of `thinklsp doctor`: what would be used, why, and how to mend what is wrong. Never a key.

It asks no model anything and makes nothing: what leaves the machine is an empty request, to see whether the way to
the service is open, and the question what the model can do, which costs nothing.
"""

from __future__ import annotations

import asyncio
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pydantic.alias_generators import to_camel

from thinklsp import __version__
from thinklsp.core.body import Body
from thinklsp.core.errors import AuthenticationFailed, HeaderRefused, ThinkLspError
from thinklsp.engine.adapters import adapter_for, endpoint_of
from thinklsp.engine.engine import Engine
from thinklsp.engine.own_files import own_files
from thinklsp.engine.turn import Choices
from thinklsp.engine.turn_config import plan_for
from thinklsp.providers.capabilities import Capabilities, contradictions
from thinklsp.providers.model_info import ModelInfo
from thinklsp.sessions.sqlite_store import MemoryStore, SqliteStore
from thinklsp.sessions.state_folder import StateReport, inspect, state_folder
from thinklsp.sessions.store import SessionStore
from thinklsp.settings import Access, EditorSettings, Provider, Resolved, keyed_providers, keyring_entry
from thinklsp.tools.ripgrep import find_ripgrep
from thinklsp.tools.shadow_runner import sandbox_problem

_PROBE_SECONDS = 3.0
_DESCRIPTION_BYTES = 256 * 1024


async def diagnose(environment: Mapping[str, str]) -> dict[str, Any]:
    """The report for a process with this environment, also where its settings keep an engine from being made."""
    store = SqliteStore(state_folder(environment))
    try:
        engine = Engine(environment, store)
    except ThinkLspError as error:
        problems = [str(error)]
        found = await _surroundings(environment, store, problems)
        nothing: dict[str, Any] = {"settings": None, "providers": {"keyed": []}, "model": None, "reachable": None}
        nothing |= {"permissions": None, "commands": None}
        await store.aclose()
        return {**found, **nothing, "canRun": False, "problems": problems}
    try:
        return await report(engine, EditorSettings(), {})
    finally:
        await engine.aclose()


async def report(engine: Engine, editor: EditorSettings, choices: Choices, *, probe: bool = True) -> dict[str, Any]:
    """Plain JSON values. `problems` are sentences that each name a fix. It takes three seconds at most.

    `canRun`: a turn that begins now would get through, as far as can be told without a model call.
    """
    problems: list[str] = [*filter(None, [engine.config.problem]), *engine.user.problems, *editor.unknown]
    resolved = engine.resolved(editor, ("choice", choices))
    found: dict[str, Any] = {
        **await _surroundings(engine.user.environment, engine.store, problems),
        "settings": {
            "file": engine.user.path,
            "sources": dict(resolved.sources),
            "values": resolved.settings.model_dump(by_alias=True),
        },
        "providers": {"keyed": list(keyed_providers(engine.user))},
        "permissions": _permissions(engine, problems),
        "commands": await _commands(engine, problems),
    }
    try:
        provider, model = engine.target(resolved.settings)
        host = engine.host(provider)
        found["model"] = _model(resolved, model, host)
    except ThinkLspError as error:
        problems.append(str(error))
        return {**found, "model": None, "reachable": None, "canRun": False, "problems": problems}
    deadline = asyncio.get_running_loop().time() + _PROBE_SECONDS
    # Side by side: together they may take no longer than one of them.
    has_key, reachable = await asyncio.gather(
        _has_key(engine, provider, problems),
        _reachable(engine, host, problems) if probe and host is not None else _not_tried(),
    )
    can_run = has_key and reachable is not False
    if not has_key:
        found["model"] = None
    elif reachable:
        told, known = await _described(engine, provider, model, deadline, problems)
        if host is not None and told is not None and told.models:
            engine.models.keep(host, told)
            name = model.id or told.models[0]
            used = resolved.settings.model_copy(update={"provider": provider, "model": name})
            found["model"] = _model(replace(resolved, settings=used), engine.target(used)[1], host)
            if not model.id:
                found["model"]["idSource"] = "the server's first"
        found["model"] |= {"capabilities": _capabilities(told, found["model"]["id"])}
        can_run = can_run and known
    return {**found, "reachable": reachable, "canRun": can_run, "problems": problems}


async def _surroundings(environment: Mapping[str, str], store: SessionStore, problems: list[str]) -> dict[str, Any]:
    """What does not depend on settings: the program, its own folder, the programs it uses."""
    state = inspect(state_folder(environment))
    problems.extend(state.problems)
    files = own_files(state, environment)
    problems.extend(file.problem for file in files if file.problem is not None and file.problem not in problems)
    has_ripgrep = bool(find_ripgrep(()))
    if not has_ripgrep:
        problems.append("ripgrep was not found; search uses a slower fallback. Install the package ripgrep.")
    return {
        "version": __version__,
        "system": {"python": platform.python_version(), "platform": sys.platform},
        "files": [file.json() for file in files],
        "tools": {"ripgrep": has_ripgrep, "sandbox": await asyncio.to_thread(sandbox_problem) is None},
        "store": {
            **await _sessions(store, state, problems),
            "folder": state.folder,
            "folderExists": state.exists,
            "log": state.log,
            "logBytes": state.log_bytes,
        },
    }


def _permissions(engine: Engine, problems: list[str]) -> dict[str, Any]:
    """What the user has allowed while working. Where it cannot be read nothing of it counts."""
    try:
        remembered = engine.permissions.read()
    except ThinkLspError as error:
        # Its mode may have been found wrong already.
        problems.extend({str(error)}.difference(problems))
        return {"file": engine.permissions.path, "trustedFolders": None}
    return {"file": engine.permissions.path, "trustedFolders": [each.folder for each in remembered.trusted]}


async def _commands(engine: Engine, problems: list[str]) -> dict[str, Any]:
    """Whether the model may run commands, and why it cannot where it may."""
    enabled = engine.user.file.commands.enabled
    problem = await asyncio.to_thread(sandbox_problem)
    if enabled and problem is not None:
        problems.append(f"Commands are enabled and cannot be run. {problem}")
    return {"enabled": enabled, "offered": enabled and problem is None, "problem": problem}


async def _sessions(store: SessionStore, state: StateReport, problems: list[str]) -> dict[str, Any]:
    """How sessions are kept. Where no database has been made yet, none is made for this report."""
    if not isinstance(store, MemoryStore) and not state.store_exists:
        nothing = {"protection": None, "databaseExists": False, "sessions": 0, "bytes": 0}
        return {"kind": "file", "path": state.store, **nothing}
    condition = await store.condition()
    problems.extend(problem for problem in condition.problems if problem not in problems)
    exists = condition.kind != "memory"
    return {
        "kind": condition.kind,
        "path": condition.place or None,
        "protection": condition.protection,
        "databaseExists": exists,
        "sessions": condition.sessions,
        "bytes": condition.size,
    }


def _model(resolved: Resolved, model: ModelInfo, access: Access | None) -> dict[str, Any]:
    plan = plan_for(resolved.settings, model)
    return {
        "provider": model.provider if access is None else access.provider,
        "providerSource": _source(resolved, "provider", "auto: the first with a key or an address"),
        "id": model.id,
        "idSource": _source(resolved, "model", "the provider's default"),
        "known": model.known,
        "contextWindow": model.context_window,
        "catalogue": _row(model),
        "baseUrl": None if access is None else _without_secrets(access.base_url),
        "baseUrlSource": "in-process" if access is None else access.base_url_source,
        "keySource": "none needed" if access is None else access.source,
        "thinking": plan.thinking.form,
        "thinkingSource": _source(resolved, "thinking.mode", "auto: the best that the model has"),
        "budgetTokens": plan.thinking.budget_tokens,
        "summary": plan.thinking.summary if plan.thinking.summarized else None,
        "effort": plan.thinking.effort or _own_effort(model),
        "effortSource": _source(resolved, "effort", "auto: nothing is sent"),
        "maxTokens": plan.max_tokens,
        "notices": list(plan.notices),
        "capabilities": None,
    }


def _own_effort(model: ModelInfo) -> str:
    return f"{model.default_effort} (the model's default)" if model.default_effort else "the model's own"


def _row(model: ModelInfo) -> dict[str, Any]:
    """What the catalogue says of the model, the user's own entries included. Prices in US dollars for a million
    tokens; what is not known is null."""
    return {to_camel(key): value for key, value in asdict(model).items() if key not in ("provider", "id", "known")}


def _without_secrets(url: str) -> str:
    """A base URL as it may be shown: some people put a password or a key into it."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _source(resolved: Resolved, key: str, default: str) -> str:
    return resolved.sources.get(key, default)


async def _has_key(engine: Engine, provider: Provider, problems: list[str]) -> bool:
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            await engine.access(provider)
    except TimeoutError:
        problems.append(_late_key(engine, provider))
        return False
    except ThinkLspError as error:
        problems.append(str(error))
        return False
    return True


def _late_key(engine: Engine, provider: Provider) -> str:
    if provider != "auto" and provider != "simulator" and keyring_entry(provider, engine.user) is not None:
        return f"The keyring did not answer within {_PROBE_SECONDS:.0f} seconds. Unlock it and try again."
    said = f"The key command for {provider} did not end within {_PROBE_SECONDS:.0f} seconds."
    return f"{said} Run it in a terminal to see why."


async def _not_tried() -> None:
    return None


async def _reachable(engine: Engine, access: Access, problems: list[str]) -> bool:
    """Any HTTP answer counts, a refusal too: the question is whether the way there is open. Costs no tokens."""
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            async with engine.transport.post(access.base_url, {}, Body(())):
                return True
    except (ThinkLspError, TimeoutError) as error:
        reason = str(error) or f"It did not answer within {_PROBE_SECONDS:.0f} seconds."
        problems.append(f"{access.provider} cannot be reached. {reason}")
        return False


def _capabilities(told: Capabilities | None, model_id: str) -> dict[str, Any] | None:
    if told is None:
        return None
    return {
        "thinking": None if told.thinking is None else list(told.thinking),
        "efforts": None if told.efforts is None else list(told.efforts),
        "contextWindow": told.window_of(model_id),
        "maxTokens": told.max_tokens,
        "models": None if told.models is None else list(told.models),
    }


async def _described(
    engine: Engine, provider: Provider, model: ModelInfo, deadline: float, problems: list[str]
) -> tuple[Capabilities | None, bool]:
    """What the service says of the model, and whether key and model are known to it as far as it says."""
    access = await engine.access(provider)
    if access is None:
        raise AssertionError("this provider has a host")
    adapter, endpoint = adapter_for(provider, access), endpoint_of(access)
    query = adapter.encode_model_query(endpoint, model.id)
    try:
        async with asyncio.timeout_at(deadline), engine.transport.get(*query) as answer:
            status, headers, body = answer.status, answer.headers, await answer.read(_DESCRIPTION_BYTES)
    except HeaderRefused as error:
        # The knock had neither key nor headers.
        problems.append(f"{error} {_whose_key(access)}")
        return None, False
    except (ThinkLspError, TimeoutError):
        # It could be reached a moment ago; a server that is slow to describe its models may answer turns well.
        return None, True
    failure = adapter.failure(status, headers, body, model.id) if status >= 400 else None
    is_wrong_key = isinstance(failure, AuthenticationFailed) and status != 403
    if is_wrong_key or adapter.is_unknown_model(status, body, model.id):
        problems.append(endpoint.without_secrets(str(failure)))
        return None, False
    told = adapter.parse_capabilities(body) if status == 200 else None
    problems.extend(contradictions(model, told) if told else ())
    if told is not None and told.models == ():
        problems.append(f"The server at {access.base_url} has no model yet. Load one there.")
        return told, False
    lists_models = provider == "openai-compatible"
    if told is None and (status == 404 or (lists_models and status < 400)) and (hint := _hint(provider, access)):
        found = "nothing" if status == 404 else "something else"
        problems.append(f"{access.provider} was asked for its models and has {found} there ({status}). {hint}")
        return None, not lists_models or bool(model.id)
    return told, True


def _whose_key(access: Access) -> str:
    headers = f", and the headers of {access.provider} in your config.toml" if access.headers else ""
    return f"Look at the key, from {access.source}{headers}, for a line break or a quotation mark."


def _hint(provider: Provider, access: Access) -> str:
    """What is likely wrong with the base URL; empty where nothing looks so. Servers need not describe their models."""
    last = urlsplit(access.base_url).path.rpartition("/")[2]
    if provider in ("anthropic", "google"):
        return f"Leave /{last} out at the end of the base URL." if re.fullmatch(r"v\d\w*", last) else ""
    if provider == "openai" and last:
        return ""
    return "Check the base URL, which usually ends in /v1."
