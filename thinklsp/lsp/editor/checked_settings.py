"""The editor's settings, checked against the user's own settings. Warnings are shown to the user."""

from __future__ import annotations

from collections.abc import Iterable

from thinklsp.lsp.editor.client import Client
from thinklsp.settings.access import list_keyed_providers
from thinklsp.settings.sources import EditorSettings, find_ignored
from thinklsp.settings.user_file import UserSettings


class CheckedSettings:
    """The settings checker for a connection, which is loaded before the engine.

    `editor` contains the effective settings.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._reported_problems: set[str] = set()
        self.editor = EditorSettings()

    def report_problems(self, user: UserSettings) -> None:
        """Report problems with the user's settings file and environment. Each problem is reported only once."""
        self._show_warnings(problem for problem in user.problems if problem not in self._reported_problems)
        self._reported_problems.update(user.problems)

    def configure(self, raw: object, user: UserSettings) -> None:
        """Apply new editor settings. Rejected and ignored values are reported only once."""
        keyed = frozenset(list_keyed_providers(user))
        editor, sentences = self.editor.apply_configuration(raw, user, keyed=keyed)
        self.editor, loosening = find_ignored(user, editor, keyed=keyed)
        self._show_warnings((*sentences, *loosening))

    def _show_warnings(self, sentences: Iterable[str]) -> None:
        for sentence in sentences:
            self._client.show_message("warning", sentence)
