"""The demo's client of pygls: every request ends, whatever the server does, and so does the server's process."""

import asyncio
import os
import subprocess
import sys
from tempfile import TemporaryFile

import pytest
from lsprotocol import types
from pygls.protocol import default_converter

from thinklsp.cli.demo_client import DemoClient, DemoFailed, ServerGone, make_converter

# A server of a few lines. SERVE and EXIT stand for its code after a request and after `exit`, which each case brings.
SERVER = """
import json, os, sys
def send(message):
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    os.write(1, b"Content-Length: %d\\r\\n\\r\\n%s" % (len(body), body))
while head := sys.stdin.buffer.readline():
    length = int(head.split(b":")[1])
    while sys.stdin.buffer.readline().strip():
        pass
    message = json.loads(sys.stdin.buffer.read(length))
    if "method" not in message:
        continue
    if message["method"] == "exit":
        EXIT
    if message["method"] == "shutdown":
        send({"id": message["id"], "result": None})
        continue
    SERVE
"""
ANSWER = 'send({"id": message["id"], "result": {"capabilities": {}}})'
INITIALIZE = types.InitializeParams(types.ClientCapabilities())


async def initialize(client, tmp_path, serve, leave="sys.exit(0)"):
    argv = (sys.executable, "-c", SERVER.replace("SERVE", serve).replace("EXIT", leave))
    with TemporaryFile() as log:
        async with client.run_process(argv, environment=os.environ, folder=str(tmp_path), log=log):
            return await client.wait_for(client.initialize(INITIALIZE))


FAILURES = {
    "an error": ('send({"id": message["id"], "error": {"code": -32001, "message": "No."}})', DemoFailed, "No."),
    "an end": ("os._exit(3)", ServerGone, "ended before"),
    "half a message": ("os.write(1, b'Content-Length: 90\\r\\n\\r\\n{'); os._exit(0)", ServerGone, "ended before"),
    "output closed": ("os.close(1)", ServerGone, "ended before"),
    "no JSON": ("os.write(1, b'Content-Length: 2\\r\\n\\r\\n{]')", ServerGone, "ended before"),
    "another type": ('send({"id": message["id"], "result": 1})', ServerGone, "ended before"),
}


@pytest.mark.parametrize(("serve", "error", "sentence"), FAILURES.values(), ids=FAILURES)
async def test_a_request_without_a_usable_answer_fails(tmp_path, serve, error, sentence):
    client = DemoClient()
    with pytest.raises(DemoFailed, match=sentence) as raised:
        await asyncio.wait_for(initialize(client, tmp_path, serve), 10)
    assert raised.type is error


async def test_a_request_after_the_servers_end_fails(tmp_path):
    client = DemoClient()
    await initialize(client, tmp_path, ANSWER)
    with pytest.raises(ServerGone):
        await client.wait_for(client.initialize(INITIALIZE))


async def test_much_standard_error_stops_nothing(tmp_path):
    loud = f"os.write(2, b'x' * 1_000_000); {ANSWER}"
    answer = await asyncio.wait_for(initialize(DemoClient(), tmp_path, loud), 10)
    assert answer.server_info is None


LEAVING = {"with an error": ("sys.exit(4)", "exit code 4"), "never": ("continue", "did not leave")}


@pytest.mark.parametrize(("leave", "sentence"), LEAVING.values(), ids=LEAVING)
async def test_a_server_that_does_not_leave_in_order_is_reported_and_gone(tmp_path, leave, sentence):
    said = f"open('pid', 'w').write(str(os.getpid())); {ANSWER}"
    with pytest.raises(DemoFailed, match=sentence):
        await initialize(DemoClient(goodbye_seconds=0.3), tmp_path, said, leave)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_an_unknown_request_of_the_server_stops_nothing(tmp_path):
    serve = f"send({{'id': 7, 'method': 'window/none', 'params': {{}}}}); {ANSWER}"
    answer = await asyncio.wait_for(initialize(DemoClient(), tmp_path, serve), 10)
    assert answer.capabilities == types.ServerCapabilities()


ACTION = {"title": "t", "kind": "quickfix", "command": {"title": "c", "command": "do", "arguments": [{"a": 1}]}}
COMMAND = ACTION["command"]


def test_a_code_action_with_a_command_stays_a_code_action():
    _, response, *_ = types.METHOD_TO_TYPES[types.TEXT_DOCUMENT_CODE_ACTION]
    answer = {"id": 1, "jsonrpc": "2.0", "result": [ACTION, COMMAND]}
    action, command = make_converter().structure(answer, response).result
    assert action == types.CodeAction("t", types.CodeActionKind.QuickFix, command=command)
    assert command == types.Command("c", "do", arguments=({"a": 1},))
    # Once lsprotocol reads it well, our converter can go.
    assert isinstance(default_converter().structure(answer, response).result[0], types.Command)


def test_the_help_and_a_wrong_scenario_need_no_protocol():
    seen = "import sys, thinklsp.cli.demo; print({'pygls', 'lsprotocol', 'cattrs'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
