"""The setup of a key in a terminal: it is tested, kept where the server finds it, and shown nowhere."""

import json
import os
import signal
import subprocess
import sys
import termios
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.cli.conftest import Cli
from thinklsp.workspace.protected import ProtectedPaths

KEY, WRONG = "sk-ant-right-0123456789", "sk-ant-wrong-9876543210"
ARGS = ("acp", "--setup")
KEYRING = """
import json, os
PATH = os.path.join(os.path.dirname(__file__), "held.json")
def set_password(service, user, key):
    if not os.path.exists(PATH):
        raise RuntimeError(key)
    json.dump({f"{service}/{user}": key}, open(PATH, "w"))
def get_password(service, user):
    return json.load(open(PATH)).get(f"{service}/{user}")
"""


class Service(BaseHTTPRequestHandler):
    """A provider that knows one key."""

    def do_POST(self):
        self._answer(404)

    def do_GET(self):
        given = {self.headers.get("x-api-key"), self.headers.get("authorization")}
        self._answer(200 if {KEY, f"Bearer {KEY}"} & given or "/local/" in self.path else 401)

    def _answer(self, status):
        known = {"object": "list", "data": [{"id": "m"}]} if status == 200 else {"error": {"message": "bad key"}}
        body = json.dumps(known).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def service():
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def command(cli, service):
    cli.environment["ANTHROPIC_BASE_URL"] = service
    return Cli(cli.home, cli.folder, cli.temp, None, cli.environment)


def find_files(command):
    folder = command.home / ".config" / "thinklsp"
    return folder / "config.toml", folder / "keys" / "anthropic.key"


def add_keyring(command, *, works):
    site = command.home.parent / "site"
    (site / "keyring.py").write_text(KEYRING)
    if works:
        (site / "held.json").write_text("{}")
    return site / "held.json"


def play(command, *steps, code=0, **variables):
    """Answer questions. Returns what the terminal showed, which never contains a key."""
    with command.terminal(*ARGS, **variables) as terminal:
        for question, answer in steps:
            terminal.until(question)
            terminal.output = terminal.output.partition(question)[2]
            terminal.type(f"{answer}\n")
        shown = terminal.output
        assert terminal.end() == code, terminal.output
    assert KEY not in shown + terminal.output
    assert WRONG not in shown + terminal.output
    return terminal.output


CHOOSE = ("Your choice [1-4]: ", "1")
KEY_OF = "API key for Anthropic (from https://console.anthropic.com/settings/keys): "


def test_a_key_is_tested_and_kept_in_a_private_file(command):
    shown = play(command, CHOOSE, (KEY_OF, "two words"), (KEY_OF, WRONG), (KEY_OF, KEY))
    config, file = find_files(command)
    assert f"The key is in {file}, which only you can read. {config} names the file." in shown
    assert file.read_text() == f"{KEY}\n"
    assert [oct(path.stat().st_mode & 0o777) for path in (file, file.parent, config)] == ["0o600", "0o700", "0o600"]
    assert (file.parent / ".gitignore").read_text() == "*\n"
    assert KEY not in config.read_text()
    assert ProtectedPaths().explain_read_refusal(file.relative_to(command.home).parts) is not None
    # A client may start the server with nothing but PATH.
    bare = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(command.home),
        "ANTHROPIC_BASE_URL": command.env()["ANTHROPIC_BASE_URL"],
    }
    argv = [sys.executable, "-m", "thinklsp", "doctor", "--json"]
    done = subprocess.run(argv, env=bare, capture_output=True, check=False, cwd=os.getcwd())
    report = json.loads(done.stdout)
    assert (report["canRun"], report["model"]["keySource"]) == (True, "the key command in the user file")


def test_a_wrong_key_is_explained_and_nothing_is_stored(command):
    shown = play(command, CHOOSE, (KEY_OF, WRONG), (KEY_OF, ""), code=1)
    assert "Nothing was stored." in shown
    assert not find_files(command)[0].exists()


@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_provider_that_cannot_be_reached(command, answer):
    command.environment["ANTHROPIC_BASE_URL"] = "http://127.0.0.1:9"
    rest = () if answer == "y" else ((KEY_OF, ""),)
    steps = (CHOOSE, (KEY_OF, KEY), ("Store the key without a test? [y/N] ", answer), *rest)
    play(command, *steps, code=0 if answer == "y" else 1)
    assert find_files(command)[1].exists() == (answer == "y")


def is_echoing(terminal):
    return bool(termios.tcgetattr(terminal._ours)[3] & termios.ECHO)


def test_ctrl_c_stores_nothing(command):
    with command.terminal(*ARGS) as terminal:
        terminal.until(CHOOSE[0])
        terminal.type("1\n")
        terminal.until(KEY_OF)
        assert not is_echoing(terminal)
        terminal.process.send_signal(signal.SIGINT)
        terminal.until("stopped.")
        assert is_echoing(terminal)
        assert terminal.end() == 130
    assert not find_files(command)[0].parent.exists()


def test_a_key_of_the_environment_can_be_kept(command):
    question = "Store this key, too, for clients that do not pass the variable? [y/N] "
    play(command, (question, ""), ANTHROPIC_API_KEY=KEY)
    assert not find_files(command)[1].exists()
    play(command, (question, "y"), ANTHROPIC_API_KEY=KEY)
    assert find_files(command)[1].read_text() == f"{KEY}\n"


def test_a_stored_key_can_be_replaced(command):
    play(command, CHOOSE, (KEY_OF, KEY))
    config, file = find_files(command)
    file.write_text("old\n")
    before = config.read_bytes()
    assert "A key for Anthropic was found: the key command in the user file." in play_no(command)
    play(command, ("Replace it? [y/N] ", "y"), (KEY_OF, KEY))
    assert (config.read_bytes(), file.read_text()) == (before, f"{KEY}\n")


def play_no(command):
    with command.terminal(*ARGS) as terminal:
        shown = terminal.until("Replace it? [y/N] ")
        terminal.type("\n")
        assert terminal.end() == 0
    return shown


def test_without_a_terminal_it_only_looks(command):
    done = command.run(*ARGS)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("No key was found. Run `thinklsp acp --setup` in a terminal to store one.\n")
    done = command.run(*ARGS, ANTHROPIC_API_KEY=KEY)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "A key for Anthropic was found: the environment variable ANTHROPIC_API_KEY.\n"
    assert "needs no key" in command.run(*ARGS, THINKLSP_PROVIDER="simulator").stdout


@pytest.mark.parametrize("choice", ["1", "2"])
def test_the_keyring_is_offered_if_it_is_installed(command, choice):
    held = add_keyring(command, works=True)
    shown = play(command, CHOOSE, ("Your choice [1-2]: ", choice), (KEY_OF, KEY))
    config, file = find_files(command)
    section = tomllib.loads(config.read_text())["providers"]["anthropic"]
    if choice == "1":
        assert "in the system's keyring, as thinklsp/anthropic" in shown
        assert (json.loads(held.read_text()), section) == (
            {"thinklsp/anthropic": KEY}, {"api_key_keyring": "thinklsp/anthropic"}
        )  # fmt: skip
    assert file.exists() == (choice == "2")
    assert "A key for Anthropic was found" in play_no(command)


def test_a_keyring_that_fails_is_explained(command):
    add_keyring(command, works=False)
    shown = play(command, CHOOSE, ("Your choice [1-2]: ", "1"), (KEY_OF, KEY), code=1)
    assert "The keyring cannot store the key (RuntimeError). Run the command again" in shown
    assert not find_files(command)[0].exists()


def test_a_compatible_server_needs_a_base_url(command, service):
    choose = (CHOOSE[0], "4")
    base = ("http://localhost:11434/v1: ", f"{service}/local/v1")
    play(command, choose, base, ("(empty if it needs none): ", ""))
    config, _ = find_files(command)
    assert tomllib.loads(config.read_text()) == {"providers": {"openai-compatible": {"base_url": base[1]}}}
    assert not (config.parent / "keys").exists()
    assert command.run(*ARGS).stdout == "A base URL for openai-compatible was found; no key is needed.\n"


CONFIGS = {
    "comments": '# mine\neffort = "low"  # not much\n\n[log]\nlevel = "info"\n',
    "section": '[providers.anthropic] # mine\nheaders = { "X-Team" = "blue" }\n\n[log]\nlevel = "info"',
    "inline": 'providers = { anthropic = { headers = { "X-Team" = "blue" } } }\n[log]\nlevel = "info"\n',
    "dotted": 'providers.anthropic.headers = { "X-Team" = "blue" }\nprovider = "anthropic"\n',
    "another": "[providers.openai]\nheaders = {}\n\n[providers.openai-compatible]\nheaders = {}\n",
}


@pytest.mark.parametrize("name", CONFIGS)
def test_lines_of_the_user_stay(command, name):
    config, file = find_files(command)
    config.parent.mkdir(parents=True)
    real = command.home / "dot files.toml"
    real.write_text(CONFIGS[name])
    config.symlink_to(real)
    play(command, *(() if name == "dotted" else (CHOOSE,)), (KEY_OF, KEY))
    assert config.is_symlink()
    before, after = tomllib.loads(CONFIGS[name]), tomllib.loads(real.read_text())
    added = after["providers"]["anthropic"].pop("api_key_command")
    assert added[-1] == str(file)
    if after["providers"]["anthropic"] == {}:
        del after["providers"]["anthropic"]
    assert {**after, "providers": after["providers"] or None} == {"providers": None, **before}
    assert [line for line in CONFIGS[name].splitlines() if "#" in line and line not in real.read_text()] == []


def test_a_place_of_the_user_is_left_alone(command):
    config, _ = find_files(command)
    config.parent.mkdir(parents=True)
    config.write_text('[providers.anthropic]\napi_key_command = ["pass", "show", "anthropic"]\n')
    before = config.read_bytes()
    for variables in ({}, {"ANTHROPIC_API_KEY": KEY}):
        assert "A key for Anthropic was found" in play(command, **variables)
    assert config.read_bytes() == before


def test_a_file_that_cannot_be_changed_ends_with_a_sentence(command):
    config, file = find_files(command)
    config.parent.mkdir(parents=True)
    config.write_text("# mine\n")
    config.chmod(0o444)
    shown = play(command, CHOOSE, (KEY_OF, KEY), code=1)
    assert f"{config} is read-only, so nothing was changed" in shown.replace("\r\n", " ")
    assert not file.parent.exists()


def test_a_configuration_that_clients_may_not_find_is_named(command):
    elsewhere = command.home / "elsewhere"
    shown = play(command, CHOOSE, (KEY_OF, KEY), XDG_CONFIG_HOME=str(elsewhere))
    path = elsewhere / "thinklsp" / "config.toml"
    assert f"{path} is used because of XDG_CONFIG_HOME. A client must pass this variable to thinklsp." in shown
