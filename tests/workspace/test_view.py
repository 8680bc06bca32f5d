"""What a written path means, and which text wins."""

import pytest

from thinklsp.core.errors import PathRefused
from thinklsp.workspace.paths import Root
from thinklsp.workspace.uri import path_to_uri
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceFolder, WorkspaceView


@pytest.fixture
def ws(tmp_path):
    for name, text in {"a.py": "disk a", "src/b.py": "disk b", "src/in/c.py": "disk c", "other/a.py": "other"}.items():
        (tmp_path / "ws" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "ws" / name).write_text(text)
    (tmp_path / "alias").symlink_to("ws")
    return tmp_path / "ws"


@pytest.fixture
def view(ws):
    """`make(folders, documents)`; roots are closed afterwards."""
    roots = []

    def make(folders=(("", "ws"),), documents=(), **more):
        made = []
        for below, name in folders:
            root = Root(str(ws / below) if not below.startswith("/") else below)
            roots.append(root)
            made.append((WorkspaceFolder(path_to_uri(root.written), name), root))
        return WorkspaceView(made, documents, **more)

    yield make
    for root in roots:
        root.close()


def doc(uri, text="buffer", version=7):
    return DocumentSnapshot(str(uri), version, text)


def test_one_folder(view, ws):
    one = view()
    for written in ("src/b.py", "./src//b.py", str(ws / "src/b.py"), (ws / "src/b.py").as_uri()):
        place = one.resolve(written)
        assert (place.shown, place.uri) == ("src/b.py", (ws / "src/b.py").as_uri())
        assert one.read(place).text == "disk b"
    assert one.read(one.resolve("no.py")) is None


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
    assert [place.shown for place in many.resolve_folder(None)] == ["app", "app-2", "x-y"]


def test_a_folder_reached_through_a_link_is_one_folder(view, ws):
    uri = (ws / "src/b.py").as_uri()
    linked = view([(str(ws.parent / "alias"), "ws")], [doc(uri)])
    assert linked.read(linked.resolve("src/b.py")).text == "buffer"
    assert linked.resolve("src/b.py").uri == uri
    assert linked.resolve("a.py").uri == (ws.parent / "alias/a.py").as_uri()


def test_open_documents_win_over_disk(view, ws):
    uris = {name: (ws / name).as_uri() for name in ("a.py", "src/b.py")}
    mixed = view(documents=[doc(uris["a.py"].replace("a.py", "%61.py"))])
    a, b = (mixed.read(mixed.resolve(name)) for name in ("a.py", "src/b.py"))
    assert (a.text, a.source, a.version) == ("buffer", "document", 7)
    assert (b.text, b.source, b.version) == ("disk b", "disk", None)
    assert mixed.resolve("a.py").uri.endswith("%61.py")
    assert [place.shown for place in mixed.unlike_disk()] == ["a.py"]


def test_disk_is_read_once_and_a_look_in_passing_is_not_kept(view, ws):
    once = view()
    place = once.resolve("a.py")
    assert once.peek(place).text == "disk a"
    (ws / "a.py").write_text("later")
    assert once.read(place).text == "later"
    (ws / "a.py").write_text("too late")
    assert once.read(place).text == once.peek(place).text == "later"


def test_documents_without_a_path_here(view, ws):
    documents = [doc("untitled:Untitled-1", "new"), doc("file:///elsewhere/x.py", "far"), doc("git:/a?ref", "old")]
    for folders in ((), (("", "ws"),)):
        some = view(folders, documents)
        for document in documents:
            place = some.resolve(document.uri)
            assert (place.shown, place.root, some.read(place).text) == (document.uri, None, document.text)
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


def test_a_document_behind_a_link_is_read_but_not_edited(view, ws):
    (ws / "link.py").symlink_to("a.py")
    some = view(documents=[doc((ws / "link.py").as_uri())])
    place = some.resolve("link.py")
    assert some.read(place).text == "buffer"
    with pytest.raises(PathRefused, match="link"):
        some.check_writable(place)


def test_bytes_that_are_no_text(view, ws):
    (ws / "mark.py").write_bytes(b"\xef\xbb\xbfx")
    (ws / "latin.py").write_bytes(b"caf\xe9")
    some = view()
    marked = some.read(some.resolve("mark.py"))
    assert (marked.text, marked.bom) == ("x", True)
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
            below = some.places_below(some.place_in(root, parts), named)
            assert below == [some.place_in(root, (*parts, name)) for name in named]
            assert [place.path.parts for place in below] == [(*parts, name) for name in named]
    deep = some.place_in(root, ("d",) * 64)
    with pytest.raises(PathRefused, match="deeper"):
        some.places_below(deep, ["x"])


def test_a_removed_folder_stops_its_tools(view, ws):
    some = view()
    place = some.resolve("a.py")
    some.folders[0].root.close()
    with pytest.raises(PathRefused, match="closed"):
        some.read(place)
    with pytest.raises(PathRefused, match="closed"):
        some.kind(some.resolve_folder(None)[0])


def test_where_a_search_begins(view, ws):
    one, several, none = view(), view((("src", "src"), ("other", "o"))), view((), [doc("untitled:new")])
    for written in (None, "", ".", "./", "/", " "):
        assert [place.shown for place in one.resolve_folder(written)] == ["."]
        assert [place.shown for place in several.resolve_folder(written)] == ["src", "o"]
        with pytest.raises(PathRefused, match=r"No folder is open\. Open documents: `untitled:new`"):
            none.resolve_folder(written)
    [place] = one.resolve_folder("src")
    assert (place.shown, one.kind(place), one.listing(place).files) == ("src", "directory", ("b.py",))
    [missing] = one.resolve_folder("no")
    assert (one.kind(missing), one.listing(missing)) == (None, None)
    [document] = none.document_places()
    assert none.places_below(document, ["a.py"]) == []
    assert (none.kind(document), none.listing(document), view().kind(document)) == ("file", None, None)
    with pytest.raises(PathRefused, match="has been closed"):
        several.place_in(one.folders[0].root, ("src",))


def test_a_document_opened_through_a_link_from_outside_is_the_file_of_the_folder(tmp_path):
    """What stands in the editor counts, and is what an edit goes to, in the editor's own spelling."""
    (tmp_path / "real" / "sub").mkdir(parents=True)
    (tmp_path / "real" / "sub" / "f.py").write_text("on disk")
    (tmp_path / "real" / "loop").symlink_to("loop")
    for name, target in (("link", "real"), ("deep", "link/sub"), ("away", "/usr")):
        (tmp_path / name).symlink_to(target)
    real = tmp_path / "real"
    for spelled in (tmp_path / "link/sub/f.py", tmp_path / "deep/f.py"):
        uri = spelled.as_uri()
        others = [DocumentSnapshot(f"file:///{name}", 1, "x") for name in ("usr/x", "away/x", "%00", "loop/x")]
        with Root(str(real)) as root:
            view = WorkspaceView(
                [(WorkspaceFolder(real.as_uri(), ""), root)], [DocumentSnapshot(uri, 7, "typed"), *others]
            )
            for written in ("sub/f.py", uri, str(spelled), (real / "sub/f.py").as_uri()):
                place = view.resolve(written)
                assert (place.shown, place.uri, view.read(place).version) == ("sub/f.py", uri, 7)
            assert [place.shown for place in view.unlike_disk()] == ["sub/f.py"]
            # Where it is open under its own name, too, that is the one which is meant.
            own = DocumentSnapshot((real / "sub/f.py").as_uri(), 3, "its own")
            for order in ([own, DocumentSnapshot(uri, 7, "typed")], [DocumentSnapshot(uri, 7, "typed"), own]):
                view = WorkspaceView([(WorkspaceFolder(real.as_uri(), ""), root)], order)
                assert {view.read(view.resolve(written)).text for written in ("sub/f.py", own.uri, uri)} == {"its own"}


def test_a_document_that_lies_deeper_than_paths_may_go_is_one_without_a_path(view, ws):
    deep = (ws / "/".join("d" * 70) / "x.py").as_uri()
    place = view(documents=[doc(deep)]).resolve(deep)
    assert (place.shown, place.uri, place.root) == (deep, deep, None)
