"""Encryption of the sessions that are in the database already, by the owner of the tables."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

from thinklsp.core.errors import SessionError
from thinklsp.sessions.postgres.adapted_connection import PostgresConnection
from thinklsp.sessions.postgres.address import describe_address
from thinklsp.sessions.postgres.maintenance import check_owner
from thinklsp.sessions.postgres.pools import StoreConnection
from thinklsp.sessions.postgres.schema import open_connection
from thinklsp.sessions.postgres.team_cipher import KeyedCipher, Owner
from thinklsp.sessions.postgres.tenant_keys import KEY_BYTES, TenantKeys, WrappedKey
from thinklsp.sessions.row_copies import list_columns, recode
from thinklsp.sessions.session_cipher import UNENCRYPTED, SessionCipher

# The encrypted tables with the column of the session, and with the columns that identify a row in the session.
_TABLES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "session": ("id", ()),
    "message": ("session", ("generation", "sequence")),
    "opaque": ("session", ("generation", "sequence", "position")),
    "archive": ("session", ("id",)),
    "image": ("session", ("digest",)),
    "ledger": ("session", ("edit", "position")),
}
Outcome = Literal["encrypted", "rewrapped", "in use", "lost", "other"]
_OWN = "tenant = ? AND account = ?"


@dataclass(frozen=True, slots=True)
class EncryptionReport:
    """The numbers of sessions that were encrypted and of keys that were encrypted again, and what is left to do.

    `in_use` and `lost` name the sessions that were skipped because they are in use, and those whose key cannot be
    decrypted with any key of the tenant: tenant, user and id. `errors` contains the errors of whole tenants.
    """

    encrypted: int
    rewrapped: int
    in_use: tuple[Owner, ...] = ()
    lost: tuple[Owner, ...] = ()
    errors: Mapping[str, str] = field(default_factory=dict)


def encrypt_store(
    url: str, create_loader: Callable[[str], Callable[[], str]], *, read_clock: Callable[[], float] = time.monotonic
) -> EncryptionReport:
    """Encrypt the sessions of all tenants that are not encrypted yet, and encrypt the keys of the others with the
    current key of their tenant.

    `create_loader` returns the function that loads the keys of a tenant, as `TenantKeys` describes. Each session is
    encrypted in one transaction, so the function can be interrupted and called again. Raises SessionError.
    """
    owners: dict[Outcome, list[Owner]] = {}
    errors: dict[str, str] = {}
    with open_connection(url) as connection:
        check_owner(connection, describe_address(url))
        rows = PostgresConnection(connection)
        tenants = rows.execute("SELECT tenant FROM session UNION SELECT tenant FROM session_key").fetchall()
        for (tenant,) in tenants:
            keys = TenantKeys(create_loader(tenant), read_clock)
            try:
                keys.refresh()
                for owner, outcome in chain(
                    _rewrap_keys(rows, tenant, keys), _encrypt_sessions(connection, rows, tenant, keys)
                ):
                    owners.setdefault(outcome, []).append(owner)
            except SessionError as error:
                errors[tenant] = str(error)
    encrypted, rewrapped = (len(owners.get(outcome, ())) for outcome in ("encrypted", "rewrapped"))
    return EncryptionReport(
        encrypted, rewrapped, tuple(owners.get("in use", ())), tuple(owners.get("lost", ())), errors
    )


def _rewrap_keys(rows: PostgresConnection, tenant: str, keys: TenantKeys) -> Iterator[tuple[Owner, Outcome]]:
    query = "SELECT account, session, tenant_key, content FROM session_key WHERE tenant = ? AND tenant_key != ?"
    for account, session_id, *wrapped in rows.execute(query, (tenant, keys.get_current_id())).fetchall():
        owner = (tenant, account, session_id)
        keys.refresh()
        yield owner, _rewrap_key(rows, owner, WrappedKey(*wrapped), keys)


def _encrypt_sessions(
    connection: StoreConnection, rows: PostgresConnection, tenant: str, keys: TenantKeys
) -> Iterator[tuple[Owner, Outcome]]:
    for account, session_id in _list_unencrypted(rows, tenant):
        owner = (tenant, account, session_id)
        keys.refresh()
        with connection.transaction():
            outcome = _encrypt_session(rows, owner, keys)
        yield owner, outcome


def _rewrap_key(rows: PostgresConnection, owner: Owner, wrapped: WrappedKey, keys: TenantKeys) -> Outcome:
    """Encrypt the key of a session with the tenant's current key."""
    try:
        key = keys.unwrap(wrapped, owner)
    except SessionError:
        return "lost"
    renewed = keys.wrap(key, owner)
    rows.execute(
        f"UPDATE session_key SET tenant_key = ?, content = ? WHERE {_OWN} AND session = ? AND content = ?",  # noqa: S608 - a constant
        (*renewed, *owner, wrapped.content),
    )
    return "rewrapped"


def _list_unencrypted(rows: PostgresConnection, tenant: str) -> list[tuple[str, str]]:
    query = (
        "SELECT account, id FROM session WHERE tenant = ? AND NOT EXISTS (SELECT 1 FROM session_key AS key "
        "WHERE (key.tenant, key.account, key.session) = (session.tenant, session.account, session.id))"
    )
    return [(account, session_id) for account, session_id in rows.execute(query, (tenant,))]


def _encrypt_session(rows: PostgresConnection, owner: Owner, keys: TenantKeys) -> Outcome:
    """Encrypt a session, unless another process uses it. The outcome is `other` if the session was deleted or encrypted
    in the meantime."""
    # The locked lease keeps all others from the session until the end of the transaction.
    rows.execute(
        "INSERT INTO lease (tenant, account, session, fence, holder, holder_name, until) "
        "VALUES (?, ?, ?, 0, NULL, '', clock_timestamp()) ON CONFLICT DO NOTHING",
        owner,
    )
    query = "SELECT holder IS NOT NULL AND until > clock_timestamp() FROM lease"
    if rows.execute(f"{query} WHERE {_OWN} AND session = ? FOR UPDATE", owner).fetchone() != (False,):
        return "in use"
    key = secrets.token_bytes(KEY_BYTES)
    added = rows.execute(
        "INSERT INTO session_key (tenant, account, session, tenant_key, content) SELECT tenant, account, id, ?, ? "  # noqa: S608 - a constant
        f"FROM session WHERE {_OWN} AND id = ? ON CONFLICT DO NOTHING RETURNING session",
        (*keys.wrap(key, owner), *owner),
    )
    if added.fetchone() is None:
        return "other"
    origins = rows.execute(f"SELECT id, provider, model, host, key FROM origin WHERE {_OWN}", owner[:2]).fetchall()  # noqa: S608 - a constant
    for table in _TABLES:
        _encrypt_rows(rows, table, owner, origins, KeyedCipher(key, owner))
    return "encrypted"


def _encrypt_rows(
    rows: PostgresConnection,
    table: str,
    owner: Owner,
    origins: list[tuple[str, ...]],
    cipher: SessionCipher,
) -> None:
    columns = list_columns(table)
    session_column, keys = _TABLES[table]
    where = f"{_OWN} AND {session_column} = ?"
    stored = rows.execute(f"SELECT {', '.join(columns)} FROM {table} WHERE {where}", owner).fetchall()  # noqa: S608 - constants
    for row in stored:
        for changed in recode(table, (row,), origins, UNENCRYPTED, cipher):
            values = {name: new for name, old, new in zip(columns, row, changed, strict=True) if old != new}
            if values:
                assignments = ", ".join(f"{name} = ?" for name in values)
                place = "".join(f" AND {key} = ?" for key in keys)
                rows.execute(
                    f"UPDATE {table} SET {assignments} WHERE {where}{place}",  # noqa: S608 - constants
                    (*values.values(), *owner, *(row[columns.index(key)] for key in keys)),
                )
