"""Row 9: searching and listing a large folder. Row "shadow": the cost of a shadow copy of 20,000 files: time of the
first and of the next command, and disk space."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

from tests.bench.measure import Bench, Figure, Measured, Unavailable, clean_environment, compared, elapsed, in_turn
from tests.support.shadowing import PROBLEM, shadowed
from thinklsp.tools.read import FileWalk
from thinklsp.tools.search import Query, find_ripgrep, search_tree
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.paths import Root
from thinklsp.workspace.view import WorkspaceView

_TEXT = "def function(value):\n    return value + 1  # a line that is found\n\n\n" * 60
_IGNORED = "build/\n*.pyc\n/dist\n**/cache/*\n!keep.pyc\nnode_modules\n"
_HITS = 100


def filled_folder(root: Path, count: int, text: str = _TEXT) -> None:
    """Fill a folder with `count` files, of which git ignores a tenth."""
    for number in range(count // 100):
        below = root / f"package{number // 20}" / ("build" if number % 10 == 9 else f"part{number}")
        below.mkdir(parents=True, exist_ok=True)
        for name in range(100):
            (below / f"module{number}_{name}.py").write_text(text)
    (root / ".gitignore").write_text(_IGNORED)


@contextmanager
def _workspace(root: Path, count: int) -> Iterator[EditOverlay]:
    filled_folder(root, count)
    with Root(str(root)) as opened:
        yield EditOverlay(WorkspaceView([opened], []))


def _find_newest_ripgrep() -> str:
    programs = find_ripgrep([])
    if not programs:
        raise Unavailable("ripgrep was not found. Install it with `pip install ripgrep` or your system's packages.")
    return programs[-1]


async def search(bench: Bench) -> list[Figure]:
    program, root = _find_newest_ripgrep(), bench.folder / "ws"
    with _workspace(root, 4_000 if bench.quick else 60_000):

        async def stopped() -> float:
            begun, found = time.perf_counter(), 0
            async with aclosing(search_tree(program, str(root), (), Query("that is found"))) as matches:
                async for _ in matches:
                    found += 1
                    if found == _HITS:
                        break
            return (time.perf_counter() - begun) * 1000

        def whole() -> float:
            begun = time.perf_counter()
            argv = [program, "--no-config", "--hidden", "that is found", "."]
            found = subprocess.run(argv, cwd=root, env=clean_environment(), stdout=subprocess.PIPE, check=True)
            assert found.stdout.count(b"\n") > _HITS
            return (time.perf_counter() - begun) * 1000

        searches, missing = await in_turn({"thinklsp": stopped, "rg to its end": whole}, bench.some(11))
        # Let the event loop handle the end of the stopped process.
        await asyncio.sleep(0)
    return compared("9", f"search stopped at {_HITS} hits", searches, missing, {"rg to its end": 0.05})


async def list_files(bench: Bench) -> list[Figure]:
    figures = []
    for count in (4_000,) if bench.quick else (4_000, 60_000):
        # A small list starts ripgrep for longer than it runs.
        limits = {"os.walk + pathspec": 0.5, "rg --files": 1.5 if count > 4_000 else None}
        with _workspace(bench.folder / str(count), count) as overlay:
            lists, missing = await in_turn(_list_ways(overlay, bench.folder / str(count)), max(bench.rounds, 7))
        figures += compared("9", f"list of {count:,} files, CPU", lists, missing, limits)
    return figures


def _list_ways(overlay: EditOverlay, root: Path) -> dict[str, Callable[[], Measured]]:
    """Return three ways to list a folder, which measure the milliseconds of processor time and find the same files."""
    program, lengths = _find_newest_ripgrep(), set[int]()

    def check(count: int) -> None:
        lengths.add(count)
        assert len(lengths) == 1, lengths

    async def listed() -> float:
        begun = time.process_time()
        places = await FileWalk(overlay, overlay.view.resolve_folder(None)).run()
        spent = (time.process_time() - begun) * 1000
        check(len(places))
        return spent

    def walked() -> float:
        begun = time.process_time()
        found = _walk(root)
        spent = (time.process_time() - begun) * 1000
        check(len(found) + 1)  # Without .gitignore.
        return spent

    def searched() -> float:
        argv = [program, "--files", "--no-config", "--no-require-git", "--hidden"]
        begun = _spend_in_children()
        found = subprocess.run(argv, cwd=root, env=clean_environment(), stdout=subprocess.PIPE, check=True)
        spent = (_spend_in_children() - begun) * 1000
        check(found.stdout.count(b"\n"))
        return spent

    return {"thinklsp": listed, "os.walk + pathspec": walked, "rg --files": searched}


def _spend_in_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _walk(root: Path) -> list[str]:
    """List the files in the usual way. Raises Unavailable if pathspec is missing."""
    try:
        import pathspec
    except ImportError:
        raise Unavailable("pathspec is not installed. Install it with `pip install pathspec`.") from None
    spec = pathspec.GitIgnoreSpec.from_lines(_IGNORED.splitlines())
    found = []
    for above, _, names in os.walk(root):
        for name in names:
            path = os.path.relpath(os.path.join(above, name), root)
            if not spec.match_file(path) and name != ".gitignore":
                found.append(path)
    return found


_FILES, _SHORT_TEXT = 20_000, "def function(value):\n    return value + 1\n" * 25


async def costs(bench: Bench) -> list[Figure]:
    if PROBLEM is not None:
        raise Unavailable(PROBLEM)
    figures = [Figure("shadow", "`true` in the sandbox, one file", "ms", await _plain(bench))]
    workspace = bench.folder / "ws"
    filled_folder(workspace, _FILES, _SHORT_TEXT)
    for kind, overlays in (("overlay", True), ("copy", False)):
        first, state = [], bench.folder / kind
        for number in range(bench.some(3)):
            async with shadowed(workspace, state=state / str(number), overlays=overlays) as shadow:
                first.append(await elapsed(shadow.run("true")))
        async with shadowed(workspace, state=state / "state", overlays=overlays) as shadow:
            await shadow.run("true")
            paths = (os.path.join(above, name) for above, _, names in os.walk(state / "state") for name in names)
            disk = sum(os.lstat(path).st_blocks * 512 for path in paths) / 1024**2
            following = [await elapsed(shadow.run("true")) for _ in range(bench.rounds)]
        figures += [
            Figure("shadow", f"first command, {_FILES:,} files, {kind}", "ms", first),
            Figure("shadow", f"next command, {_FILES:,} files, {kind}", "ms", following),
            Figure("shadow", f"extra disk, {_FILES:,} files, {kind}", "MB", [disk]),
        ]
    return figures


async def _plain(bench: Bench) -> list[float]:
    """Measure the sandbox with an almost empty workspace."""
    (bench.folder / "plain").mkdir()
    async with shadowed(bench.folder / "plain", state=bench.folder / "plain-state") as shadow:
        await shadow.run("true")
        return [await elapsed(shadow.run("true")) for _ in range(bench.rounds)]
