"""An edit counts as applied, hunk by hunk, only if the editor's notifications or the disk show it (T-B1)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import Begin
from tests.support.ledger_rows import rows
from tests.support.outside import Outside, named, said, statuses
from tests.support.partial_editor import accept_files, accept_hunks
from tests.support.signing_script import Text, answer, tool

INVOICE = "def gross(net):\n    return net * 1.2\n"
MONEY = "def to_cents(price: str) -> int:\n    return int(price)\n\n\ndef show(cents):\n    return cents\n"
TEN = "".join(f"l{number}\n" for number in range(1, 11))
DONE = answer(Text("Done."))
IMPORT = "from decimal import Decimal\n\n\n"
EDIT_ALL = answer(
    tool("edit_file", path="shop/invoice.py", old_text="1.2", new_text="1.25"),
    tool("edit_file", path="shop/money.py", old_text="def to_cents", new_text=f"{IMPORT}def to_cents"),
    tool("write_file", path="tests/test_money.py", content="def test():\n    assert True\n"),
)
FILES = {"shop/invoice.py": INVOICE, "shop/money.py": MONEY}


def file_of(result: Any, name: str) -> Any:
    return next(file for file in result["edits"]["files"] if file["uri"].endswith(name))


async def half_applied(begin: Begin, *script: Any) -> tuple[Outside, Any]:
    """A turn over three files of which the editor changes the first one alone, and says that it applied the edit."""
    outside = await begin(EDIT_ALL, DONE, *script, files=FILES)
    outside.open("shop/invoice.py")
    accept_files(outside.client, "shop/invoice.py")
    result = await outside.turn("thinklsp.chat", {"prompt": "Use Decimal."})
    del outside.client.editor.handlers["workspace/applyEdit"]
    return outside, result


async def test_files_that_did_not_change_are_not_applied_and_wait(begin: Begin) -> None:
    """T-B1: `applied: true` for one file of three."""
    outside, result = await half_applied(begin)
    assert statuses(result) == {"invoice.py": "applied", "money.py": "refused", "test_money.py": "refused"}
    assert (result["edits"]["applied"], result["edits"]["proposalId"]) == ("some", result["turnId"])
    assert [file["hunks"] for file in result["edits"]["files"]] == [
        {"applied": 1, "waiting": 0},
        {"applied": 0, "waiting": 1},
        {"applied": 0, "waiting": 1},
    ]
    assert "1 of 3 files changed; money.py and test_money.py are waiting." in result["notices"]
    assert [(row.name, row.outcome) for row in rows(outside.home)] == [
        ("invoice.py", "applied"),
        ("money.py", "refused"),
        ("test_money.py", "refused"),
    ]
    [apply] = named(await outside.client.code_actions(outside.open("shop/money.py"), "def show"), "apply")
    assert (await outside.client.run_action(apply))["applied"] == "all"
    assert outside.client.text(outside.uri("shop/money.py")) == IMPORT + MONEY
    assert (outside.root / "tests/test_money.py").read_text() == "def test():\n    assert True\n"


async def test_the_next_turn_reads_and_edits_the_text_that_is_there(begin: Begin) -> None:
    """T-B1: the second turn put an import inside a function, and wrote a test that never came."""
    look = answer(tool("read_file", path="shop/money.py"), tool("read_file", path="tests/test_money.py"))
    edit = answer(tool("edit_file", path="shop/money.py", old_text="def show", new_text="def shown"))
    outside, first = await half_applied(begin, look, edit, DONE)
    (outside.root / "shop/money.py").write_text(MONEY.replace("return cents", "return cents / 100"))
    result = await outside.turn("thinklsp.chat", {"prompt": "Go on.", "sessionId": first["sessionId"]})
    prompt, *_ = [request for request in outside.provider.requests if "Go on." in said(request.body)]
    assert "shop/money.py (1 change, at line 1)" in said(prompt.body)
    assert "tests/test_money.py (not created)" in said(prompt.body)
    money, test = outside.provider.requests[-2].tool_results()
    assert "Decimal" not in str(money)
    assert "cents / 100" in str(money)
    assert test["is_error"]
    assert result["edits"]["applied"] == "all"
    expected = MONEY.replace("return cents", "return cents / 100").replace("def show", "def shown")
    assert (outside.root / "shop/money.py").read_text() == expected


async def test_hunks_that_were_left_out_are_sent_again_onto_the_present_text(begin: Begin) -> None:
    calls = [tool("edit_file", path="a.py", old_text=f"l{n}\n", new_text=f"L{n}\n") for n in (2, 5, 8)]
    outside = await begin(answer(*calls), DONE, files={"a.py": TEN})
    uri = outside.open("a.py")
    accept_hunks(outside.client, 1)
    result = await outside.turn("thinklsp.chat", {"prompt": "Change three lines."})
    del outside.client.editor.handlers["workspace/applyEdit"]
    assert file_of(result, "a.py")["status"] == "some"
    assert file_of(result, "a.py")["hunks"] == {"applied": 1, "waiting": 2}
    half = TEN.replace("l5", "L5")
    assert outside.client.text(uri) == half
    half = half.replace("l10\n", "mine\n")
    outside.client.change(uri, "l10\n", "mine\n")
    assert (await outside.client.command("thinklsp.apply"))["applied"] == "all"
    assert outside.client.text(uri) == half.replace("l2", "L2").replace("l8", "L8")
    assert (await outside.client.command("thinklsp.undo"))["applied"] == "all"
    assert outside.client.text(uri) == TEN.replace("l10\n", "mine\n")


async def test_undo_takes_back_the_part_that_arrived_without_a_preview(begin: Begin) -> None:
    """T-m5, T-m6."""
    outside, result = await half_applied(begin)
    undone = await outside.client.command("thinklsp.undo", {"turnId": result["turnId"]})
    assert undone["files"] == [
        {
            "uri": outside.uri("shop/invoice.py"),
            "status": "applied",
            "hunks": {"applied": 1, "waiting": 0},
            "reason": None,
        }
    ]
    assert "changeAnnotations" not in outside.client.edits()[-1]["edit"]
    assert outside.client.text(outside.uri("shop/invoice.py")) == INVOICE
    assert [(outside.root / name).exists() for name in ("shop/money.py", "tests/test_money.py")] == [True, False]


@pytest.mark.parametrize("way", ["apply", "undo"])
async def test_a_file_that_was_made_without_its_text_is_named_completed_or_removed(begin: Begin, way: str) -> None:
    """T-B1: Neovim leaves a file of 0 bytes if its prompt is answered with No."""
    outside = await begin(answer(tool("write_file", path="new.py", content=TEN)), DONE)
    accept_hunks(outside.client)
    result = await outside.turn("thinklsp.chat", {"prompt": "Make it."})
    del outside.client.editor.handlers["workspace/applyEdit"]
    assert (outside.root / "new.py").read_text() == ""
    file = file_of(result, "new.py")
    assert (file["status"], file["hunks"]) == ("some", {"applied": 0, "waiting": 1})
    assert "empty" in file["reason"]
    assert (await outside.client.command(f"thinklsp.{way}", {"turnId": result["turnId"]}))["applied"] == "all"
    assert outside.client.text(outside.uri("new.py")) == (TEN if way == "apply" else None)


async def test_a_client_that_gave_no_token_gets_one_message(begin: Begin) -> None:
    outside = await begin(EDIT_ALL, DONE, files=FILES)
    outside.open("shop/invoice.py")
    accept_files(outside.client, "shop/invoice.py")
    await outside.client.command("thinklsp.chat", {"prompt": "Use Decimal."})
    await outside.client.wait_for(lambda: [m for m in outside.client.messages() if "waiting" in m], what="the message")
    [message] = [message for message in outside.told() if "waiting" in message]
    assert message.startswith("1 of 3 files changed; money.py and test_money.py are waiting. The code action ")


# What the editor answers -> the reason that each file has, and the one sentence about them all.
REFUSALS: list[tuple[Any, str, str]] = [
    ({"applied": False}, "it is waiting to be applied", "are waiting."),
    ({"applied": False, "failureReason": "disk full"}, "disk full", "are waiting. The editor says: disk full"),
]


@pytest.mark.parametrize(("reply", "reason", "end"), REFUSALS)
async def test_a_refused_edit_waits_with_the_words_of_the_editor(
    begin: Begin, reply: Any, reason: str, end: str
) -> None:
    """T-m6, m15: *Discard* is no failure, and a reason is not dropped."""
    outside = await begin(EDIT_ALL, DONE, files=FILES)
    outside.client.editor.handlers["workspace/applyEdit"] = lambda _: reply
    result = await outside.turn("thinklsp.chat", {"prompt": "Use Decimal."})
    assert {file["reason"] for file in result["edits"]["files"]} == {reason}
    assert f"Nothing was changed; invoice.py, money.py and test_money.py {end}" in result["notices"]
