"""Encryption of the sessions of a team, with a key per session.

The key of a session is a row of the database, encrypted with the key of its tenant. Sessions without such a row are
not encrypted: they were stored before the tenant had a key.
"""

from __future__ import annotations

import base64
import binascii
import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from functools import cache

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from thinklsp.core.errors import SessionError
from thinklsp.core.messages import OpaqueState, Origin
from thinklsp.core.server_context import ClientIdentity
from thinklsp.sessions.codec import compute_crc, compute_origin_id, reveal_content, to_bytes, to_text
from thinklsp.sessions.encryption import OpaqueCipher, OpaqueRow
from thinklsp.sessions.postgres.adapted_connection import replace_null_characters
from thinklsp.sessions.postgres.tenant_keys import (
    ENCRYPTED_PREFIX,
    KEY_BYTES,
    SEAL_OVERHEAD,
    TenantKeys,
    WrappedKey,
    seal,
    unseal,
)
from thinklsp.sessions.row_connection import RowConnection
from thinklsp.sessions.session_cipher import UNENCRYPTED, KeysOutdated, RowKey, SessionCipher, StoreCipher

_ENCRYPTED = (
    "New sessions are encrypted in the database with a key for each session. `thinklsp store encrypt` encrypts "
    "existing sessions."
)
_UNKNOWN_KEY = (
    "The key of this session is missing in the database, so the session cannot be decrypted. Restore the table "
    "`session_key` from a backup."
)
_PLAIN = "Sessions are stored in the database without further encryption."
_NO_KEY = "The session is encrypted, but [store] key_command is not set, so it cannot be decrypted."
_WITH_SESSION_KEY = 2
# Queries look for these texts.
_EMPTY_TEXTS = ("", "[]")
Owner = tuple[str, str, str]
"""The tenant, the user and the id of a session."""


@cache
def share_tenant_keys(load: Callable[[], str]) -> TenantKeys:
    """Return the keys that `load` returns, the same object for the same function."""
    return TenantKeys(load)


class TeamCipher(StoreCipher):
    """The ciphers of one user's sessions. Without `keys`, new sessions are not encrypted."""

    def __init__(self, identity: ClientIdentity, keys: TenantKeys | None) -> None:
        super().__init__(OpaqueCipher(protection=_PLAIN if keys is None else _ENCRYPTED))
        self._identity = identity
        self._keys = keys

    def find_all(self, connection: RowConnection, session_ids: Iterable[str], /) -> Mapping[str, SessionCipher]:
        ids = list(session_ids)
        ciphers: dict[str, SessionCipher] = dict.fromkeys(ids, UNENCRYPTED)
        query = "SELECT session, tenant_key, content FROM session_key WHERE session = ANY(?)"
        for session_id, tenant_key, content in connection.execute(query, (ids,)):
            ciphers[session_id] = self._open_session(session_id, WrappedKey(tenant_key, content))
        return ciphers

    def _open_session(self, session_id: str, wrapped: WrappedKey) -> SessionCipher:
        if self._keys is None:
            return _LockedCipher(_NO_KEY)
        if self._keys.can_reload(wrapped.tenant_key):
            raise KeysOutdated(wrapped.tenant_key)
        owner = self._build_owner(session_id)
        try:
            return KeyedCipher(self._keys.unwrap(wrapped, owner), owner)
        except SessionError as error:
            return _LockedCipher(str(error))

    def find(self, connection: RowConnection, session_id: str) -> SessionCipher:
        cipher = super().find(connection, session_id)
        if isinstance(cipher, _LockedCipher):
            raise SessionError(cipher.reason)
        if cipher is UNENCRYPTED and self._keys is not None and _has_encrypted_message(connection, session_id):
            raise SessionError(_UNKNOWN_KEY)
        return cipher

    def ensure(self, connection: RowConnection, session_id: str) -> SessionCipher:
        cipher = self.find(connection, session_id)
        if cipher is UNENCRYPTED and self._keys is not None and not _is_stored(connection, session_id):
            wrapped = self._keys.wrap(secrets.token_bytes(KEY_BYTES), self._build_owner(session_id))
            connection.execute(
                "INSERT INTO session_key (session, tenant_key, content) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                (session_id, *wrapped),
            )
            cipher = self.find(connection, session_id)
        return cipher

    def _build_owner(self, session_id: str) -> Owner:
        return self._identity.tenant, self._identity.user, session_id


def _has_encrypted_message(connection: RowConnection, session_id: str) -> bool:
    query = "SELECT substring(blocks FROM 1 FOR 1) FROM message WHERE session = ? ORDER BY generation, sequence LIMIT 1"
    row = connection.execute(query, (session_id,)).fetchone()
    return row is not None and row[0] == ENCRYPTED_PREFIX


def _is_stored(connection: RowConnection, session_id: str) -> bool:
    return connection.execute("SELECT 1 FROM session WHERE id = ?", (session_id,)).fetchone() is not None


class _LockedCipher(SessionCipher):
    """The cipher of a session whose key cannot be used for `reason`. Its contents count as damaged."""

    overhead, can_decrypt = 0, False

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def encrypt(self, _column: str, _row: RowKey, _content: bytes, /) -> bytes:
        raise SessionError(self.reason)

    def decrypt(self, _column: str, _row: RowKey, _content: object, /) -> None:
        return None

    def encrypt_text(self, _column: str, _row: RowKey, _text: str, /) -> str:
        raise SessionError(self.reason)

    def decrypt_text(self, _column: str, _row: RowKey, _text: str, /) -> None:
        return None

    def encrypt_opaque(self, _row: RowKey, _state: OpaqueState, /) -> OpaqueRow:
        raise SessionError(self.reason)

    def decrypt_opaque(self, _row: RowKey, _columns: OpaqueRow, _origin: Origin, /) -> None:
        return None


class KeyedCipher(SessionCipher):
    """The cipher of a session with this key: AES-256-GCM."""

    overhead, can_decrypt = SEAL_OVERHEAD, True

    def __init__(self, key: bytes, owner: Owner) -> None:
        self._aead = AESGCM(key)
        self._owner = owner

    def encrypt(self, column: str, row: RowKey, content: bytes, /) -> bytes:
        return seal(self._aead, self._build_label(column, row), content)

    def decrypt(self, column: str, row: RowKey, content: object, /) -> bytes | None:
        return unseal(self._aead, self._build_label(column, row), content) if isinstance(content, bytes) else None

    def encrypt_text(self, column: str, row: RowKey, text: str, /) -> str:
        if text in _EMPTY_TEXTS:
            return text
        # As in a text column without encryption.
        content = to_bytes(replace_null_characters(text))
        return base64.b64encode(self.encrypt(column, row, content)).decode()

    def decrypt_text(self, column: str, row: RowKey, text: str, /) -> str | None:
        if text in _EMPTY_TEXTS:
            return text
        try:
            content = self.decrypt(column, row, base64.b64decode(text, validate=True))
        except (ValueError, binascii.Error):
            return None
        return None if content is None else to_text(content)

    def encrypt_opaque(self, row: RowKey, state: OpaqueState, /) -> OpaqueRow:
        content = self.encrypt("opaque.content", row, reveal_content(state))
        return OpaqueRow(compute_origin_id(state.origin), _WITH_SESSION_KEY, content, compute_crc(content))

    def decrypt_opaque(self, row: RowKey, columns: OpaqueRow, origin: Origin, /) -> OpaqueState | None:
        content = self.decrypt("opaque.content", row, columns.content)
        return None if content is None else OpaqueState(to_text(content), origin)

    def _build_label(self, column: str, row: RowKey) -> bytes:
        # The row is identified by values of the database.
        values = (replace_null_characters(value) if isinstance(value, str) else value for value in row)
        return json.dumps([*self._owner, column, *values]).encode()
