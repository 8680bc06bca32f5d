"""Folders with programs and modules in the place of those that a server would start or import."""

from __future__ import annotations

import os
import sys

from tests.support.hostile_ground import Ground, Hostile, rows_of

ROWS: list[Hostile] = []
hostile = rows_of(ROWS)


_PROGRAMS = (
    "git",
    "rg",
    "python",
    "python3",
    "bwrap",
    "node",
    "sh",
    "bash",
    "unshare",
    "env",
    "ctags",
    "uname",
    "ldconfig",
    "gcc",
)


@hostile(
    "programs beside the sources, with PATH leading there", "rg", "x",
    environment=lambda at: {"PATH": f".::bin:{at.root}:{at.root}/bin:{os.environ['PATH']}"},
)  # fmt: skip
def _(at: Ground) -> None:
    for name in _PROGRAMS:
        at.trap(name)
        at.trap(f"bin/{name}")


@hostile(
    "programs in the environments of the folder, some of them links out of it", "rg", "x",
    environment=lambda at: {"PATH": f"{at.root}/.venv/bin:{at.root}/node_modules/.bin:{os.environ['PATH']}"},
)  # fmt: skip
def _(at: Ground) -> None:
    for name in _PROGRAMS:
        at.trap(f"node_modules/.bin/{name}")
        link = at.root / ".venv/bin" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to("/bin/true" if name == "rg" else at.root / "node_modules/.bin" / name)
    (at.root / ".venv/bin/rg").unlink()
    at.write(".venv/pyvenv.cfg", f"home = {at.root}/.venv/bin\n")


_LATE = (
    "pydantic",
    "httpcore",
    "h11",
    "pygls",
    "lsprotocol",
    "pathspec",
    "json",
    "logging",
    "asyncio",
    "sqlite3",
    "ssl",
)


def _shadows(at: Ground, names: tuple[str, ...]) -> None:
    for name in names:
        at.python_trap(f"{name}.py")


@hostile("modules in the place of ours", sys.executable, "-c", "import pydantic", opens=("pydantic.py",))
def _(at: Ground) -> None:
    _shadows(at, (*_LATE, "sitecustomize", "usercustomize", "contextlib", "__future__", "typing", "encodings", "types"))
    at.python_trap("thinklsp/__init__.py")
    at.python_trap("thinklsp/__main__.py")
    at.write("evil.pth", "import pydantic\n")
    at.write("pyvenv.cfg", "home = .\n")
    at.write("python311._pth", ".\nimport site\n")


@hostile("modules in the place of ours, started by python -m", sys.executable, "-c", "import httpcore", module=True)
def _(at: Ground) -> None:
    _shadows(at, (*_LATE, "sitecustomize", "usercustomize", "__future__", "platformdirs", "cryptography"))


@hostile("scripts of package managers and test runners", "make", reads=("package.json", "Makefile", "conftest.py"))
def _(at: Ground) -> None:
    trap = at.trap("payload.sh")
    names = ("preinstall", "install", "postinstall", "prepare", "test", "pretest")
    at.json("package.json", {"name": "x", "scripts": dict.fromkeys(names, str(trap))})
    at.write(
        "pyproject.toml",
        f'[tool.pytest.ini_options]\naddopts = "-p payload"\n[tool.thinklsp]\nbase_url = "{at.decoy}"\n',
    )
    for name in ("conftest", "setup", "noxfile", "payload", "tasks"):
        at.python_trap(f"{name}.py")
    at.write("Makefile", f"all test check:\n\t{trap}\n$(shell {trap})\n")
    at.write("build.rs", f'fn main() {{ std::process::Command::new("{trap}").status(); }}\n')
    at.write("Cargo.toml", '[package]\nname = "x"\nbuild = "build.rs"\n')
    at.write(".cargo/config.toml", f'[build]\nrustc-wrapper = "{trap}"\n')
    at.write(
        ".pre-commit-config.yaml", f"repos: [{{repo: local, hooks: [{{id: x, entry: {trap}, language: system}}]}}]\n"
    )
