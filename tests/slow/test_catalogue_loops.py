"""A whole tool loop for every model × mode × effort × display × budget."""

from __future__ import annotations

import pytest

from tests.providers.test_catalogue_requests import ROWS, check_loops
from tests.support.services import place
from thinklsp.settings.model import Provider


@pytest.mark.parametrize(("provider", "model_id"), ROWS, ids=[name for _, name in ROWS])
def test_every_request_of_every_tool_loop_is_accepted(provider: Provider, model_id: str) -> None:
    check_loops(place(provider, model_id), lambda thinking: thinking)
