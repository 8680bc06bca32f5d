"""Random typing in a fake Zed while the agent edits: nothing of either is lost, and nothing is there twice.

Every line has a mark of its own, and so has everything that the user types and the model writes. The marks are counted
at the end of each turn.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.acp.agent_rules import Tool
from tests.acp.fake_zed import FakeZed, strip_trailing
from tests.acp.talk import Talk, begin_talk, diffs
from tests.e2e.acting import edit_file, read_file, say
from tests.slow.running import Tally
from tests.slow.running import say as tell
from tests.support.forking import Nursery
from tests.support.signing_rules import Conversations
from tests.support.signing_server import answer
from tests.support.sizes import SEED, lots, tries

PER_AGENT, PER_SESSION, LINES = 250, 10, 24
MARK = re.compile(r"[LUM]\d+;")


@dataclass
class Round:
    """One turn: the lines that the model changes, and the moments at which the user types."""

    chance: random.Random
    talk: Talk
    number: int
    name: str = "a.py"
    typed: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    keys: int = 0

    @property
    def buffer(self) -> Any:
        return self.talk.peer.buffers[self.talk.peer.path(self.name)]

    def begin(self) -> str:
        """Open a new text, of which the disk has an older state; return it."""
        text = "".join(f"L{number}; {'  ' * (number % 3)}word\n" for number in range(LINES))
        (self.talk.root / self.name).write_text(text.replace("word", "old"))
        self.talk.peer.buffers.clear()
        self.talk.peer.open(self.name, text)
        self.talk.peer.formats = self.chance.choice([strip_trailing, lambda text: text])
        return text

    def script(self) -> list[Any]:
        calls = []
        for line in self.chance.sample(range(LINES), self.chance.randint(1, 4)):
            mark = f"M{self.number * 10 + len(calls)};"
            self.written.add(mark)
            new = self.chance.choice([f"L{line}; {mark}", f"{mark}\nL{line};", f"L{line}; {mark}\n\nand more of it  "])
            calls.append(edit_file(self.name, f"L{line};", new))
        first = [answer(read_file(self.name))] if self.chance.random() < 0.5 else []
        return [*first, answer(*calls), say("Done.")]

    def type(self) -> None:
        """Append to a line, or put a line in between."""
        self.keys += 1
        mark = f"U{self.number * 100 + self.keys};"
        self.typed.add(mark)
        ends = [match.end() for match in re.finditer(r"(?=\n)", self.buffer.text)]
        at = self.chance.choice(ends)
        self.buffer.replace(at, at, self.chance.choice([f" {mark}", f"\n{mark}"]))

    def maybe_type(self, share: float) -> None:
        while self.chance.random() < share:
            self.type()

    def watch(self) -> None:
        peer = self.talk.peer
        peer.on_read = lambda path: self.maybe_type(0.3)
        peer.on_write = lambda path: self.maybe_type(0.5)

        def choose(params: Any) -> Any:
            self.maybe_type(0.4)
            return {"outcome": {"outcome": "selected", "optionId": "allow_once"}}

        peer.choices = [choose]


def judge(turn: Round, before: str, statuses: list[str]) -> list[str]:
    """Return what is lost, doubled or not saved."""
    text = turn.buffer.text
    marks = Counter(MARK.findall(text))
    faults = [f"{mark} is there {count} times" for mark, count in marks.items() if count > 1]
    faults += [f"{mark} of the user is lost" for mark in turn.typed if mark not in marks]
    faults += [f"{mark} of the text is lost" for mark in MARK.findall(before) if mark not in marks]
    written = {mark for mark in turn.written if mark in marks}
    expected = turn.written if statuses == ["completed"] else set()
    if written != expected:
        faults.append(f"the edit has ended as {statuses}, and there is {sorted(written)} of {sorted(turn.written)}")
    if statuses == ["completed"]:
        # Later typing is not saved.
        saved = set(MARK.findall((turn.talk.root / turn.name).read_text()))
        faults += [f"{mark} is not saved" for mark in turn.written - saved]
    return faults


def new_edits(talk: Talk, known: set[int]) -> list[str]:
    """Return the status of each edit with a diff that was not known yet."""
    fresh: list[Tool] = [tool for tool in talk.tools("edit") if diffs(tool.members) and id(tool) not in known]
    known |= {id(tool) for tool in fresh}
    return [tool.status for tool in fresh]


async def play(talk: Talk, chance: random.Random, total: int) -> tuple[Counter[str], list[str]]:
    """Play rounds until one has a fault. Return how the edits have ended, and the faults."""
    ends: Counter[str] = Counter()
    known: set[int] = set()
    for number in range(total):
        if number % PER_SESSION == 0:
            await talk.new_session()
            # Sessions share nothing, and the provider looks through all that it has issued.
            talk.provider.conversations = Conversations()
        turn = Round(chance, talk, number)
        before = turn.begin()
        talk.provider.script[:] = turn.script()
        turn.watch()
        assert await talk.prompt("Change it.") == "end_turn"
        statuses = new_edits(talk, known)
        ends += Counter(statuses)
        if faults := judge(turn, before, statuses):
            return ends, [f"round {number}", *faults, turn.buffer.text]
    return ends, []


async def finish(talk: Talk) -> None:
    talk.outside.told()
    await talk.outside.finish()


async def test_random_typing_loses_and_doubles_nothing(tmp_path: Path, nursery: Nursery | None, tally: Tally) -> None:
    total = tries("A-39")
    ends: Counter[str] = Counter()
    for number, count in enumerate(lots(total, PER_AGENT)):
        talk = await begin_talk(tmp_path / str(number), nursery=nursery, session=False)
        try:
            more, faults = await play(talk, random.Random(f"{SEED} {number}"), count)
            assert faults == []
            ends += more
            await finish(talk)
        finally:
            await talk.outside.stop()
    tell(f"{total} edits under typing: {dict(ends)}")
    # Most edits are merged; an edit of lines that the user has changed is a conflict.
    assert ends["completed"] > total / 4
    tally("A-39", total)


class Forgetful(FakeZed):
    """Applies what is written to its own text, whatever the agent has read."""

    def write(self, path: str, content: str) -> Any:
        self.buffers[path].replace(0, len(self.buffers[path].text), content)
        return super().write(path, content)


class Doubling(FakeZed):
    """Applies every write twice to the same snapshot."""

    def write(self, path: str, content: str) -> Any:
        self.buffers[path].write(content)
        return super().write(path, content)


async def test_clients_that_lose_and_double_are_found(tmp_path: Path, nursery: Nursery | None) -> None:
    for peer in (Forgetful, Doubling):
        talk = await begin_talk(tmp_path / peer.__name__, nursery=nursery, session=False, peer=peer)
        try:
            _, faults = await play(talk, random.Random(SEED), 50)
            assert faults
        finally:
            await talk.outside.stop()
