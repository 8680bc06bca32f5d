"""The images of a prompt: where they come from, in which order, and which are refused before a model is asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.images import image, jpeg, png
from thinklsp.core.errors import ImageRefused, PathRefused, TurnRefused
from thinklsp.core.images import MAX_PROMPT_IMAGES
from thinklsp.engine import ActionRequest, ChatRequest, Reference
from thinklsp.engine.session_claims import SessionClaims
from thinklsp.engine.turn_request import build_user_text, check_images, read_excerpts, read_images
from thinklsp.providers.catalogue import find_model
from thinklsp.sessions.session import Session
from thinklsp.sessions.sqlite_store import MemoryStore
from thinklsp.workspace.paths import Root
from thinklsp.workspace.uri import path_to_uri
from thinklsp.workspace.view import DocumentSnapshot, WorkspaceView

SEES = find_model("anthropic", "claude-opus-5-5")
BLIND = replace(SEES, images=False)


@pytest.fixture
def view(tmp_path: Path) -> Iterator[WorkspaceView]:
    (tmp_path / "shot.png").write_bytes(png())
    (tmp_path / "a.JPEG").write_bytes(jpeg())
    (tmp_path / "a.py").write_text("x = 1\n")
    with Root(str(tmp_path)) as root:
        uri = path_to_uri(str(tmp_path))
        opened = DocumentSnapshot(f"{uri}/shot.png", "text of an editor", 1)
        yield WorkspaceView([root], [opened])


def chat(view: WorkspaceView, *names: str, **how: object) -> ChatRequest:
    references = tuple(map(Reference, names))
    return ChatRequest(prompt="Look.", references=references, view=view, workspace="w", **how)  # type: ignore[arg-type]  # images


def test_files_follow_the_images_of_the_client(view: WorkspaceView) -> None:
    request = chat(view, "shot.png", "a.py", "a.JPEG", images=(image(name="Image 1"),))
    images = read_images(request)
    assert [each.name for each in images] == ["Image 1", "shot.png", "a.JPEG"]
    assert images[1].data == png(), "from the disk, whatever the editor has"
    assert [excerpt.path for excerpt in read_excerpts(request)] == ["a.py"]
    text = build_user_text(request, (), "", images)
    assert text.startswith("Look.")
    assert "- Image 1 (PNG, 2 × 3 pixels" in text


def test_actions_have_no_images(view: WorkspaceView) -> None:
    request = ActionRequest(name="explain", place=Reference("a.py"), title="t", view=view, workspace="w")
    assert read_images(request) == ()


def test_missing_and_foreign_files_are_named(view: WorkspaceView, tmp_path: Path) -> None:
    with pytest.raises(TurnRefused, match=r"none\.png does not exist"):
        read_images(chat(view, "none.png"))
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(PathRefused, match=r"folder\.png"):
        read_images(chat(view, "folder.png"))
    with pytest.raises(PathRefused, match="outside"):
        read_images(chat(view, "/etc/shot.png"))


def test_no_more_files_are_read_than_can_be_sent(view: WorkspaceView) -> None:
    names = ["shot.png"] * MAX_PROMPT_IMAGES + ["none.png"]
    with pytest.raises(TurnRefused, match=r"none\.png"):
        read_images(chat(view, *names))
    with pytest.raises(ImageRefused, match="21 images"):
        read_images(chat(view, "shot.png", *names))


def test_an_unknown_model_may_read_anything() -> None:
    check_images([image()], replace(BLIND, id=""), ())
    with pytest.raises(ImageRefused, match="takes no images"):
        check_images([image()], BLIND, ())
    check_images([], BLIND, ())


@pytest.mark.parametrize(("model", "taken"), [(SEES, 2), (BLIND, 0)], ids=["sees", "blind"])
async def test_queued_images_join_a_turn_that_can_see(view: WorkspaceView, model: object, taken: int) -> None:
    store = MemoryStore()
    claims = SessionClaims(store)
    session = await store.create("w")
    await store.update(session.id, lambda now: Session.add_user_message(now, "Go."))
    claims.claim(session.id, "running")
    with_image = await claims.queue_prompt(chat(view, "shot.png"), session.id, "first")
    await claims.queue_prompt(chat(view), session.id, "second")
    assert [each.name for each in with_image.images] == ["shot.png"]
    assert len(claims.take(session.id, "running", chat(view), model)) == taken  # type: ignore[arg-type]  # a model
    await store.aclose()
