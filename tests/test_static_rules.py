"""What the sources of the product must not do, read from them: a new module is covered at once."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import pytest

from tests.support.sizes import tries
from tests.support.sources import list_nodes, unparse_function
from tests.test_architecture import trees

Found = Iterator[ast.AST]


@dataclass(frozen=True)
class Rule:
    """`finds`: each breach. `but_in`: files and rooms to which it does not apply. `planted`: what it must find."""

    finds: Callable[[ast.Module], Found]
    planted: tuple[str, ...]
    but_in: tuple[str, ...] = ()


@cache
def called(node: ast.AST) -> str:
    return unparse_function(node) if isinstance(node, ast.Call) else ""


def calls(*names: str) -> Callable[[ast.Module], Found]:
    """Of these functions, by the name that they are called by."""
    return lambda tree: (node for node in list_nodes(tree) if isinstance(node, ast.Call) and called(node) in names)


def passes(name: str, allowed: Callable[[ast.expr], bool]) -> Callable[[ast.Module], Found]:
    """A keyword, or a member of a literal dictionary, whose value is not allowed."""

    def find(tree: ast.Module) -> Found:
        for node in list_nodes(tree):
            if isinstance(node, ast.keyword) and node.arg == name and not allowed(node.value):
                yield node.value
            if isinstance(node, ast.Dict):
                pairs = zip(node.keys, node.values, strict=True)
                yield from (v for k, v in pairs if is_constant(k, name) and not allowed(v))

    return find


def is_constant(node: ast.AST | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value == value and type(node.value) is type(value)


def imports(*modules: str) -> Callable[[ast.Module], Found]:
    def find(tree: ast.Module) -> Found:
        for node in list_nodes(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name == module or name.startswith(f"{module}.") for name in names for module in modules):
                yield node

    return find


def either(*finders: Callable[[ast.Module], Found]) -> Callable[[ast.Module], Found]:
    return lambda tree: (node for find in finders for node in find(tree))


def logs_bodies(tree: ast.Module) -> Found:
    """What came or goes as a whole: a body, a request, a prompt, headers, a key."""
    for node in list_nodes(tree):
        if not isinstance(node, ast.Call):
            continue
        if called(node).rpartition(".")[2] in LOGGING and "log" in called(node).lower():
            values = [*node.args, *(keyword.value for keyword in node.keywords)]
            words = {word for value in values for word in names_in(value)}
            if words & BODIES or any(isinstance(value, ast.JoinedStr) for value in node.args):
                yield node


def names_in(value: ast.expr) -> Iterator[str]:
    for node in ast.walk(value):
        if isinstance(node, ast.Name | ast.Attribute):
            yield (node.id if isinstance(node, ast.Name) else node.attr).lower()


def loosens_tls(tree: ast.Module) -> Found:
    for node in list_nodes(tree):
        if isinstance(node, ast.Attribute) and node.attr in UNVERIFIED:
            yield node
        targets = node.targets if isinstance(node, ast.Assign) else []
        set_ = [target for target in targets if isinstance(target, ast.Attribute)]
        yield from (target for target in set_ if target.attr in ("check_hostname", "verify_mode"))


def opens_to_others(tree: ast.Module) -> Found:
    for node in calls("os.chmod", "os.fchmod", "os.mkdir", "os.makedirs")(tree):
        if any(isinstance(n, ast.Constant) and type(n.value) is int and n.value & 0o022 for n in ast.walk(node)):
            yield node
    for node in calls("os.umask")(tree):
        if isinstance(node, ast.Call) and not is_constant(node.args[0], 0o077):
            yield node


UNVERIFIED = ("CERT_NONE", "CERT_OPTIONAL", "_create_unverified_context")
LOGGING = {"debug", "info", "warning", "error", "exception", "critical", "log"}
BODIES = {
    "body", "request", "response", "headers", "prompt", "text", "content", "api_key", "key", "secret", "token", "raw",
    "params", "arguments", "messages", "blocks",
}  # fmt: skip
OPENING = ("open", "os.open", "io.open", "Path.open", "os.listdir", "os.scandir", "os.walk", "glob.glob")
STARTING = (
    "subprocess.run", "subprocess.Popen", "subprocess.call", "subprocess.check_output", "subprocess.check_call",
    "asyncio.create_subprocess_exec", "os.execv", "os.execve", "os.execvp", "os.fork", "os.posix_spawn", "pty.fork",
)  # fmt: skip
# Each opens what is not of the workspace: the user's settings, the store, data of the package, the copy for commands,
# the list of processes.
OPENERS = (
    "thinklsp/workspace/paths.py", "thinklsp/workspace/shadow.py",
    "thinklsp/settings/config_files.py", "thinklsp/sessions/store_folder.py",
    "thinklsp/sandbox/", "thinklsp/tools/shadow_runner.py", "thinklsp/engine/diagnosis.py", "thinklsp/cli/",
    "thinklsp/mcp_client/server_guard.py",
)  # fmt: skip
# By argv each, which they check: the sandbox, search and git, the user's own key command, the demo's server, workers,
# the editor that is set up.
STARTERS = (
    "thinklsp/sandbox/launcher.py", "thinklsp/sandbox/process.py", "thinklsp/sandbox/bubblewrap.py",
    "thinklsp/sandbox/process.py", "thinklsp/settings/access.py", "thinklsp/cli/demo_editor.py",
    "thinklsp/cli/demo.py", "thinklsp/cli/setup/__init__.py", "thinklsp/cli/setup/editors.py",
    "thinklsp/workers/__init__.py", "thinklsp/mcp_client/guarded_process.py", "thinklsp/mcp_client/server_guard.py",
)  # fmt: skip

RULES = {
    "only terminal commands print": Rule(
        calls("print", "sys.stdout.write", "sys.stdout.buffer.write"), ("print(1)",), ("thinklsp/cli/",)
    ),
    "files of the workspace are opened by the gate alone": Rule(
        calls(*OPENING), ("open(path)", "os.scandir('.')", "with os.fdopen(os.open(p, 0)) as f: pass"), OPENERS
    ),
    "programs are started in few places": Rule(calls(*STARTING), ("subprocess.run(['ls'])", "os.fork()"), STARTERS),
    "no shell": Rule(
        either(
            passes("shell", lambda value: is_constant(value, False)),
            calls("os.system", "os.popen", "asyncio.create_subprocess_shell", "subprocess.getoutput"),
        ),
        ("subprocess.run('ls', shell=True)", "os.system('ls')", "run('ls', **{'shell': yes})", "os.popen('ls')"),
    ),
    "no redirect is followed": Rule(
        passes("follow_redirects", lambda value: is_constant(value, False)),
        ("AsyncClient(follow_redirects=True)", "send(follow_redirects=maybe)"),
    ),
    "certificates are verified": Rule(
        either(passes("verify", lambda value: not is_constant(value, False)), loosens_tls),
        ("AsyncClient(verify=False)", "c.verify_mode = ssl.CERT_NONE", "c.check_hostname = False"),
    ),
    "nothing is evaluated": Rule(
        calls("eval", "exec", "compile", "__import__", "builtins.eval", "builtins.exec"), ("eval('1')", "exec(text)")
    ),
    "nothing is loaded that could run": Rule(
        either(imports("pickle", "marshal", "shelve", "dill", "yaml"), calls("yaml.load", "torch.load")),
        ("import pickle", "from marshal import loads", "import yaml", "import shelve"),
    ),
    "no body is logged": Rule(
        logs_bodies, ("_log.debug('got %s', response.text)", "_log.info(f'{x}')", "logging.warning('%s', headers)")
    ),
    "no other way to the network": Rule(
        imports("httpx", "httpx2", "http.client", "requests", "aiohttp", "ftplib", "smtplib", "telnetlib"),
        (
            "import http.client",
            "from http.client import HTTPConnection",
            "import requests",
            "import httpx",
            "import httpx2",
        ),
        # The library is named in these alone, and in the network below it, by its own name.
        (
            "thinklsp/http/transport.py",
            "thinklsp/http/routes.py",
            "thinklsp/mcp_client/http_transport.py",
        ),
    ),
    "no temporary file by a name that can be guessed": Rule(
        calls("tempfile.mktemp", "os.tempnam", "os.tmpnam"), ("tempfile.mktemp()",)
    ),
    "no file for others": Rule(
        opens_to_others,
        ("os.chmod(path, 0o666)", "os.umask(0)", "os.mkdir(path, mode=0o777)"),
        # Folders of the workspace and of its copy are as the user's umask wants them.
        ("thinklsp/workspace/paths.py", "thinklsp/sandbox/launcher.py"),
    ),
}


@cache
def list_breaches(rule: str) -> tuple[tuple[str, int], ...]:
    """Return module and line of each breach in the package, those in excepted modules too."""
    return tuple((name, getattr(node, "lineno", 0)) for name, tree in trees() for node in RULES[rule].finds(tree))


@pytest.mark.parametrize("rule", RULES)
def test_the_sources_keep_the_rule(rule: str, tally: Callable[[str, int], None]) -> None:
    excepted = RULES[rule].but_in
    assert [f"{name}:{line}" for name, line in list_breaches(rule) if not name.startswith(excepted)] == []
    tally("A-34", 1)


@pytest.mark.parametrize("rule", RULES)
def test_a_breach_is_found(rule: str) -> None:
    for planted in RULES[rule].planted:
        assert any(RULES[rule].finds(ast.parse(planted))), planted


def test_every_exception_is_needed_and_every_rule_counts() -> None:
    """A file that has lost its reason to be excepted is no longer."""
    excepted = [(name, place) for name, rule in RULES.items() for place in rule.but_in]
    found = {name: {module for module, _ in list_breaches(name)} for name in RULES}
    idle = [each for each in excepted if not any(module.startswith(each[1]) for module in found[each[0]])]
    assert idle == []
    assert tries("A-34") == len(RULES)
