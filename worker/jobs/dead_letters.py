"""Dead letters: payloads that a worker can't read, kept in the store for inspection."""

import logging

from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.events import Rejected, encode_event
from shared.protocol.queue import Claim, JobQueue
from shared.protocol.version import READABLE

logger = logging.getLogger(__name__)

_RETRY_LATER = 5.0
"""``Retry-After`` in seconds for a job of another version."""


class OtherProtocol(ValueError):
    """A job of a protocol version that this worker does not read."""

    def __init__(self, protocol: int) -> None:
        super().__init__(f"its protocol version is {protocol}, this worker reads {READABLE}")


async def move_to_dead_letters(
    queue: JobQueue, worker: str, claim: Claim, error: Exception, *, reply_to: str = ""
) -> None:
    """Move an unreadable job to the dead letters, so that it is not retried, and end it for its client.

    Does nothing when ``worker`` has lost the lease. ``reply_to`` is the job's replica, if that much can be read. Raises
    :class:`redis.exceptions.RedisError` or :class:`OSError` when the store is unreachable.
    """
    logger.error("unreadable job %s moves to the dead letters: %r", claim.job, error)
    await queue.move_to_dead_letters(worker, claim, encode_event(Rejected(_problem(error))), reply_to=reply_to)


def _problem(error: Exception) -> Problem:
    if isinstance(error, OtherProtocol):
        return Problem(
            kind=ProblemKind.NO_WORKER,
            message="The model is being upgraded: the worker that got this request reads another protocol version. "
            "Please try again later.",
            retry_after=_RETRY_LATER,
        )
    return Problem(
        kind=ProblemKind.LOST, message="The worker can't read this request from the store. Please send it again."
    )
