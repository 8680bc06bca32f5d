"""What is asked of the extension inside the extension host, by `vscode_extensions/host/index.js`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.editors import code_server
from tests.editors.trial import BROKEN, Trial

# Of one file of tests. A test that waits in vain must end before, or no test of the file has a report.
_MAX_RUN_SECONDS = 240.0
_SYSTEMS = {
    "macOS": "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0",
    "Windows": "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0",
}


async def in_the_host(trial: Trial, room: Path) -> None:
    """One row for each test of the file, from what it writes into the workspace's parent."""
    trial.file.write_text(BROKEN)
    outcomes: dict[str, Any] = {}
    profile = trial.room / "vscode-host"
    report = trial.room / "host.json"
    variables = {**trial.variables, "TRIAL_REPORT": str(report)}
    flags = ("--disable-workspace-trust", "--vscode-option", "enable-smoke-test-driver")
    with trial.check("its tests in the extension host run to their end"):
        async with code_server.started(room, profile, variables, {}, *flags) as address:
            await _played(address, trial.workspace, "index.js")
            outcomes = json.loads(report.read_text())
            # The window takes its system from the name of the browser, and its default keys from the system.
            for system, agent in _SYSTEMS.items():
                with trial.check(f"its keys are free in the editor on {system}"):
                    await _played(address, trial.workspace, "keys.js", agent)
                    found = json.loads(report.read_text())
                    assert "error" not in found, found
                    assert found["isMac"] == (system == "macOS")
                trial.rows[-1] = trial.noted(", ".join(found.get("keys", ())))
    for name, outcome in outcomes.items():
        with trial.check(f"in the extension host: {name}"):
            assert outcome.get("error") is None, outcome["error"]
        trial.rows[-1] = trial.noted(outcome.get("note", ""))


async def _played(address: str, workspace: Path, tests: str, agent: str | None = None) -> None:
    from playwright.async_api import async_playwright

    host = address.removeprefix("http://")
    folder = f"vscode-remote://{host}{code_server.TRIAL / 'host'}"
    payload = json.dumps([["extensionDevelopmentPath", folder], ["extensionTestsPath", f"{folder}/{tests}"]])
    ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def exits(code: int, *_: object) -> None:
        if not ended.done():
            ended.set_result(code)

    async with async_playwright() as playing:
        chromium = await playing.chromium.launch(executable_path=code_server.CHROMIUM, args=["--no-sandbox"])
        try:
            page = await (await chromium.new_context(user_agent=agent)).new_page()
            await page.expose_function("codeAutomationLog", lambda *_: None)
            await page.expose_function("codeAutomationExit", exits)
            await page.goto(f"{address}/?folder={workspace}&payload={payload}")
            code = await asyncio.wait_for(ended, _MAX_RUN_SECONDS)
        finally:
            await chromium.close()
    assert code == 0, f"exit code {code}"
