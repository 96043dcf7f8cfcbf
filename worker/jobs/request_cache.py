"""What the jobs of one request share: the request, its images and its prompt, each read or prepared once."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
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
"""Requests, and their prompts, kept while this worker has jobs, for further jobs of the same request."""

_RETRY = 0.1
"""Seconds between two reads while the store is unreachable."""

_Value = TypeVar("_Value")


class RequestGone(Exception):
    """The shared request of a job is not in the store any more."""


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
        self._read_by_id: OrderedDict[str, asyncio.Task[ChatRequest]] = OrderedDict()
        self._prepared_by_id: OrderedDict[str, asyncio.Task[Prepared]] = OrderedDict()

    async def complete(self, queued: QueuedJob) -> Job:
        """Return a job with its request. Waits while the store is unreachable.

        Raises :class:`RequestGone`, and :class:`msgspec.DecodeError` for invalid bytes.
        """
        request = queued.inline_request()
        if request is None:
            name = queued.id.rpartition(":")[0]
            request = await _once(self._read_by_id, name, lambda: self._read(name))
        return queued.job(request)

    async def prompt(self, job: Job) -> Prepared:
        """Return the prompt of ``job`` with the decoded images of its request.

        Raises :class:`RequestRefused`, and :class:`~worker.processes.call_process.ServiceUnavailable`.
        """
        if not (name := job.shared_request):
            return await self._prepare(job)
        return await _once(self._prepared_by_id, name, lambda: self._prepare(job))

    def clear(self) -> None:
        """Forget all requests: this worker has no jobs."""
        for tasks in (self._read_by_id, self._prepared_by_id):
            for task in tasks.values():
                task.cancel()
            tasks.clear()

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


async def _once(
    tasks: OrderedDict[str, asyncio.Task[_Value]], name: str, work: Callable[[], Coroutine[Any, Any, _Value]]
) -> _Value:
    """Return the result of ``work``, which is done once for all jobs of the request ``name``."""
    if name not in tasks:
        tasks[name] = asyncio.create_task(work(), name=f"request {name}")
        # Mark the exception as retrieved: a job that no longer waits is not an error to log.
        tasks[name].add_done_callback(lambda done: done.cancelled() or done.exception())
    tasks.move_to_end(name)
    if len(tasks) > _CACHED:
        tasks.popitem(last=False)
    # Shielded: cancelling one job must not cancel the work for the others.
    return await asyncio.shield(tasks[name])
