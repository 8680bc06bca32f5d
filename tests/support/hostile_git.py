"""Folders whose git settings, hooks and links run programs as soon as git is asked anything."""

from __future__ import annotations

from tests.support.hostile_ground import Ground, Hostile, rows_of

ROWS: list[Hostile] = []
hostile = rows_of(ROWS)
_COMMIT = ("git", "-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "--allow-empty", "-qm", "x")


@hostile("git runs a file system monitor", "git", "status", reads=(".git/config",))
def _(at: Ground) -> None:
    at.git(f"\tfsmonitor = '{at.trap('monitor.sh')}'\n")


@hostile(
    "git runs hooks from a folder of the repository",
    *_COMMIT,
    writes=("hooks/post-checkout",),
)
def _(at: Ground) -> None:
    at.git("\thooksPath = hooks\n")
    for name in ("post-checkout", "pre-commit", "post-index-change", "reference-transaction", "pre-auto-gc"):
        at.trap(f"hooks/{name}")


@hostile("git runs its own hooks", *_COMMIT, writes=(".git/hooks/pre-push",))
def _(at: Ground) -> None:
    at.git("")
    for name in ("post-checkout", "pre-commit", "post-index-change", "reference-transaction", "post-merge"):
        at.trap(f".git/hooks/{name}")


@hostile("git pages, edits, signs and connects by programs of the repository", "git", "st")
def _(at: Ground) -> None:
    trap = at.trap("run.sh")
    at.git(
        f"\tpager = {trap}\n\teditor = {trap}\n\tsshCommand = {trap}\n\taskPass = {trap}\n\tgitProxy = {trap}\n"
        f"[alias]\n\tst = !{trap}\n\tls-files = !{trap}\n[gpg]\n\tprogram = {trap}\n[sequence]\n\teditor = {trap}\n"
        f"[pager]\n\tlog = {trap}\n\tdiff = {trap}\n[interactive]\n\tdiffFilter = {trap}\n"
        f"[uploadpack]\n\tpackObjectsHook = {trap}\n"
    )


@hostile("git shows differences by a program of the repository", "git", "diff", "--no-index", "main.py", "other.py")
def _(at: Ground) -> None:
    trap = at.trap("diff.sh")
    at.git(f'[diff]\n\texternal = {trap}\n[diff "evil"]\n\ttextconv = {trap}\n\tcommand = {trap}\n')
    at.write(".gitattributes", "* diff=evil merge=evil\n")
    at.write("other.py", "x = 1\n")


@hostile("git filters what it reads", "git", "add", "main.py", writes=(".gitattributes",))
def _(at: Ground) -> None:
    trap = at.trap("filter.sh")
    at.git(f'[filter "evil"]\n\tclean = {trap}\n\tsmudge = {trap}\n\tprocess = {trap}\n\trequired = true\n')
    at.write(".gitattributes", "* filter=evil\n")


@hostile("git fetches by any program and asks it for passwords", "git", "fetch", "-q", "origin")
def _(at: Ground) -> None:
    trap = at.trap("remote.sh")
    at.git(
        f'[protocol "ext"]\n\tallow = always\n[remote "origin"]\n\turl = ext::{trap}\n\tfetch = +refs/*:refs/*\n'
        f"[credential]\n\thelper = !{trap}\n[http]\n\tproxy = {at.decoy}\n"
        f'[url "{at.decoy}/"]\n\tinsteadOf = https://\n'
    )


@hostile("git's settings include a file of the folder", "git", "status")
def _(at: Ground) -> None:
    at.write("docs/notes.txt", f"[core]\n\tfsmonitor = {at.trap('docs/monitor.sh')}\n")
    at.git('[include]\n\tpath = ../docs/notes.txt\n[includeIf "gitdir:**"]\n\tpath = ../docs/notes.txt\n')


@hostile("git's user is a shell command")
def _(at: Ground) -> None:
    trap = at.trap("mail.sh")
    at.git(f'[user]\n\tname = "$({trap})"\n\temail = "`{trap}`;{trap}@example.com"\n')


@hostile("a .git file points elsewhere", "git", "status", reads=(".git", "elsewhere/config"))
def _(at: Ground) -> None:
    at.git(f"\tfsmonitor = {at.trap('monitor.sh')}\n\tworktree = ..\n", below="elsewhere")
    at.write(".git", "gitdir: elsewhere\n")


@hostile("a bare repository in a subfolder", "git", "-C", "vendor/fixture", "status", writes=("vendor/fixture/config",))
def _(at: Ground) -> None:
    at.git(f"\tfsmonitor = {at.trap('monitor.sh')}\n\tworktree = ../..\n", below="vendor/fixture")


@hostile("the work tree is the home folder", "git", "status", reads=("../home/.ssh/id_rsa",))
def _(at: Ground) -> None:
    at.git(f"\tworktree = {at.home}\n\tfsmonitor = {at.trap('monitor.sh')}\n\texcludesFile = {at.home}/.ssh/id_rsa\n")


@hostile("submodules with commands for names and addresses", "git", "-C", "sub", "status", reads=(".gitmodules",))
def _(at: Ground) -> None:
    trap = at.trap("sub.sh")
    at.git(f'[submodule "sub"]\n\turl = ext::{trap}\n\tupdate = !{trap}\n\tactive = true\n')
    at.git(f"\tfsmonitor = {trap}\n\tworktree = ../../../sub\n", below=".git/modules/sub")
    at.write("sub/.git", "gitdir: ../.git/modules/sub\n")
    at.write(".gitmodules", f'[submodule "sub"]\n\tpath = sub\n\turl = -u{trap}\n\tupdate = !{trap}\n')


@hostile("a work tree with settings of its own", "git", "-C", "tree", "status")
def _(at: Ground) -> None:
    at.git("[extensions]\n\tworktreeConfig = true\n")
    at.write(".git/worktrees/tree/HEAD", "ref: refs/heads/other\n")
    at.write(".git/worktrees/tree/commondir", "../..\n")
    at.write(".git/worktrees/tree/gitdir", f"{at.root}/tree/.git\n")
    at.write(".git/worktrees/tree/config.worktree", f"[core]\n\tfsmonitor = {at.trap('monitor.sh')}\n")
    at.write("tree/.git", "gitdir: ../.git/worktrees/tree\n")
