"""The claim and lease protocol: how a job goes from the API to exactly one worker at a time.

Each step is one Lua script, so that it happens as a whole or not at all; the scripts stand beside
this module and say what they take and return. Times inside them come from Redis' own clock.
"""

from shared.protocol.queue.emitter import LINGER_MS, Emitter, Lease, StaleClaims
from shared.protocol.queue.packing import JOB_FUNCTION, JobsTooLarge
from shared.protocol.queue.protocol import RESERVED_MS, Claim, JobQueue, QueueFull, Route

__all__ = [
    "JOB_FUNCTION",
    "LINGER_MS",
    "RESERVED_MS",
    "Claim",
    "Emitter",
    "JobQueue",
    "JobsTooLarge",
    "Lease",
    "QueueFull",
    "Route",
    "StaleClaims",
]
