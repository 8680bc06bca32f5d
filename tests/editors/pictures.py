"""`python -m tests.editors.pictures DIR`: makes the pictures of the extension's README of what a trial has left in DIR.

That is `python -m tests.editors --only "VS Code" "VS Code chat" --out DIR`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

from tests.editors.code_server import EXTENSION

NAMES = ("idle", "thinking", "chat-streaming", "effort", "preview", "error")
THEMES = ("dark", "light")
_COLOURS = 256


def main() -> int:
    taken = Path(sys.argv[1])
    kept = EXTENSION / "media" / "pictures"
    kept.mkdir(exist_ok=True)
    for name in (f"{name}-{theme}.png" for name in NAMES for theme in THEMES):
        with Image.open(taken / f"vscode-{name}") as picture:
            few = picture.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
            few.save(kept / name, optimize=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
