"""A connection whose statements are those of the functions on rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader

from thinklsp.sessions.row_connection import Rows


class PostgresConnection:
    """A connection inside a transaction. `notices` collects the server's warnings."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> Rows:
        return self._connection.execute(_translate(statement), [_adapt(value) for value in parameters])


class NumberLoader(Loader):
    """Load a `numeric`, which is the type of a sum of integers, as an int or a float."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data).decode()
        return int(text) if text.lstrip("-").isdigit() else float(text)


@cache
def _translate(statement: str) -> bytes:
    """Return the statement with the placeholders of psycopg."""
    return statement.replace("%", "%%").replace("?", "%s").encode()


def _adapt(value: object) -> object:
    """Return the value with a type and with characters that PostgreSQL accepts in these columns."""
    if isinstance(value, bool):
        return int(value)
    return replace_null_characters(value) if isinstance(value, str) else value


def replace_null_characters(text: str) -> str:
    """Return the text as a text column of PostgreSQL can contain it."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")
