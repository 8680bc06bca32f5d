"""Where the text of an answer goes: to a chat document that is shown, or to the caller that shows it (contract §5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.e2e.conftest import Begin
from tests.support.signing_script import Text, answer

OWN = """
[[actions]]
title = "Look at it"
name = "look"
prompt = "Look."
tools = "read"
scope = "file"

[[actions]]
title = "Write a haiku"
name = "haiku"
prompt = "Write."
tools = "none"
scope = "file"
"""
WORK, PARTIAL = {"token": "work"}, {"partialResultToken": "partial"}
CALLERS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "neither": ({}, {}),
    "work-done token": (WORK, {}),
    "partial-result token": ({}, PARTIAL),
    "both": (WORK, PARTIAL),
}
ONLY_WITHOUT = {"neither"}
# By what is asked for: the callers for which a chat document is shown.
SHOWN: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "chat": ("chat", {"prompt": "Hello."}, ONLY_WITHOUT),
    "explain": ("action", {"name": "explain"}, {"neither", "work-done token"}),
    "ask": ("action", {"name": "ask", "instruction": "Why?"}, {"neither", "work-done token"}),
    "review": ("action", {"name": "review"}, ONLY_WITHOUT),
    "an own action that reads": ("action", {"name": "look"}, ONLY_WITHOUT),
    "an own action without tools": ("action", {"name": "haiku"}, ONLY_WITHOUT),
    "an action that edits": ("action", {"name": "edit", "instruction": "Leave it."}, ONLY_WITHOUT),
}
SHOW = "window/showDocument"


async def test_a_caller_that_shows_the_text_gets_no_document(begin: Begin, tmp_path: Path) -> None:
    """Issue 17, item 11: `review` and own actions that read showed a document to a caller that shows the text."""
    path = tmp_path / "config.toml"
    path.write_text(OWN)
    path.chmod(0o600)
    cases = [(what, caller) for what in SHOWN for caller in CALLERS]
    outside = await begin(
        *(answer(Text(f"Answer {number}.")) for number in range(len(cases))),
        files={"app.py": "x = 1\n"},
        env={"THINKLSP_CONFIG": str(path)},
    )
    client, _ = outside.pair
    uri = outside.open("app.py")
    for number, (what, caller) in enumerate(cases):
        command, argument, shown_to = SHOWN[what]
        before = len(client.calls(SHOW))
        work, partial = CALLERS[caller]
        token = f"work-{number}" if work else None
        fields = {"partialResultToken": f"partial-{number}"} if partial else {}
        request = client.command(f"thinklsp.{command}", {"uri": uri} | argument | fields, token=token)
        if token:
            assert (await outside.result(request))["text"] == f"Answer {number}."
        else:
            started = await request
            await client.wait_for(
                lambda ended=f"thinklsp-{started['turnId']}": client.progress_kinds(ended)[-1:] == ["end"],
                what="the end",
            )
        assert (len(client.calls(SHOW)) > before) == (caller in shown_to), (what, caller)
        if caller in shown_to:
            assert f"Answer {number}." in (client.text(client.calls(SHOW)[-1].params["uri"]) or "")
    assert (outside.root / "app.py").read_text() == "x = 1\n"
