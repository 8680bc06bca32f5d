"""Diagnostics as rooms hand them to each other, and what came of running a project's tests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """A diagnostic as the editor gave it. `line` counts from 1."""

    line: int
    severity: str
    message: str
    source: str = ""
    code: str = ""

    def __str__(self) -> str:
        origin = " ".join(filter(None, (self.source, self.code)))
        return f"line {self.line}: {self.severity}: {self.message}" + (f" ({origin})" if origin else "")


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """The diagnostics of one file. `path` is what people call it."""

    path: str
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Verified:
    """The newest run of the tests on the turn's last edits. `command` is the argv as people read it; the counts are
    tests, None where the runner does not tell. `ok`: it ended well."""

    command: str
    ok: bool
    passed: int | None
    failed: int | None
    seconds: float

    def json(self) -> dict[str, object]:
        return {"command": self.command, "passed": self.passed, "failed": self.failed}

    def sentence(self) -> str:
        """For people, e.g. ``Verified: `pytest` – 12 passed in 1.3 s.``"""
        counts = [f"{number} {word}" for number, word in ((self.failed, "failed"), (self.passed, "passed")) if number]
        if not self.ok and not self.failed:
            counts = ["failed", *counts]
        told = ", ".join(counts) or "succeeded"
        return f"{'Verified' if self.ok else 'Not verified'}: `{self.command}` – {told} in {self.seconds:.1f} s."
