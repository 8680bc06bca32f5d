"""The section `[serve.oidc]`: allowed values, and the messages for others."""

from __future__ import annotations

from pathlib import Path

import pytest

from thinklsp.core.errors import SettingsError
from thinklsp.settings.sources import EditorSettings, load_user_settings
from thinklsp.settings.user_file import OidcSection

VALID = {"issuer": '"https://login.example.com/team"', "audience": '"thinklsp"'}


def load(tmp_path: Path, **entries: str | None) -> OidcSection:
    lines = [f"{name} = {value}" for name, value in {**VALID, **entries}.items() if value is not None]
    config = tmp_path / "config.toml"
    config.write_text("\n".join(["[serve.oidc]", *lines]))
    config.chmod(0o600)
    section = load_user_settings({"THINKLSP_CONFIG": str(config)}).file.serve.oidc
    assert section is not None
    return section


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:8080", "http://localhost/x", "http://[::1]:1", "https://a.b:8443/"]
)
def test_allowed_addresses(tmp_path: Path, address: str) -> None:
    assert load(tmp_path, issuer=f'"{address}"', jwks_url=f'"{address}"').jwks_url == address


@pytest.mark.parametrize(
    ("entries", "key", "words"),
    [
        ({"issuer": None}, "serve.oidc.issuer", ""),
        ({"audience": None}, "serve.oidc.audience", ""),
        ({"audience": '""'}, "serve.oidc.audience", ""),
        ({"audience": "[]"}, "serve.oidc.audience", ""),
        ({"issuer": '"http://login.example.com"'}, "serve.oidc.issuer", "only for this machine"),
        ({"issuer": '"http://127.0.0.1.example.com"'}, "serve.oidc.issuer", "only for this machine"),
        ({"issuer": '"login.example.com"'}, "serve.oidc.issuer", "https://"),
        ({"issuer": '"file:///etc/passwd"'}, "serve.oidc.issuer", "https://"),
        ({"issuer": '"https://"'}, "serve.oidc.issuer", "host name"),
        ({"issuer": '"https://me:secret@login.example.com"'}, "serve.oidc.issuer", "user name or password"),
        ({"issuer": '"https://login.example.com?x=1"'}, "serve.oidc.issuer", "has a query"),
        ({"issuer": '"https://login.example.com:99999"'}, "serve.oidc.issuer", "not a valid URL"),
        ({"jwks_url": '"http://login.example.com/keys"'}, "serve.oidc.jwks_url", "only for this machine"),
        ({"claim_user": '""'}, "serve.oidc.claim_user", ""),
        ({"algorithms": '["HS256"]'}, "serve.oidc.algorithms", ""),
        ({"grups": '"groups"'}, "serve.oidc.groups", ""),
    ],
)
def test_mistakes_are_named(tmp_path: Path, entries: dict[str, str | None], key: str, words: str) -> None:
    with pytest.raises(SettingsError) as failed:
        load(tmp_path, **entries)
    assert key in str(failed.value)
    assert words in str(failed.value)
    assert "secret" not in str(failed.value)


def test_editor_cannot_identify_users() -> None:
    raw = {"serve": {"oidc": {"issuer": "https://evil.example"}}, "oidc": {"audience": "evil"}}
    settings, problems = EditorSettings().apply_configuration(raw)
    assert settings.values == {}
    assert len(problems) == 1
    assert "serve" in problems[0]
    assert "evil" not in problems[0]
