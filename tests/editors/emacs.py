"""Emacs in a terminal with the package as its page says to paste it, and without the package.

Keys come in as a person types them; emacsclient looks into buffers while a turn runs: Emacs never waits.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.editors.pages import ROOT, pasted
from tests.editors.programs import apt, debs, ran, version_of
from tests.editors.shop import CLOSED, DELETED, FILES, NEW, OPEN, PROMPT, Shop, rows
from tests.editors.steps import Step
from tests.editors.terminal import Terminal
from tests.editors.trial import BROKEN, FILE, FIXED, Trial, effort_of

_PACKAGE = ROOT / "editors" / "emacs"
_PAGE = "editors/emacs/README.md"
_PATH_ON_PAGE = "~/thinklsp/editors/emacs"
_SCRIPTS = Path(__file__).parent / "emacs"
_UNDEFINED = "undefined name 'value'"
_STORY = "it has run downhill ever since"


@dataclass(frozen=True)
class Client:
    """`script`: what a user of this client has already. `with_package`, `plain`: text by which a block of the page
    is found. `beside`: its servers of a Python file. `code_actions`: its command for them. `alone`: why the language's
    own server is not among them. `suite`: the one of Debian where Emacs comes from, if not the machine's.
    """

    name: str
    script: str
    packages: tuple[str, ...]
    with_package: str
    plain: str
    beside: tuple[str, ...]
    code_actions: str
    alone: str = ""
    suite: str = ""


EGLOT = Client(
    "eglot", "eglot.el", ("elpa-eglot",), "thinklsp-eglot-add", "eglot-server-programs", ("thinklsp",),
    "eglot-code-actions", "eglot runs one server for a buffer; another Flymake backend finds the problem",
)  # fmt: skip
LSP_MODE = Client(
    "lsp-mode", "lsp-mode.el", ("elpa-lsp-mode",), "beside your other servers", "lsp-register-client",
    ("lint", "thinklsp"), "lsp-execute-code-action",
)  # fmt: skip
EGLOT_30 = replace(EGLOT, packages=(), suite="bookworm-backports")
# What an Emacs that is only unpacked cannot find by its own name.
_UNPACKED = """#!/bin/sh
files=$(echo "{root}"/usr/share/emacs/[0-9]*) programs=$(echo "{root}"/usr/libexec/emacs/*/*-linux-gnu)
export EMACSLOADPATH="$files/lisp" EMACSDATA="$files/etc" EMACSDOC="$files/etc" EMACSPATH="$programs"
exec "{run}" emacs-nox --dump-file="$(ls "$programs"/*.pdmp)" "$@"
"""


def installer(client: Client) -> Callable[[Path], Awaitable[str]]:
    async def install(room: Path) -> str:
        # emacsclient of the machine's own Emacs speaks with any.
        await apt("emacs-nox", "tmux", *client.packages)
        if client.suite:
            await debs(client.suite, room, "emacs-nox")
            (room / "emacs").write_text(_UNPACKED.format(root=room / "root", run=room / "run"))
            (room / "emacs").chmod(0o755)
        emacs = await version_of(_program(client, room), "--version")
        said = [emacs.removeprefix("GNU "), client.name]
        if client.packages:
            said.append(await ran("dpkg-query", "-W", "-f", "${source:Upstream-Version}", client.packages[0]))
        return " ".join(said)

    return install


def driver(client: Client) -> Callable[[Trial, Path], Awaitable[None]]:
    async def drive(trial: Trial, room: Path) -> None:
        program = _program(client, room)
        await _checks_its_own(trial, client, program)
        async with Terminal(trial.room) as terminal:
            emacs = _Emacs(trial, terminal, client, program)
            await emacs.open(FILE)
            await emacs.works_on_a_diagnostic()
            await emacs.cancels()
            await emacs.takes_an_effort()
            await emacs.chats()
            await emacs.tells()
            await emacs.goes_on()
            await rows(_Review(emacs, terminal))
            await emacs.does_without_the_package()
            await emacs.close()

    return drive


def _program(client: Client, room: Path) -> str:
    return str(room / "emacs") if client.suite else "emacs"


async def _checks_its_own(trial: Trial, client: Client, program: str) -> None:
    """What the package has in tests of its own, and that its files for this client compile without a warning."""
    batch = (program, "-q", "--batch", "-L", ".")
    with trial.check("the package's own tests pass, and it compiles without a warning"):
        folder = trial.room / "package"
        shutil.copytree(_PACKAGE, folder)
        own = [f"thinklsp-{name}.el" for name in ("turns", "edits", "chat", client.name)] + ["thinklsp.el"]
        strict = ("--eval", "(setq byte-compile-error-on-warn t)", "-f", "batch-byte-compile")
        await ran(*batch, *strict, *own, folder=folder, variables=trial.variables)
        tests = ("-l", "test/thinklsp-test.el", "-f", "ert-run-tests-batch-and-exit")
        await ran(*batch, *tests, folder=folder, variables=trial.variables)


_VERBS = {OPEN: "Change", CLOSED: "Change", NEW: "Create", DELETED: "Delete"}


class _Review:
    no_parts = ""

    def __init__(self, emacs: _Emacs, terminal: Terminal) -> None:
        self.shop = Shop(emacs.trial)
        self._emacs, self._terminal = emacs, terminal

    async def begin(self) -> None:
        for name in (OPEN, CLOSED):
            # The process of Flymake's checker would miss a buffer that is killed, and Emacs would then lose keys.
            await self._emacs.ask(
                f"(when-let ((buffer (find-buffer-visiting {_quoted(name)})))"
                " (with-current-buffer buffer (revert-buffer t t t)))"
            )
        await self._terminal.keys("C-x", "1", "C-x", "C-f")
        await self._terminal.shows("^Find file:")
        await self._terminal.type(str(self.shop.trial.workspace / OPEN), "Enter")
        await self._emacs.attaches(OPEN)

    async def ask(self) -> str:
        await self._terminal.keys("C-c", '"', "e")
        await self._terminal.shows("^Describe the change:")
        await self._terminal.type(PROMPT, "Enter")
        await self._terminal.shows(rf"Change {OPEN}\?")
        return str(await self._emacs.ask('(with-current-buffer "*thinklsp: answer*" (buffer-string))'))

    async def answer(self, kept: Sequence[str] | None) -> None:
        for name in FILES:
            await self._terminal.shows(rf"{_VERBS[name]} {name}\?")
            await self._terminal.type("" if kept is None else "yes" if name in kept else "no", "Enter")
        await self._terminal.hides(r"thinklsp\[")

    async def save(self) -> None:
        await self._emacs.ask("(save-some-buffers t)")

    async def undo(self) -> None:
        await self._terminal.keys("C-c", '"', "u")

    async def undo_here(self) -> None:
        await self._terminal.keys("C-_")


class _Emacs:
    def __init__(self, trial: Trial, terminal: Terminal, client: Client, program: str) -> None:
        self.trial, self.terminal, self._client, self._program = trial, terminal, client, program
        self._init = trial.home / ".emacs.d"
        self._init.mkdir(exist_ok=True)
        shutil.copy(_SCRIPTS / "early-init.el", self._init)

    async def open(self, name: str, text: str | None = None) -> None:
        """Emacs anew, with the page's text, or another one, in its init file."""
        self.configure(text)
        await self.start(name)

    def configure(self, text: str | None = None) -> None:
        if text is None:
            text = pasted(_PAGE, "elisp", self._client.with_package).replace(_PATH_ON_PAGE, str(_PACKAGE))
        scripts = "".join(f'(load "{_SCRIPTS / script}")\n' for script in ("trial.el", self._client.script))
        (self._init / "init.el").write_text(scripts + text)

    async def start(self, name: str) -> None:
        """Emacs anew, with the init file that is there."""
        await self.terminal.open([self._program, "-nw", name], self.trial.workspace, self.trial.variables)
        await self.until(f"(find-buffer-visiting {_quoted(name)})", "Emacs to answer")
        await self.has_servers(name, self._client.beside if name == FILE else ("thinklsp",))

    async def close(self) -> None:
        """What is not saved is given up."""
        await self.ask("(run-at-time 0 nil #'kill-emacs)")
        await self.terminal.ends()

    async def works_on_a_diagnostic(self) -> None:
        with self.trial.check(Step.ATTACH, fallback=self._client.alone):
            await self.finds_the_problem()
        with self.trial.check(Step.ACTION):
            await self.terminal.keys("C-n")
            if self._client is LSP_MODE:
                await self.act(f"thinklsp: fix {_UNDEFINED}")
            else:
                await self.terminal.keys("C-c", '"', "f")
            await self.trial.until(lambda: self.trial.requests, "a request of the turn")
        with self.trial.check(Step.THINKING):
            await self.terminal.shows(r"thinklsp\[thinking · \d+ s")
        with self.trial.check(Step.EDIT):
            await self.holds(FILE, FIXED)
            await self.terminal.shows(r"^thinklsp: done")
            await self.terminal.hides(r"thinklsp\[")
            assert self.trial.file.read_text() == BROKEN
        with self.trial.check(Step.UNDO):
            await self.terminal.keys("C-_")
            await self.holds(FILE, BROKEN)

    async def cancels(self) -> None:
        with self.trial.check(Step.CANCEL):
            before = len(self.trial.requests)
            await self.new_chat()
            await self.terminal.type("think forever", "C-c", "C-c")
            await self.trial.until(lambda: len(self.trial.requests) > before, "a request of the turn")
            await self.terminal.shows(r"thinklsp\[thinking · [1-9]\d* s")
            await self.terminal.keys("C-c", "C-k")
            await self.trial.until(lambda: self.trial.requests[before].closed_by_client, "the connection closed")
            await self.terminal.shows(r"thinklsp: ended \(cancelled\)")
            await self.terminal.hides(r"thinklsp\[")

    async def takes_an_effort(self) -> None:
        with self.trial.check(Step.EFFORT):
            assert effort_of(self.trial.requests[0]) is None
            await self.ask("(customize-set-variable 'thinklsp-settings '((effort . \"high\")))")
            await self.ask(f"(switch-to-buffer (find-buffer-visiting {_quoted(FILE)}))")
            await self.finds_the_problem()
            before = len(self.trial.requests)
            await self.terminal.keys("M-<", "C-n", "C-c", '"', "f")
            await self.trial.until(lambda: len(self.trial.requests) > before, "a request of the turn")
            assert effort_of(self.trial.requests[before]) == "high"
            await self.holds(FILE, FIXED)
            await self.terminal.keys("C-_")
            await self.holds(FILE, BROKEN)

    async def chats(self) -> None:
        with self.trial.check(Step.CHAT):
            name = await self.new_chat()
            await self.terminal.type("hello", "C-c", "C-c")
            await self.until(f'(string-suffix-p "## You\\n\\n" (substring (trial-text {name}) 10))', "the answer")
            text = str(await self.ask(f"(trial-text {name})"))
            assert text.startswith("<!-- thinklsp session: "), text
            assert text.count("\n## You\n") == 2, text
            assert "My word is **heliotrope**" in text, text
        with self.trial.check("text of a chat is shown as it comes, and is not in the document before it is whole"):
            await self.terminal.keys("M->")
            await self.terminal.type("tell it slowly", "C-c", "C-c")
            await self.terminal.shows("Once there was a river")
            only_shown = (
                '(and (string-match-p "river" (trial-shown {0})) (not (string-match-p "river" (trial-text {0}))))'
            )
            await self.until(only_shown.format(name), "text that is only shown")
            # The first try broke off behind the first words.
            await self.until(f'(string-match-p "had grown" (trial-shown {name}))', "what the second try adds")
            shown = str(await self.ask(f"(trial-shown {name})"))
            assert shown.count("Once there was a river") == 1, shown
            await self.until(f"(string-match-p {_quoted(_STORY)} (trial-text {name}))", "the whole story")
            await self.until(f"(string-empty-p (trial-shown {name}))", "the end of what was only shown")
            assert str(await self.ask(f"(trial-text {name})")).count(_STORY) == 1

    async def tells(self) -> None:
        """The commands around turns, with the keys that the page names."""
        with self.trial.check("effort, usage, sessions and undo of a turn, by key"):
            await self.terminal.keys("C-c", '"', "t")
            await self.terminal.shows(r"thinklsp\.effort \(now high\):")
            await self.terminal.type("low", "Enter")
            await self.terminal.shows("^thinklsp: low")
            await self.terminal.keys("C-c", '"', "$")
            await self.terminal.shows(" tokens in ")
            await self.terminal.keys("C-c", '"', "l")
            await self.terminal.shows("Read session:")
            await self.choose("hello")
            await self.terminal.shows("heliotrope")
            await self.ask(f"(switch-to-buffer (find-buffer-visiting {_quoted(FILE)}))")
            await self.finds_the_problem()
            await self.terminal.keys("C-x", "1", "M-<", "C-n", "C-c", '"', "f")
            await self.holds(FILE, FIXED)
            await self.terminal.hides(r"thinklsp\[")
            await self.terminal.keys("C-c", '"', "u")
            await self.holds(FILE, BROKEN)
            await self.terminal.shows(f"thinklsp: {FILE} applied")

    async def goes_on(self) -> None:
        with self.trial.check(Step.RESUME):
            await self.close()
            await self.open(FILE)
            await self.terminal.keys("C-c", '"', "r")
            await self.terminal.shows("Resume session:")
            await self.choose("hello")
            name = await self.chat_document()
            await self.terminal.type("what did I ask first?", "C-c", "C-c")
            await self.until(f'(string-match-p "You greeted me first" (trial-text {name}))', "the answer")
            said = json.dumps(self.trial.requests[-1].body["messages"])
            assert "hello" in said
            assert "heliotrope" in said

    async def does_without_the_package(self) -> None:
        """A comment is the instruction: eglot tells a server of that server's own diagnostics only."""
        name = "plain.py"
        with self.trial.check("without the package: attaches, runs an action, and the edit arrives"):
            await self.close()
            (self.trial.workspace / name).write_text("# fix the mean in stats.py AI!\n")
            await self.open(FILE, pasted(_PAGE, "elisp", self._client.plain))
            await self.terminal.keys("C-x", "C-f")
            await self.terminal.type(f"{name}\n")
            await self.has_servers(name, self._client.beside)
            title = "thinklsp: edit"
            await self.until(
                f"(cl-find {_quoted(title)} (trial-actions {_quoted(name)}) :test #'string-prefix-p)", title
            )
            await self.act(title)
            # The comment stands in another file than what it wants changed.
            await self.terminal.shows(r"Apply\s+it\?")
            if self._client is not LSP_MODE:
                # eglot has filled in the first answer, which changes nothing.
                await self.terminal.keys("C-a", "C-k")
            await self.terminal.type("Apply", "Enter")
            if self._client is EGLOT:  # the newer one asks only where a file is not open
                await self.terminal.shows(r"Proceed\? \(y or n\)")
                await self.terminal.keys("y")
            await self.holds(FILE, FIXED)

    async def finds_the_problem(self) -> None:
        found = f"(seq-contains-p (trial-problems {_quoted(FILE)}) {_quoted(_UNDEFINED)})"
        await self.until(found, "the problem that Flymake finds")

    async def new_chat(self) -> str:
        await self.terminal.keys("C-c", '"', "c")
        return await self.chat_document()

    async def chat_document(self) -> str:
        """The name of the one that is shown now, quoted, once the server knows it."""
        shown = "(buffer-file-name (window-buffer))"
        await self.until(f'(and (string-suffix-p ".chat.md" {shown}) (trial-servers {shown}))', "a chat document")
        return _quoted(str(await self.ask(shown)))

    async def choose(self, title: str) -> None:
        """The candidate that ends with the title; ids come first."""
        listed = f'(cl-find {_quoted(title)} (all-completions "" minibuffer-completion-table) :test #\'string-suffix-p)'
        row = await self.until(
            f"(with-current-buffer (window-buffer (minibuffer-window)) {listed})", f"{title} in the list"
        )
        await self.terminal.type(str(row), "Enter")

    async def act(self, title: str) -> None:
        """The client's own list of code actions."""
        await self.terminal.keys("M-x")
        await self.terminal.shows("^M-x")
        await self.terminal.type(
            "eglot-code-actions" if self._client.name == "eglot" else "lsp-execute-code-action", "Enter"
        )
        await self.terminal.shows(r"^(\[eglot\] Pick an|Select code) action")
        await self.terminal.type(title, "Tab", "Enter")

    async def attaches(self, name: str) -> None:
        await self.has_servers(name, self._client.beside)

    async def has_servers(self, name: str, servers: tuple[str, ...]) -> None:
        async def has() -> bool:
            return sorted(await self.ask(f"(trial-servers {_quoted(name)})") or []) == sorted(servers)

        await self.trial.until(has, f"the servers {servers} for {name}")

    async def holds(self, name: str, text: str) -> None:
        async def is_there() -> bool:
            return bool(await self.ask(f"(trial-text {_quoted(name)})") == text)

        await self.trial.until(is_there, f"{text!r} in {name}")

    async def until(self, form: str, what: str) -> Any:
        """The first value of the form that is not nil; errors count as nil, as things may not be there yet."""

        async def is_so() -> Any:
            return await self.ask(f"(ignore-errors {form})")

        return await self.trial.until(is_so, what)

    async def ask(self, form: str) -> Any:
        """The value of the form: text, number, vector, True for all else, None for nil or where Emacs is not there."""
        whole = f"(let ((it {form})) (json-encode (if (or (stringp it) (numberp it) (vectorp it)) it (and it t))))"
        try:
            argv = ("emacsclient", "-s", str(self._init / "server" / "server"), "--eval", whole)
            said = await ran(*argv, folder=self.trial.workspace, variables=self.trial.variables)
        except RuntimeError as error:
            if "can't find socket" in str(error) or "Connection refused" in str(error):
                return None
            raise
        # What Lisp prints of a text is read as JSON, and holds JSON.
        return json.loads(json.loads(said, strict=False))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
