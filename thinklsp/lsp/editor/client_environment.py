"""The environment of a client's engine, and the folders of the server that an identified client cannot open."""

from __future__ import annotations

import os
from collections.abc import Mapping

from thinklsp.core.server_context import LOCAL_IDENTITY, TENANT_VARIABLE, USER_VARIABLE, ClientIdentity
from thinklsp.sessions.state_folder import USERS_FOLDER, resolve_state_folder
from thinklsp.settings.private_paths import find_config_path


def build_client_environment(environment: Mapping[str, str], identity: ClientIdentity) -> dict[str, str]:
    """Return the environment of a client's engine.

    Each identified user has a state folder of their own, so that permissions, approvals and copies of files are not
    shared. The folder's name contains no part of the user's name. The user's key commands receive the names.
    """
    if identity == LOCAL_IDENTITY:
        return dict(environment)
    from hashlib import sha256  # noqa: PLC0415 - a server for one user hashes nothing

    # The names contain no control characters, so the separator makes the pair unique.
    name = sha256(f"{identity.tenant}\0{identity.user}".encode()).hexdigest()
    folder = os.path.join(resolve_state_folder(environment), USERS_FOLDER, name)
    return {
        **environment,
        "THINKLSP_STATE_DIR": folder,
        TENANT_VARIABLE: identity.tenant,
        USER_VARIABLE: identity.user,
    }


def list_private_folders(environment: Mapping[str, str], identity: ClientIdentity) -> tuple[str, ...]:
    """Return the folders of the server process that a client cannot open as a workspace.

    They contain the settings of the server and the data of its users. A user of a server for one user owns both.
    """
    if identity == LOCAL_IDENTITY:
        return ()
    return resolve_state_folder(environment), os.path.dirname(find_config_path(environment))
