"""The copy for commands: without secrets, wherever they are, and git's logins; bounded if there is no overlay mount."""

import os
import time

import pytest

from tests.support.shadowing import BOTH, needs_sandbox, shadowed, tree
from thinklsp.core.errors import PathRefused
from thinklsp.workspace.paths import Root
from thinklsp.workspace.protected import strip_logins
from thinklsp.workspace.shadow import copy_folder, find_masks
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceView

CERTIFICATE = "# Issuer: A\n-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"
PRIVATE = CERTIFICATE + "-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n"
# Whether a folder holds other people's packages is up to the repository.
LAYOUTS = {
    "an environment by its mark": ("deploy/pyvenv.cfg", "deploy/.env"),
    "venv": ("venv/lib/a.py", "venv/.env"),
    ".venv": (".venv/pyvenv.cfg", ".venv/.env.local"),
    "node_modules": ("node_modules/a/package.json", "node_modules/a/.npmrc"),
    "dist-packages": ("dist-packages/a.py", "dist-packages/.netrc"),
    "site-packages": ("lib/site-packages/a.py", "lib/site-packages/id_rsa"),
    "git in a folder": ("sub/.git/HEAD", "sub/.git/.env"),
    "tox": (".tox/py/pyvenv.cfg", ".tox/py/server.pem"),
    "caches": ("__pycache__/a.pyc", "__pycache__/.aws/credentials"),
}


def masked(folder):
    with Root(str(folder)) as root:
        return find_masks(root)


@pytest.mark.kernel
@needs_sandbox
@BOTH
async def test_secrets_are_masked_in_every_layout_of_dependencies(tmp_path, overlays):
    files = {name: "to be seen" for name, _ in LAYOUTS.values()} | {name: "SECRET" for _, name in LAYOUTS.values()}
    ignored = {".gitignore": "*\n!.gitignore\n", "site-packages/certifi/cacert.pem": CERTIFICATE}
    ws = tree(tmp_path / "ws", files | ignored)
    async with shadowed(ws, state=tmp_path / "state", overlays=overlays) as shadow:
        found = await shadow.sh("grep -rs SECRET .; cat " + " ".join(files))
        assert "SECRET" not in found
        assert found.count("to be seen") == len(LAYOUTS)
        assert await shadow.sh("cat site-packages/certifi/cacert.pem") == CERTIFICATE


def test_certificates_are_shown_and_keys_are_not(tmp_path):
    names = {"public.pem": CERTIFICATE, "both.pem": PRIVATE, "odd.pem": "key", "long.pem": CERTIFICATE * 20_000}
    tree(tmp_path, names)
    (tmp_path / "link.pem").symlink_to("public.pem")
    os.mkfifo(tmp_path / "pipe.pem")
    assert sorted(masked(tmp_path).hidden) == ["both.pem", "link.pem", "long.pem", "odd.pem", "pipe.pem"]


def test_folders_are_masked_whole_and_names_of_code_are_not(tmp_path):
    names = (".aws/x", "a/.ssh/b/c", "kubeconfig/main.go", "b/kubeconfig", ".git/refs/id_rsa", "/".join("d" * 70))
    tree(tmp_path, dict.fromkeys(names, ""))
    assert sorted(masked(tmp_path).hidden) == [".aws/", "a/.ssh/", "b/kubeconfig", "/".join("d" * 61) + "/"]


def test_too_many_are_refused(tmp_path):
    tree(tmp_path, {f"{number}.key": "" for number in range(2_001)})
    with pytest.raises(PathRefused, match="more than 2000 files with secrets"):
        masked(tmp_path)


@pytest.fixture
def many_files(tmp_path):
    names = [f"d{number // 100}/f{number}.py" for number in range(3_000)]
    return tree(tmp_path, {**dict.fromkeys(names, ""), "d1/.env": ""})


@pytest.mark.timing
def test_secrets_are_found_quickly(many_files):
    begun = time.process_time()
    masked(many_files)
    assert time.process_time() - begun < 0.3


CONFIG = b"""[core]
\trepositoryformatversion = 0
[remote "origin"]
\turl = https://me:%s@host.example/a.git
\tfetch = +refs/heads/*:refs/remotes/origin/*
[branch "main"]
\tremote = origin
"""
LOGINS = {
    "a user in a URL": b'[remote "o"]\n\turl = https://me:CANARY@host/a.git\n',
    "in two lines": b'[remote "o"]\n\turl = https://me:CAN\\\nARY@host/CANARY@\n'.replace(b"/CANARY@", b"/a"),
    "in the name of a section": b'[url "https://CANARY@host/"]\n\tinsteadOf = https://host/\n',
    "a header": b"[http]\n\textraHeader = AUTHORIZATION: basic CANARY\n",
    "a header beside its section": b'[http "https://h/"] EXTRAHEADER = X-Key: CANARY\n',
    "a helper": b'[credential]\n\thelper = "!f() { echo password=CANARY; }; f"\n',
    "a user": b'[credential "https://h"]\n\tusername = CANARY\n',
    "a mail": b"[sendemail]\n\tsmtpPass = CANARY\n",
    "a comment": b"# password: CANARY\n[core]\n\tx = y\n",
    "a query": b'[remote "o"]\n\turl = https://host/a?access_token=CANARY\n',
    "an alias": b"[alias]\n\tx = !curl -H 'Authorization: Basic CANARY' h\n",
    "no configuration": b"CANARY without a key\n",
    "a long line": b"[core]\n\tx = " + b"a" * 5_000 + b"CANARY\n",
    "Windows lines": b'[remote "o"]\r\n\turl = https://CANARY@host/a.git\r\n',
}


@pytest.mark.parametrize("name", LOGINS)
def test_logins_are_hidden(name):
    assert b"CANARY" not in strip_logins(LOGINS[name])
    assert b"CANARY" in LOGINS[name].replace(b"\\\n", b"")


def test_the_rest_of_a_configuration_stays():
    plain = CONFIG.replace(b"me:%s@", b"") + b"; a comment\n\n[http]\n\tsslVerify\n"
    assert strip_logins(plain) == plain
    assert strip_logins(CONFIG % b"CANARY") == CONFIG.replace(b"me:%s@", b"")


@pytest.mark.timing
def test_a_hostile_configuration_is_read_quickly():
    begun = time.process_time()
    for line in (b"[a" + b" " * 500_000, b"://" * 200_000, b"\\" * 500_000, (b"token" + b" " * 4_000 + b"\n") * 200):
        strip_logins(line)
    assert time.process_time() - begun < 1


PLACES = (".git/config", "sub/.git/modules/x/config", ".git/worktrees/x/config.worktree", "bare/config", ".gitconfig")


@pytest.mark.kernel
@needs_sandbox
@BOTH
async def test_neither_tools_nor_commands_see_logins_of_git(tmp_path, overlays):
    bare = {f"bare/{name}": "" for name in ("HEAD", "objects/x", "refs/x")}
    data = (CONFIG % b"CANARY").decode()
    ws = tree(tmp_path / "ws", {**dict.fromkeys(PLACES, data), **bare, "config": data, ".gitignore": "bare/\n"})
    async with shadowed(ws, state=tmp_path / "state", overlays=overlays) as shadow:
        view = shadow.view({".git/config": data})
        for path in PLACES:
            text = view.read(view.resolve(path))
            assert "CANARY" not in text.text
            assert "host.example/a.git" in text.text
        seen = await shadow.sh("cat " + " ".join(PLACES))
        assert "CANARY" not in seen
        assert "host.example/a.git" in seen
        assert "CANARY" in await shadow.sh("cat config")


def test_a_document_without_a_folder_is_git_s_configuration_too():
    uri = "file:///elsewhere/.git/config"
    view = WorkspaceView([], [DocumentSnapshot(uri, 1, (CONFIG % b"CANARY").decode())])
    assert "CANARY" not in view.read(view.resolve(uri)).text


def test_a_copy_holds_what_git_lists(tmp_path):
    hidden = dict.fromkeys(("b.log", "ig/x", "target/x", ".git/config", ".env", "d/id_rsa"), "")
    folder = tree(tmp_path / "ws", {".gitignore": "ig/\n*.log\ntarget/\n", "a": "a", "run": "r", **hidden})
    (folder / "run").chmod(0o755)
    (folder / "link").symlink_to("/etc/passwd")
    (tmp_path / "copy").mkdir()
    with Root(str(folder)) as root:
        excluded = copy_folder(root, str(tmp_path / "copy"))
    # Builds are made anew, for a build writes into them; what else git ignores is shown as it is.
    assert sorted(excluded) == [".git", "ig"]
    assert {path.name for path in (tmp_path / "copy").rglob("*") if path.is_file()} == {".gitignore", "a", "run"}
    assert (tmp_path / "copy" / "run").stat().st_mode & 0o100


@pytest.mark.parametrize("size", [0, 10_000], ids=["many files", "large files"])
def test_a_copy_has_a_bound_and_an_end(tmp_path, size):
    folder = tree(tmp_path / "ws", {str(number): "x" * size for number in range(20)})
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with Root(str(folder)) as root:
        with pytest.raises(PathRefused, match="too much to copy"):
            copy_folder(root, str(tmp_path / "one"), limit=50_000)
        copy_folder(root, str(tmp_path / "two"), should_stop=lambda: True)
    assert not list((tmp_path / "two").iterdir())
