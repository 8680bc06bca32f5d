"""Outlines of Python's whole standard library are those of Python's own parser."""

from __future__ import annotations

import time
import tokenize
from io import BytesIO

from tests.slow.running import say
from tests.support.sizes import sized
from tests.symbols import sources
from thinklsp.symbols.outline import build_outline, load_languages


def test_python_on_the_whole_standard_library() -> None:
    """Skip files that Python itself cannot parse. A commit run takes every third file."""
    language, different, files, count, seconds = load_languages()["python"], [], 0, 0, 0.0
    for path in sources.standard_library()[:: sized(commit=3, nightly=1)]:
        source = path.read_bytes()
        expected = sources.definitions(source)
        if expected is None:
            continue
        text = source.decode(tokenize.detect_encoding(BytesIO(source).readline)[0])
        begun = time.perf_counter()
        symbols = build_outline(text, language)
        seconds += time.perf_counter() - begun
        rows = sorted(((s.kind, s.name, s.first_line, s.last_line, s.depth) for s in symbols), key=lambda row: row[2:])
        files, count = files + 1, count + len(rows)
        if rows != expected:
            different.append(path)
    say(f"standard library: {files} files, {count} definitions, {files / seconds:.0f} files/s")
    assert different == []
    assert files > sized(commit=350, nightly=1_000)
