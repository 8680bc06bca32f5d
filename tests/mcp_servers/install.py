"""Installs the servers of this suite into a folder: `python -m tests.mcp_servers.install FOLDER`.

Only this step needs the network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent


def install(folder: Path) -> None:
    venv.create(folder, with_pip=True)
    programs = folder / "bin"
    subprocess.run([programs / "pip", "install", "-q", "-r", HERE / "requirements.txt"], check=True)
    shutil.copy(HERE / "package.json", folder)
    npm = [programs / "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", folder]
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(npm, env=os.environ | {"PATH": path}, check=True)


if __name__ == "__main__":
    install(Path(sys.argv[1]).absolute())
