"""Prompt prefetch: prepares a job's prompt while its claim is in progress, once for all jobs of a request.

A wake-up carries the payload of its job (``shared/protocol/queue/enqueue.lua``). Preparing a prompt takes longer than
claiming a job, so the two run in parallel.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from shared.protocol.request import Job
from worker.engine.interface import PlacedImage
from worker.images.interface import DecodedImage
from worker.prompt.interface import Prepared
from worker.prompt.process import PromptProcess

MAX_PREFETCHED = 8
"""Maximum number of prompts being prefetched. The prompt process handles one at a time; more would only queue."""

_MAX_SHARED = 4
"""Number of prompts kept for further jobs of the same request."""

_PATIENCE = 1.0
"""Seconds after which a job that was not claimed is assumed to run on another worker."""

LoadImages = Callable[[Job], Awaitable[Sequence[DecodedImage]]]
"""Returns the decoded images of a job's request, in order. Raises :class:`RequestRefused`."""


class PromptPrefetcher:
    """Prepares each request's prompt once: ahead of the claim, or on demand."""

    def __init__(self, process: PromptProcess, load_images: LoadImages, *, patience: float = _PATIENCE) -> None:
        """A prefetched prompt that is not used within ``patience`` seconds is cancelled."""
        self._process = process
        self._load_images = load_images
        self._patience = patience
        self._prefetched: dict[str, tuple[asyncio.Future[Prepared], float]] = {}
        """Prefetched prompts that are not used yet, with their start on the event loop's clock; oldest first."""
        self._shared: OrderedDict[str, asyncio.Future[Prepared]] = OrderedDict()
        """Prompts of requests with several jobs, least recently used first."""

    def prefetch(self, job: Job) -> None:
        """Start preparing the prompt of ``job``, unless too many are being prefetched.

        Its images are loaded only by the worker that claims the job.
        """
        now = asyncio.get_running_loop().time()
        self._expire(now - self._patience)
        name = job.shared_request or job.id
        if name not in self._prefetched and name not in self._shared and len(self._prefetched) < MAX_PREFETCHED:
            self._prefetched[name] = self._process.call(job.request, job.tenant), now

    async def get(self, job: Job) -> Prepared:
        """Return the prompt of ``job``, prefetched or not.

        Raises :class:`RequestRefused`, and :class:`~worker.processes.call_process.ServiceUnavailable`.
        """
        shared = job.shared_request
        reply = self._shared.pop(shared, None)
        if reply is None:
            prefetched = self._prefetched.pop(shared or job.id, None)
            reply = prefetched[0] if prefetched else self._process.call(job.request, job.tenant)
            if job.request.tokenization is None and job.request.images:
                reply = self._with_images(job, reply)
        if not shared:
            return await reply
        self._shared[shared] = reply
        if len(self._shared) > _MAX_SHARED:
            self._shared.popitem(last=False)
        # Shielded: cancelling one job must not cancel the prompt for the others.
        return await asyncio.shield(reply)

    def _with_images(self, job: Job, reply: asyncio.Future[Prepared]) -> asyncio.Future[Prepared]:
        """Return the future ``reply`` with the decoded images of the request of ``job``."""
        complete = asyncio.create_task(self._add_images(job, reply))
        # Mark the exception as retrieved: a job that no longer waits is not an error to log.
        complete.add_done_callback(lambda done: done.cancelled() or done.exception())
        return complete

    async def _add_images(self, job: Job, reply: asyncio.Future[Prepared]) -> Prepared:
        prompt = await reply
        images = await self._load_images(job)
        placed = ((images[number], at) for number, at in prompt.places)
        return msgspec.structs.replace(
            prompt, images=tuple(PlacedImage(at, image.width, image.height, image.pixels) for image, at in placed)
        )

    def _expire(self, before: float) -> None:
        """Cancel unused prompts that were started before the time ``before``."""
        for job, (reply, since) in list(self._prefetched.items()):
            if since >= before:
                return
            del self._prefetched[job]
            reply.cancel()
