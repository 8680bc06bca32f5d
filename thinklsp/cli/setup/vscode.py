"""VS Code and the editors that are built from it: the extension, and the path of the server if it is not on PATH."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thinklsp.cli.setup.blocks import ConfigPlace
from thinklsp.cli.setup.files import read_file
from thinklsp.cli.setup.machine import Machine
from thinklsp.cli.setup.steps import ConfigEdit, SetupSteps, insert, read_own_text, remove
from thinklsp.core.errors import ThinkLspError
from thinklsp.core.json_codec import parse_jsonc

_ID = "thinklsp.thinklsp"
_SETTING = "thinklsp.ui.server.path"


@dataclass(frozen=True)
class Variant:
    """`user_data` is its folder among the applications' settings, and `extensions` its folder in the home folder.

    `is_remote`: the extension runs on a server, for which the settings of the machine count.
    """

    user_data: str
    extensions: str
    is_remote: bool = False

    def find_settings(self, machine: Machine) -> ConfigPlace:
        root = machine.data if self.is_remote else machine.applications
        scope = "Machine" if self.is_remote else "User"
        return ConfigPlace(root / self.user_data / scope / "settings.json", root, "//", ())

    def find_extensions(self, machine: Machine) -> Path:
        return machine.data / self.user_data / "extensions" if self.is_remote else machine.home / self.extensions

    def build_removals(self, machine: Machine) -> tuple[ConfigEdit, ...]:
        return (remove(self.find_settings(machine)),)

    def build_steps(self, machine: Machine, program: str) -> SetupSteps:
        """Raises ThinkLspError if this installation has no extension."""
        package = machine.files / "vscode" / "thinklsp.vsix"
        if not package.is_file():
            raise ThinkLspError(
                "This installation has no extension for VS Code. To build it, run `npm install --no-package-lock && "
                "npm run package` in editors/vscode of a clone of the repository, then install it there with "
                f"`{Path(program).name} --install-extension thinklsp.vsix`."
            )
        is_current = self.find_version(machine) == _read_version(package)
        programs = () if is_current else ((program, "--install-extension", str(package), "--force"),)
        settings = self.find_settings(machine)
        if machine.server == ("thinklsp",):
            # The extension finds the program on PATH.
            return SetupSteps((remove(settings),), programs)
        own = _parse_settings(settings)
        if _SETTING in own:
            is_same = own[_SETTING] == machine.server[0]
            note = f"{settings.path} sets `{_SETTING}` already, so it stays: {own[_SETTING]}"
            return SetupSteps(programs=programs, notes=() if is_same else (note,))
        line = f'"{_SETTING}": {json.dumps(machine.server[0], ensure_ascii=False)}'
        return SetupSteps((insert(settings, [line]),), programs)

    def build_uninstall(self, machine: Machine, program: str) -> tuple[tuple[str, ...], ...]:
        return ((program, "--uninstall-extension", _ID),) if self.find_version(machine) is not None else ()

    def find_version(self, machine: Machine) -> str | None:
        """Return the version of the installed extension, or None."""
        try:
            rows = json.loads(read_file(self.find_extensions(machine) / "extensions.json") or b"[]")
            return next((str(row["version"]) for row in rows if row["identifier"]["id"].lower() == _ID), None)
        except (ValueError, TypeError, KeyError):
            return None


VARIANTS = {
    "vscode": ("VS Code", ("code",), Variant("Code", ".vscode/extensions")),
    "vscode-insiders": (
        "VS Code Insiders", ("code-insiders",), Variant("Code - Insiders", ".vscode-insiders/extensions"),
    ),
    "codium": ("VSCodium", ("codium", "vscodium"), Variant("VSCodium", ".vscode-oss/extensions")),
    "code-server": ("code-server", ("code-server",), Variant("code-server", "", is_remote=True)),
    "cursor": ("Cursor", ("cursor",), Variant("Cursor", ".cursor/extensions")),
    "windsurf": ("Windsurf", ("windsurf",), Variant("Windsurf", ".windsurf/extensions")),
    "positron": ("Positron", ("positron",), Variant("Positron", ".positron/extensions")),
}  # fmt: skip
# Where macOS keeps the program if the user has not put it on PATH.
IN_APPLICATION = "/Applications/{title}.app/Contents/Resources/app/bin/{program}"


def _parse_settings(place: ConfigPlace) -> dict[str, Any]:
    """Return the user's settings, as far as they can be read; `insert` refuses a file with other content."""
    try:
        value = parse_jsonc(read_own_text(place))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _read_version(package: Path) -> str | None:
    try:
        with zipfile.ZipFile(package) as archive:
            return str(json.loads(archive.read("extension/package.json"))["version"])
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        raise ThinkLspError(f"{package} is not an extension for VS Code. Build it again.") from None
