"""What became of the edit of a turn, file by file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from thinklsp.lsp.edits.drafts import FileStatus


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an edit set. `notices` are sentences for the user."""

    files: tuple[FileStatus, ...]
    proposal_id: str | None = None
    notices: tuple[str, ...] = ()

    @property
    def applied(self) -> Literal["all", "some", "none"]:
        done = [file.status == "applied" for file in self.files]
        if all(done):
            return "all"
        return "some" if any(done) else "none"

    def json(self) -> dict[str, Any]:
        files = [file.json() for file in self.files]
        return {"applied": self.applied, "files": files, "proposalId": self.proposal_id}
