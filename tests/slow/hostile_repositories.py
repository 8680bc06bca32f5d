"""All hostile folders."""

from __future__ import annotations

from tests.slow import hostile_files, hostile_settings

HOSTILE = (*hostile_settings.ROWS, *hostile_files.ROWS)
