"""Row "import": what it costs to import the modules of an ordinary session, beside those of bare pygls."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench.latency_rows import chat, served, talking
from tests.bench.measure import TREE, Bench, Figure, clean_environment, compared, find_reason, in_turn, ratio

OURS, BARE = "thinklsp", "bare pygls"
_SECONDS = 60.0


async def import_session(bench: Bench) -> list[Figure]:
    """The modules are those that the server has imported when its first chat turn is answered."""
    lists = {OURS: bench.folder / "ours.txt", BARE: bench.folder / "bare.txt"}
    lists[OURS].write_text("\n".join(_list_modules(bench.folder)))
    # The imports of `servers/bare_pygls.py`.
    lists[BARE].write_text("lsprotocol.types\npygls.lsp.server\n")
    memory: dict[str, list[float]] = {}
    modules: dict[str, int] = {}

    def variant(name: str) -> Callable[[], float]:
        def measure() -> float:
            told = _import(lists[name])
            memory.setdefault(name, []).append(told["memory"])
            modules[name] = told["modules"]
            return float(told["cpu"])

        return measure

    values, missing = await in_turn({name: variant(name) for name in lists}, bench.rounds)
    figures = compared("import", "CPU of importing an ordinary session", values, missing, {BARE: None})
    ours, theirs = memory[OURS][1:], memory[BARE][1:]
    name, note = "memory of importing an ordinary session", f"{modules[OURS]} modules, {modules[BARE]} there"
    return [*figures, Figure("import", name, "MB", ours, theirs, BARE, ratio(ours, theirs), note=note)]


def _list_modules(folder: Path) -> list[str]:
    """Return what our server imports from its start until it has answered a chat turn, in the order of import."""
    path = folder / "modules.txt"
    argv = [sys.executable, str(Path(__file__).parent / "servers" / "listed.py")]
    with (
        talking(10, 1e9) as url,
        served(folder / "session", url, argv=argv, MODULES=str(path), PYTHONPATH=str(TREE)) as server,
    ):
        server.send(chat(10))
        answer = server.receive(10)
        assert "result" in answer, answer
        names = [name for name in path.read_text().split() if not name.endswith("__main__")]
    assert "thinklsp" in names, names
    return list(dict.fromkeys(names))


def _import(path: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-P", str(Path(__file__).parent / "importing.py"), str(path)],
        env=clean_environment(PYTHONPATH=str(TREE)), capture_output=True, text=True, timeout=_SECONDS, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{path.name} could not be imported: {find_reason(done.stderr)}")
    return json.loads(done.stdout)
