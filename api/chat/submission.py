"""Submission: splits a request into jobs and queues all of them or none."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from redis.exceptions import RedisError

from api.chat.choices import jobs_per_prompt, needs_logprobs, parts_of
from api.chat.queues import JobQueues
from api.chat.stream import ResponseStream
from api.chat.streams import OpenStreams
from api.models.directory import Directory
from api.records.errors import store_unavailable
from shared.protocol.cost import LARGEST
from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.queue import EQUAL, JobsTooLarge, QueueFull, Weights
from shared.protocol.request import NO_FORM, ChatRequest, Job, TraceContext
from shared.runtime.settings import ApiSettings

_RETRY_SOON = 1.0
"""``Retry-After`` in seconds when the service rate is unknown, and while this replica is draining."""

_RETRY_BOUNDS = (0.1, 60.0)
"""Minimum and maximum ``Retry-After`` in seconds when the queue is full."""

MAX_MULTIPLIED_BYTES = 32 * 2**20
"""Maximum size of a queued request, multiplied by its choices."""


@dataclass(frozen=True, slots=True)
class Submission:
    """Queues the jobs of admitted requests within the bounds of the queue."""

    queues: JobQueues
    directory: Directory
    streams: OpenStreams
    settings: ApiSettings
    replica: str

    def split(
        self, request: ChatRequest, *, tenant: str = "", team: str = "", trace: TraceContext | None = None
    ) -> list[Job]:
        """Return the jobs of ``request``: one per prompt and choice, each with its own prompt or texts only.

        The jobs of a prompt share one request object; the queue stores it once (see ``packing.py``). So it does for a
        request with images, which are stored with it.

        ``request.model`` must be the model's own name. ``tenant`` and ``team`` are the ids of the API key and its
        team, ``trace`` is the parent of the jobs' spans. Raises :class:`RequestRefused` while the replica shuts down.
        """
        if self.streams.drained:
            raise refuse(
                ProblemKind.SHUTTING_DOWN, "This server is shutting down. Please try again.", retry_after=_RETRY_SOON
            )
        sampling = msgspec.structs.replace(request.sampling, logprobs=needs_logprobs(request))
        request = msgspec.structs.replace(request, sampling=sampling, response=NO_FORM)
        choices = jobs_per_prompt(request)
        jobs: list[Job] = []
        for part in parts_of(request):
            name = uuid.uuid4().hex
            shared = choices > 1 or request.images
            names = [f"{name}:{choice}" for choice in range(choices)] if shared else [name]
            jobs += [
                Job(
                    id=job,
                    reply_to=self.replica,
                    request=part,
                    choice=choice,
                    is_first=not (jobs or choice),
                    tenant=tenant,
                    team=team,
                    trace=trace,
                )
                for choice, job in enumerate(names)
            ]
        return jobs

    async def enqueue(
        self,
        request: ChatRequest,
        jobs: list[Job],
        stream: ResponseStream,
        images: Mapping[str, bytes] | None = None,
        *,
        weights: Weights = EQUAL,
    ) -> None:
        """Queue the ``jobs`` of ``request``, and the files of its ``images`` by digest. Their events arrive in
        ``stream``, which is open. ``weights`` are those of their tenant.

        Raises :class:`RequestRefused` when the queue is full or unavailable.
        """
        limit = self.settings.max_queue if request.tier == "batch" else self._queue_limit(request.model, len(jobs))
        try:
            await self.queues.of(request.model).enqueue(
                jobs,
                limit=limit,
                weights=weights,
                context=self.directory.fleet.context_length(request.model) or LARGEST,
                max_bytes=MAX_MULTIPLIED_BYTES,
                limit_bytes=self.settings.max_queue_bytes,
                images=images,
                max_media_bytes=self.settings.max_media_bytes,
            )
        except JobsTooLarge:
            stream.queueing = "refused"
            raise self._too_large(request, len(jobs)) from None
        except QueueFull as full:
            stream.queueing = "refused"
            raise self._full(request, full, images or {}) from None
        except (RedisError, OSError) as error:
            # The script may have run although its reply is lost.
            raise store_unavailable(error) from error
        stream.queueing = "queued"

    def _queue_limit(self, model: str, jobs: int) -> int:
        """Return the queue bound for a request of ``jobs`` jobs: the lower of ``max_queue`` and ``max_wait`` at the
        current service rate. One number lets the enqueue script enforce both."""
        within = self.directory.jobs_within(model, self.settings.max_wait)
        return self.settings.max_queue if within is None else min(self.settings.max_queue, max(jobs, within))

    def _full(self, request: ChatRequest, full: QueueFull, images: Mapping[str, bytes]) -> RequestRefused:
        if full.by == "images" and sum(map(len, images.values())) > self.settings.max_media_bytes:
            return refuse(
                ProblemKind.TOO_LARGE,
                f"The images of this request exceed the maximum of {self.settings.max_media_bytes} bytes together. "
                "Send fewer or smaller ones.",
                param=request.images[0].param,
            )
        why = {
            "jobs": f"The queue of model '{request.model}' is full ({full.ahead} requests wait).",
            "bytes": f"The queue of model '{request.model}' is full: its requests have "
            f"{self.settings.max_queue_bytes} bytes.",
            "tenant_bytes": f"The unfinished requests of this API key fill its share of the queue of model "
            f"'{request.model}'.",
            "images": "The images of other requests leave no room for those of this one.",
        }
        rate = self.directory.service_rate(request.model)
        minimum, maximum = _RETRY_BOUNDS
        return refuse(
            ProblemKind.QUEUE_FULL,
            f"{why[full.by]} Please try again later.",
            retry_after=min(maximum, max(minimum, full.excess / rate if rate else _RETRY_SOON)),
        )

    def _too_large(self, request: ChatRequest, jobs: int) -> RequestRefused:
        maximum = min(MAX_MULTIPLIED_BYTES, self.settings.max_queue_bytes)
        return refuse(
            ProblemKind.TOO_LARGE,
            f"This request asks for {jobs} texts (prompts times choices), and its size times their number exceeds "
            f"the maximum of {maximum} bytes. Shorten the prompt, ask for fewer choices, "
            "or send several requests.",
            param="n" if len(request.prompts) < 2 else "prompt",
        )
