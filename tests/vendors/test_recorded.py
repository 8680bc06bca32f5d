"""The comparison of recorded answers, `python -m tests.recorded`, with answers of our own instead of recordings."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.providers.families import FAMILIES
from tests.recorded.comparison import compare
from tests.recorded.recordings import Recording, read_recordings

ADDRESSES = {
    "anthropic": "https://api.anthropic.com/v1/messages",
    "openai": "https://api.openai.com/v1/responses",
    "google": "https://host/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse",
    "chat": "https://openrouter.ai/api/v1/chat/completions",
}


def play_case(family: str, case: str) -> Recording:
    samples = FAMILIES[family].samples
    return Recording(case, family, ADDRESSES[family], samples.MODEL, True, samples.stream(case))


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("family", ["openai", "google"])
async def test_an_answer_that_both_read_alike(family: str) -> None:
    compared = await compare(play_case(family, "thinking_then_tool"))
    assert compared is not None
    assert (compared.opaque > 0, compared.problem) == (True, "")


async def test_an_answer_that_the_client_reads_differently() -> None:
    compared = await compare(play_case("chat", "index_always_zero"))
    assert compared is None or compared.problem.startswith("read ")


def test_the_good_answers_of_a_cassette_are_found(tmp_path: Path) -> None:
    body = FAMILIES["anthropic"].samples.stream("text").decode()
    good = {"status": {"code": 200}, "headers": {"Content-Type": ["text/event-stream"]}, "body": {"string": body}}
    plain = {"status": {"code": 200}, "headers": {}, "parsed_body": {"content": []}}
    request = {"uri": f"{ADDRESSES['anthropic']}?beta=true", "parsed_body": {"model": "claude-opus-5-5"}}
    interactions = [
        {"request": request, "response": good},
        {"request": request, "response": good | {"status": {"code": 529}}},
        {"request": {"uri": "https://api.anthropic.com/v1/models"}, "response": good},
        {"request": request, "response": plain},
        {"something": "else"},
    ]
    folder = tmp_path / "cassettes" / "test_x"
    folder.mkdir(parents=True)
    (folder / "one.yaml").write_text(yaml.safe_dump({"interactions": interactions}), "utf-8")
    (folder / "two.yaml").write_text("- a list\n", "utf-8")
    found = [*read_recordings(tmp_path)]
    assert [(each.name, each.model, each.is_stream) for each in found] == [
        ("test_x/one/0", "claude-opus-5-5", True),
        ("test_x/one/3", "claude-opus-5-5", False),
    ]
    assert found[0].body == body.encode()
