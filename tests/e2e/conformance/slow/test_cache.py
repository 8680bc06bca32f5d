"""A long tool loop is cheap: its requests only grow at the end, and most of each is read from the cache."""

from __future__ import annotations

import itertools

from tests.e2e.acting import chat, sum_usage
from tests.e2e.conftest import Begin
from tests.support.outside import MODEL
from tests.support.signing_rules import exact, without_cache_control
from tests.support.signing_server import Text, Thinking, answer, tool

STEPS = 20
LINES = [f"value_{number} = 'some text that makes the file long {number}'" for number in range(1000)]


async def test_twenty_steps_read_most_of_their_input_from_the_cache(begin: Begin) -> None:
    looks = [
        answer(Thinking(f"Look {n}."), tool("read_file", path="big.py", start_line=40 * n + 1, end_line=40 * n + 40))
        for n in range(STEPS - 1)
    ]
    outside = await begin(*looks, answer(Thinking(), Text("Seen.")), files={"big.py": "\n".join(LINES)})
    prompt = "Read it all. " + "These are the rules that you follow. " * 1000
    result = await chat(outside, prompt)
    assert result["text"] == "Seen."

    requests = outside.provider.requests
    assert len(requests) == STEPS
    bodies = [without_cache_control(request.body) for request in requests]
    for before, after in itertools.pairwise(bodies):
        for part in ("model", "system", "tools", "thinking", "output_config", "max_tokens", "tool_choice"):
            assert exact(after.get(part)) == exact(before.get(part))
        assert exact(after["messages"][: len(before["messages"])]) == exact(before["messages"])
        assert len(after["messages"]) == len(before["messages"]) + 2
    assert {body["model"] for body in bodies} == {MODEL}

    used = sum_usage(requests)
    assert used["cacheReadTokens"] / used["inputTokens"] >= 0.85
    assert result["usage"].items() >= used.items()
    # Not one token of the last step is paid in full but what the step before had added.
    assert requests[-1].usage["input_tokens"] < 200
    # Each answer of the model is in the next request once: nothing is said twice.
    assert exact(bodies[-1]["messages"]).count("Read it all.") == 1


async def test_next_turn_reads_previous_turn_from_prompt_cache(begin: Begin) -> None:
    prompt = "Hello. " + "These are the rules that you follow. " * 1000
    outside = await begin(answer(Thinking(), Text("One.")), answer(Thinking(), Text("Two.")))
    first = await chat(outside, prompt)
    await chat(outside, "And now?", sessionId=first["sessionId"])
    one, two = outside.provider.requests
    assert two.usage["cache_read_input_tokens"] >= one.usage["cache_creation_input_tokens"] > 8000
