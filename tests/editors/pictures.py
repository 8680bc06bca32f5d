"""Pictures of the documentation and of the extension's page, made from what the product shows.

`python -m tests.editors.pictures --docs` records `thinklsp demo`, takes two screenshots of VS Code, and writes them to
docs/pictures. `python -m tests.editors.pictures DIR` makes the pictures of the extension's README from the screenshots
that the drivers of VS Code have left in DIR, as its section *Development* says.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from PIL import Image

from tests.editors.code_server import EXTENSION
from tests.editors.programs import default_cache
from tests.editors.recording import draw, record
from tests.editors.tour import SCREENSHOTS, take_screenshots
from tests.editors.trial import ROOT

# The pictures of the extension's page, each with the screenshot that a driver leaves.
PICTURES = {
    "thinking": "vscode-thinking-dark",
    "marks": "vscode-review-marks",
    "question": "vscode-review-question",
    "summary": "vscode-review-summary",
    "conflict": "vscode-difference-dark",
    "chat": "vscode-chat-streaming-dark",
    "card": "vscode-answers-card",
    "findings": "vscode-answers-review",
    "queued": "vscode-answers-queued",
    "first-run": "vscode-first-ways",
    "models": "vscode-first-models",
    "error": "vscode-error-light",
}
DOCS = ROOT / "docs" / "pictures"
_COLOURS = 256


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.editors.pictures", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "taken", nargs="?", type=Path, metavar="DIR", help="screenshots of a trial, for the extension's page"
    )
    what.add_argument("--docs", action="store_true", help="make the pictures in docs/pictures")
    parser.add_argument(
        "--cache", type=Path, default=default_cache(), metavar="DIR", help="where editors are installed"
    )
    chosen = parser.parse_args()
    if chosen.docs:
        _make_docs(chosen.cache)
    else:
        kept = EXTENSION / "media" / "pictures"
        kept.mkdir(exist_ok=True)
        for name, taken in PICTURES.items():
            _shrink(chosen.taken / f"{taken}.png", kept / f"{name}.png")
    return 0


def _make_docs(cache: Path) -> None:
    DOCS.mkdir(exist_ok=True)
    (DOCS / "demo.svg").write_text(draw(record()), "utf-8")
    room = cache / "VS-Code"
    room.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tour-", ignore_cleanup_errors=True) as folder:
        out = Path(folder) / "out"
        out.mkdir()
        asyncio.run(take_screenshots(room, Path(folder) / "tour", out))
        for name in SCREENSHOTS:
            _shrink(out / f"{name}.png", DOCS / f"{name}.png")


def _shrink(taken: Path, kept: Path) -> None:
    """Save a screenshot with fewer colours."""
    with Image.open(taken) as picture:
        few = picture.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
        few.save(kept, optimize=True)


if __name__ == "__main__":
    sys.exit(main())
