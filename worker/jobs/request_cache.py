"""What the jobs of one request share: the request, its images and its prompt, each read or prepared once."""

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.queue import JobQueue
from shared.protocol.request import ChatRequest, Job, QueuedJob
from shared.redis.outage import when_reachable
from worker.engine.protocol import PlacedImage
from worker.images.messages import DecodedImage
from worker.images.service import ImageProcess
from worker.prompt.messages import Prepared
from worker.prompt.service import PromptProcess

_CACHED = 4
"""Requests kept while this worker has jobs, for further jobs of the same request."""

_RETRY = 0.1
"""Seconds between two reads while the store is unreachable."""

_Value = TypeVar("_Value")


class RequestGone(Exception):
    """The shared request of a job is not in the store any more."""


@dataclass(slots=True)
class _Shared:
    request: asyncio.Task[ChatRequest] | None = None
    prompt: asyncio.Task[Prepared] | None = None


class RequestCache:
    """Completes claimed jobs, and prepares their prompts. Requests with several jobs are cached, the latest ones."""

    def __init__(
        self,
        queue: JobQueue,
        image_files: JobQueue,
        prompts: PromptProcess,
        images: ImageProcess,
    ) -> None:
        """Requests are read from ``queue``, and their images from ``image_files``, which has another connection."""
        self._queue = queue
        self._image_files = image_files
        self._prompts = prompts
        self._images = images
        self._by_id: OrderedDict[str, _Shared] = OrderedDict()

    async def complete(self, queued: QueuedJob) -> Job:
        """Return a job with its request. Waits while the store is unreachable.

        Raises :class:`RequestGone`, and :class:`msgspec.DecodeError` for invalid bytes.
        """
        request = queued.inline_request()
        if request is None:
            name = queued.id.rpartition(":")[0]
            shared = self._entry(name)
            shared.request = shared.request or _start(self._read(name), f"request {name}")
            # Shielded: cancelling one job must not cancel the request for the others.
            request = await asyncio.shield(shared.request)
        return queued.job(request)

    async def prompt(self, job: Job) -> Prepared:
        """Return the prompt of ``job`` with the decoded images of its request.

        Raises :class:`RequestRefused`, and :class:`~worker.processes.call_process.ServiceUnavailable`.
        """
        name = job.shared_request
        if not name:
            return await self._prepare(job)
        shared = self._entry(name)
        shared.prompt = shared.prompt or _start(self._prepare(job), f"prompt of {name}")
        return await asyncio.shield(shared.prompt)

    def clear(self) -> None:
        """Forget all requests: this worker has no jobs."""
        for shared in self._by_id.values():
            for task in (shared.request, shared.prompt):
                if task is not None:
                    task.cancel()
        self._by_id.clear()

    def _entry(self, name: str) -> _Shared:
        """Return what the jobs of the request ``name`` share."""
        shared = self._by_id.setdefault(name, _Shared())
        self._by_id.move_to_end(name)
        if len(self._by_id) > _CACHED:
            self._by_id.popitem(last=False)
        return shared

    async def _read(self, name: str) -> ChatRequest:
        request = await when_reachable(lambda: self._queue.shared_request(name), _RETRY)
        if request is None:
            raise RequestGone(f"request {name} is not in the store")
        return request

    async def _prepare(self, job: Job) -> Prepared:
        prompt = await self._prompts.call(job.request, job.tenant)
        if not job.request.images:
            return prompt
        images = await self._decode_images(job)
        placed = ((images[number], at) for number, at in prompt.places)
        return msgspec.structs.replace(
            prompt, images=tuple(PlacedImage(at, image.width, image.height, image.pixels) for image, at in placed)
        )

    async def _decode_images(self, job: Job) -> list[DecodedImage]:
        params = {image.digest: image.param for image in reversed(job.request.images)}
        digests = list(params)
        stored = await when_reachable(lambda: self._image_files.images(job.shared_request, digests), _RETRY)
        files = {}
        for digest, file in zip(digests, stored, strict=True):
            if file is None:
                raise refuse(
                    ProblemKind.LOST,
                    "The image is not in the store behind this service any more. Please send the request again.",
                    param=params[digest],
                )
            files[digest] = file
        return list(await self._images.decode(job, files))


def _start(work: Coroutine[Any, Any, _Value], name: str) -> asyncio.Task[_Value]:
    task = asyncio.create_task(work, name=name)
    # Mark the exception as retrieved: a job that no longer waits is not an error to log.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task
