"""The editor's settings as checked against the user's own, and what the user is told of both."""

from __future__ import annotations

from collections.abc import Iterable

from thinklsp.lsp.editor.client import Client
from thinklsp.settings import EditorSettings, UserSettings, ignored, keyed_providers


class CheckedSettings:
    """One per connection, loaded before the engine, so that mistakes are told early. `editor`: what counts."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._told: set[str] = set()
        self.editor = EditorSettings()

    def tell_problems(self, user: UserSettings) -> None:
        """Tell what is wrong with the user's file and environment, each problem once."""
        self._tell(problem for problem in user.problems if problem not in self._told)
        self._told.update(user.problems)

    def configure(self, raw: object, user: UserSettings) -> None:
        """Take new editor settings. What is refused or ignored is told once."""
        keyed = frozenset(keyed_providers(user))
        editor, sentences = self.editor.updated(raw, user, keyed=keyed)
        self.editor, loosening = ignored(user, editor, keyed=keyed)
        self._tell((*sentences, *loosening))

    def _tell(self, sentences: Iterable[str]) -> None:
        for sentence in sentences:
            self._client.show_message("warning", sentence)
