"""What every first turn needs and no setting changes: tables, schemas and libraries, slow to read and kept then."""

from __future__ import annotations

from typing import get_args

from thinklsp.http.gathering import load
from thinklsp.http.routes import well_known
from thinklsp.providers.catalog import lookup
from thinklsp.settings.user_file import KeyedProvider
from thinklsp.tools.registry import TOOLS, tool_specs
from thinklsp.workspace.protected import ProtectedPaths


def prepare() -> None:
    """For the thread that loads the engine: the event loop would stand still for it. Again it takes no time."""
    tool_specs(TOOLS)
    for provider in get_args(KeyedProvider):
        lookup(provider, "")
    ProtectedPaths()
    well_known()
    load()
