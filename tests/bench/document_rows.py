"""Row 8: typing in large documents, compared with the documents of pygls. Row "change": the processor time of a whole
server for one typed key, beside bare pygls."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from lsprotocol import types
from pygls.workspace import TextDocument

from tests.bench.lockstep import Lockstep
from tests.bench.measure import Bench, Figure, compared, cpu_elapsed, cpu_seconds, in_turn, ratio
from thinklsp.lsp.documents.open_documents import Document

LINE = "    value = compute(number, another) + offset  # one line of code\n"
URI = "file:///large.py"
_TYPED = 10_000


async def edits(bench: Bench) -> list[Figure]:
    count = 100 if bench.quick else 1_000
    large, larger = LINE * (1_000_000 // len(LINE)), LINE * (10_000_000 // len(LINE))
    variants = {"thinklsp": _ours(large, count), "pygls": _theirs(large, count)}
    values, missing = await in_turn(variants, bench.some(5))
    figures = compared("8", f"{count:,} edits in 1 MB", values, missing, {"pygls": 0.01})
    # The first edit splits the text into lines. It has a figure of its own: otherwise the figure for typing would
    # depend on the number of edits.
    firsts, missing = await in_turn({"thinklsp": _ours(larger, 1), "pygls": _theirs(larger, 1)}, bench.some(5))
    figures += compared("8", "the first edit in 10 MB", firsts, missing, {"pygls": None})
    typing = {"10 MB": _ours(larger, _TYPED, split=True), "1 MB": _ours(large, _TYPED, split=True)}
    sizes, _ = await in_turn(typing, bench.some(11))
    per_edit = {name: [taken / _TYPED * 1000 for taken in times] for name, times in sizes.items()}
    found = ratio(per_edit["10 MB"], per_edit["1 MB"])
    name = "an edit in 10 MB"
    return [*figures, Figure("8", name, "µs", per_edit["10 MB"], per_edit["1 MB"], "in 1 MB", found, most=2.0)]


def _places(text: str, count: int) -> list[tuple[int, int]]:
    """Return random positions, each followed by the next nine columns, as if a user typed ten letters there."""
    random, lines = Random(1), text.count("\n")
    starts = [(random.randrange(lines), random.randrange(len(LINE) - 1)) for _ in range(-(-count // 10))]
    return [(line, column + letter) for line, column in starts for letter in range(10)][:count]


def _ours(text: str, count: int, *, split: bool = False) -> Callable[[], float]:
    """Measure `count` edits. `split`: the document has been edited before, so it is already split into lines."""
    places = _places(text, count)

    def measure() -> float:
        document = Document(types.TextDocumentItem(URI, "python", 0, text), "utf-16")
        changes = _changes(places)
        if split:
            document.apply(1, changes[:1])
        return cpu_elapsed(lambda: [document.apply(n, [change]) for n, change in enumerate(changes, 2)])

    return measure


def _theirs(text: str, count: int) -> Callable[[], float]:
    places = _places(text, count)

    def measure() -> float:
        document = TextDocument(URI, text, 0, "python", types.TextDocumentSyncKind.Incremental)
        changes = _changes(places)
        return cpu_elapsed(lambda: [document.apply_change(change) for change in changes])

    return measure


def _changes(places: Sequence[tuple[int, int]]) -> list[types.TextDocumentContentChangePartial]:
    """Return changes that insert one letter at each place."""
    points = (types.Position(*place) for place in places)
    return [types.TextDocumentContentChangePartial(types.Range(point, point), "x") for point in points]


OURS, BARE = "thinklsp", "bare pygls"
_WARM, _QUIET_SECONDS, _MOST_SECONDS = 200, 0.2, 10.0


async def type_keys(bench: Bench) -> list[Figure]:
    """Send typed keys to each server. A code action at the end waits until the server has read all of them."""
    count = 500 if bench.quick else 5_000
    peers = bench.peers
    servers = {OURS: peers.ours(), BARE: peers.script("bare_pygls.py")}

    def type_into(name: str, argv: Sequence[str]) -> Callable[[], float]:
        def measure() -> float:
            with Lockstep(argv, bench.folder / name.replace(" ", "-")) as server:
                server.initialize()
                server.first_code_action()
                _type(server, _WARM, version=2)
                _wait_until_idle(server)
                begun = cpu_seconds(server.process.pid)
                _type(server, count, version=2 + _WARM)
                return (cpu_seconds(server.process.pid) - begun) / count * 1e6

        return measure

    variants = {name: type_into(name, argv) for name, argv in servers.items()}
    values, missing = await in_turn(variants, bench.some(5))
    return compared("change", "CPU of a didChange of one key", values, missing, {BARE: None}, unit="µs")


def _type(server: Lockstep, count: int, version: int) -> None:
    """Send the keys, and wait until the server has read the last of them."""
    server.send(*(_key(server, version + number) for number in range(count)))
    server.ask({"id": server.next_id()} | server.code_action_request("a.py"))


def _key(server: Lockstep, version: int) -> dict[str, Any]:
    place = {"line": version % 300, "character": 0}
    change = {"range": {"start": place, "end": place}, "text": "x"}
    document = {"uri": (server.folder / "a.py").as_uri(), "version": version}
    return {"method": "textDocument/didChange", "params": {"textDocument": document, "contentChanges": [change]}}


def _wait_until_idle(server: Lockstep) -> None:
    """Wait until nothing loads in the background. Raises TimeoutError."""
    give_up = time.monotonic() + _MOST_SECONDS
    used = -1.0
    while (now := cpu_seconds(server.process.pid)) > used + 0.001:
        if time.monotonic() > give_up:
            raise TimeoutError("the server did not become idle")
        used = now
        time.sleep(_QUIET_SECONDS)
