"""What a call will read is projected before it goes out: compared with what the services report."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from tests.settings.test_sources import NO_FILE
from tests.support.scripted_model import connect_to, run_to_end
from tests.support.services import WAYS, Service
from thinklsp.agent.budget import ContextMeter
from thinklsp.agent.model_call import CallEvent, CallFinished, ModelCaller
from thinklsp.engine import ChatRequest, Engine, Reference
from thinklsp.offline.scenario import Scenario
from thinklsp.providers.base import ModelRequest
from thinklsp.settings.sources import EditorSettings
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceView

_DOCUMENT = "untitled:a.py"
_CODE = "value = compute(first, second, third)  # a line of code\n"
_PROSE = "Größe und Maß der Dinge – „überall“ gleich. 如何做到这一点？\n"
DOCUMENTS = {"code": _CODE * 2_000, "prose": _PROSE * 2_000}
_READ = [
    {"block": [{"thinking": "I read."}, {"tool": "read_file", "input": {"path": _DOCUMENT, "start_line": line}}]}
    for line in (1, 900)
]
_TURN = {"step": [*_READ, {"block": [{"thinking": "Done."}, {"text": "So it is. " * 200}]}]}
_SCENARIO = {"turn": [_TURN, _TURN]}


class Measured:
    """A caller that notes what was projected for each call beside what the service then said."""

    def __init__(self, caller: ModelCaller, meter: ContextMeter) -> None:
        self._caller, self._meter = caller, meter
        self.pairs: list[tuple[int, int]] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[CallEvent, None]:
        projected = self._meter.estimate_next_usage(request).input_tokens or 0
        async with aclosing(self._caller.stream(request)) as events:
            async for event in events:
                if isinstance(event, CallFinished):
                    self.pairs.append((projected, event.usage.input_tokens or 0))
                yield event


async def _measured(way: str, document: str) -> list[tuple[int, int]]:
    """Two turns of three calls each. The second begins with a new meter, as after a restart."""
    chosen, session_id, pairs = WAYS[way], None, []
    view = WorkspaceView((), [DocumentSnapshot(_DOCUMENT, 1, document)])
    async with (
        Service(Scenario.model_validate(_SCENARIO)) as service,
        aclosing(Engine(NO_FILE | chosen.environment(service.url))) as engine,
    ):
        for _ in range(2):
            request = ChatRequest(
                prompt="Look at this.", references=(Reference(_DOCUMENT),), view=view, workspace="w",
                session_id=session_id,
            )  # fmt: skip
            turn = await engine.start_turn(
                request, EditorSettings(), {"provider": chosen.provider, "model": chosen.model}
            )
            engine.forget_session(turn.session.id)
            measured = Measured(await turn.connect(()), turn.meter)

            async def connected(_known: object, caller: ModelCaller = measured) -> ModelCaller:
                return caller

            connect_to(turn, connected)
            await run_to_end(turn)
            session_id = turn.session.id
            pairs += measured.pairs
    return pairs


@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.parametrize("way", ["anthropic", "openai", "google", "deepseek", "ollama"])
async def test_what_is_projected_is_near_what_the_service_counts(way: str, document: str) -> None:
    pairs = await _measured(way, DOCUMENTS[document])
    assert len(pairs) == 6
    for projected, counted in pairs:
        assert counted / 1.5 <= projected <= counted * 1.5, pairs
