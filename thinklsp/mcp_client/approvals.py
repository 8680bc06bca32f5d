"""The file `mcp-approvals.json` in the state folder, which lists the servers of projects that the user has approved.

An approval applies to a folder, a name and the digest of an entry, so a changed entry needs a new one. If the file
cannot be read, no server is approved, and the file is not overwritten.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from pydantic import ValidationError

from thinklsp.core.errors import SettingsError
from thinklsp.mcp_client.offered_server import OfferedServer
from thinklsp.settings.private_paths import lock_folder, make_private, read_text, replace_file
from thinklsp.settings.user_file import Section

FILE_NAME = "mcp-approvals.json"
_MAX_APPROVALS = 1_000
_LOCK_SECONDS = 5.0


class Approval(Section):
    folder: str
    name: str
    digest: str


class _ApprovalsFile(Section):
    approved: tuple[Approval, ...] = ()


@dataclass(frozen=True, slots=True)
class Approvals:
    """The approvals in a state folder. The file is read on every call, because another process may change it."""

    state_folder: str

    @property
    def path(self) -> str:
        return os.path.join(self.state_folder, FILE_NAME)

    def read(self) -> tuple[Approval, ...]:
        """Return all approvals. Raises SettingsError if the file cannot be read, trusted or parsed."""
        text = read_text(self.path, FILE_NAME)
        if not text:
            return ()
        try:
            return _ApprovalsFile.model_validate(json.loads(text)).approved
        except (ValueError, RecursionError, ValidationError):
            problem = f"Your {FILE_NAME} is damaged, so no MCP server of a project is approved."
            raise SettingsError("mcp", f"{problem} Delete {self.path} to start again.") from None

    def approve(self, server: OfferedServer) -> None:
        """Approve a server until its entry changes. Raises SettingsError if the approval cannot be stored."""
        added = _build_approval(server)
        try:
            make_private(self.state_folder)
            with lock_folder(self.state_folder, _LOCK_SECONDS):
                others = [each for each in self.read() if (each.folder, each.name) != (added.folder, added.name)]
                approved = [each.model_dump() for each in (*others, added)][-_MAX_APPROVALS:]
                replace_file(self.path, json.dumps({"approved": approved}, indent=1) + "\n")
        except OSError as error:
            raise SettingsError("mcp", f"Your {FILE_NAME} cannot be written to: {error.strerror}.") from None


def is_approved(server: OfferedServer, approvals: tuple[Approval, ...]) -> bool:
    return _build_approval(server) in approvals


def is_changed(server: OfferedServer, approvals: tuple[Approval, ...]) -> bool:
    """Return True if the user has approved another entry with this name in the same folder."""
    names = {(each.folder, each.name) for each in approvals if each.digest != server.digest}
    return (server.folder, server.config.name) in names and not is_approved(server, approvals)


def _build_approval(server: OfferedServer) -> Approval:
    return Approval(folder=server.folder, name=server.config.name, digest=server.digest)
