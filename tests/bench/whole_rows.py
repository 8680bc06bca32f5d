"""All of it at once, for information: a turn of 20 steps in a workspace of 60,000 files, in a session of 2 MB."""

from __future__ import annotations

import json
import time

from tests.bench.latency_rows import chat, served
from tests.bench.measure import Bench, Figure
from tests.bench.search_rows import filled_folder
from tests.bench.source import Play, anthropic, source, words
from tests.bench.store_rows import filled
from tests.support.gauges import gauge
from thinklsp.workspace.paths import workspace_key

STEPS, WORDS = 20, 100
_FILE = "package0/part0/module0_0.py"
_CALLS = (
    ("search_text", {"pattern": "that is found", "path": "package0"}),
    ("read_file", {"path": _FILE}),
    ("list_files", {"glob": "**/module1_*.py"}),
    ("outline", {"path": _FILE}),
)


async def whole(bench: Bench) -> list[Figure]:
    """What the server and its children use of the processor, the time beside that of the model, and the memory."""
    files, history = (4_000, 50) if bench.quick else (60_000, 200)
    root = bench.folder / "ws"
    filled_folder(root, files)
    session = await filled(bench.folder, workspace_key(root.as_uri()), sessions=20, steps=history)

    def play(number: int, _: bytes) -> Play:
        step = number % STEPS
        name, arguments = _CALLS[step % len(_CALLS)]
        called = [] if step == STEPS - 1 else [(name, [json.dumps(arguments)])]
        return Play(anthropic(("text", words(WORDS)), *called))

    processor, beside, memory = [], [], []
    with (
        source(play) as service,
        served(root, service.url, THINKLSP_STATE_DIR=str(bench.folder / "state")) as server,
    ):
        for number in range(-1, bench.some(3)):
            service.busy.clear()
            before, begun = gauge(server.process.pid), time.perf_counter()
            server.send(chat(number + 10, sessionId=session))
            told = server.receive(number + 10)
            wall = time.perf_counter() - begun
            assert "result" in told, told
            assert len(service.busy) == STEPS, "every step has been asked for"
            # The first turn loads what turns need, and the session.
            if number >= 0:
                now = gauge(server.process.pid)
                processor.append((now.processor - before.processor) * 1000)
                beside.append((wall - sum(service.busy)) * 1000)
                memory.append(now.private)
    name = f"turn of {STEPS} steps, {files:,} files, {history / 100:g} MB of history"
    return [
        Figure("whole", f"{name}: CPU", "ms", processor),
        Figure("whole", f"{name}: time beside the model", "ms", beside),
        Figure("whole", f"{name}: memory", "MB", memory),
    ]
