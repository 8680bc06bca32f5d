"""The gate against hostile names, links and special files; and what its operations do to honest ones."""

import os
import resource
import socket
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.shadowing import tree
from tests.support.sizes import examples
from thinklsp.core.errors import PathRefused
from thinklsp.workspace.paths import MAX_EDIT_BYTES, MAX_READ_BYTES, Root
from thinklsp.workspace.uri import RelPath

CANARY = b"outside-canary"


@pytest.fixture
def farm(tmp_path, monkeypatch):
    """A workspace full of ways out, and the canary outside that none of them may reach."""
    outside, ws = tmp_path / "ws-evil", tmp_path / "ws"
    tree(outside, {"secret.txt": CANARY, "sub/secret.txt": CANARY})
    tree(ws, {"plain.txt": "plain", "dir/deep/x.txt": "deep"})
    (ws / "a").mkdir()
    links = {
        "abs_file": outside / "secret.txt", "rel_file": "../ws-evil/secret.txt", "abs_dir": outside,
        "rel_dir": "../ws-evil", "up": "..", "root": "/", "self": ".", "loop": "loop", "inner_file": "plain.txt",
        "inner_dir": "dir", "dangling": "nowhere", "proc": "/proc/self/root", "fd": "/proc/self/fd",
        "dir/out": "../../ws-evil", "dir/deep/out": outside / "sub", "a/b": "../../ws-evil/sub",
        "chain1": "chain2", "chain2": "../ws-evil/secret.txt",
        "dev": "/dev/zero", "trailing": "../ws-evil/", "double": "..//ws-evil//secret.txt",
    }  # fmt: skip
    for name, target in links.items():
        (ws / name).symlink_to(target)
    os.link(outside / "secret.txt", ws / "hard.txt")
    os.mkfifo(ws / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        # The path of a socket may be no longer than about a hundred bytes.
        monkeypatch.chdir(ws)
        listener.bind("socket")
    return ws, list(links)


def reach(root, parts):
    """What the gate gives, by any operation that reads."""
    try:
        path = RelPath.build(parts)
    except PathRefused:
        return None
    found = []
    for operation in (root.read, root.list, root.stat):
        try:
            found.append(operation(path))
        except PathRefused as refused:
            found.append(str(refused))
    return found


def refuse(sentence, operation, *arguments, **options):
    with pytest.raises(PathRefused, match=sentence):
        operation(*arguments, **options)


def test_no_link_leads_anywhere(farm):
    ws, links = farm
    tails = ((), ("secret.txt",), ("sub", "secret.txt"), ("x.txt",))
    shapes = [(*link.split("/"), *tail) for link in links for tail in tails]
    with Root(str(ws)) as root:
        for shape in shapes:
            read, listed, _ = reach(root, shape)
            assert read is None or isinstance(read, str), shape
            assert listed is None or isinstance(listed, str), shape
        listing = root.list(RelPath.build(()))
        assert listing.files == ("hard.txt", "plain.txt")
        assert listing.directories == ("a", "dir")


def test_no_link_is_written_through(farm):
    ws, links = farm
    with Root(str(ws)) as root:
        for link in links:
            path = RelPath.build(tuple(link.split("/")))
            attempts = (
                lambda path=path: root.replace(path, b"x"),
                lambda path=path: root.create(path, b"x"),
                lambda path=path: root.create(path.join("new.txt"), b"x"),
                lambda path=path: root.delete(path),
                lambda path=path: root.rename(RelPath.build(("plain.txt",)), path),
                lambda path=path: root.rename(path, RelPath.build(("fresh.txt",))),
            )
            for attempt in attempts:
                refuse(None, attempt)
        for name in ("hard.txt", "fifo", "socket", "dir"):
            for operation in (lambda p: root.replace(p, b"x"), root.delete, lambda p: root.create(p, b"x")):
                refuse(None, operation, RelPath.build((name,)))
    assert (ws.parent / "ws-evil" / "secret.txt").read_bytes() == CANARY
    assert sorted(os.listdir(ws.parent / "ws-evil")) == ["secret.txt", "sub"]
    assert (ws / "plain.txt").read_bytes() == b"plain"


@pytest.mark.parametrize("name", ["fifo", "socket", "dir"])
def test_special_files_are_refused_without_waiting(farm, name):
    with Root(str(farm[0])) as root, pytest.raises(PathRefused, match=r"regular file|folder"):
        root.read(RelPath.build((name,)))


components = st.one_of(
    st.sampled_from(["..", ".", "", "ws-evil", "secret.txt", "up", "abs_dir"]),
    st.sampled_from(["rel_dir", "root", "dir", "deep", "self"]),
    st.sampled_from(["a/../../ws-evil", "/etc", "a\0b", "..\\", "%2e%2e", "....", "\u2025", "x" * 300, "\udc80"]),
    st.text(max_size=8),
)


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(components, max_size=6))
def test_no_components_reach_the_canary(farm, parts):
    with Root(str(farm[0])) as root:
        found = reach(root, tuple(parts))
    if found is not None and tuple(parts) != ("hard.txt",):
        assert found[0] != CANARY
        listing = found[1]
        assert not hasattr(listing, "files") or "secret.txt" not in listing.files


def test_what_no_operation_takes_is_refused_with_a_sentence(tmp_path):
    (tmp_path / "file").write_text("x")
    with Root(str(tmp_path)) as root:
        here, secret = RelPath.build(()), RelPath.build((".env",))
        for operation, path, sentence in (
            (root.read, secret, "may contain secrets"),
            (root.check_writable, secret, "may contain secrets"),
            (root.read, here, "is not a file"),
            (root.check_writable, here, "is not a file"),
        ):
            refuse(sentence, operation, path)
    refuse("does not exist", Root, str(tmp_path / "missing"))
    refuse("is not a folder", Root, str(tmp_path / "file"))


def test_a_disk_that_takes_no_more_keeps_what_was_there(tmp_path):
    """The system's limit for one file stands for a full disk."""
    (tmp_path / "old").write_bytes(b"old")
    old, new = RelPath.build(("old",)), RelPath.build(("new",))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Root(str(tmp_path)) as root:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        try:
            for operation, path in ((root.create, new), (root.replace, old)):
                refuse("cannot be used", operation, path, b"x" * 200_000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"old": b"old"}


@pytest.mark.parametrize("part", ["", ".", "..", "a/b", "a\0b", "half\ud83d", "x" * 256, "é" * 128])
def test_what_is_no_name_is_no_component(part):
    refuse(None, RelPath.build, ("a", part))


def test_sizes_are_bounded(tmp_path):
    (tmp_path / "big").write_bytes(b"x" * (MAX_READ_BYTES + 1))
    (tmp_path / "fits").write_bytes(b"x" * MAX_READ_BYTES)
    with Root(str(tmp_path)) as root:
        refuse("larger than 5.2 MB", root.read, RelPath.build(("big",)))
        assert len(root.read(RelPath.build(("fits",)))) == MAX_READ_BYTES
        refuse("larger than 1 MB", root.create, RelPath.build(("new", "file")), b"x" * (MAX_EDIT_BYTES + 1))
    assert sorted(os.listdir(tmp_path)) == ["big", "fits"]


@pytest.fixture
def one_and_two(tmp_path):
    tree(tmp_path, {"one/f": "one", "two/f": "two"})


def test_a_linked_root_is_resolved_once(tmp_path, one_and_two):
    (tmp_path / "link").symlink_to("one")
    with Root(str(tmp_path / "link")) as root:
        (tmp_path / "link").unlink()
        (tmp_path / "link").symlink_to("two")
        assert root.read(RelPath.build(("f",))) == b"one"
        (tmp_path / "one").rename(tmp_path / "moved")
        (tmp_path / "two").rename(tmp_path / "one")
        assert root.read(RelPath.build(("f",))) == b"one"


@pytest.mark.parametrize("instead", ["a link", "another folder", "nothing"])
def test_nothing_is_changed_in_a_folder_that_was_replaced(tmp_path, instead, one_and_two):
    with Root(str(tmp_path / "one")) as root:
        root.check_writable(RelPath.build(("f",)))
        (tmp_path / "one").rename(tmp_path / "moved")
        if instead == "a link":
            (tmp_path / "one").symlink_to("two")
        elif instead == "another folder":
            (tmp_path / "two").rename(tmp_path / "one")
        refuse("moved or replaced", root.check_writable, RelPath.build(("f",)))


def test_listings_at_one_time_are_whole(tmp_path):
    """Of the root, too: descriptors of one opening share the place up to which a folder has been read."""
    names = tuple(sorted(f"{number}.txt" for number in range(3000)))
    tree(tmp_path, {f"{folder}{name}": "" for folder in ("", "below/") for name in names})
    with Root(str(tmp_path)) as root, ThreadPoolExecutor(4) as threads:
        for parts in ((), ("below",)):
            found = threads.map(root.list, [RelPath.build(parts)] * 40)
            assert {listing.files for listing in found} == {names}


def test_a_closed_root_refuses_everything(tmp_path):
    (tmp_path / "f").write_text("x")
    root = Root(str(tmp_path))
    root.close()
    root.close()
    for operation in (root.read, root.list, root.stat, root.delete):
        refuse("closed", operation, RelPath.build(("f",)))


@pytest.mark.parametrize("where", ["/", "~", "~/.."])
def test_the_home_folder_and_what_holds_it_need_consent(tmp_path, monkeypatch, where):
    home = tmp_path / "users" / "me"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    path = os.path.expanduser(where)
    refuse("home folder", Root, path)
    Root(path, allow_wide=True).close()
    (home / "project").mkdir()
    Root(str(home / "project")).close()


def test_create_replace_rename_delete_do_what_they_say(tmp_path):
    with Root(str(tmp_path)) as root:
        file, moved = RelPath.build(("new", "dir", "f.sh")), RelPath.build(("else", "g.sh"))
        root.create(file, b"one")
        refuse("already exists", root.create, file, b"two")
        path = tmp_path / "new" / "dir" / "f.sh"
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask()
        path.chmod(0o751)
        refuse("changed on disk", root.replace, file, b"three", expected=b"other")
        root.replace(file, b"three", expected=b"one")
        assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"three", 0o751)
        path.chmod(0o444)
        refuse("is read-only", root.replace, file, b"four", expected=b"three")
        root.create(moved, b"in the way")
        refuse("already exists", root.rename, file, moved)
        root.delete(moved)
        refuse("does not exist", root.delete, moved)
        root.rename(file, moved)
        refuse("does not exist", root.rename, file, RelPath.build(("third",)))
        assert (tmp_path / "else" / "g.sh").read_bytes() == b"three"
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()) == ["else/g.sh"]


def umask():
    present = os.umask(0)
    os.umask(present)
    return present


@pytest.mark.timing
def test_no_descriptor_is_left_behind(farm):
    before = len(os.listdir("/dev/fd"))
    with Root(str(farm[0])) as root:
        for name in ("plain.txt", "up", "fifo", "no", "dir", "abs_file", "loop"):
            reach(root, (name,))
            reach(root, ("dir", name, "x"))
    assert len(os.listdir("/dev/fd")) == before
