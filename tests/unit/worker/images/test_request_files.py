"""The files of requests' images, as the store returns them."""

from collections.abc import Sequence

import pytest

from shared.protocol.errors import ProblemKind, RequestRefused
from shared.protocol.request import ChatRequest, Image, Job, Message
from worker.images.files import RequestFiles


def look(*digests: str) -> Job:
    images = tuple(Image(param=f"messages[0].content[{part}]", digest=digest) for part, digest in enumerate(digests))
    request = ChatRequest(model="tiny", messages=(Message(role="user", content="look", images=images),))
    return Job(id="r:0", reply_to="api-1", request=request)


async def test_files_are_fetched_once_each() -> None:
    fetched: list[tuple[str, list[str]]] = []

    async def fetch(request: str, digests: Sequence[str]) -> list[bytes | None]:
        fetched.append((request, sorted(digests)))
        return [digest.encode() for digest in digests]

    assert await RequestFiles(fetch).get(look(*"xyx")) == {"x": b"x", "y": b"y"}
    assert fetched == [("r", ["x", "y"])]


async def test_an_image_that_is_not_stored_any_more_is_named() -> None:
    async def fetch(request: str, digests: Sequence[str]) -> list[bytes | None]:
        return [None if digest == "y" else b"file" for digest in digests]

    with pytest.raises(RequestRefused, match="send the request again") as caught:
        await RequestFiles(fetch).get(look("x", "y", "y"))
    assert (caught.value.problem.kind, caught.value.problem.param) == (ProblemKind.LOST, "messages[0].content[1]")


async def test_images_are_waited_for_while_the_store_is_away() -> None:
    attempts = 0

    async def fetch(request: str, digests: Sequence[str]) -> list[bytes | None]:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise ConnectionError
        return [b"file" for _ in digests]

    assert await RequestFiles(fetch).get(look("x")) == {"x": b"file"}
    assert attempts == 3
