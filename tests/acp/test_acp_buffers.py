"""The model of Zed's buffers: what is typed meanwhile stays, and stale snapshots double what is written."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.acp.buffers import Buffer, differences
from tests.acp.client import Refuse
from tests.acp.fake_zed import CodeCompanion, FakeZed, Toad, strip_trailing
from tests.support.sizes import examples

LINES = "".join(f"line {number}\n" for number in range(20))


@pytest.mark.parametrize("seed", range(examples(60)))
def test_differences_turn_one_text_into_the_other(seed: int) -> None:
    chance = random.Random(seed)

    def text() -> str:
        return "".join(chance.choice(["a\n", "b", "c c\n", "\n", "ü🙂", "x\r\n"]) for _ in range(chance.randint(0, 30)))

    old, new = text(), text()
    changed = old
    for start, end, put in reversed(differences(old, new)):
        changed = changed[:start] + put + changed[end:]
    assert changed == new


@pytest.mark.parametrize("seed", range(examples(60)))
def test_typing_on_other_lines_is_merged(seed: int) -> None:
    chance = random.Random(seed)
    buffer = Buffer(LINES)
    read = buffer.take_snapshot()
    mine, theirs = chance.sample(range(20), 2)
    buffer.type(f"line {mine}\n", f"typed {mine}\nand more\n")
    buffer.write(read.replace(f"line {theirs}\n", f"changed {theirs}\n"))
    expected = LINES.replace(f"line {mine}\n", f"typed {mine}\nand more\n")
    assert buffer.text == expected.replace(f"line {theirs}\n", f"changed {theirs}\n")


def test_write_without_read_doubles_the_text() -> None:
    buffer = Buffer("a\nb\n")
    read = buffer.take_snapshot()
    buffer.write(read + "c\n")
    buffer.write(read + "c\n")
    assert buffer.text == "a\nb\nc\nc\n"
    buffer.write(buffer.take_snapshot())
    assert buffer.text == "a\nb\nc\nc\n"


def test_zed_saves_formatted_text(tmp_path: Path) -> None:
    zed = FakeZed(tmp_path)
    zed.open("a.py", "x = 1\n")
    zed.formats = strip_trailing
    assert zed._read({"path": zed.path("a.py")}) == {"content": "x = 1\n"}
    zed.buffers[zed.path("a.py")].type("x", "xy")
    assert zed._write({"path": zed.path("a.py"), "content": "x = 1  \nz = 2"}) == {}
    assert zed.text("a.py") == (tmp_path / "a.py").read_text() == "xy = 1\nz = 2\n"


def test_reads_end_where_clients_end_them(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n3\n")
    zed = FakeZed(tmp_path)
    assert zed._read({"path": zed.path("a"), "line": 2, "limit": 1}) == {"content": "2\n"}
    for params, code in (({"path": zed.path("a"), "line": 9}, -32602), ({"path": zed.path("b")}, -32002)):
        with pytest.raises(Refuse) as refused:
            zed._read(params)
        assert refused.value.error["code"] == code
    assert CodeCompanion(tmp_path).read(str(tmp_path / "b")) == Toad(tmp_path).read(str(tmp_path / "b")) == ""
    with pytest.raises(Refuse):
        Toad(tmp_path).write(str(tmp_path / "new" / "c"), "x")
