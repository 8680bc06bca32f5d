"""What the model of these trials says: by the case that a prompt names (`case fix.`), one text for each answer.

Calls are whole and of known tools: the server's grammar lets no model write others. Broken ones come from limits.
"""

from __future__ import annotations

import json
from typing import Any

from tests.llama_server.model import ENDLESS
from thinklsp.core.choices import EFFORT_LEVELS


def _call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"


def _thought(text: str) -> str:
    return f"<think>\n{text}\n</think>\n\n"


SAYS = {
    "plain": ("Plain words.",),
    "text": ("Grüße 🙂 aus Köln – 日本語, **fett** und mehr: 🧠.",),
    "think": (_thought("I ponder it 🙂.") + "Pondered enough.",),
    "fix": (
        _thought("I read the file first.") + _call("read_file", path="app.py"),
        _call("edit_file", path="app.py", old_text="🙂 nmae", new_text="🙂 name"),
        "Fixed – 🙂.",
    ),
    "parallel": (
        _call("read_file", path="other.py") + "\n" + _call("search_text", pattern="nmae"),
        "I saw both of them.",
    ),
    "lost": (_call("edit_file", path="app.py", old_text="not in there", new_text="x"), "Then it stays."),
    "cut": (_call("write_file", path="new.py", content=f"Round and round, {ENDLESS}"[:-1]),),
    "thoughts": ("<think>\nNothing but a thought.\n</think>",),
    "nothing": ("",),
    "spoken": ("A model writes `<tool_call>` before it calls, and that is no call.",),
    "effort": ("No effort was asked for.",),
    "mode": (_thought("Thinking is on, I see.") + "Yes, thought about.",),
    "mode-off": ("Not thought about.",),
    "endless": (f"Round it goes, {ENDLESS}",),
    "again": ("Good that you ask again.",),
} | {f"effort-{level}": (f"Asked for effort {level}.",) for level in EFFORT_LEVELS}
