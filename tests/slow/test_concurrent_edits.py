"""The model and the user edit the same documents at once: separate changes are merged, conflicts keep the user's text.

The two oracles share no code with the product: blocks of changed lines, and `git merge-file`.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.slow.running import running, say
from tests.support.client.editor import capabilities
from tests.support.line_edits import BOM, Case, git_merged, merged
from tests.support.outside import Outside, statuses
from tests.support.signing_server import Hold, Text, Thinking, answer
from tests.support.sizes import SEED, lots, sized

ENCODINGS = ("utf-8", "utf-16", "utf-32")
PER_TURN = 20


async def play(outside: Outside, cases: list[Case], git: Path, *, race: bool) -> list[bool]:
    """Play a turn and return which documents were merged. `race`: the user types while the edit is applied."""
    client, provider = outside.pair
    hold = Hold()
    calls = [call for case in cases for call in case.calls]
    provider.say(answer(Thinking(), *calls), answer(Thinking(), hold, Text("Done.")))
    uris = {case.name: outside.open(case.name, case.base) for case in cases}
    turn = client.command("thinklsp.chat", {"prompt": "Edit all of them."}, token=outside.token())
    await hold.reached.wait()
    results = provider.requests[-1].tool_results()
    assert [r for r in results if r.get("is_error")] == []
    late = cases[0] if race else None

    def type_first(params: Any) -> Any:
        del client.editor.handlers["workspace/applyEdit"]
        assert late is not None
        for old, new in late.typed:
            client.change(uris[late.name], old, new)
        return client.editor.apply_edit(params)

    if late is not None:
        client.editor.handlers["workspace/applyEdit"] = type_first
    for case in cases:
        for old, new in case.typed if case is not late else ():
            client.change(uris[case.name], old, new)
    hold.release()
    result = await outside.result(turn)
    client.editor.handlers.clear()
    status = statuses(result)
    outcomes = []
    for case in cases:
        # The byte order mark belongs to the document, not to its first line.
        texts = [text.removeprefix(BOM) for text in (case.base, case.ours, case.theirs)]
        expected = merged(*texts)
        assert expected == git_merged(git, *texts), f"the oracles disagree: {case}"
        mark = BOM if case.theirs.startswith(BOM) else ""
        wanted = (case.theirs, "conflict") if expected is None else (mark + expected, "applied")
        assert (client.text(uris[case.name]), status[case.name]) == wanted, case
        outcomes.append(expected is not None)
        client.close_document(uris[case.name])
    return outcomes


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_edits_of_model_and_user_at_once(tmp_path: Path, encoding: str) -> None:
    total = sized(commit=34, nightly=167)
    outcomes: list[bool] = []
    async with running(tmp_path, announce=capabilities(general__positionEncodings=[encoding])) as outside:
        assert outside.client.desk.encoding == encoding
        for lot, count in enumerate(lots(total, PER_TURN)):
            names = [f"{encoding}-{SEED}-{lot}-{number}.py" for number in range(count)]
            cases = [Case(name, random.Random(name)) for name in names]
            outcomes += await play(outside, cases, tmp_path, race=bool(lot % 2))
    say(f"{sum(outcomes)} merged, {len(outcomes) - sum(outcomes)} conflicts")
    assert total * 0.2 < sum(outcomes) < total * 0.8
