"""The services of a random session: the signing provider, which does what the prompt says, and the simulator.

A prompt names its plan, `Go on <7>`, so that the request alone says what is answered, whatever was cancelled, killed or
asked again before. The simulator of the other services knows the words `Go on` and answers `Went on.`
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from tests.support.both_services import BothServices
from tests.support.signing_script import Answer, Cut, Failure, Hold, Redacted, Text, Thinking, Tool, answer, tool

Json = Any
# The model chooses the service: the first three are those of the one that signs.
MODELS = ("claude-opus-5-5", "claude-opus-4-6", "claude-sonnet-4-6", "gpt-6-sol", "gemini-4-argon")
KINDS = ("say", "read", "edit", "make", "retry", "fail", "refuse", "cut off", "break")
WORDS = "The quick brown fox 🙂 jumps over the lazy dog. "
_PLAN = re.compile(r"Go on <(\d+)>")


@dataclass
class Plan:
    """What the model does for one prompt. `old`, `new`: the first line of the file `name`. `hold`: it stands still
    before its last words until it is released, where there is one. `results`: what its tool has told the model."""

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
        """How the turn ends if nothing comes between: by the service that signs, or by another one."""
        held = "" if self.hold is None else "So "
        return f"{held}Answer {self.number}.", "Went on."

    @property
    def made(self) -> str:
        return f"made-{self.number}.py"

    def step(self, done: int) -> Answer | Failure:
        """After so many answers to this prompt."""
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


class Services(BothServices):
    """`plans` by their number."""

    def __init__(self) -> None:
        super().__init__()
        self.plans: dict[int, Plan] = {}
        self.signing.script = _Endless(self._play)
        self.signing.conversations.elsewhere = True

    def _play(self, body: Json) -> Answer | Failure:
        """What is neither a prompt nor a step of its turn is the wish for a summary."""
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
    """A script that answers every request in the same way."""

    def __init__(self, play: Any) -> None:
        super().__init__([play])

    def pop(self, *_: Any) -> Any:
        return self[0]


def _words(content: Json) -> str:
    """What a user's message says, the results of tools left out."""
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block["type"] == "text")
