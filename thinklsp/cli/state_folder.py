"""Where the program keeps what is its own: logs, and later the session store."""

from __future__ import annotations

from collections.abc import Mapping

from platformdirs import user_state_dir


def state_folder(environment: Mapping[str, str]) -> str:
    return environment.get("THINKLSP_STATE_DIR") or user_state_dir("thinklsp", appauthor=False)
