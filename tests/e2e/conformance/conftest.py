"""The editors of these tests are on pytest-lsp: what they send and take are lsprotocol objects."""

from __future__ import annotations

import pytest

from tests.support.client.actions import Editing
from tests.support.client.lsp import LspClient


@pytest.fixture
def client_class() -> type[Editing]:
    return LspClient
