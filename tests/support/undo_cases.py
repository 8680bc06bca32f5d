"""Random turns, random typing after them, and their undo, against the real server and two oracles of merging."""

from __future__ import annotations

import random
from pathlib import Path

from tests.support.line_edits import BOM, Case, git_merged, lines_of, merged
from tests.support.outside import Outside, statuses
from tests.support.signing_script import Text, answer


class UndoCase(Case):
    """`base` is the text before the turn, `ours` what the turn makes of it, `theirs` that with what is typed then."""

    def __init__(self, name: str, chance: random.Random) -> None:
        super().__init__(name, chance)
        self.is_open = chance.random() < 0.6
        if not self.is_open:
            # Whether a file has a mark is nothing that a client sees.
            self.base, self.ours = self.base.removeprefix(BOM), self.ours.removeprefix(BOM)
        self.theirs, self.typed = self.ours, []
        lines = lines_of(self.ours.removeprefix(BOM))
        if chance.random() < 0.8 and lines:
            for number in self._places(len(lines), chance.randrange(len(lines))):
                self._user(lines[number])


async def play(outside: Outside, cases: list[UndoCase], git: Path) -> list[bool]:
    """One turn over all documents, typing, one undo. Says of each document whether the turn's changes are gone."""
    client = outside.client
    for case in cases:
        (outside.root / case.name).write_bytes(case.base.encode())
        if case.is_open:
            outside.open(case.name, case.base)
    outside.provider.say(answer(*(call for case in cases for call in case.calls)), answer(Text("Done.")))
    turn = await outside.turn("thinklsp.chat", {"prompt": "Edit all of them."})
    assert set(statuses(turn).values()) == {"applied"}, turn
    for case in cases:
        uri = outside.uri(case.name)
        assert client.text(uri) == case.ours, case
        for old, new in case.typed if case.is_open else ():
            client.change(uri, old, new)
        if not case.is_open:
            (outside.root / case.name).write_bytes(case.theirs.encode())
    result = await client.command("thinklsp.undo", {"turnId": turn["turnId"]})
    status = {file["uri"].rpartition("/")[2]: file for file in result["files"]}
    outcomes = []
    for case in cases:
        texts = [text.removeprefix(BOM) for text in (case.ours, case.base, case.theirs)]
        expected = merged(*texts)
        assert expected == git_merged(git, *texts), f"the oracles disagree: {case}"
        mark = BOM if case.theirs.startswith(BOM) else ""
        wanted = (case.theirs, "conflict") if expected is None else (mark + expected, "applied")
        assert (client.text(outside.uri(case.name)), status[case.name]["status"]) == wanted, case
        assert expected is not None or status[case.name]["reason"]
        outcomes.append(expected is not None)
        if case.is_open:
            client.close_document(outside.uri(case.name))
    return outcomes
