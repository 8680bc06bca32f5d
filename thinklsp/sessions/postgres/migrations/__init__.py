"""The schema of the PostgreSQL store, with one SQL script per version. Never change a released script."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files


@cache
def load_migrations() -> Mapping[int, str]:
    """Return the SQL scripts by the schema version that they create."""
    names = sorted(entry.name for entry in files(__package__).iterdir() if entry.name.endswith(".sql"))
    return {int(name[:4]): files(__package__).joinpath(name).read_text("utf-8") for name in names}
