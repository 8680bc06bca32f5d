"""What is asked of the extension inside the extension host, by `vscode_extensions/host/index.js`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.editors import code_server
from tests.editors.trial import BROKEN, Trial


async def in_the_host(trial: Trial, room: Path) -> None:
    """One row for each test of the file, from what it writes into the workspace's parent."""
    trial.file.write_text(BROKEN)
    profile = trial.room / "vscode-host"
    report = trial.room / "host.json"
    variables = {**trial.variables, "TRIAL_REPORT": str(report)}
    flags = ("--disable-workspace-trust", "--vscode-option", "enable-smoke-test-driver")
    with trial.check("its tests in the extension host run to their end"):
        async with code_server.started(room, profile, variables, {}, *flags) as address:
            await _played(address, trial.workspace)
    for name, outcome in json.loads(report.read_text() if report.exists() else "{}").items():
        with trial.check(f"in the extension host: {name}"):
            assert outcome.get("error") is None, outcome["error"]
        trial.rows[-1] = trial.noted(outcome.get("note", ""))


async def _played(address: str, workspace: Path) -> None:
    from playwright.async_api import async_playwright

    host = address.removeprefix("http://")
    folder = f"vscode-remote://{host}{code_server.TRIAL / 'host'}"
    payload = json.dumps([["extensionDevelopmentPath", folder], ["extensionTestsPath", f"{folder}/index.js"]])
    ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def exits(code: int, *_: object) -> None:
        if not ended.done():
            ended.set_result(code)

    async with async_playwright() as playing:
        chromium = await playing.chromium.launch(executable_path=code_server.CHROMIUM, args=["--no-sandbox"])
        try:
            page = await (await chromium.new_context()).new_page()
            await page.expose_function("codeAutomationLog", lambda *_: None)
            await page.expose_function("codeAutomationExit", exits)
            await page.goto(f"{address}/?folder={workspace}&payload={payload}")
            code = await asyncio.wait_for(ended, 60)
        finally:
            await chromium.close()
    assert code == 0, f"exit code {code}"
