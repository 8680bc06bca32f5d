"""What the user keeps of an edit in VS Code: each decision, with and without a review, and the prompt after it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.editors.chat_frame import ChatDriver
from tests.editors.trial import Trial, prompt_of
from tests.editors.vscode_driver import opened, run_steps
from tests.editors.waiting import until

if TYPE_CHECKING:
    from playwright.async_api import Locator

BEFORE = {
    "cart.py": "def total(prices):\n    return sum(price)\n\n\n\n\ndef last(prices):\n    return price[-1]\n",
    "tax.py": "RATE = 20\n",
    "old.py": "x = 1\n",
    "names.py": "NAMES = []\n",
}
# The parts of the edit, each as what the user keeps of it.
TOP, BOTTOM, CLOSED, NEW, DELETED, RENAMED = "TOP", "BOTTOM", "CLOSED", "NEW", "DELETED", "RENAMED"
ALL = frozenset({TOP, BOTTOM, CLOSED, NEW, DELETED, RENAMED})
NOTHING: frozenset[str] = frozenset()

_SENTENCE = "The shop is in order now: total and last use their parameter."
_NOTE = "Edits from an earlier turn are not in the files"
_QUESTION = "Keep the changes?"
_THEMES = {"dark": "Default Dark Modern", "light": "Default Light Modern", "contrast": "Default High Contrast"}
_SMALL, _LARGE = (900, 620), (1400, 860)


@dataclass(frozen=True)
class Case:
    """`decide` is what the user does, by keyboard or mouse. `kept` are the parts that are then in the files."""

    name: str
    decide: Callable[[_Decisions], Awaitable[None]]
    kept: frozenset[str]
    theme: str
    size: tuple[int, int]
    review: bool = False
    auto_save: bool = False
    undo_later: bool = False


async def drive(trial: Trial, room: Path) -> None:
    settings = trial.home / "config" / "thinklsp"
    settings.mkdir()
    (settings / "config.toml").write_text('[edits]\nreview = "never"\n')
    async with opened(trial, room, "vscode-decisions", {"files.autoSaveDelay": 100}) as window:
        driver = _Decisions(trial, window, "vscode-decisions")
        cases = tuple((case.name, partial(driver.play, case)) for case in CASES)
        await run_steps(trial, window, "vscode-decisions", (("begins", driver.begin), *cases))


def expect(kept: frozenset[str]) -> dict[str, str]:
    """Return the text of every file if the user keeps these parts."""
    files = dict(BEFORE)
    if TOP in kept:
        files["cart.py"] = files["cart.py"].replace("sum(price)", "sum(prices)")
    if BOTTOM in kept:
        files["cart.py"] = files["cart.py"].replace("price[-1]", "prices[-1]")
    if CLOSED in kept:
        files["tax.py"] = "RATE = 21\n"
    if NEW in kept:
        files["notes.md"] = "# Notes\n"
    if DELETED in kept:
        del files["old.py"]
    if RENAMED in kept:
        del files["names.py"]
        files["labels.py"] = "NAMES = ['cart']\n"
    return files


class _Decisions(ChatDriver):
    async def begin(self) -> None:
        await super().begin()
        await self.chat.open()
        await self.chat.says("Ask about your code")

    async def play(self, case: Case) -> None:
        await self.prepare(case)
        await self.chat.ask(f"Rearrange the shop in {self.shop}")
        if not case.review:
            await self.chat.idle()
            await self.window.reads(expect(ALL)["cart.py"])
            await self.lens(_SENTENCE).wait_for()
            if case.auto_save:
                await self.hold(expect(ALL))
                await self.lens("Keep").wait_for()
        else:
            await self.question.wait_for()
            summary = self.window.page.locator(".multiDiffEditor .view-line:visible", has_text="The shop is in")
            await summary.first.wait_for()
            assert self.on_disk() == BEFORE
        await self.picture(case.name.replace(" ", "-"))
        await case.decide(self)
        await self.chat.idle()
        await self.window.page.locator(".statusbar-item", has_text="change in").wait_for(state="detached")
        await self.window.page.locator(".statusbar-item", has_text="changes in").wait_for(state="detached")
        await self.hold(expect(case.kept), save=not case.auto_save)
        await self.follow_up(case.kept)
        if case.undo_later:
            await self.window.open(self.path("cart.py").name)
            await self.window.action("thinklsp: undo")
            await self.hold(BEFORE, save=not case.auto_save)
            await self.follow_up(NOTHING)

    async def prepare(self, case: Case) -> None:
        await self.clear_messages()
        await self.window.command("File: Save All Files")
        await self.window.command("View: Close All Editors")
        # The editor keeps documents open for a while after their tabs are closed: each case has its own files.
        self.shop = f"shop{CASES.index(case)}"
        for name, text in BEFORE.items():
            self.path(name).write_text(text)
        width, height = case.size
        await self.window.page.set_viewport_size({"width": width, "height": height})
        await self.window.set(
            workbench__colorTheme=_THEMES[case.theme],
            thinklsp__edits__review="always" if case.review else None,
            files__autoSave="afterDelay" if case.auto_save else "off",
        )
        await self.window.open(self.path("cart.py").name)
        await self.window.reads(BEFORE["cart.py"])
        await self.new_chat()

    def path(self, name: str) -> Path:
        return self.trial.workspace / f"{self.shop}_{name}"

    def on_disk(self) -> dict[str, str]:
        paths = {name: self.path(name) for name in {*BEFORE, *expect(ALL)}}
        return {name: path.read_text() for name, path in paths.items() if path.exists()}

    async def hold(self, files: dict[str, str], *, save: bool = False) -> None:
        """Wait until every file has its text on disk."""

        async def holds() -> bool:
            if save:
                await self.window.command("File: Save All Files")
            return self.on_disk() == files

        await until(holds, lambda: f"{files}, last {self.on_disk()}")

    async def follow_up(self, kept: frozenset[str]) -> None:
        """The next prompt says whether the files have all of the edit."""
        asked = len(self.trial.requests)
        await self.chat.ask("What is in the files now?")
        await until(lambda: len(self.trial.requests) > asked, "a request")
        prompt = prompt_of(self.trial.requests[asked])
        assert (_NOTE in prompt) == (kept != ALL), prompt
        await self.chat.idle()

    async def keep_all(self) -> None:
        await self.window.page.keyboard.press("Shift+Alt+Y")

    async def undo_all(self) -> None:
        await self.window.command("thinklsp: Undo All Changes")

    async def undo_one_hunk(self) -> None:
        """By keys alone: the last of the changes of the file, then keep the others."""
        await self.window.go_to(8)
        await self.window.page.keyboard.press("Shift+Alt+U")
        await self.window.reads(expect(ALL - {BOTTOM})["cart.py"])
        await self.keep_all()

    async def keep_one_hunk(self) -> None:
        await self.window.go_to(1)
        await self.window.page.keyboard.press("Shift+Alt+N")
        await self.window.page.locator(".statusbar-item", has_text="Ln 2,").wait_for()
        await self.window.page.keyboard.press("Shift+Alt+K")
        await self.undo_all()

    async def keep_one_file(self) -> None:
        await self.lens("Keep file").click()
        await self.undo_all()

    async def undo_one_file(self) -> None:
        await self.window.open(self.path("tax.py").name)
        await self.window.command("thinklsp: Undo Changes in This File")
        await self.window.reads(BEFORE["tax.py"])
        await self.keep_all()

    async def revert(self) -> None:
        await self.window.command("File: Revert File")
        await self.window.reads(BEFORE["cart.py"])
        await self.lens("Keep").wait_for(state="detached")
        await self.undo_all()

    async def change_closed_file(self) -> None:
        """Another program writes a line into the file while it is closed."""
        cart = self.path("cart.py")
        await self.hold(expect(ALL), save=True)
        await self.window.command("View: Close All Editors")
        cart.write_text(f"# mine\n{expect(ALL)['cart.py']}")
        await self.undo_all()
        await self.hold({**BEFORE, "cart.py": f"# mine\n{BEFORE['cart.py']}"}, save=True)
        cart.write_text(BEFORE["cart.py"])

    async def compare_and_discard(self) -> None:
        """What was not kept waits in the card: each file, also a new and a deleted one, can be compared."""
        page, card = self.window.page, self.chat.turn.locator(".edits")
        await self.answer("Not now")
        await card.filter(has_text="Pending: 5 files").wait_for()
        for name, kind in (("cart.py", "insert"), ("notes.md", "insert"), ("old.py", "delete"), ("tax.py", "insert")):
            await self.chat.button(f"Diff of {self.path(name).name}").click()
            await page.locator(".tab.active", has_text=f"{self.path(name).name}: now ↔ proposed").wait_for()
            await page.locator(f".monaco-diff-editor .line-{kind}").first.wait_for()
        await self.chat.button("Discard").click()
        await card.locator(".state", has_text="discarded").nth(4).wait_for()
        assert await card.get_by_role("button", name="Apply").count() == 0
        await self.window.open(self.path("cart.py").name)

    async def answer(self, button: str) -> None:
        await self.question.get_by_role("button", name=button).click()

    @property
    def question(self) -> Locator:
        return self.chat.frame.get_by_role("region", name="Question").filter(has_text=_QUESTION).last

    async def choose(self, *rows: str) -> None:
        await self.answer("Choose…")
        await self.window.page.locator(".quick-input-header .monaco-custom-toggle").first.click()
        for row in rows:
            await self.window.row(row).locator(".monaco-custom-toggle").first.click()
        await self.window.page.locator(".quick-input-widget .monaco-button", has_text="OK").click()


CASES = (
    Case("keep all", _Decisions.keep_all, ALL, "dark", _SMALL),
    Case("undo one hunk", _Decisions.undo_one_hunk, ALL - {BOTTOM}, "light", _LARGE),
    Case("keep one hunk", _Decisions.keep_one_hunk, frozenset({TOP}), "contrast", _SMALL, auto_save=True),
    Case("keep one file", _Decisions.keep_one_file, frozenset({TOP, BOTTOM}), "dark", _LARGE),
    Case("undo one file", _Decisions.undo_one_file, ALL - {CLOSED}, "light", _SMALL, auto_save=True),
    Case("undo all", _Decisions.undo_all, NOTHING, "contrast", _LARGE),
    Case("revert a file", _Decisions.revert, NOTHING, "dark", _SMALL),
    Case("change a closed file", _Decisions.change_closed_file, NOTHING, "dark", _SMALL),
    Case("undo later", _Decisions.keep_all, ALL, "dark", _SMALL, auto_save=True, undo_later=True),
    Case("review and keep all", _Decisions.keep_all, ALL, "light", _LARGE, review=True),
    Case(
        "review and keep one hunk", lambda at: at.choose("cart.py:8"), frozenset({BOTTOM}), "dark", _SMALL, review=True
    ),
    Case(
        "review and keep two files",
        lambda at: at.choose("notes.md", "old.py"),
        frozenset({NEW, DELETED}),
        "contrast",
        _LARGE,
        review=True,
        auto_save=True,
    ),
    Case(
        "review and keep nothing", partial(_Decisions.answer, button="Not now"), NOTHING, "light", _SMALL, review=True
    ),
    Case("review, compare and discard", _Decisions.compare_and_discard, NOTHING, "dark", _LARGE, review=True),
    Case(
        "review and undo later",
        partial(_Decisions.answer, button="Keep all"),
        ALL,
        "contrast",
        _LARGE,
        review=True,
        undo_later=True,
    ),
)
