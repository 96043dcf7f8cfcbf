"""The claim and lease protocol: how a job goes from the API to exactly one worker at a time.

Each step is one Lua script, so that it happens as a whole or not at all; the scripts stand beside
this module and say what they take and return. Times inside them come from Redis' own clock.
"""

from shared.queue.emission import LINGER_MS, Emitter, Holding, StaleClaims
from shared.queue.packing import JOB_FUNCTION, JobsTooLarge
from shared.queue.protocol import KEEP_MS, Claim, JobQueue, QueueFull, Route

__all__ = [
    "JOB_FUNCTION",
    "KEEP_MS",
    "LINGER_MS",
    "Claim",
    "Emitter",
    "Holding",
    "JobQueue",
    "JobsTooLarge",
    "QueueFull",
    "Route",
    "StaleClaims",
]
