"""The section `[serve]` of the user's file: a server for many clients, with `--ws` or `--tcp`."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from thinklsp.settings.oidc_section import OidcSection
from thinklsp.settings.section import Section

DEFAULT_MAX_CLIENTS = 64


class ServeSection(Section):
    """The section `[serve]`. A running server does not read it again."""

    model_config = ConfigDict(strict=True)

    max_clients: int = Field(
        DEFAULT_MAX_CLIENTS, ge=1, le=10_000, description="Maximum number of clients of a process with --ws or --tcp."
    )
    drain_seconds: int = Field(
        30,
        ge=0,
        le=3_600,
        description="Seconds that running turns have to finish after SIGTERM. The server starts no new turn then.",
    )
    oidc: OidcSection | None = Field(
        None, description="Identity provider whose tokens identify the clients of `thinklsp --ws`."
    )
