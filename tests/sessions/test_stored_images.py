"""Images in the store: once per session and content, as long as a message contains them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.images import image, png
from tests.support.stored_sessions import USAGE, answer, database, holding, opened, run_sql
from thinklsp.core.images import list_images, parse_image
from thinklsp.core.messages import ImageBlock, Message, TextBlock, ToolResultBlock, UserMessage
from thinklsp.sessions.codec import decode_message, encode_message
from thinklsp.sessions.export import to_json, to_markdown
from thinklsp.sessions.repair import repair_conversation
from thinklsp.sessions.session import Session
from thinklsp.sessions.sqlite_store import SqliteStore

CANARY = "canaryPixels7Qx"
# Bytes behind the end of a PNG belong to the file, but not to the picture.
SHOT = parse_image("shot.png", png() + CANARY.encode() * 3, "image/png")
SUMMARY = UserMessage.from_text("<conversation_summary>\nS\n</conversation_summary>")


def one_turn(session: Session, *images: ImageBlock) -> Session:
    return session.add_user_message("Look.", images=images).add_step(answer("I see."), None, USAGE)


async def with_shot(store: SqliteStore) -> Session:
    session = await store.create("w")
    return await store.update(session.id, lambda now: one_turn(now, SHOT, image("image/jpeg", "a.jpg")))


def contents(folder: Path) -> list[tuple[int, int]]:
    return [
        (count, size) for count, size in run_sql(database(folder), "SELECT count(*), total(length(content)) FROM image")
    ]


async def test_bytes_are_kept_once_for_messages_and_archives(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        session = await with_shot(store)
        before = contents(tmp_path)
        renamed = parse_image("other.png", SHOT.data, "image/png")
        session = await store.update(session.id, lambda now: one_turn(one_turn(now, renamed), SHOT))
        assert contents(tmp_path) == before
        names = [each.name for each in list_images((await store.get(session.id, "w")).conversation)]
        assert names == ["shot.png", "a.jpg", "other.png", "shot.png"]
        short, archive = await store.compact(
            session.id, lambda now: now.replace_conversation((SUMMARY, *now.conversation[-2:])), ""
        )
        assert contents(tmp_path) == before
        assert list_images(short.conversation) == (SHOT,)
        assert (await store.read_archive(session.id, archive)).conversation == session.conversation
        restored = await store.restore_archive(session.id, archive, same)
        assert contents(tmp_path) == before
        assert list_images(restored.conversation)[0].data == SHOT.data


def same(message: Message) -> Message:
    return message


async def test_a_fork_has_copies_and_a_deleted_session_leaves_no_byte(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        session = await with_shot(store)
        fork = await store.fork(session.id, "w")
        assert holding(tmp_path, CANARY)
        await store.delete(session.id, "w")
        assert list_images((await store.get(fork.id, "w")).conversation)[0].data == SHOT.data
    async with opened(tmp_path) as store:
        assert list_images((await store.get(fork.id, "w")).conversation)[0].data == SHOT.data
        assert holding(tmp_path, CANARY)
        await store.delete(fork.id, "w")
        assert holding(tmp_path, CANARY) == []


@pytest.mark.parametrize(
    "damage", ["DELETE FROM image", "UPDATE image SET content = x'00'", "UPDATE image SET content = 7"]
)
async def test_a_damaged_image_costs_only_itself(tmp_path: Path, damage: str) -> None:
    async with opened(tmp_path) as store:
        session = await with_shot(store)
    run_sql(database(tmp_path), damage)
    async with opened(tmp_path) as store:
        damaged = await store.get(session.id, "w")
        notes = [block.text for block in damaged.conversation[0].blocks if isinstance(block, TextBlock)]
        assert [name for name in ("shot.png", "a.jpg") if any(name in note for note in notes)] == ["shot.png", "a.jpg"]
        assert "Look." in notes[-1]
        assert damaged.conversation[1:] == session.conversation[1:]
        assert "damaged" in store.problems[0]
        # The next prompt has the image again.
        await store.update(session.id, lambda now: one_turn(now, SHOT))
    async with opened(tmp_path) as store:
        assert list_images((await store.get(session.id, "w")).conversation)[-1].data == SHOT.data


async def test_images_are_saved_again_with_their_session(tmp_path: Path) -> None:
    """Another program removes the file, so the session of this process is written to a new one."""
    async with opened(tmp_path) as store:
        session = await with_shot(store)
        database(tmp_path).unlink()
        later = await store.update(session.id, one_turn)
    async with opened(tmp_path) as store:
        assert await store.get(session.id, "w") == later


def test_image_of_an_unknown_type_is_damage() -> None:
    row = encode_message(UserMessage((SHOT, TextBlock("Look."))))
    blocks = row.blocks.replace(b"image/png", b"image/xyz")
    assert blocks != row.blocks
    decoded = decode_message(row.role, row.stop_reason, blocks, {}, lambda _: SHOT.data)
    assert (decoded.message, decoded.is_complete) == (None, False)


def test_exports_have_a_placeholder_with_type_and_size() -> None:
    session = one_turn(Session("s", "w"), SHOT)
    for export in (to_markdown(session), to_json(session)):
        assert CANARY not in export
        assert SHOT.data.hex() not in export
    assert f"*[image: shot.png (PNG, 2 × 3 pixels, {len(SHOT.data)} bytes)]*" in to_markdown(session)
    block = json.loads(to_json(session))["messages"][0]["blocks"][0]
    assert block == {
        "kind": "image",
        "name": "shot.png",
        "mediaType": "image/png",
        "sha256": SHOT.digest,
        "length": len(SHOT.data),
        "width": 2,
        "height": 3,
    }


def orders() -> Iterator[tuple[str, UserMessage, list[str]]]:
    result = ToolResultBlock("a", "text")
    yield "stray result", UserMessage((SHOT, result, TextBlock("And?"))), ["text", "image", "text"]
    yield "blank text", UserMessage((SHOT, TextBlock(" "))), ["image"]
    yield "only an image", UserMessage((SHOT,)), ["image"]


@pytest.mark.parametrize(("case", "message", "kinds"), list(orders()))
def test_repair_keeps_images(case: str, message: UserMessage, kinds: list[str]) -> None:
    repaired = repair_conversation((message,)).conversation
    assert [block.kind for block in repaired[0].blocks] == kinds, case
    assert SHOT in repaired[0].blocks
    assert repair_conversation(repaired).findings == ()
