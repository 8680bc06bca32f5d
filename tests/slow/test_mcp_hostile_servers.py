"""Servers that break the rules: each ends with a sentence or is ignored, at a bounded cost, and leaves no process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.mcp_client.driving import build_case, driver

MAX_MEGABYTES = 60.0
MAX_CLOSE_SECONDS = 9.0
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes and memory are read from /proc"),
    pytest.mark.timing,
]

UNKNOWN = "The outcome of the tool `work` is unknown."
# The mode of the server, and the end of the message for a start that fails.
FAILING_STARTS = {
    "deep": "sent a message that is nested more than 64 levels deep.",
    "long_line": "sent a line longer than 4 MiB.",
    "endless_line": "sent a line longer than 4 MiB.",
    "many_values": "sent a message with more than 100,000 values.",
    "many_tools": "sent a result with 5,000 entries in `tools`; at most 1,000 are read.",
    "half_line_exit": "exited with status 0.",
    "exit_discover": "exited with status 3: leaving early.",
    "exit_initialize": "exited with status 3: leaving early.",
    "exit_initialized": "exited with status 3: leaving early.",
    "exit_list": "exited with status 3: leaving early.",
}
SLOW_STARTS = {
    "silent": "was not ready within 2 seconds. If it needs more time, raise its `start_timeout_s`.",
    "half_line": "was not ready within 2 seconds. If it needs more time, raise its `start_timeout_s`.",
    "not_json": "was not ready within 2 seconds. It prints text that is not JSON-RPC to its standard output.",
}
FAILING_CALLS = {
    "exit_call": f"exited with status 3: leaving early. {UNKNOWN}",
    "flood_notifications": f"sent more than 20,000 messages within 10 seconds. {UNKNOWN}",
    "flood_answers": f"sent more than 20,000 messages within 10 seconds. {UNKNOWN}",
    "flood_text": f"sent more than 20,000 messages within 10 seconds. {UNKNOWN}",
    "flood_requests": f"sent more than 200 requests within 10 seconds. {UNKNOWN}",
    "no_read": f"sent more than 200 requests within 10 seconds. {UNKNOWN}",
    "flood_empty": f"sends empty lines without an end. {UNKNOWN}",
    "many_parts": f"sent a result with 20,000 entries in `content`; at most 1,000 are read. {UNKNOWN}",
    "bad_result": "sent an invalid result for the tool `work`.",
    "hang": "did not finish the tool `work` within 1 seconds. The outcome is unknown.",
}
# The texts that the model receives.
HARMLESS = {
    "duplicates": ["first", "done"],
    "list_changes": ["done"],
    "list_changes_early": ["done"],
    "endless_pages": ["done"],
    "bad_regex": ["done"],
    "surrogate": ["\N{REPLACEMENT CHARACTER}"],
    "daemon": ["done"],
    "ignore_eof": ["done"],
    "daemon_ignores_eof": ["done"],
}


async def drive(folder: Path, cases: list[Any]) -> list[Any]:
    async with driver(folder, cases) as running:
        reports = [await running.report() for _ in cases]
        await running.process.wait()
        assert running.list_left() == []
        assert running.read_held() == ""
    for case, report in zip(cases, reports, strict=True):
        assert report["memory"] < MAX_MEGABYTES, (case, report)
        assert report["close_seconds"] < MAX_CLOSE_SECONDS, (case, report)
    return reports


async def test_a_start_that_fails_ends_with_a_sentence(tmp_path: Path) -> None:
    reports = await drive(tmp_path, [build_case(mode) for mode in FAILING_STARTS])
    errors = dict(zip(FAILING_STARTS, (report["error"] for report in reports), strict=True))
    assert errors == {mode: f"The MCP server `hostile` {end}" for mode, end in FAILING_STARTS.items()}
    assert {report["state"] for report in reports} == {"failed"}


async def test_a_start_without_an_answer_ends_in_time(tmp_path: Path) -> None:
    reports = await drive(tmp_path, [build_case(mode, start_timeout_seconds=2) for mode in SLOW_STARTS])
    errors = dict(zip(SLOW_STARTS, (report["error"] for report in reports), strict=True))
    assert errors == {mode: f"The MCP server `hostile` {end}" for mode, end in SLOW_STARTS.items()}


async def test_a_call_that_fails_ends_with_a_sentence(tmp_path: Path) -> None:
    cases = [build_case(mode, **({"timeout_seconds": 1.0} if mode == "hang" else {})) for mode in FAILING_CALLS]
    reports = await drive(tmp_path, cases)
    calls = dict(zip(FAILING_CALLS, (report["calls"] for report in reports), strict=True))
    assert calls == {mode: [f"failed: The MCP server `hostile` {end}"] for mode, end in FAILING_CALLS.items()}


async def test_what_harms_nobody_is_ignored(tmp_path: Path) -> None:
    cases = [build_case(mode, [{"n": number + 1} for number in range(len(texts))]) for mode, texts in HARMLESS.items()]
    reports = dict(zip(HARMLESS, await drive(tmp_path, cases), strict=True))
    assert {mode: report["calls"] for mode, report in reports.items()} == HARMLESS
    # Two thousand changes within two seconds are reported once.
    assert reports["list_changes"]["changed"]


async def test_a_late_answer_does_not_become_the_next_result(tmp_path: Path) -> None:
    case = build_case("late", [{"late": True, "n": 1}, {"n": 2}], timeout_seconds=1.0)
    late, answered = (await drive(tmp_path, [case]))[0]["calls"]
    assert late.endswith("within 1 seconds. The outcome is unknown.")
    assert answered == "answer to 2"


async def test_an_answer_of_four_mebibytes_is_read(tmp_path: Path) -> None:
    assert (await drive(tmp_path, [build_case("large")]))[0]["calls"] == ["x" * 2000]
