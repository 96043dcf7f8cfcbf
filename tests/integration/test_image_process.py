"""The image process: decoding and refusals."""

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import PIL.Image
import pytest

from shared.protocol.errors import ProblemKind, RequestRefused
from shared.protocol.request import ChatRequest, Image, Job, Message
from tests.integration.faulty_service import MODULE, FaultyOptions
from worker.images.messages import ImageOptions
from worker.images.service import ImageProcess


def look(*digests: str, tenant: str = "") -> Job:
    images = tuple(Image(param=f"messages[0].content[{part}]", digest=digest) for part, digest in enumerate(digests))
    request = ChatRequest(model="m", messages=(Message(role="user", content="look", images=images),))
    return Job(id="r:0", reply_to="", request=request, tenant=tenant)


def png(width: int, height: int, colour: str = "red") -> bytes:
    file = io.BytesIO()
    PIL.Image.new("RGB", (width, height), colour).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
async def process() -> AsyncIterator[ImageProcess]:
    process = ImageProcess(ImageOptions(file_pixels=400), image_pixels=300)
    yield process
    await process.stop()


async def test_images_are_decoded_in_order(process: ImageProcess) -> None:
    images = await process.decode(look("a", "b", "a"), {"a": png(20, 4), "b": png(6, 6, "blue")})
    assert [(image.width, image.height) for image in images] == [(20, 4), (6, 6), (20, 4)]
    assert images[1].pixels == bytes((0, 0, 255)) * 36


async def test_limits_on_pixels(process: ImageProcess) -> None:
    (alone,) = await process.decode(look("a"), {"a": png(20, 20)})
    assert (alone.width, alone.height) == (17, 17)
    shared = await process.decode(look("a", "a", "a"), {"a": png(20, 20)})
    assert [(image.width, image.height) for image in shared] == [(10, 10)] * 3
    with pytest.raises(RequestRefused, match="has 21 x 20 pixels, and at most 400"):
        await process.decode(look("b"), {"b": png(21, 20)})


async def test_an_image_that_can_not_be_decoded_is_named_and_harms_nobody(process: ImageProcess) -> None:
    bad, good = await asyncio.gather(
        process.decode(look("a", "b"), {"a": png(9, 9), "b": png(9, 9)[:50]}),
        process.decode(look("a"), {"a": png(9, 9)}),
        return_exceptions=True,
    )
    assert isinstance(bad, RequestRefused)
    assert (bad.problem.kind, bad.problem.param) == (ProblemKind.INVALID, "messages[0].content[1]")
    assert bad.problem.message == "The image can't be decoded: the file is truncated or damaged."
    assert not isinstance(good, BaseException)
    assert len(good) == 1


async def test_metadata_of_many_blocks_is_refused(process: ImageProcess) -> None:
    """Each block of a comment becomes an object, so 6 MB would need 250 MB of memory."""
    file = io.BytesIO()
    PIL.Image.new("P", (8, 8)).save(file, "GIF")
    gif = file.getvalue()
    table = gif.index(b"\x2c")
    comment = b"\x21\xfe" + b"\1x" * 3_000_000 + b"\0"
    with pytest.raises(RequestRefused, match="has more than 100000 blocks"):
        await process.decode(look("a"), {"a": gif[:table] + comment + gif[table:]})
    (image,) = await process.decode(look("b"), {"b": gif})
    assert (image.width, image.height) == (8, 8)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (b"hang", "The image takes more than 1 s to decode."),
        (b"crash", "The image can't be decoded: the decoder crashed on it."),
    ],
)
async def test_an_image_that_ends_the_process_is_named(tmp_path: Path, file: bytes, message: str) -> None:
    faulty = ImageProcess(cast(ImageOptions, FaultyOptions(str(tmp_path))), image_pixels=1, deadline=1.0, module=MODULE)
    with pytest.raises(RequestRefused) as refusal:
        await faulty.decode(look("a"), {"a": file})
    problem = refusal.value.problem
    assert (problem.kind, problem.param, problem.message) == (ProblemKind.INVALID, "messages[0].content[0]", message)
    await faulty.stop()


async def test_tenants_do_not_share_decoded_images(process: ImageProcess) -> None:
    """If they did, the second one would get the first one's red image."""
    await process.decode(look("a", tenant="a"), {"a": png(4, 4, "red")})
    (image,) = await process.decode(look("a", tenant="b"), {"a": png(4, 4, "blue")})
    assert image.pixels == bytes((0, 0, 255)) * 16


async def test_without_images_there_is_no_process(process: ImageProcess) -> None:
    assert process.pid is None
