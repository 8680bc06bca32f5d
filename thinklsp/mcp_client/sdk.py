"""The loader of the MCP SDK, an optional dependency that takes more than a second and 60 MB to import.

Only `sdk_session`, `stdio_transport`, `http_transport` and `result_conversion` import the SDK. This module imports
them in a thread, when the first configured server starts.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING

from thinklsp.core.errors import McpFailed, format_install_command
from thinklsp.core.import_context import reduce_gc, switch_threads_often

if TYPE_CHECKING:
    from thinklsp.mcp_client.sdk_session import SdkSession

REQUIREMENT = "mcp>=2.3,<3"
_MODULE = "thinklsp.mcp_client.sdk_session"
# The first use of anyio would import this module on the event loop, which takes 20 ms.
_LATE_MODULE = "anyio._backends._asyncio"
# The SDK logs parts of messages and the URLs of requests.
_SILENT_LOGGERS = ("mcp", "httpx2", "httpcore2")


def explain_missing_sdk() -> str | None:
    """Return a sentence that names the command that installs the SDK, or None if the SDK is installed."""
    if find_spec("mcp") is not None:
        return None
    return f"MCP servers need one more package. Run {format_install_command(REQUIREMENT)} and restart thinklsp."


async def load_session_class() -> type[SdkSession]:
    """Import the SDK in a thread and return the class of sessions. Raises McpFailed if the SDK cannot be used."""
    return await asyncio.to_thread(_load)


def _load() -> type[SdkSession]:
    if (problem := explain_missing_sdk()) is not None:
        raise McpFailed(problem)
    for name in _SILENT_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with reduce_gc(), switch_threads_often():
            session: type[SdkSession] = importlib.import_module(_MODULE).SdkSession
            importlib.import_module(_LATE_MODULE)
    except ImportError as error:
        command = format_install_command(REQUIREMENT)
        raise McpFailed(f"The installed package `mcp` cannot be used ({error.name}). Run {command}.") from None
    return session
