"""Images in prompts: accepted files, the messages for rejected files, and hostile headers."""

from __future__ import annotations

import base64
import time
from random import Random

import pytest

from tests.support.images import (
    MAKERS,
    gif,
    image,
    jpeg,
    png,
    webp,
    webp_extended,
    webp_file,
    webp_lossless,
)
from tests.support.sizes import SEED
from thinklsp.core import images
from thinklsp.core.errors import ImageRefused
from thinklsp.core.images import ImageHeader, read_header
from thinklsp.core.messages import AssistantMessage, ImageBlock, ImageType, TextBlock, UserMessage

GOOD: list[tuple[ImageType, bytes]] = [
    ("image/png", png()),
    ("image/png", png(8_000, 1)),
    ("image/png", png() + b"trailing bytes"),
    ("image/jpeg", jpeg()),
    ("image/jpeg", jpeg(frame=0xC2)),
    ("image/jpeg", jpeg() + b"\0" * 9),
    ("image/webp", webp()),
    ("image/webp", webp_lossless()),
    ("image/webp", webp_extended()),
    ("image/webp", webp_lossless(8_000, 8_000)),
    ("image/gif", gif()),
    ("image/gif", gif().replace(b"GIF89a", b"GIF87a")),
]
BAD: dict[str, tuple[str, bytes, str]] = {
    "no bytes": ("image/png", b"", "is empty"),
    "text": ("image/png", b"hello", "is not an image"),
    "html": ("image/gif", b"<html>" * 99, "is not an image"),
    "svg": ("image/svg+xml", b"<svg/>", "cannot be sent"),
    "heic": ("image/heic", b"\0\0\0\x18ftypheic", "cannot be sent"),
    "no type": ("", png(), "cannot be sent"),
    "jpeg as png": ("image/png", jpeg(), "is a JPEG file, not image/png"),
    "png as jpeg": ("image/jpeg", png(), "is a PNG file, not image/jpeg"),
    "gif as webp": ("image/webp", gif(), "is a GIF file, not image/webp"),
    "webp as gif": ("image/gif", webp(), "is a WebP file, not image/gif"),
    "too wide": ("image/png", png(8_001, 1), "8,001 × 1 pixels"),
    "too high": ("image/jpeg", jpeg(1, 65_535), "1 × 65,535 pixels"),
    "huge png": ("image/png", png(0xFFFFFFFF, 0xFFFFFFFF), "pixels"),
    "huge webp": ("image/webp", webp_extended(1 << 24, 1 << 24), "pixels"),
    "huge gif": ("image/gif", gif(65_535, 65_535), "pixels"),
    "no width": ("image/png", png(0, 3), "damaged"),
    "no height": ("image/jpeg", jpeg(2, 0), "damaged"),
    "too many bytes": ("image/png", png() + bytes(images.MAX_IMAGE_BYTES), "larger than 5 MB"),
    "animated gif": ("image/gif", gif(pictures=2), "is an animation"),
    "animated webp": ("image/webp", webp_extended(flags=0x02), "is an animation"),
    "riff without picture": ("image/webp", webp_file((b"ALPH", bytes(20))), "damaged"),
    "jpeg without scan": ("image/jpeg", jpeg()[: jpeg().index(b"\xff\xda")] + b"\xff\xd9", "damaged"),
    "jpeg with a segment of no length": ("image/jpeg", b"\xff\xd8\xff\xe0\0\0" + jpeg()[2:], "damaged"),
    **{
        f"half a {kind}": (kind, data[: len(data) // 2], "damaged")
        for kind, data in (("image/png", png()), ("image/jpeg", jpeg()), ("image/webp", webp()), ("image/gif", gif()))
    },
}


@pytest.mark.parametrize(("media_type", "data"), GOOD)
def test_good_files_are_taken(media_type: ImageType, data: bytes) -> None:
    block = images.parse_image("shot", data, media_type)
    assert (block.media_type, block.data, block.name) == (media_type, data, "shot")
    assert 0 < block.width <= 8_000


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_refused_with_a_sentence(case: str) -> None:
    media_type, data, said = BAD[case]
    with pytest.raises(ImageRefused, match=r"shot\.png") as refused:
        images.parse_image("shot.png", data, media_type)
    assert said in str(refused.value)
    assert str(refused.value).endswith(".")


@pytest.mark.parametrize("media_type", MAKERS)
def test_every_cut_of_a_file_is_refused(media_type: ImageType) -> None:
    """A file without its last byte is incomplete."""
    whole = MAKERS[media_type]()
    taken = []
    for end in range(len(whole)):
        try:
            images.parse_image("shot", whole[:end], media_type)
            taken.append(len(whole) - end)
        except ImageRefused:
            pass
    assert taken == []


def test_headers_of_random_bytes_never_raise_and_end_soon() -> None:
    random = Random(SEED)
    starts = [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"RIFF\0\0\0\0WEBPVP8 ", b"RIFF\0\0\0\0WEBPVP8X", b""]
    samples = [make() for make in (*MAKERS.values(), webp_lossless, webp_extended)]
    for _ in range(3_000):
        if random.random() < 0.5:
            data = random.choice(starts) + random.randbytes(random.randrange(200))
        else:
            changed = bytearray(random.choice(samples))
            for _ in range(random.randrange(1, 6)):
                changed[random.randrange(len(changed))] = random.randrange(256)
            data = bytes(changed[: random.randrange(len(changed) + 1)])
        header = read_header(data)
        assert header is None or isinstance(header, ImageHeader)
        try:
            block = images.parse_image("x", data, "image/png")
        except ImageRefused:
            continue
        assert 0 < block.width <= images.MAX_IMAGE_SIDE
        assert 0 < block.height <= images.MAX_IMAGE_SIDE


HOSTILE = {
    "jpeg of fill bytes": b"\xff\xd8" + b"\xff" * 4_900_000,
    "jpeg of restarts": b"\xff\xd8" + b"\xff\xd0" * 2_400_000,
    "jpeg of empty segments": b"\xff\xd8" + b"\xff\xe0\0\x02" * 1_200_000,
    "gif of extensions": gif()[:19] + b"\x21\xf9\0" * 1_600_000,
    "png without an end": png()[:-12] + bytes(4_900_000),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_of_the_largest_size_are_incomplete(case: str) -> None:
    header = read_header(HOSTILE[case])
    assert header is not None
    assert not header.is_complete


@pytest.mark.timing
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_of_the_largest_size_take_few_steps(case: str) -> None:
    begun = time.thread_time()
    read_header(HOSTILE[case])
    assert time.thread_time() - begun < 0.5


def test_base64_is_checked_before_the_image() -> None:
    text = base64.b64encode(png()).decode()
    assert images.decode_image("Image 1", text, "image/png").data == png()
    for wrong in ("!", text[:-1], f"{text[:8]}\n{text[8:]}", "é" * 8):
        with pytest.raises(ImageRefused, match="Image 1 is not valid base64"):
            images.decode_image("Image 1", wrong, "image/png")
    with pytest.raises(ImageRefused, match="larger than 5 MB"):
        images.decode_image("Image 1", "A" * 7_000_000, "image/png")


def test_numbers_and_sizes_are_limited_per_prompt_and_session() -> None:
    block = image()
    images.check_totals([block] * 20)
    images.check_totals([])
    images.check_totals([], [block] * 99)
    with pytest.raises(ImageRefused, match="21 images; at most 20"):
        images.check_totals([block] * 21)
    with pytest.raises(ImageRefused, match="61 images"):
        images.check_totals([block], [block] * 60)
    large = ImageBlock("image/png", bytes(4_900_000), "0", "large", 9, 9)
    images.check_totals([large], [large])
    with pytest.raises(ImageRefused, match=r"14\.7 MB"):
        images.check_totals([large], [large] * 2)


def test_names_tell_the_type() -> None:
    names = ["a.png", "A.JPG", "b/c.jpeg", "file:///x/y.webp", "z.gif", "png", ".png", "a.svg", "a.png.txt", ""]
    found = [images.find_image_type(name) for name in names]
    assert found == ["image/png", "image/jpeg", "image/jpeg", "image/webp", "image/gif", None, None, None, None, None]


def test_replaced_images_become_the_same_text() -> None:
    shot, cat = image(), image("image/gif", "cat.gif")
    seen = UserMessage((shot, cat, TextBlock("Look.")))
    conversation = (seen, AssistantMessage((TextBlock("I see."),)), UserMessage.from_text("And?"))
    assert images.replace_images(conversation, images.IMAGE_TYPES) is conversation
    bare = images.replace_images(conversation, ())
    assert bare[1:] == conversation[1:]
    assert bare[0] is images.replace_images(conversation, ())[0]
    assert [block.kind for block in bare[0].blocks] == ["text"] * 3
    assert "shot.png (PNG, 2 × 3 pixels" in str(bare[0].blocks[0])
    still = images.replace_images(conversation, ("image/png",))[0]
    assert still.blocks[0] is shot
    assert "cat.gif" in str(still.blocks[1])
    assert images.replace_images(conversation, ())[0].blocks[0] == bare[0].blocks[0]
