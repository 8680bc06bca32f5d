"""The user's machine as `thinklsp setup` sees it: folders, programs, this installation and the editors' files."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import thinklsp
from thinklsp.core.errors import ThinkLspError

_NAME = "thinklsp"


@dataclass(frozen=True)
class Machine:
    """`server` starts the server of this installation. `files` is the folder that has one folder for each editor."""

    environ: Mapping[str, str]
    platform: str
    server: tuple[str, ...]
    files: Path

    @property
    def home(self) -> Path:
        return Path(self.environ.get("HOME") or os.path.expanduser("~"))

    @property
    def config(self) -> Path:
        return self._find_folder("XDG_CONFIG_HOME", ".config")

    @property
    def data(self) -> Path:
        return self._find_folder("XDG_DATA_HOME", ".local/share")

    @property
    def applications(self) -> Path:
        """The folder in which programs with windows keep their settings."""
        return self.home / "Library" / "Application Support" if self.platform == "darwin" else self.config

    @property
    def acp_command(self) -> tuple[str, ...]:
        """The command of the ACP agent. Its program is an absolute path, because clients may start it without PATH."""
        program = self.find_program(self.server[:1]) or self.server[0]
        return (os.path.abspath(program), *self.server[1:], "acp")

    def find_program(self, names: Sequence[str]) -> str | None:
        """Return the path of the first program that is on PATH, or that is named by an absolute path."""
        found = (shutil.which(name, path=self.environ.get("PATH")) for name in names)
        return next((path for path in found if path is not None), None)

    def _find_folder(self, variable: str, default: str) -> Path:
        value = self.environ.get(variable, "")
        # The specification says that relative paths are ignored.
        return Path(value) if os.path.isabs(value) else self.home / default


def inspect_machine() -> Machine:
    """Raises ThinkLspError if this installation lacks the editors' files."""
    return Machine(dict(os.environ), sys.platform, find_server(os.environ), find_editor_files())


def find_editor_files() -> Path:
    """Return the folder with the editors' files: in the package, or beside it in a clone of the repository.

    Raises ThinkLspError.
    """
    package = Path(thinklsp.__file__).resolve().parent
    for folder in (package / "editors", package.parent / "editors"):
        if (folder / "neovim" / "plugin").is_dir():
            return folder
    raise ThinkLspError(f"This installation has no files for editors in {package}. Install thinklsp again.")


def find_server(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command of this installation's server: its bare name if a new shell finds this installation by it."""
    script = _find_script()
    if script is None:
        return (sys.executable, "-m", _NAME)
    # An activated environment is on PATH in this shell only.
    active = os.path.join(environ.get("VIRTUAL_ENV") or os.devnull, "bin")
    folders = [folder for folder in environ.get("PATH", "").split(os.pathsep) if folder not in ("", active)]
    found = shutil.which(_NAME, path=os.pathsep.join(folders))
    return (_NAME,) if found is not None and os.path.realpath(found) == os.path.realpath(script) else (script,)


def _find_script() -> str | None:
    """Return the command that is running, or the one beside the running Python, or None."""
    running = os.path.abspath(sys.argv[0])
    beside = os.path.join(os.path.dirname(os.path.abspath(sys.executable)), _NAME)
    candidates = [path for path in (running, beside) if os.path.basename(path) == _NAME]
    return next((path for path in candidates if os.path.isfile(path) and os.access(path, os.X_OK)), None)
