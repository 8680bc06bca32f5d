"""The section `[store]` of the user's or administrator's file, which names the database for sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, ValidationError

from thinklsp.core.errors import SettingsError
from thinklsp.settings.admin_file import read_admin_file
from thinklsp.settings.private_paths import find_admin_path, find_config_path, read_toml
from thinklsp.settings.section import Section

URL_VARIABLE = "THINKLSP_STORE_URL"
_OWN_FILE = "Your config.toml"
_URL_PATTERN = r"^postgres(ql)?://"


class StoreSection(Section):
    """The section `[store]`. Without `url` and `url_command`, sessions are kept in the state folder.

    A value can also come from the environment variable `THINKLSP_STORE_URL`.
    """

    url: str | None = Field(
        None,
        pattern=_URL_PATTERN,
        repr=False,
        description="Address of the PostgreSQL database for sessions: postgresql://USER@HOST:PORT/DATABASE.",
    )
    url_command: tuple[str, ...] | None = Field(
        None, min_length=1, description="Command that prints the address, if it contains a password."
    )
    key_command: tuple[str, ...] | None = Field(
        None,
        min_length=1,
        description="Command that prints the key with which the sessions in the database are encrypted: 32 bytes in "
        "hexadecimal. It receives `THINKLSP_TENANT`. Further lines are earlier keys.",
    )
    fallback: Literal["none", "memory"] = Field(
        "none",
        description="What happens if the database is not reachable at the start: `none` reports an error, and `memory` "
        "keeps sessions in memory until the server restarts.",
    )

    @property
    def is_shared(self) -> bool:
        """Return True if sessions are kept in a database and not in the state folder."""
        return self.url is not None or self.url_command is not None


def load_store_section(environment: Mapping[str, str]) -> StoreSection:
    """Return the section of the administrator's file, else the one of the environment or of the user's file.

    Raises SettingsError if a file cannot be trusted or parsed, or if the section is invalid.
    """
    admin = _parse(read_admin_file(environment), find_admin_path(environment))
    own = _parse(read_toml(find_config_path(environment), "config.toml"), _OWN_FILE)
    if admin is not None:
        if own is not None and own.key_command is not None and own.key_command != admin.key_command:
            raise SettingsError(
                "store.key_command",
                f"{_OWN_FILE} has store.key_command, but the administrator's file decides where and how sessions are "
                "stored. Remove it, or let the administrator set it.",
            )
        return _check_key_command(admin, find_admin_path(environment))
    if url := environment.get(URL_VARIABLE, "").strip():
        section = _parse({"store": {"url": url}}, URL_VARIABLE) or StoreSection()
        inherited = {} if own is None else {"fallback": own.fallback, "key_command": own.key_command}
        return section.model_copy(update=inherited)
    return StoreSection() if own is None else _check_key_command(own, _OWN_FILE)


def _check_key_command(section: StoreSection, place: str) -> StoreSection:
    if section.key_command is not None and not section.is_shared:
        raise SettingsError(
            "store.key_command",
            f"{place} has store.key_command, which encrypts sessions in a database, but no store.url. Set store.url, "
            "too.",
        )
    return section


def _parse(raw: Mapping[str, object], place: str) -> StoreSection | None:
    if "store" not in raw:
        return None
    try:
        section = StoreSection.model_validate(raw["store"])
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(("store", *map(str, first["loc"])))
        raise SettingsError(where, f"{place} has a mistake at {where}: {first['msg'].lower()}.") from None
    if section.url is not None and section.url_command is not None:
        raise SettingsError("store", f"{place} has both store.url and store.url_command. Remove one of them.")
    return section
