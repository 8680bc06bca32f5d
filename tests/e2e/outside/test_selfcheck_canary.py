"""The search for secrets finds every planted leak, in every dress, and nothing where there is nothing."""

from __future__ import annotations

import base64
import gzip
import json
import random
import secrets
import sqlite3
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.canary import WINDOW, Canary

SECRET = base64.b64encode(secrets.token_bytes(120)).decode()
OTHER = "sk-ant-" + secrets.token_hex(20)

FORMS: dict[str, Callable[[bytes], bytes]] = {
    "raw": lambda s: s,
    "json": lambda s: json.dumps({"a": s.decode()}).encode(),
    "json with escaped slashes": lambda s: s.replace(b"/", b"\\/"),
    "every character escaped": lambda s: "".join(f"\\u{c:04x}" for c in s).encode(),
    "escaped twice": lambda s: "".join(f"\\\\u{c:04X}" for c in s).encode(),
    "base64": base64.b64encode,
    "base64 after one byte": lambda s: base64.b64encode(b"x" + s + b"yz"),
    "base64 after two bytes": lambda s: base64.b64encode(b"xx" + s + b"y"),
    "base64url": lambda s: base64.urlsafe_b64encode(b"xyz" + s),
    "hex": lambda s: s.hex().encode(),
    "hex, upper case, after a digit": lambda s: b"f" + s.hex().upper().encode(),
    "hex dump": lambda s: s.hex(" ").encode(),
    "percent": lambda s: quote(s.decode(), safe="").encode(),
    "percent, every byte": lambda s: "".join(f"%{c:02X}" for c in s).encode(),
    "utf-16": lambda s: s.decode().encode("utf-16-le"),
    "utf-16 be": lambda s: s.decode().encode("utf-16-be"),
    "gzip": lambda s: b"log" + gzip.compress(b"before " + s),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("part", ["whole", "window"])
def test_a_planted_leak_is_found(form: str, part: str) -> None:
    canary = Canary({"signature": SECRET, "api key": OTHER})
    chance = random.Random(form)
    for _ in range(10):
        start = chance.randrange(len(SECRET) - WINDOW)
        # Nothing is base64 of less than the window once its torn first and last groups are gone.
        size = WINDOW + (8 if "base64" in form else 0)
        text = SECRET if part == "whole" else SECRET[start : start + size]
        data = b"INFO some log line\n" * 3 + FORMS[form](text.encode()) + b"\n tail"
        assert {leak.secret for leak in canary.search(data, "log")} == {"signature"}


def test_nothing_is_found_in_other_secrets() -> None:
    canary = Canary({"signature": SECRET})
    innocent = base64.b64encode(secrets.token_bytes(200_000)) + secrets.token_hex(50_000).encode()
    assert canary.search(innocent + SECRET[: WINDOW // 2].encode(), "log") == []


def test_leaks_cut_over_messages_are_found() -> None:
    pieces = [SECRET[n : n + 7] for n in range(0, len(SECRET), 7)]
    messages = [{"method": "$/progress", "params": {"token": 1, "value": {"kind": "text", "delta": p}}} for p in pieces]
    canary = Canary({"signature": SECRET})
    assert canary.search(json.dumps(messages).encode(), "stdout") == []
    assert [leak.where for leak in canary.search_messages(messages, "stdout")] == ["stdout, member 'delta'"]


def test_the_store_may_hold_signatures_and_nothing_else_may(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "sessions.db") as store:
        store.execute("create table block (raw text)")
        store.execute("insert into block values (?)", (SECRET,))
    store.close()
    canary = Canary({"signature": SECRET, "api key": OTHER})
    assert canary.search_tree(tmp_path) == []
    assert len(canary.search_tree(tmp_path, store_may_hold=False)) == 1
    (tmp_path / "sessions.db").write_bytes((tmp_path / "sessions.db").read_bytes() + OTHER.encode())
    (tmp_path / "server.log").write_text(f"key {OTHER} signature {SECRET}")
    assert len(canary.search_tree(tmp_path)) == 3
