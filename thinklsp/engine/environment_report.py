"""The parts of the doctor report about the installation and the system, which need no provider."""

from __future__ import annotations

import asyncio
import platform
import sys
from collections.abc import Mapping
from typing import Any

from thinklsp import __version__
from thinklsp.engine.store_report import describe_store
from thinklsp.engine.user_config import describe_own_files
from thinklsp.sessions.state_folder import inspect_state_folder, resolve_state_folder
from thinklsp.sessions.store import SessionStore
from thinklsp.settings.permissions import PermissionsFile
from thinklsp.symbols.outline import explain_missing_grammars
from thinklsp.tools.search import find_ripgrep
from thinklsp.tools.shadow_runner import explain_missing_sandbox


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
        problems.append("ripgrep was not found, so searching is slower. Install the package `ripgrep`.")
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
