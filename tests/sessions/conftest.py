"""The fixture `somebody`, a user in a tenant that no other test uses."""

from __future__ import annotations

import pytest

from tests.support.postgres_server import PostgresServer
from thinklsp.core.server_context import ClientIdentity


@pytest.fixture
def somebody(postgres: PostgresServer) -> ClientIdentity:
    return postgres.create_identity()
