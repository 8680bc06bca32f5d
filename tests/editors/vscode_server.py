"""VS Code without a server on the PATH: the extension installs the one that it contains, updates and removes it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.editors import code_server
from tests.editors.trial import BROKEN, FILE, FIXED, Trial
from tests.editors.vscode_driver import Driver, keyless, opened, run_steps
from tests.editors.waiting import until
from tests.editors.workbench import Workbench

_SECONDS = 120.0  # pip loads 37 packages.
_NOT_FOUND = "The thinklsp server was not found."


async def drive(trial: Trial, room: Path) -> None:
    with trial.check("the extension is built with the server in it"):
        vsix = await code_server.package_with_server(room, trial.room / "release")
    pip = trial.room / "pip.conf"
    variables = _without_server(trial) | {"PIP_CONFIG_FILE": str(pip)}
    async with opened(trial, room, "vscode-server", variables=variables, ours=[vsix]) as window:
        driver = _Installation(trial, window, pip)
        steps = (
            ("without a server and without a network, a sentence says why nothing was installed", driver.offline),
            ("after a yes, the server is installed and edits", driver.install),
            ("a server of an older extension is updated after a yes", driver.update),
            ("the server is removed after a yes", driver.remove),
        )
        await run_steps(trial, window, "vscode-server", steps)


def _without_server(trial: Trial) -> dict[str, str]:
    """Return an environment whose PATH has a Python but no thinklsp."""
    (trial.home / "bin" / "thinklsp").unlink()
    (trial.home / "bin" / "python3").symlink_to(Path(sys.base_prefix, "bin", "python3").resolve())
    network = {
        name: value for name, value in os.environ.items() if name.upper().endswith("_PROXY") or name == "PIP_CERT"
    }
    return keyless(trial) | network | {"PATH": f"{trial.home / 'bin'}:/usr/bin:/bin"}


class _Installation:
    def __init__(self, trial: Trial, window: Workbench, pip: Path) -> None:
        self.trial = trial
        self.window = window
        self.driver = Driver(trial, window, "vscode-server")
        self._pip = pip
        self._folder = trial.room / "vscode-server" / "data" / "User" / "globalStorage" / "thinklsp.thinklsp" / "server"

    async def offline(self) -> None:
        self._pip.write_text("[global]\nproxy = http://127.0.0.1:9\nretries = 0\nfind-links =\n")
        page = self.window.page
        await page.locator(".explorer-folders-view .monaco-list-row", has_text=FILE).dblclick()
        await self.driver.picture("not-found")
        await self.window.toast(_NOT_FOUND).locator("a", has_text="Install").click()
        await self._confirm("Install")
        await self.window.toast("pip could not load its packages").wait_for(timeout=_SECONDS * 1_000)
        await self.driver.picture("offline")
        assert self._installed() == []

    async def install(self) -> str:
        self._pip.write_text("")
        self.trial.file.write_text(BROKEN)
        await self.window.toast("pip could not load its packages").locator("a", has_text="Try again").click()
        await self.window.toast("installing the server").wait_for()
        await self.driver.picture("installing")
        (environment,) = await until(self._installed, "the installation", _SECONDS)
        await self.window.shows("thinklsp$")
        await self.window.give_key(self.trial.service.key)
        await self.driver.ask("fix the mean")
        await self.window.reads(FIXED)
        size = sum(path.lstat().st_size for path in environment.rglob("*") if path.is_file())
        return f"{size / 1e6:.0f} MB"

    async def update(self) -> None:
        (environment,) = self._installed()
        environment.rename(environment.with_name("0.0.1-older"))
        await self.window.command("Developer: Reload Window")
        await self.window.toast("is older than the extension").locator("a", has_text="Update").click()
        await until(
            lambda: [path.name for path in self._installed()] not in ([], ["0.0.1-older"]), "the update", _SECONDS
        )
        await until(lambda: not (self._folder / "0.0.1-older").exists(), "the end of the older one")
        await self.window.shows(r"claude-[\w.-]+ · ")

    async def remove(self) -> None:
        await self.window.command("thinklsp: Remove the Installed Server")
        await self._confirm("Remove")
        await self.window.toast(_NOT_FOUND).wait_for()
        await self.driver.picture("removed")
        assert not self._folder.exists()

    async def _confirm(self, button: str) -> None:
        dialog = self.window.page.locator(".monaco-dialog-box")
        await dialog.wait_for()
        await self.driver.picture(f"confirm-{button.lower()}")
        await dialog.locator(".monaco-button", has_text=button).click()

    def _installed(self) -> list[Path]:
        return [path.parent for path in self._folder.glob("*/installed")]
