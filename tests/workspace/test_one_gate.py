"""Only the gate opens files of the workspace. Read from the sources, so that a new module is covered at once."""

import ast
from pathlib import Path

import pytest

import thinklsp

PACKAGE = Path(thinklsp.__file__).parent

# Rooms and modules that may touch the file system, and which files these are.
ALLOWED = {
    "acp/edit_writer.py": "asks the client to write a file; writes none itself but through the gate",
    "jsonrpc/first_message.py": "standard input and output; no file",
    "acp/session_client.py": "asks the client for texts, after the gate; whether its folders exist",
    "mcp_client/connection.py": "whether the working directory of a server exists",
    "mcp_client/guarded_process.py": "starts the servers that the user has agreed to, with mounts in the sandbox",
    "mcp_client/server_guard.py": "the process that ends a server and everything that it started",
    "mcp_client/consent.py": "whether the pins in the state folder exist",
    "workspace/paths.py": "the gate itself",
    "core/import_context.py": "forgets the source of generated methods; no file",
    "tools/search.py": "looks for the rg program outside the workspace; file text comes through the gate",
    "providers/catalogue.py": "the catalogue of models that ships in the package",
    "symbols/outline.py": "the table of languages and the queries of definitions, which ship in the package",
    "providers/chat_servers.py": "the kinds of servers, which ship in the package",
    "tools/shadow_runner.py": "looks at what a command has left in the copy, which lies in the state folder",
    "workspace/documents.py": "where the home folder is; no file",
    "workspace/shadow.py": "writes the copy into the state folder; finds secrets by a descriptor of the gate",
    "workspace/protected.py": "the list of names, which ships in the package",
    "sandbox": "mounts and copies in the state folder, and the system that is shown to commands",
    "engine/diagnosis.py": "who can read and write the user's own files",
    "engine/user_config.py": "who can read and write the user's own files",
    "workers/__init__.py": "starts this interpreter as a worker process; no file",
    "workers/child.py": "the standard streams of a worker process; no file",
    "jsonrpc/stdio.py": "standard input and output, and whether the client's process lives; no file",
    "jsonrpc/writer.py": "the client's pipe; no file",
    "settings": "the user's own configuration file",
    "sessions": "the session store in the state folder",
    "offline": "scenario files of the package or named by the user",
    "wire": "certificates",
    "cli": "terminal commands: what the user names on the command line, logs, the demo's own folder",
    "lsp": "log files in the state folder",
    "__main__.py": "the standard streams",
}

# Functions that only compute with names, and random bytes.
PURE = {
    "os": {
        "fsdecode", "fsencode", "fspath", "getpid", "environ", "sep", "pathsep", "defpath", "linesep", "PathLike",
        "urandom",
    },
    "os.path": {"join", "normpath", "basename", "dirname", "isabs", "commonpath", "splitext", "split", "sep"},
}  # fmt: skip
MODULES = {"shutil", "tempfile", "glob", "io", "subprocess", "mmap", "fileinput", "linecache", "codecs", "tokenize"}
METHODS = {
    "read_text", "read_bytes", "write_text", "write_bytes", "iterdir", "rglob", "touch", "unlink", "rmdir", "mkdir",
    "symlink_to", "hardlink_to", "is_file", "is_dir", "exists", "lstat", "create_subprocess_exec",
    "create_subprocess_shell",
}  # fmt: skip


def faults(source):
    """Every place in a module that could reach the file system or start a program."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name.split(".")[0] in MODULES)
            case ast.ImportFrom(module=str(module), names=names):
                if module.split(".")[0] in MODULES:
                    yield module
                if module in PURE:
                    yield from (alias.name for alias in names if alias.name not in PURE[module])
                if module == "pathlib":
                    yield from (alias.name for alias in names if not alias.name.startswith("Pure"))
            case ast.Call(func=ast.Name(id="open" | "__import__" | "exec" | "eval" as name)):
                yield name
            case ast.Attribute(value=ast.Name(id="os"), attr=attr) if attr not in PURE["os"] | {"path"}:
                yield f"os.{attr}"
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="os"), attr="path"), attr=attr):
                if attr not in PURE["os.path"]:
                    yield f"os.path.{attr}"
            case ast.Attribute(value=ast.Name(id="pathlib"), attr=attr) if not attr.startswith("Pure"):
                yield f"pathlib.{attr}"
            case ast.Call(func=ast.Attribute(attr=attr)) if attr in METHODS:
                yield attr


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name not in ALLOWED and name.split("/")[0] not in ALLOWED:
            yield name


def test_no_other_module_touches_files():
    assert [(name, fault) for name in modules() for fault in faults((PACKAGE / name).read_text())] == []


PLANTED = [
    "open('x')", "import os\nos.open('x', 0)", "import os\nos.path.exists('x')", "from os import stat",
    "from os.path import isfile", "from pathlib import Path", "import pathlib\npathlib.Path('x')", "import shutil",
    "import subprocess", "from io import open", "path.read_text()",
    "import asyncio\nasyncio.create_subprocess_exec('x')",
    "import os\nos.environ.get('x')\nos.listdir('/')",
]  # fmt: skip


@pytest.mark.parametrize("source", PLANTED)
def test_planted_faults_are_found(source):
    assert list(faults(source))


def test_what_is_allowed_exists():
    packages = ("workspace/", "tools/", "workers/")
    assert [name for name in ALLOWED if name.startswith(packages) and not (PACKAGE / name).exists()] == []
