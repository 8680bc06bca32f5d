"""The report of `thinklsp doctor`, which lists the effective settings and suggests a fix for each problem.

The report never contains a key. Doctor creates no files and calls no model. To test the connection, it sends an empty
request and queries the model's capabilities, both free of charge.
"""

from __future__ import annotations

import asyncio
import glob
import os
import platform
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pydantic.alias_generators import to_camel

from thinklsp import __version__
from thinklsp.core.errors import (
    AuthenticationFailed,
    HeaderRefused,
    SessionError,
    SettingsError,
    ThinkLspError,
    format_install_command,
)
from thinklsp.core.server_context import LOCAL_IDENTITY, ClientIdentity
from thinklsp.engine.connections import build_endpoint, select_adapter
from thinklsp.engine.engine import Engine
from thinklsp.engine.instructions import describe_skills, find_all_skills
from thinklsp.engine.mcp_servers import describe_own_mcp_servers
from thinklsp.engine.session_stores import open_session_store
from thinklsp.engine.turn_config import Choices, build_thinking_plan
from thinklsp.providers.catalogue import Capabilities, ModelInfo, find_contradictions
from thinklsp.sessions.sqlite_store import SqliteStore
from thinklsp.sessions.state_folder import (
    StateReport,
    inspect_state_folder,
    is_owned,
    read_status,
    resolve_state_folder,
)
from thinklsp.sessions.store import SessionStore
from thinklsp.settings.access import PROVIDERS, Access, find_key_source, list_keyed_providers
from thinklsp.settings.config_files import explain_distrust, find_config_path, read_text
from thinklsp.settings.model import Provider
from thinklsp.settings.permissions import PermissionsFile
from thinklsp.settings.sources import EditorSettings, ResolvedSettings
from thinklsp.symbols.outline import explain_missing_grammars
from thinklsp.tools.search import RIPGREP_REQUIREMENT, find_ripgrep
from thinklsp.tools.shadow_runner import explain_missing_sandbox
from thinklsp.workspace.view import WorkspaceView

# Text that indicates a secret in the settings file: headers, or a password in a URL.
_SECRET_MARKERS = ("headers", "@")


def describe_own_files(
    state: StateReport, environment: Mapping[str, str], permissions: PermissionsFile | None = None
) -> list[dict[str, Any]]:
    """Describe the files that contain the user's settings and stored data.

    `mode` is octal, `mine` is true if the user owns the file, and `problem` suggests a fix. Links are followed only for
    settings files, because many users store these files elsewhere.
    """
    config = find_config_path(environment)
    files = [*_describe_store(state.store), *_describe_settings(config, "config.toml")]
    files += _describe_settings((permissions or PermissionsFile.locate_beside(config)).path, "permissions.toml")
    if (folder := read_status(os.path.dirname(config))) is not None:
        files.append(_describe_file(os.path.dirname(config), folder, _check_folder(os.path.dirname(config), folder)))
    return files


def _describe_store(database: str) -> Iterator[dict[str, Any]]:
    """Describe the state folder, and the database with its log files and backups."""
    folder = os.path.dirname(database)
    for path in (folder, *sorted(glob.glob(f"{glob.escape(database)}*"))):
        status = read_status(path, follow=False)
        if status is not None:
            yield _describe_file(path, status, _check_private(path, status))


def _check_private(path: str, status: os.stat_result) -> str | None:
    if not is_owned(status):
        return f"{path} belongs to another user. Set `THINKLSP_STATE_DIR` to a folder that you own."
    if status.st_mode & 0o077:
        return f"{path} can be read by other users. Run `chmod {700 if stat.S_ISDIR(status.st_mode) else 600} {path}`."
    return None


def _describe_settings(path: str, name: str) -> Iterator[dict[str, Any]]:
    if (status := read_status(path)) is None:
        return
    problem = explain_distrust(status, path, name)
    if problem is None and status.st_mode & 0o044 and _has_secrets(path, name):
        problem = f"Your {name} may contain secrets and can be read by other users. Run `chmod 600 {path}`."
    yield _describe_file(path, status, problem)


def _has_secrets(path: str, name: str) -> bool:
    try:
        text = read_text(path, name)
    except SettingsError:
        return False
    return any(sign in text for sign in _SECRET_MARKERS)


def _check_folder(path: str, status: os.stat_result) -> str | None:
    """Return an error message if other users can replace files in the folder."""
    if status.st_uid not in (os.getuid(), 0):
        return f"The settings folder {path} belongs to another user. Move your settings to a folder that you own."
    # In a sticky folder, users cannot replace each other's files.
    if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        return f"Other users can change the settings folder {path}. Run `chmod 700 {path}`."
    return None


def _describe_file(path: str, status: os.stat_result, problem: str | None) -> dict[str, Any]:
    mode = f"{stat.S_IMODE(status.st_mode):04o}"
    return {"path": path, "mode": mode, "mine": is_owned(status), "problem": problem}


async def describe_store(store: SessionStore, state: StateReport, problems: list[str]) -> dict[str, Any]:
    """Describe the session store without creating the database."""
    nothing = {"protection": None, "databaseExists": False, "sessions": 0, "bytes": 0}
    if isinstance(store, SqliteStore) and not state.store_exists:
        return {"kind": "file", "path": state.store, **nothing}
    try:
        condition = await store.read_status()
    except SessionError as error:
        problems.append(str(error))
        return {"kind": "postgresql", "path": None, **nothing}
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


async def describe_environment(
    environment: Mapping[str, str],
    store: SessionStore,
    problems: list[str],
    permissions: PermissionsFile | None = None,
) -> dict[str, Any]:
    """Describe the installation and the system: version, platform, files, tools and session store."""
    state = inspect_state_folder(resolve_state_folder(environment))
    problems.extend(state.problems)
    files = describe_own_files(state, environment, permissions)
    problems.extend(file["problem"] for file in files if file["problem"] not in (None, *problems))
    has_ripgrep = bool(find_ripgrep(()))
    if not has_ripgrep:
        command = format_install_command(RIPGREP_REQUIREMENT)
        problems.append(f"ripgrep was not found, so the model cannot search. Run {command}.")
    problems += await asyncio.to_thread(explain_missing_grammars)
    return {
        "version": __version__,
        "system": {"python": platform.python_version(), "platform": sys.platform},
        "files": files,
        "tools": {"ripgrep": has_ripgrep, "sandbox": await asyncio.to_thread(explain_missing_sandbox) is None},
        "store": {
            **await describe_store(store, state, problems),
            "folder": state.folder,
            "folderExists": state.exists,
            "log": state.log,
            "logBytes": state.log_bytes,
        },
    }


def describe_model(resolved: ResolvedSettings, model: ModelInfo, access: Access | None) -> dict[str, Any]:
    """Describe the model of the next turn. Prices in its catalogue entry are in US dollars per million tokens."""
    plan = build_thinking_plan(resolved.settings, model)
    default_effort = f"{model.default_effort} (the model's default)" if model.default_effort else "the model's default"
    entry = {to_camel(key): value for key, value in asdict(model).items() if key not in ("provider", "id", "known")}
    find_source = resolved.sources.get
    return {
        "provider": model.provider if access is None else access.provider,
        "providerSource": find_source("provider", "auto: the first provider with a key or a base URL"),
        "id": model.id,
        "idSource": find_source("model", "the provider's default"),
        "known": model.known,
        "contextWindow": model.context_window,
        "catalogue": entry,
        "baseUrl": None if access is None else _hide_secrets(access.base_url),
        "baseUrlSource": "in-process" if access is None else access.base_url_source,
        "keySource": "none needed" if access is None else access.source,
        "thinking": plan.thinking.form,
        "thinkingSource": find_source("thinking.mode", "auto: the model's best mode"),
        "budgetTokens": plan.thinking.budget_tokens,
        "summary": plan.thinking.summary if plan.thinking.summarized else None,
        "effort": plan.thinking.effort or default_effort,
        "effortSource": find_source("effort", "auto: the model decides"),
        "maxTokens": plan.max_tokens,
        "notices": list(plan.notices),
        "capabilities": None,
    }


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


PROBE_SECONDS = 3.0
_MAX_DESCRIPTION_BYTES = 256 * 1024


async def check_key(engine: Engine, provider: Provider, problems: list[str], seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await engine.connections.resolve_access(provider)
    except TimeoutError:
        is_keyring = (
            provider != "auto" and provider != "simulator" and isinstance(find_key_source(provider, engine.user), str)
        )
        problems.append(
            f"The keyring did not respond within {seconds:.0f} seconds. Unlock the keyring and try again."
            if is_keyring
            else f"The key command for {provider} did not finish within {seconds:.0f} seconds. Run the command in a "
            "terminal to see why."
        )
        return False
    except ThinkLspError as error:
        problems.append(str(error))
        return False
    return True


def find_url_surplus(host: Access) -> list[str]:
    """Return a sentence if the base URL ends with a part of the path that thinklsp adds itself."""
    surplus = re.search(PROVIDERS[host.provider].added_path, urlsplit(host.base_url).path)
    if surplus is None:
        return []
    told = f"The base URL of {host.provider} ends with `{surplus[0]}`, which thinklsp adds itself."
    return [f"{told} Remove `{surplus[0]}` from the end of the base URL."]


async def probe_service(engine: Engine, access: Access | None, problems: list[str], seconds: float) -> bool | None:
    """Return True if the service responds to an empty request, even with an HTTP error. The request costs no tokens.

    Return None without a service.
    """
    if access is None:
        return None
    try:
        async with asyncio.timeout(seconds):
            async with engine.transport.post(access.base_url, {}, b""):
                return True
    except (ThinkLspError, TimeoutError) as error:
        reason = str(error) or f"There was no response within {seconds:.0f} seconds."
        problems.append(f"{access.provider} cannot be reached. {reason}")
        return False


async def query_model(
    engine: Engine, provider: Provider, model: ModelInfo, deadline: float, problems: list[str]
) -> tuple[Capabilities | None, bool]:
    """Query the service for the model's capabilities.

    The second result is False if the service rejects the key or the model.
    """
    access = await engine.connections.resolve_access(provider)
    if access is None:
        raise AssertionError("only the simulator has no host")
    adapter, endpoint = select_adapter(provider, access), build_endpoint(access)
    query = adapter.encode_model_query(endpoint, model.id)
    try:
        async with asyncio.timeout_at(deadline), engine.transport.get(*query) as answer:
            status, headers, body = answer.status, answer.headers, await answer.read(_MAX_DESCRIPTION_BYTES)
    except HeaderRefused as error:
        # Only this request contains the key and the user's headers, so the connection check cannot detect invalid ones.
        more = f" and the headers of {access.provider} in your config.toml" if access.headers else ""
        problems.append(f"{error} Check the key from {access.source}{more} for line breaks and quotation marks.")
        return None, False
    except (ThinkLspError, TimeoutError):
        # The service has responded to the empty request, so turns can run even if listing its models takes too long.
        return None, True
    failure = adapter.parse_failure(status, headers, body, model.id) if status >= 400 else None
    is_wrong_key = isinstance(failure, AuthenticationFailed) and status != 403
    if is_wrong_key or adapter.is_unknown_model(status, body, model.id):
        problems.append(endpoint.hide_secrets(str(failure)))
        return None, False
    capabilities = adapter.parse_capabilities(body) if status == 200 else None
    if capabilities is not None:
        problems.extend(find_contradictions(model, capabilities))
        if capabilities.models == ():
            problems.append(f"The server at {access.base_url} has no models. Load a model on the server.")
        return capabilities, capabilities.models != ()
    lists_models = provider == "openai-compatible"
    if (status == 404 or (lists_models and status < 400)) and (hint := _suggest_url_fix(provider, access)):
        problems.append(f"{access.provider} did not return a list of its models (HTTP status {status}). {hint}")
        return None, not lists_models or bool(model.id)
    return None, True


def _suggest_url_fix(provider: Provider, access: Access) -> str:
    """Return advice if the base URL looks wrong, or an empty string otherwise."""
    if provider in ("anthropic", "google") or (provider == "openai" and urlsplit(access.base_url).path):
        return ""
    return "Check the base URL, which usually ends in `/v1`."


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
        report = await build_report(engine, EditorSettings(), {}, view=view)
        # `thinklsp ask` refuses invalid settings.
        return {**report, "canRun": report["canRun"] and not engine.user.rejected}
    finally:
        await engine.aclose()


async def build_report(
    engine: Engine,
    editor: EditorSettings,
    choices: Choices,
    *,
    view: WorkspaceView | None = None,
    probe_seconds: float = PROBE_SECONDS,
) -> dict[str, Any]:
    """Build the doctor report as a JSON object within `probe_seconds`.

    `view` contains the folders whose skills are reported. Each message in `problems` suggests a fix. `canRun` is true
    if a turn could probably start now.
    """
    problems: list[str] = [*filter(None, [engine.config.problem]), *engine.user.problems, *editor.unknown_sentences]
    resolved = engine.resolve_settings(editor, ("choice", choices))
    skills = await asyncio.to_thread(find_all_skills, view or WorkspaceView(), engine.user.path)
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
        "skills": describe_skills(skills, engine.user.path),
    }
    problems.extend(skills.faults)
    return {**result, **await _check_model(engine, resolved, problems, probe_seconds), "problems": problems}


async def _check_model(
    engine: Engine, resolved: ResolvedSettings, problems: list[str], seconds: float
) -> dict[str, Any]:
    """Describe the model of the next turn, and report whether its service responds and whether a turn could start."""
    try:
        provider, model = engine.resolve_target(resolved.settings)
        host = engine.connections.resolve_host(provider)
        description = describe_model(resolved, model, host)
    except ThinkLspError as error:
        problems.append(str(error))
        return {"model": None, "reachable": None, "canRun": False}
    problems.extend([] if host is None else find_url_surplus(host))
    deadline = asyncio.get_running_loop().time() + seconds
    # Run the key check and the connection check concurrently.
    has_key, reachable = await asyncio.gather(
        check_key(engine, provider, problems, seconds), probe_service(engine, host, problems, seconds)
    )
    if not has_key:
        return {"model": None, "reachable": reachable, "canRun": False}
    is_known = True
    if reachable:
        capabilities, is_known = await query_model(engine, provider, model, deadline, problems)
        if host is not None and capabilities is not None and capabilities.models:
            engine.connections.store_capabilities(host, capabilities)
            name = model.id or capabilities.models[0]
            used = resolved.settings.model_copy(update={"provider": provider, "model": name})
            description = describe_model(replace(resolved, settings=used), engine.resolve_target(used)[1], host)
            if not model.id:
                description["idSource"] = "the server's first model"
        description["capabilities"] = describe_capabilities(capabilities, description["id"])
    return {"model": description, "reachable": reachable, "canRun": is_known and reachable is not False}


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
