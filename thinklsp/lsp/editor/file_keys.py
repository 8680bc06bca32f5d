"""The keys of files, which are the same for all their URIs, also for those that lead through links."""

from __future__ import annotations

from collections.abc import Iterable

from thinklsp.workspace.paths import compute_workspace_key
from thinklsp.workspace.uri import normalize_uri


class FileKeys:
    """The keys of the files of a connection. `find` reads only memory, because code actions may not wait for a disk."""

    def __init__(self) -> None:
        # The keys of the URIs that lead through links.
        self._keys: dict[str, str] = {}

    def find(self, uri: str) -> str:
        normalized = normalize_uri(uri)
        return self._keys.get(normalized, normalized)

    def learn(self, uris: Iterable[str]) -> None:
        """Follow the links of URIs. Run this method in a thread if there are many of them."""
        for uri in uris:
            normalized, key = normalize_uri(uri), compute_workspace_key(uri)
            if key != normalized:
                self._keys[normalized] = key
            else:
                self._keys.pop(normalized, None)
