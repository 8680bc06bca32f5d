"""The comparison of recorded answers, `python -m tests.recorded`, with answers of our own instead of recordings."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.providers.families import FAMILIES, list_cases
from tests.recorded.comparison import Compared, compare
from tests.recorded.recordings import Recording, read_recordings

ADDRESSES = {
    "anthropic": "https://api.anthropic.com/v1/messages",
    "openai": "https://api.openai.com/v1/responses",
    "google": "https://host/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse",
    "chat": "https://openrouter.ai/api/v1/chat/completions",
}


def play_case(family: str, case: str) -> Recording:
    samples = FAMILIES[family].samples
    return Recording(case, family, ADDRESSES[family], samples.PLAIN.model.id, True, samples.stream(case))


# A cut answer goes back without its thinking, and the clients drop a token, or items with gaps between their numbers.
SPECIAL = (
    *(("openai", case) for case in ("call_cut_by_the_limit", "limit_used_up_by_thinking")),
    ("openai", "parallel_calls_interleaved_with_gaps"),
    ("google", "continuation"),
    ("chat", "line_separators_and_crlf"),
)


def list_agreed_cases() -> list[tuple[str, str]]:
    """Return the streams that the vendor's client reads as the service means them."""
    agreed = []
    for family, case in list_cases(failing=False):
        wanted = FAMILIES[family].samples.expected(case)
        if wanted.get("sdk_agrees", wanted.get("sdk") == "agrees") and (family, case) not in SPECIAL:
            agreed.append((family, case))
    return agreed


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize(("family", "case"), list_agreed_cases())
async def test_an_answer_is_what_the_vendors_client_reads(family: str, case: str) -> None:
    """And every opaque string goes back as it came."""
    assert (await compare(play_case(family, case)) or Compared(problem="not read")).problem == ""


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
