"""The verifier of users' tokens for `thinklsp --ws`, if the user's file has the section `[serve.oidc]`."""

from __future__ import annotations

import argparse

from thinklsp.core.errors import SettingsError, format_install_command
from thinklsp.identity.tokens import TokenVerifier
from thinklsp.settings.oidc_section import OidcSection
from thinklsp.settings.user_file import UserSettings

_REQUIREMENT = "pyjwt[crypto]>=2.10.1,<3"
_SECTION = "[serve.oidc] in your config.toml"


def create_verifier(args: argparse.Namespace, user: UserSettings) -> TokenVerifier | None:
    """Return the verifier, or None if one user's token protects the server. Raises SettingsError.

    The section never loses its effect silently, because the server would then serve its clients as one user.
    """
    section = user.file.serve.oidc
    if section is None:
        return None
    if args.ws is None:
        raise SettingsError("serve.oidc", f"{_SECTION} identifies users only on a WebSocket. Use --ws.")
    if args.token_file:
        raise SettingsError("serve.oidc", f"{_SECTION} and --token-file are mutually exclusive. Remove one of them.")
    return _load_verifier(section, user)


def _load_verifier(section: OidcSection, user: UserSettings) -> TokenVerifier:
    try:
        from thinklsp.identity.jwt_verifier import OidcVerifier  # noqa: PLC0415 - only a server with OIDC needs it
    except ImportError:
        command = format_install_command(_REQUIREMENT)
        raise SettingsError("serve.oidc", f"{_SECTION} needs one more package. Run {command}.") from None
    return OidcVerifier(section, user.file.network)
