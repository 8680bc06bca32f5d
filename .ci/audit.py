"""Looks for known faults in the packages that we depend on: `python .ci/audit.py`, in a venv that holds nothing else.

pip-audit asks a database on the network. Exit code 1: a fault was found, and is printed. Exit code 0: none was found,
or no database could be asked; the last line then begins with `skipped: `. Needs a way to pypi.org or osv.dev.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

# The same question to two databases: either may be out of reach.
SERVICES = ("pypi", "osv")
SECONDS = 180


def verdict(service: str, output: str) -> tuple[int | None, str]:
    """The exit code and what to say, from what pip-audit printed as JSON; None where this database told nothing."""
    try:
        packages: list[dict[str, Any]] = json.loads(output)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return None, f"{service}: the database cannot be reached"
    asked = [package for package in packages if "skip_reason" not in package]
    faulty = [package for package in asked if package.get("vulns")]
    if faulty:
        return 1, "\n".join(f"VULNERABLE: {told(package)}" for package in faulty)
    # Of itself no database knows anything.
    skipped = sorted(package["name"] for package in packages if package not in asked and package["name"] != "thinklsp")
    if not asked:
        return None, f"{service}: the database knows none of {len(packages)} packages"
    rest = f"; not known to it: {', '.join(skipped)}" if skipped else ""
    return 0, f"{service}: no known fault in {len(asked)} packages{rest}"


def told(package: dict[str, Any]) -> str:
    faults = ", ".join(
        f"{fault['id']} (mended in {fault['fix_versions'] or 'no version'})" for fault in package["vulns"]
    )
    return f"{package['name']} {package['version']}: {faults}"


def ask(service: str) -> str:
    argv = [sys.executable, "-m", "pip_audit", "--local", "--format", "json", "--progress-spinner", "off"]
    try:
        done = subprocess.run(
            [*argv, "--vulnerability-service", service], capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout


def main() -> int:
    for service in SERVICES:
        code, said = verdict(service, ask(service))
        print(said)
        if code is not None:
            return code
    print("skipped: not audited, because no database of known faults can be reached")
    return 0


if __name__ == "__main__":
    sys.exit(main())
