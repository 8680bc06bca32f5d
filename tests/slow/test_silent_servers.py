"""A compatible server that never says which models it has: the turn ends by itself, with a sentence."""

from __future__ import annotations

import time

import pytest

from tests.engine.test_engine import PLAIN, run, spec
from tests.settings.test_sources import NO_FILE
from tests.support.hosts import SseServer, Step, head
from thinklsp.core.errors import TransportFailed
from thinklsp.engine import Engine

pytestmark = pytest.mark.timing


@pytest.mark.parametrize("play", [["hold"], [head(200, "application/json", content_length="9"), b'{"d', "hold"]])
async def test_a_list_of_models_is_waited_for_ten_seconds(play: list[Step]) -> None:
    async with SseServer([play]) as server:
        engine = Engine(NO_FILE | {"THINKLSP_COMPATIBLE_BASE_URL": f"{server.url}/v1"})
        began = time.monotonic()
        with pytest.raises(TransportFailed) as silent:
            await run(await engine.start_turn(spec(), PLAIN, {}))
        assert 9.5 < time.monotonic() - began < 12
        assert "did not list its models within 10 seconds. Set `thinklsp.model`." in str(silent.value)
        await engine.aclose()
