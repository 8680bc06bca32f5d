"""Every way to review an edit in Neovim, before it is written and afterwards: what is in the files, and what the model
is told about it with the next prompt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.editors.neovim_seat import Seat
from tests.editors.shop import ANSWER, CLOSED, DELETED, FILES, NEW, OPEN, PROMPT, Shop, hunks_of
from tests.editors.trial import prompt_of

_ALL = hunks_of(*FILES)
# What the model reads about a change that is not in the files.
_NOTES = {
    (OPEN, 0): "shop.py (1 change, at line 1)", (OPEN, 1): "shop.py (1 change, at line 5)",
    (CLOSED, 0): "money.py (1 change, at line 1)", (CLOSED, 1): "money.py (1 change, at line 5)",
    (NEW, 0): "tests/test_shop.py (not created)", (DELETED, 0): "old.py (not deleted)",
}  # fmt: skip
_BOTH = {OPEN: "shop.py (2 changes, at line 1, 5)", CLOSED: "money.py (2 changes, at line 1, 5)"}


@dataclass(frozen=True)
class _Case:
    """`kept`: the changes that the user keeps, by file and number. `keys`: the keys for it in the float, in which the
    cursor begins at the first change; without them, each change is answered in turn."""

    name: str
    kept: frozenset[tuple[str, int]]
    keys: str = ""


# Before an edit is written, changes that are not answered are skipped; afterwards, they stay.
_BEFORE_IT_IS_WRITTEN = (
    _Case("every change", _ALL, "a"),
    _Case("one change", frozenset({(OPEN, 1)})),
    _Case("one file", frozenset({(CLOSED, 0), (CLOSED, 1)}), f"gg/{CLOSED}<CR>yq"),
    _Case("the new and the deleted file", frozenset({(NEW, 0), (DELETED, 0)})),
    _Case("no change", frozenset(), "q"),
)
_AFTERWARDS = (
    _Case("every change", _ALL, "q"),
    _Case("one change", frozenset({(OPEN, 1)})),
    _Case("all but one file", _ALL - {(CLOSED, 0), (CLOSED, 1)}, f"gg/{CLOSED}<CR>nq"),
    _Case("all but the new and the deleted file", _ALL - {(NEW, 0), (DELETED, 0)}),
    _Case("no change", frozenset()),
)


async def rows(seat: Seat) -> None:
    """In any Neovim with a key."""
    for name, review, cases in (
        ("before it is written", "always", _BEFORE_IT_IS_WRITTEN),
        ("afterwards", "never", _AFTERWARDS),
    ):
        with _reviewing(seat, review):
            for case in cases:
                with seat.trial.check(f"review {name}: {case.name}; follow-up, undo, follow-up"):
                    await _play(seat, case, is_written=review == "never")
    with _reviewing(seat, "always"), seat.trial.check("a question of a turn that is stopped closes"):
        await _stop(seat)
    with _reviewing(seat, "never"), seat.trial.check("changes that were taken back are offered again"):
        await _apply_again(seat)


@contextmanager
def _reviewing(seat: Seat, review: str) -> Iterator[None]:
    """The setting in the user's file, since an editor cannot switch the review off."""
    config = seat.trial.home / "config" / "thinklsp" / "config.toml"
    config.parent.mkdir(mode=0o700, exist_ok=True)
    config.write_text(f'[edits]\nreview = "{review}"\n')
    config.chmod(0o600)
    yield
    config.unlink()


async def _play(seat: Seat, case: _Case, *, is_written: bool) -> None:
    await _begin(seat)
    if is_written:
        await _holds(seat, _ALL)
        await _chat_ends(seat)
        await seat.nvim.command("Thinklsp changes")
    await seat.until("trial.float()", "the float")
    if not is_written:
        await _holds(seat, frozenset())
    await _choose(seat, case)
    await seat.until("not trial.float()", "the end of the review")
    await _holds(seat, case.kept)
    await _chat_ends(seat)
    note = await _follow_up(seat, "and now")
    missing = _ALL - case.kept
    for file in {file for file, _ in missing}:
        of_file = [hunk for hunk in missing if hunk[0] == file]
        wanted = _BOTH[file] if len(of_file) == 2 else _NOTES[of_file[0]]
        assert wanted in note, (wanted, note)
    assert not any(_NOTES[hunk] in note for hunk in case.kept), note
    assert ("<note>" in note) == bool(missing), note
    if case.kept:
        await seat.nvim.command("Thinklsp undo")
        await _holds(seat, frozenset())
        assert "the user undid them" in await _follow_up(seat, "and after the undo")


async def _begin(seat: Seat) -> None:
    """A new chat with the prompt, beside the open file."""
    folder = seat.trial.workspace
    await seat.nvim.command("only!")
    await seat.nvim.lua("trial.forget(...)", [str(folder / name) for name in (OPEN, CLOSED, NEW, DELETED)])
    Shop(seat.trial).begin()
    await seat.nvim.command(f"edit! {OPEN}")
    await seat.until("vim.tbl_contains(trial.servers(), 'thinklsp')", "the server")
    await seat.nvim.command("messages clear")
    await seat.nvim.command(f"Thinklsp chat {PROMPT}")


async def _choose(seat: Seat, case: _Case) -> None:
    shown = str(await seat.nvim.lua("return trial.float()"))
    assert "tests/test_shop.py" in shown, shown
    if case.keys:
        await seat.nvim.type(case.keys)
        return
    for hunk in _asked_in(shown):
        await seat.nvim.type("y" if hunk in case.kept else "n")


def _asked_in(shown: str) -> list[tuple[str, int]]:
    """The changes of the float in their order."""
    found: list[tuple[str, int]] = []
    file = ""
    for line in shown.splitlines():
        if line in (OPEN, CLOSED, NEW, DELETED):
            file = line
        elif line.startswith("  [ ]"):
            found.append((file, sum(name == file for name, _ in found)))
    assert set(found) == _ALL, shown
    return found


async def _holds(seat: Seat, kept: frozenset[tuple[str, int]]) -> None:
    """The open file in its buffer, the others on disk."""
    buffer = "vim.deep_equal(trial.text(vim.fn.bufnr((...))), select(2, ...))"
    shop = Shop(seat.trial)
    text = shop.text_of(OPEN, kept)
    await seat.until(buffer, f"{OPEN}: {text!r}", str(seat.trial.workspace / OPEN), text)
    await shop.disk_holds(kept, (CLOSED, NEW, DELETED))


async def _chat_ends(seat: Seat) -> None:
    await seat.idle()
    await seat.until("trial.chat_text():find(..., 1, true)", "the answer in the chat", ANSWER)
    await seat.until("#trial.shown(vim.fn.bufnr(...)) == 0", "the end of the virtual lines", OPEN)


async def _follow_up(seat: Seat, words: str) -> str:
    """The next prompt of the same chat, as the model reads it."""
    asked = len(seat.trial.requests)
    await seat.nvim.command("wincmd l")
    await seat.until(f"trial.text():find('{ANSWER}', 1, true)", "the chat at the side")
    await seat.nvim.type(f"Go{words}<Esc>")
    await seat.until("trial.text():find(..., 1, true) and vim.api.nvim_get_mode().mode == 'n'", "the words", words)
    await seat.nvim.command("Thinklsp send")
    await seat.trial.until(lambda: len(seat.trial.requests) > asked, "the request of the follow-up")
    await seat.idle()
    await seat.nvim.command("wincmd h")
    return prompt_of(seat.trial.requests[-1])


async def _stop(seat: Seat) -> None:
    await _begin(seat)
    await seat.until("trial.float()", "the float")
    await seat.nvim.command("Thinklsp stop")
    await seat.until("not trial.float()", "the end of the review")
    await seat.idle()
    await _holds(seat, frozenset())


async def _apply_again(seat: Seat) -> None:
    await _begin(seat)
    await _holds(seat, _ALL)
    await _chat_ends(seat)
    kept = frozenset({(OPEN, 0), (CLOSED, 1)})
    await seat.nvim.command("Thinklsp changes")
    for hunk in _asked_in(str(await seat.until("trial.float()", "the float"))):
        await seat.nvim.type("y" if hunk in kept else "n")
    await _holds(seat, kept)
    await seat.nvim.command("Thinklsp apply")
    await _holds(seat, _ALL)
    # What was applied now can be taken back once more.
    await seat.nvim.command("Thinklsp changes")
    shown = str(await seat.until("trial.float()", "the float"))
    assert shown.count("  [ ]") == len(_ALL - kept), shown
    await seat.nvim.type("n" * len(_ALL - kept))
    await _holds(seat, kept)
    await seat.nvim.command("Thinklsp apply")
    await _holds(seat, _ALL)
