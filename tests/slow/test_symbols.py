"""Outlines of real sources: Python exactly as Python sees it, other languages by the judgement of universal-ctags."""

from __future__ import annotations

import time
import tokenize
from io import BytesIO
from pathlib import Path

import pytest

from tests.slow.running import say
from tests.support.sizes import sized, some
from tests.symbols import sources
from thinklsp.symbols.outline import build_outline, load_languages

LEAST = 0.9
MOST_FILES = 300


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


@pytest.mark.parametrize("name", some(sources.PACKAGES, commit=2))
def test_others_as_ctags_sees_them(name: str, tmp_path: Path) -> None:
    ctags = sources.program()
    if ctags is None:
        pytest.skip("universal-ctags is not installed")
    try:
        sources.fetch(sources.PACKAGES[name], tmp_path)
    except sources.NotFetched as error:
        pytest.skip(f"the sources could not be fetched: {error}")
    texts = {}
    for path in sources.sample(sources.PACKAGES[name], tmp_path, MOST_FILES):
        try:
            texts[path] = path.read_bytes().decode()
        except UnicodeDecodeError:
            continue
    told = sources.ctags_definitions(ctags, name, list(texts))
    count = found = 0
    for path, text in texts.items():
        ours = {
            (each.name, line)
            for each in build_outline(text, load_languages()[name])
            for line in (each.line, each.first_line)
        }
        count += len(told[path])
        found += len(told[path] & ours)
    say(f"{name}: {len(texts)} files, {count} by ctags, {found} found, {found / max(count, 1):.1%}")
    assert len(texts) > 100
    assert found >= LEAST * count
