"""The report of `thinklsp doctor`, which lists the effective settings and suggests a fix for each problem.

The report never contains a key. Doctor creates no files and calls no model. To test the connection, it sends an empty
request and queries the model's capabilities, both free of charge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from thinklsp.core.errors import ThinkLspError
from thinklsp.core.server_context import LOCAL_IDENTITY, ClientIdentity
from thinklsp.engine.engine import Engine
from thinklsp.engine.environment_report import describe_environment
from thinklsp.engine.mcp_servers import describe_own_mcp_servers
from thinklsp.engine.model_report import describe_capabilities, describe_model
from thinklsp.engine.service_check import PROBE_SECONDS, check_key, find_url_surplus, probe_service, query_model
from thinklsp.engine.session_stores import open_session_store
from thinklsp.engine.skills import describe_skills, find_all_skills
from thinklsp.engine.turn_config import Choices
from thinklsp.sessions.sqlite_store import SqliteStore
from thinklsp.sessions.state_folder import resolve_state_folder
from thinklsp.sessions.store import SessionStore
from thinklsp.settings.access import list_keyed_providers
from thinklsp.settings.sources import EditorSettings
from thinklsp.tools.shadow_runner import explain_missing_sandbox
from thinklsp.workspace.view import WorkspaceView

_NO_PROVIDER: dict[str, Any] = {"providers": {"keyed": []}, "canRun": False}


async def run_diagnosis(
    environment: Mapping[str, str], view: WorkspaceView | None = None, *, identity: ClientIdentity = LOCAL_IDENTITY
) -> dict[str, Any]:
    """Build the doctor report for the given environment variables and folders, even if the settings are invalid."""
    store: SessionStore = SqliteStore(resolve_state_folder(environment))
    try:
        store = open_session_store(environment, identity)
        engine = Engine(environment, store, identity=identity)
    except ThinkLspError as error:
        problems = [str(error)]
        surroundings = await describe_environment(environment, store, problems)
        names = ("settings", "model", "reachable", "permissions", "commands", "skills", "mcp")
        await store.aclose()
        return {**surroundings, **dict.fromkeys(names), **_NO_PROVIDER, "problems": problems}
    try:
        return await build_report(engine, EditorSettings(), {}, view=view)
    finally:
        await engine.aclose()


async def build_report(
    engine: Engine,
    editor: EditorSettings,
    choices: Choices,
    *,
    view: WorkspaceView | None = None,
    probe: bool = True,
    probe_seconds: float = PROBE_SECONDS,
) -> dict[str, Any]:
    """Build the doctor report as a JSON object within `probe_seconds`. `view` contains the folders whose skills are
    reported. Each message in `problems` suggests a fix. `canRun` is true if a turn could probably start now."""
    problems: list[str] = [*filter(None, [engine.config.problem]), *engine.user.problems, *editor.unknown_sentences]
    resolved = engine.resolve_settings(editor, ("choice", choices))
    result: dict[str, Any] = {
        **await describe_environment(engine.user.environment, engine.store, problems, engine.permissions),
        "settings": {
            "file": engine.user.path,
            "sources": dict(resolved.sources),
            "values": resolved.settings.model_dump(by_alias=True),
        },
        "providers": {"keyed": list(list_keyed_providers(engine.user))},
        "permissions": _describe_permissions(engine, problems),
        "commands": await _describe_commands(engine, problems),
        "mcp": await describe_own_mcp_servers(engine.user, problems),
        "skills": await _describe_skills(engine, view or WorkspaceView(), problems),
    }
    try:
        provider, model = engine.resolve_target(resolved.settings)
        host = engine.resolve_host(provider)
        result["model"] = describe_model(resolved, model, host)
    except ThinkLspError as error:
        problems.append(str(error))
        return {**result, "model": None, "reachable": None, "canRun": False, "problems": problems}
    problems.extend([] if host is None else find_url_surplus(host))
    deadline = asyncio.get_running_loop().time() + probe_seconds
    # Run the key check and the connection check concurrently.
    has_key, reachable = await asyncio.gather(
        check_key(engine, provider, problems, probe_seconds),
        probe_service(engine, host, problems, probe_seconds) if probe and host is not None else _skip_probe(),
    )
    can_run = has_key and reachable is not False
    if not has_key:
        result["model"] = None
    elif reachable:
        capabilities, is_known = await query_model(engine, provider, model, deadline, problems)
        if host is not None and capabilities is not None and capabilities.models:
            engine.models.store_capabilities(host, capabilities)
            name = model.id or capabilities.models[0]
            used_settings = resolved.settings.model_copy(update={"provider": provider, "model": name})
            result["model"] = describe_model(
                replace(resolved, settings=used_settings), engine.resolve_target(used_settings)[1], host
            )
            if not model.id:
                result["model"]["idSource"] = "the server's first model"
        result["model"] |= {"capabilities": describe_capabilities(capabilities, result["model"]["id"])}
        can_run = can_run and is_known
    return {**result, "reachable": reachable, "canRun": can_run, "problems": problems}


def _describe_permissions(engine: Engine, problems: list[str]) -> dict[str, Any]:
    """Describe `permissions.toml`. If the file cannot be read, `trustedFolders` is null."""
    try:
        remembered = engine.permissions.read()
    except ThinkLspError as error:
        # Skip a problem that the file permission check has already reported.
        problems.extend({str(error)}.difference(problems))
        return {"file": engine.permissions.path, "trustedFolders": None}
    return {
        "file": engine.permissions.path,
        "trustedFolders": [trusted_folder.folder for trusted_folder in remembered.trusted],
    }


async def _describe_commands(engine: Engine, problems: list[str]) -> dict[str, Any]:
    """Report whether the model may run commands, and describe any problem with the sandbox."""
    enabled = engine.user.file.commands.enabled
    problem = await asyncio.to_thread(explain_missing_sandbox)
    if enabled and problem is not None:
        problems.append(f"Commands are enabled but cannot run. {problem}")
    return {"enabled": enabled, "offered": enabled and problem is None, "problem": problem}


async def _describe_skills(engine: Engine, view: WorkspaceView, problems: list[str]) -> dict[str, Any]:
    found = await asyncio.to_thread(find_all_skills, view, engine.user.path)
    problems.extend(found.faults)
    return describe_skills(found, engine.user.path)


async def _skip_probe() -> None:
    return None
