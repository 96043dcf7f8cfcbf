"""Encoding of jobs for the queue. A request is encoded once for all of its jobs."""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec
from arq.jobs import serialize_job
from arq.utils import timestamp_ms

from shared.protocol.request import Job, QueuedJob, encode_job, encode_request

JOB_FUNCTION = "chat"
"""Name of the arq function that serves a job."""

MAX_BYTES = 32 * 2**20
"""Default limit of encoded bytes, counting the request once per job."""

_INLINE = 4096
"""Maximum size of a request that is copied into each payload, which saves the worker a read. Larger ones are shared."""

_encode = msgspec.msgpack.Encoder().encode


class JobsTooLarge(Exception):
    """The encoded requests, counted once per job, exceed the limit."""


class PackedJobs(NamedTuple):
    """``payloads`` are arq's job definitions, in order; ``shared`` maps ids to the encoded requests that they omit."""

    payloads: list[bytes]
    shared: dict[str, bytes]


def pack_jobs(jobs: Sequence[Job], max_bytes: int) -> PackedJobs:
    """Encode ``jobs``; jobs of the same request must be adjacent. A request with images is always shared, because its
    images are stored with it.

    Raises :class:`JobsTooLarge` as soon as ``max_bytes`` is exceeded.
    """
    packed = PackedJobs([], {})
    total = 0
    for _, group in groupby(jobs, key=lambda job: id(job.request)):
        own = list(group)
        request = encode_request(own[0].request)
        total += len(request) * len(own)
        if total > max_bytes:
            raise JobsTooLarge
        inline: bytes | None = request
        large = len(own) > 1 and len(request) > _INLINE
        if own[0].shared_request and (large or own[0].request.images):
            packed.shared[own[0].shared_request] = request
            inline = None
        packed.payloads.extend(_payload(QueuedJob.of(job, inline)) for job in own)
    return packed


def _payload(job: QueuedJob) -> bytes:
    return serialize_job(JOB_FUNCTION, (encode_job(job),), {}, None, timestamp_ms(), serializer=_encode)
