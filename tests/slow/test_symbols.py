"""Outlines of real sources: Python exactly as Python sees it, other languages by the judgement of universal-ctags."""

from __future__ import annotations

import sys
import time
import tokenize
from io import BytesIO
from pathlib import Path

import pytest

from tests.support import ctags
from tests.support.public_sources import PACKAGES, NotFetched, fetch, sample
from tests.support.python_definitions import definitions, standard_library
from thinklsp.symbols.languages import languages
from thinklsp.symbols.outline import outline

LEAST = 0.9
MOST_FILES = 300


def test_python_on_the_whole_standard_library(capsys: pytest.CaptureFixture[str]) -> None:
    """Files that Python itself cannot parse are left out; others are decoded as Python decodes them."""
    language, different, files, count, seconds = languages()["python"], [], 0, 0, 0.0
    for path in standard_library():
        source = path.read_bytes()
        expected = definitions(source)
        if expected is None:
            continue
        text = source.decode(tokenize.detect_encoding(BytesIO(source).readline)[0])
        begun = time.perf_counter()
        symbols = outline(text, language)
        seconds += time.perf_counter() - begun
        rows = sorted(((s.kind, s.name, s.first_line, s.last_line, s.depth) for s in symbols), key=lambda row: row[2:])
        files, count = files + 1, count + len(rows)
        if rows != expected:
            different.append(path)
    with capsys.disabled():
        sys.stdout.write(f"\nstandard library: {files} files, {count} definitions, {files / seconds:.0f} files/s\n")
    assert different == []
    assert files > 1_000


@pytest.mark.parametrize("name", PACKAGES)
def test_others_as_ctags_sees_them(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = ctags.program()
    if program is None:
        pytest.skip("universal-ctags is not installed")
    try:
        fetch(PACKAGES[name], tmp_path)
    except NotFetched as error:
        pytest.skip(f"the sources could not be fetched: {error}")
    texts = {}
    for path in sample(PACKAGES[name], tmp_path, MOST_FILES):
        try:
            texts[path] = path.read_bytes().decode()
        except UnicodeDecodeError:
            continue
    told = ctags.definitions(program, name, list(texts))
    count = found = 0
    for path, text in texts.items():
        ours = {(each.name, line) for each in outline(text, languages()[name]) for line in (each.line, each.first_line)}
        count += len(told[path])
        found += len(told[path] & ours)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{name}: {len(texts)} files, {count} by ctags, {found} found, {found / max(count, 1):.1%}\n"
        )
    assert len(texts) > 100
    assert found >= LEAST * count
