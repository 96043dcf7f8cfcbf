"""A prompt process and an image process that the test replies for, and a worker's request cache on top of them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import cast

from shared.protocol.queue import JobQueue
from shared.protocol.request import ChatRequest, Job
from worker.images.messages import DecodedImage
from worker.images.service import ImageProcess
from worker.jobs.request_cache import RequestCache
from worker.prompt.messages import Prepared
from worker.prompt.service import PromptProcess

Decode = Callable[[Job, Mapping[str, bytes]], Awaitable[Sequence[DecodedImage]]]


class Maker:
    """A prompt process whose calls are recorded, and replied to by the test."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.replies: list[asyncio.Future[Prepared]] = []

    def call(self, request: ChatRequest, tenant: str) -> asyncio.Future[Prepared]:
        reply: asyncio.Future[Prepared] = asyncio.get_running_loop().create_future()
        self.asked.append(request.messages[0].content)
        self.replies.append(reply)
        return reply


class _Images:
    def __init__(self, decode: Decode) -> None:
        self.decode = decode


async def _no_images(job: Job, files: Mapping[str, bytes]) -> Sequence[DecodedImage]:
    raise AssertionError("there are no images")


def requests_of(queue: JobQueue | None = None, prompts: object = None, decode: Decode = _no_images) -> RequestCache:
    """A request cache that reads from ``queue``; without one, requests must be in their jobs."""
    store = cast(JobQueue, queue)
    images = cast(ImageProcess, _Images(decode))
    return RequestCache(store, store, cast(PromptProcess, prompts or Maker()), images)
