"""The services of a random session: the signing provider and the simulator.

The request alone determines the answer, so cancels, kills and retries change nothing.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from tests.support.outside import Json, Outside
from tests.support.services import SeveralServices
from tests.support.signing_server import Answer, Cut, Failure, Hold, Redacted, Text, Thinking, Tool, answer, tool

# The model selects the service. The first three belong to the signing one.
MODELS = ("claude-opus-5-5", "claude-opus-4-6", "claude-sonnet-4-6", "gpt-6-sol", "gemini-4-argon")
KINDS = ("say", "read", "edit", "make", "retry", "fail", "refuse", "cut off", "break")
WORDS = "The quick brown fox 🙂 jumps over the lazy dog. "
_PLAN = re.compile(r"Go on <(\d+)>")


@dataclass
class Plan:
    """The answer to one prompt. `old`, `new`: the first line of the file `name`. `hold`: stops the answer before its
    last words. `results`: the tool results that the model got."""

    number: int
    kind: str
    name: str
    old: str
    new: str
    hold: Hold | None
    failures: int = 0
    results: str = ""

    @property
    def prompt(self) -> str:
        return f"Go on <{self.number}>."

    @property
    def answers(self) -> tuple[str, ...]:
        """Return the possible texts of a complete turn: by the signing service, or by another one."""
        held = "" if self.hold is None else "So "
        return f"{held}Answer {self.number}.", "Went on."

    @property
    def made(self) -> str:
        return f"made-{self.number}.py"

    def step(self, done: int) -> Answer | Failure:
        if done == 0 and (first := self._first()) is not None:
            return first
        if self.kind == "refuse":
            return answer(Thinking(), Text("I may "), stop_reason="refusal")
        if self.kind == "cut off":
            torn = Tool("write_file", {"path": self.made, "content": "x"}, cut=True)
            return answer(Thinking(), Text("Half"), torn, stop_reason="max_tokens")
        held = [] if self.hold is None else [Text("So "), self.hold]
        return answer(Thinking(WORDS), Redacted(), *held, Text(f"Answer {self.number}."), letters=40)

    def _first(self) -> Answer | Failure | None:
        if self.kind == "fail":
            return Failure(401, "authentication_error", "invalid x-api-key")
        if self.kind in ("retry", "break") and not self.failures:
            self.failures += 1
            if self.kind == "break":
                return answer(Thinking(), Redacted(), Text(WORDS), Cut())
            return Failure(529, "overloaded_error", "Overloaded", {"retry-after-ms": "1"})
        call = {
            "read": tool("read_file", path=self.name),
            "edit": tool("edit_file", path=self.name, old_text=self.old, new_text=self.new),
            "make": tool("write_file", path=self.made, content=f"{self.new}\n"),
        }.get(self.kind)
        return None if call is None else answer(Thinking(), Redacted(), Text("A step."), call, letters=40)


class Services(SeveralServices):
    def __init__(self) -> None:
        super().__init__()
        self.plans: dict[int, Plan] = {}
        self.first.script = _Endless(self._play)
        self.first.conversations.elsewhere = True

    def _play(self, body: Json) -> Answer | Failure:
        """Anything that is neither a prompt nor a step of its turn is a request for a summary."""
        users = [message["content"] for message in body["messages"] if message["role"] == "user"]
        asked = max((number for number, content in enumerate(users) if _PLAN.search(_words(content))), default=None)
        is_step = isinstance(users[-1], list) and any(block["type"] == "tool_result" for block in users[-1])
        if asked is None or not (is_step or asked == len(users) - 1):
            return answer(Text("They asked to go on, and so it was."))
        plan = self.plans[int(_PLAN.findall(_words(users[asked]))[-1])]
        if is_step:
            plan.results += json.dumps(users[-1], ensure_ascii=False)
        return plan.step(len(users) - 1 - asked)


class _Endless(list[Any]):
    def __init__(self, play: Any) -> None:
        super().__init__([play])

    def pop(self, *_: Any) -> Any:
        return self[0]


def _words(content: Json) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block["type"] == "text")


NAMES = ("a.py", "deep/b.py")
_GAP = "\n\n\n\n# é🙂\n"


@dataclass
class Side:
    first: str = "x = 0"
    below: str = ""

    @property
    def text(self) -> str:
        return f"{self.first}{_GAP}{self.below}"


@dataclass
class File:
    disk: Side
    buffer: Side | None = None


class Files:
    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._files = {name: File(Side()) for name in NAMES}

    def now(self, name: str) -> Side:
        return self._files[name].buffer or self._files[name].disk

    def is_open(self, name: str) -> bool:
        return self._files[name].buffer is not None

    def open(self, name: str) -> None:
        file = self._files[name]
        file.buffer = Side(file.disk.first, file.disk.below)
        self._outside.open(name)

    def close(self, name: str) -> None:
        self._files[name].buffer = None
        self._outside.client.close_document(self._outside.uri(name))

    def save(self, name: str) -> None:
        now = self.now(name)
        self._files[name].disk = Side(now.first, now.below)
        (self._outside.root / name).write_bytes(now.text.encode())
        self._outside.client.notify("textDocument/didSave", {"textDocument": {"uri": self._outside.uri(name)}})

    def type(self, name: str, at: float, length: int, new: str) -> None:
        now = self.now(name)
        start = _between(now.below, round(at * len(now.below)))
        end = _between(now.below, min(len(now.below), start + length))
        now.below = now.below[:start] + new + now.below[end:]
        offset = len(now.first) + len(_GAP)
        self._outside.client.replace(self._outside.uri(name), offset + start, offset + end, new)

    def check(self) -> None:
        for name, file in self._files.items():
            found = (self._outside.root / name).read_bytes().decode()
            assert found == file.disk.text, (name, found, file.disk.text)
            seen = self._outside.client.text(self._outside.uri(name))
            assert file.buffer is None or seen == file.buffer.text, (name, seen, file.buffer.text)


def _between(text: str, place: int) -> int:
    """Move a place inside of a line end to its beginning."""
    return place - 1 if text[max(0, place - 1) : place + 1] == "\r\n" else place
