"""Check results: the editor's diagnostics and the outcomes of test runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EditorDiagnostic:
    """A diagnostic that the editor reported. `line` is 1-based."""

    line: int
    severity: str
    message: str
    source: str = ""
    code: str = ""

    def __str__(self) -> str:
        origin = " ".join(filter(None, (self.source, self.code)))
        return f"line {self.line}: {self.severity}: {self.message}" + (f" ({origin})" if origin else "")


@dataclass(frozen=True, slots=True)
class FileDiagnostics:
    """The diagnostics for one file. `path` is the file's display path."""

    path: str
    diagnostics: tuple[EditorDiagnostic, ...]


@dataclass(frozen=True, slots=True)
class VerificationOutcome:
    """The latest test run after the turn's last edit.

    `command` is the command line to display. `passed` and `failed` are the numbers of tests, or None if the test runner
    does not report the numbers. `ok` is true if the run succeeded.
    """

    command: str
    ok: bool
    passed: int | None
    failed: int | None
    seconds: float

    def to_json(self) -> dict[str, object]:
        return {"command": self.command, "passed": self.passed, "failed": self.failed}

    def format_sentence(self) -> str:
        """Return a sentence for the user, such as `12 passed in 1.3 s` with the command before it."""
        counts = [f"{number} {word}" for number, word in ((self.failed, "failed"), (self.passed, "passed")) if number]
        if not self.ok and not self.failed:
            counts = ["failed", *counts]
        result = ", ".join(counts) or "succeeded"
        return f"{'Verified' if self.ok else 'Not verified'}: `{self.command}` – {result} in {self.seconds:.1f} s."
