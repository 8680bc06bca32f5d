"""What a written path means, which text wins, and folders beside the workspace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.in_process import in_process
from tests.support.shadowing import tree
from thinklsp.core.errors import PathRefused
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.workspace.documents import open_extra_roots
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.paths import Root
from thinklsp.workspace.protected import ProtectedPaths
from thinklsp.workspace.uri import RelPath, path_to_uri
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceView


@pytest.fixture
def ws(tmp_path):
    (tmp_path / "alias").symlink_to("ws")
    files = {"a.py": "disk a", "src/b.py": "disk b", "src/in/c.py": "disk c", "other/a.py": "other"}
    return tree(tmp_path / "ws", files)


@pytest.fixture
def view(ws):
    """`make(folders, documents)`; roots are closed afterwards."""
    roots = []

    def make(folders=(("", "ws"),), documents=(), **more):
        made = [Root(str(ws / below) if not below.startswith("/") else below, name=name) for below, name in folders]
        roots.extend(made)
        return WorkspaceView(made, documents, **more)

    yield make
    for root in roots:
        root.close()


def doc(uri, text="buffer", version=7):
    return DocumentSnapshot(str(uri), version, text)


def test_a_document_that_comes_after_a_read_is_ignored(view, ws):
    """A turn sees one text of a file, the one that it read first."""
    one = view()
    assert one.read(one.resolve("a.py")).text == "disk a"
    one.add_document(doc((ws / "a.py").as_uri()))
    one.add_document(doc((ws / "src/b.py").as_uri()))
    assert [one.read(one.resolve(path)).text for path in ("a.py", "src/b.py")] == ["disk a", "buffer"]


REFUSED = [
    "", " ", "a\0b", "../x", "src/../../x", "/etc/passwd", "file:///etc/passwd", "file://evil/x", "https://x/y",
    "untitled:Untitled-1", "git:/x", "src/" + "x" * 256, "/".join("d" * 70), "file:///a%2fb",
    "\ud800", "src/\ud800", "/ws/\udfff", "file:///\ud800",
]  # fmt: skip


@pytest.mark.parametrize("written", REFUSED)
def test_what_means_no_file_here_is_refused_with_a_sentence(view, written):
    with pytest.raises(PathRefused, match=r"[.`]$"):
        view().resolve(written)


def test_a_neighbour_with_the_same_beginning_is_outside(view, ws):
    with pytest.raises(PathRefused, match="outside"):
        view().resolve(str(ws) + "-evil/x")
    with pytest.raises(PathRefused):
        view().resolve(str(ws) + "/../ws-evil/x")


def test_several_folders(view, ws):
    many = view([("src", "app"), ("other", "app"), ("", "x/y")])
    assert [folder.name for folder in many.folders] == ["app", "app-2", "x-y"]
    assert many.read(many.resolve("app/b.py")).text == "disk b"
    assert many.read(many.resolve("app-2/a.py")).text == "other"
    for written in ("a.py", "/a.py", "untitled:a.py"):
        with pytest.raises(PathRefused, match=r"The path of a file begins with one of app/, app-2/, x-y/\.$"):
            many.resolve(written)
    # Folders may lie in one another: the innermost has the file.
    for written in (str(ws / "src/b.py"), "x-y/src/b.py"):
        assert many.resolve(written) == many.resolve("app/b.py")
    assert [place.label for place in many.resolve_folder(None)] == ["app", "app-2", "x-y"]


def test_open_documents_win_over_disk(view, ws):
    uris = {name: (ws / name).as_uri() for name in ("a.py", "src/b.py")}
    mixed = view(documents=[doc(uris["a.py"].replace("a.py", "%61.py"))])
    a, b = (mixed.read(mixed.resolve(name)) for name in ("a.py", "src/b.py"))
    assert (a.text, a.source, a.version) == ("buffer", "document", 7)
    assert (b.text, b.source, b.version) == ("disk b", "disk", None)
    assert mixed.resolve("a.py").uri.endswith("%61.py")
    assert [place.label for place in mixed.list_open_places()] == ["a.py"]


def test_documents_without_a_path_here(view, ws):
    documents = [doc("untitled:Untitled-1", "new"), doc("file:///elsewhere/x.py", "far"), doc("git:/a?ref", "old")]
    for folders in ((), (("", "ws"),)):
        some = view(folders, documents)
        for document in documents:
            place = some.resolve(document.uri)
            assert (place.label, place.root, some.read(place).text) == (document.uri, None, document.text)
            if not document.uri.startswith("git:"):
                some.check_writable(place)
            assert view(folders).read(place) is None, "it was closed meanwhile"
        assert some.resolve("/elsewhere/x.py").uri == "file:///elsewhere/x.py"
        with pytest.raises(PathRefused, match="untitled:Untitled-1"):
            some.resolve("untitled:Untitled-2")
    with pytest.raises(PathRefused, match="No folder is open"):
        view((), documents).resolve("a.py")


def test_protected_names_are_protected_while_open_too(view, ws):
    documents = [doc((ws / ".env").as_uri()), doc("file:///home/u/.ssh/config"), doc((ws / ".vscode/x").as_uri())]
    some = view(documents=documents)
    for uri in (documents[0].uri, documents[1].uri):
        with pytest.raises(PathRefused, match="secrets"):
            some.read(some.resolve(uri))
    assert some.read(some.resolve(".vscode/x")).text == "buffer"
    for document in documents:
        with pytest.raises(PathRefused):
            some.check_writable(some.resolve(document.uri))


LINKED = {"file": ("link.py", "a.py", "link.py", "a.py"), "folder": ("lib", "src/in", "lib/c.py", "src/in/c.py")}


@pytest.mark.parametrize("alias", ["", "alias"])
@pytest.mark.parametrize("kind", LINKED)
def test_a_document_behind_a_link_is_its_file(view, ws, kind, alias):
    link, target, name, real = LINKED[kind]
    (ws / link).symlink_to(target)
    above = ws.parent / "alias" if alias else ws
    uri = (above / name).as_uri()
    some = view([(str(above) if alias else "", "ws")], [doc(uri)])
    for written in (name, real, uri, str(ws / name), str(above / real)):
        place = some.resolve(written)
        assert (place.label, place.uri, some.read(place).text) == (real, uri, "buffer")
        some.check_writable(place)
    assert [place.label for place in some.list_open_places()] == [real]
    assert some.find_operation_uri(place) == ((above / real).as_uri() if kind == "file" else uri)


def test_a_closed_file_behind_a_link_is_refused(view, ws):
    (ws / "lib").symlink_to("src/in")
    some = view(documents=[doc((ws / "lib/open.py").as_uri())])
    assert some.resolve("lib/open.py").label == "src/in/open.py"
    for use in (some.read, some.check_writable):
        with pytest.raises(PathRefused, match="link"):
            use(some.resolve("lib/c.py"))


def test_a_link_that_leads_out_is_read_but_not_edited(view, ws):
    (ws.parent / "out.py").write_text("out")
    (ws / "link.py").symlink_to("../out.py")
    some = view(documents=[doc((ws / "link.py").as_uri())])
    place = some.resolve("link.py")
    assert (place.label, some.read(place).text) == ("link.py", "buffer")
    with pytest.raises(PathRefused, match="link"):
        some.check_writable(place)


# The name under which a document is open, and its file -> what tools may do with the document.
NAMES = {
    ("plain.py", ".env"): "nothing", (".env", "plain.py"): "nothing",
    (".vscode/tasks.json", "plain.py"): "read", ("plain.py", ".vscode/tasks.json"): "read",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_rules_hold_for_both_names(view, ws, name):
    link, target = (ws / part for part in name)
    for path in (link, target):
        path.parent.mkdir(exist_ok=True)
    target.write_text("disk")
    link.symlink_to(target)
    some = view(documents=[doc(link.as_uri())])
    place = some.resolve(link.as_uri())
    with pytest.raises(PathRefused, match=r"protected|secrets"):
        some.check_writable(place)
    if NAMES[name] == "read":
        assert some.read(place).text == "buffer"
    else:
        with pytest.raises(PathRefused, match="secrets"):
            some.read(place)


def test_two_documents_of_one_file(view, ws):
    (ws / "link.py").symlink_to("a.py")
    link, own = (ws / "link.py").as_uri(), (ws / "a.py").as_uri()
    for text in ("buffer", "other"):
        some = view(documents=[doc(own), doc(link, text)])
        place = some.resolve("link.py")
        assert (place.uri, some.read(place).text) == (own, "buffer")
        if text == "buffer":
            some.check_writable(place)
            continue
        with pytest.raises(PathRefused, match=r"with different texts: `a.py` and `link.py`"):
            some.check_writable(place)


def test_bytes_that_are_no_text(view, ws):
    (ws / "mark.py").write_bytes(b"\xef\xbb\xbfx")
    (ws / "latin.py").write_bytes(b"caf\xe9")
    some = view()
    marked = some.read(some.resolve("mark.py"))
    assert (marked.text, marked.has_bom) == ("x", True)
    with pytest.raises(PathRefused, match="not UTF-8"):
        some.read(some.resolve("latin.py"))
    opened = view(documents=[doc((ws / "latin.py").as_uri(), "café")])
    assert opened.read(opened.resolve("latin.py")).text == "café"


@pytest.mark.parametrize("start", ["", "link"])
@pytest.mark.parametrize("more", [(), (("other", "two"),)], ids=["one folder", "two"])
def test_what_a_listing_names_lies_where_a_path_says(view, ws, more, start):
    folders = ((str(ws.parent / "alias") if start else "", "ws"), *more)
    names = ["plain.py", "a b%20.py", "é🙂.py", "half\udc80", "a:b", "~x", "(1)#?.py", "line\nend", "-", "x" * 255]
    uris = {name: path_to_uri(str(ws / "src") + "/" + name) for name in ("plain.py", "a b%20.py")}
    some = view(folders, [doc(uris["plain.py"].replace("plain", "%70lain")), doc(uris["a b%20.py"])])
    root = some.folders[0].root
    for parts in ((), ("src",), ("src", "ü in")):
        for named in (names, ["plain.py", "other.py"], []):
            below = some.build_places(some.build_place(root, parts), named)
            assert below == [some.build_place(root, (*parts, name)) for name in named]
            assert [place.path.parts for place in below] == [(*parts, name) for name in named]
    deep = some.build_place(root, ("d",) * 64)
    with pytest.raises(PathRefused, match="deeper"):
        some.build_places(deep, ["x"])


def test_where_a_search_begins(view, ws):
    one, several, none = view(), view((("src", "src"), ("other", "o"))), view((), [doc("untitled:new")])
    for written in (None, "", ".", "./", "/", " "):
        assert [place.label for place in one.resolve_folder(written)] == ["."]
        assert [place.label for place in several.resolve_folder(written)] == ["src", "o"]
        with pytest.raises(PathRefused, match=r"No folder is open\. Open documents: `untitled:new`"):
            none.resolve_folder(written)
    [place] = one.resolve_folder("src")
    assert (place.label, one.find_kind(place), one.list_folder(place).files) == ("src", "directory", ("b.py",))
    [missing] = one.resolve_folder("no")
    assert (one.find_kind(missing), one.list_folder(missing)) == (None, None)
    [document] = none.list_documents()
    assert none.build_places(document, ["a.py"]) == []
    assert (none.find_kind(document), none.list_folder(document), view().find_kind(document)) == ("file", None, None)
    with pytest.raises(PathRefused, match="has been closed"):
        several.build_place(one.folders[0].root, ("src",))


def test_too_deep_document_has_no_path(view, ws):
    deep = (ws / "/".join("d" * 70) / "x.py").as_uri()
    place = view(documents=[doc(deep)]).resolve(deep)
    assert (place.label, place.uri, place.root) == (deep, deep, None)


@contextmanager
def beside(folder: Path, *paths: str, folders: bool = True) -> Iterator[tuple[WorkspaceView, list[str]]]:
    tree(folder, {"ws/a.py": "mine\n", "lib/b.py": "theirs\n", "lib/.env": "SECRET", "other/c": "", "ws/lib/d": "d\n"})
    with ExitStack() as stack:
        root = stack.enter_context(Root(str(folder / "ws")))
        extra, problems = open_extra_roots(paths, [root] if folders else [], ProtectedPaths())
        for each in extra:
            stack.enter_context(each)
        yield WorkspaceView([root] if folders else [], extra=extra), problems


SPELLINGS = ("lib/b.py", "../lib/b.py", "../ws/../lib/b.py", "{}/lib/b.py", "file://{}/lib/b.py")


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_file_beside_the_workspace_is_read_and_never_written(tmp_path: Path, spelling: str) -> None:
    with beside(tmp_path, str(tmp_path / "lib")) as (view, problems):
        place = view.resolve(spelling.format(tmp_path))
        found = view.read(place)
        assert (place.label, found and found.text, problems) == ("lib/b.py", "theirs\n", [])
        overlay = EditOverlay(view)
        for attempt in (lambda: overlay.write(place, "x"), lambda: overlay.delete(place)):
            with pytest.raises(PathRefused, match="may only read"):
                attempt()
        assert place.root is not None
        for change in (place.root.create, place.root.replace):
            with pytest.raises(PathRefused, match="may only read"):
                change(RelPath.build(("new",)), b"x")


def test_the_workspace_comes_first_and_secrets_stay_secret(tmp_path: Path) -> None:
    with beside(tmp_path, str(tmp_path / "lib")) as (view, _):
        view.check_writable(view.resolve("ws/lib/d"))
        assert [place.label for place in view.resolve_folder(None)] == ["ws"]
        with pytest.raises(PathRefused, match="may contain secrets"):
            view.read(view.resolve("lib/.env"))
        for outside in ("../other/c", "../../x", "other/c", str(tmp_path / "other/c")):
            with pytest.raises(PathRefused):
                view.resolve(outside)


def test_extra_root_in_workspace_is_skipped(tmp_path: Path) -> None:
    with beside(tmp_path, str(tmp_path / "ws" / "lib"), str(tmp_path / "missing")) as (view, problems):
        assert view.extra == ()
        assert view.resolve("a.py").label == "a.py"
        assert len(problems) == 1
        assert "does not exist" in problems[0]


async def test_the_editor_s_view_has_them(tmp_path: Path) -> None:
    tree(tmp_path, {"ws/a.py": "x", "lib/b.py": "theirs"})
    async with in_process() as editor:
        await editor.initialize(root=tmp_path / "ws")
        paths = (str(tmp_path / "lib"), str(tmp_path / "missing"))
        snapshots = Snapshots(editor.server.state, extra_roots=paths)
        for _ in range(2):
            view = snapshots.create_view()
            found = view.read(view.resolve("../lib/b.py"))
            assert found is not None
            assert found.text == "theirs"
        present = snapshots.read_state((tmp_path / "lib" / "b.py").as_uri(), snapshots.create_disk_view())
        assert "may only read" in (present.refusal or "")
