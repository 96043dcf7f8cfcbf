"""The job queue: claims and leases, by which exactly one worker at a time holds a job.

Each step is one Lua script and therefore atomic. The scripts are in this package; their headers document arguments and
replies. All times are the store's own.
"""

from shared.protocol.queue.emitter import Emitter, Lease, StaleClaims
from shared.protocol.queue.packing import JOB_FUNCTION, JobsTooLarge
from shared.protocol.queue.protocol import (
    EQUAL,
    RESERVED_MS,
    Claim,
    FullBy,
    JobQueue,
    QueueFull,
    Route,
    Weights,
)

__all__ = [
    "EQUAL",
    "JOB_FUNCTION",
    "RESERVED_MS",
    "Claim",
    "Emitter",
    "FullBy",
    "JobQueue",
    "JobsTooLarge",
    "Lease",
    "QueueFull",
    "Route",
    "StaleClaims",
    "Weights",
]
