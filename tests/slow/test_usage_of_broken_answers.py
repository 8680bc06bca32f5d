"""What broken-off, failed and cancelled attempts have used is counted, each attempt once, as far as it was reported."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from tests.e2e.conftest import Begin
from tests.support.client.actions import ResponseError
from tests.support.services import WAYS, Service
from thinklsp.core.usage import Usage
from thinklsp.offline.scenario import parse_scenario
from thinklsp.providers.catalogue import find_model

INPUT = 1_000
# The service ends each answer with these figures. Anthropic first reports the input and an output of 2.
FIGURES = (
    f"usage = {{ input_tokens = {INPUT}, cache_read_tokens = 0, cache_write_tokens = 0, "
    "output_tokens = 50, thinking_tokens = 0 }"
)
FAULTS = {
    "Break twice.": "times = 2, cut_after_events = 6, cut_cleanly = false",
    "Break at the end.": "times = 1, cut_after_events = 8",
    "Break always.": "cut_after_events = 6",
    "Fail twice.": 'times = 2, error_event = { type = "overloaded_error", message = "Busy.", after_events = 4 }',
    "Be busy once.": "times = 1, http_error = { status = 529 }",
}
SCENARIO = "[pacing]\nchunk_chars = 4\n" + "".join(
    f"[[turn]]\nwhen = '{prompt}'\n"
    f"[[turn.step]]\n{FIGURES}\nfault = {{ {fault} }}\nblock = [{{ text = 'Once, and whole.' }}]\n"
    for prompt, fault in FAULTS.items()
)
SCENARIO += (
    f"[[turn]]\nwhen = 'Fall silent.'\n[[turn.step]]\n{FIGURES}\n"
    "block = [{ text = 'Once, ' }, { text = 'and whole.', delay_ms = 600000 }]\n"
)


@dataclass(frozen=True)
class Expected:
    """`requests`: how many the service gets; `counted`: how many it counts; `output`: what it reports for Anthropic."""

    requests: int
    counted: int
    output: int | None
    stop: str = "end_turn"


CASES: dict[tuple[str, str], Expected] = {
    ("anthropic", "Break twice."): Expected(3, 3, 2 + 2 + 50),
    ("anthropic", "Break at the end."): Expected(2, 2, 50 + 50),
    ("anthropic", "Break always."): Expected(3, 3, 2 + 2 + 2, "error"),
    ("anthropic", "Fail twice."): Expected(3, 3, 2 + 2 + 50),
    ("anthropic", "Be busy once."): Expected(2, 1, 50),
    ("anthropic", "Fall silent."): Expected(1, 1, 2, "cancelled"),
    ("google", "Break twice."): Expected(3, 3, None),
    ("google", "Fall silent."): Expected(1, 1, None, "cancelled"),
}


@pytest.mark.parametrize("case", CASES, ids=" ".join)
async def test_usage_includes_attempts_that_broke_off(begin: Begin, case: tuple[str, str]) -> None:
    """A-10: in the result, the session, the day and the cost."""
    name, prompt = case
    way, expected = WAYS[name], CASES[case]
    service = Service(parse_scenario(SCENARIO, "test"))
    outside = await begin(options={"provider": way.provider, "model": way.model}, provider=service)
    client = outside.client
    turn = client.command("thinklsp.chat", {"prompt": prompt, "partialResultToken": "p"}, token="t")
    if expected.stop == "error":
        with pytest.raises(ResponseError, match="interrupted 3 times"):
            await turn
    else:
        if expected.stop == "cancelled":
            await client.wait_for(lambda: "text" in client.progress_kinds("p"), what="the text before the silence")
            await client.command("thinklsp.cancel")
        await outside.result(turn)
    result = client.progress("p")[-1]["result"]
    assert (result["stopReason"], len(service.requests)) == (expected.stop, expected.requests)
    told = result["usage"]
    assert told["inputTokens"] == expected.counted * INPUT
    assert expected.output in (told["outputTokens"], None)
    price = find_model(way.provider, way.model, day=datetime.now(UTC).date()).price
    assert price is not None
    assert told["costUsd"] == pytest.approx(price.compute_cost(Usage(told["inputTokens"], told["outputTokens"])))
    usage = await client.command("thinklsp.usage", {"sessionId": result["sessionId"]})
    [of_turn] = usage["byTurn"]
    for part in (usage["total"], usage["today"], of_turn):
        assert {figure: part[figure] for figure in told} == pytest.approx(told)
    [entry] = await client.command("thinklsp.sessions")
    assert entry["usage"] == pytest.approx(told)
