"""Dead letters: payloads that a worker can't read, kept in the store for inspection."""

import logging

from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.events import Rejected, encode_event, encode_frame, entry_head
from shared.protocol.queue import LINGER_MS, Claim, JobQueue
from shared.protocol.version import READABLE
from shared.redis import keys

logger = logging.getLogger(__name__)

DEAD_LETTER_LIMIT = 100
"""Maximum number of dead letters kept for inspection."""

_RETRY_LATER = 5.0
"""``Retry-After`` in seconds for a job of another version."""


class OtherProtocol(ValueError):
    """A job of a protocol version that this worker does not read."""

    def __init__(self, protocol: int) -> None:
        super().__init__(f"its protocol version is {protocol}, this worker reads {READABLE}")


async def move_to_dead_letters(queue: JobQueue, claim: Claim, error: Exception, *, reply_to: str = "") -> None:
    """Move an unreadable job to the dead letters, so that it is not retried, and end it for its client.

    ``reply_to`` is the job's replica, if that much can be read; any other finds the rejection in the journal.
    Raises :class:`redis.exceptions.RedisError` or :class:`OSError` when the store is unreachable.
    """
    logger.error("unreadable job %s moved to %s: %r", claim.job, keys.DEAD_LETTERS, error)
    rejection = encode_event(Rejected(_problem(error)))
    async with queue.redis.pipeline(transaction=True) as pipe:
        pipe.lpush(keys.DEAD_LETTERS, claim.payload)
        pipe.ltrim(keys.DEAD_LETTERS, 0, DEAD_LETTER_LIMIT - 1)
        pipe.zrem(keys.inflight(queue.model), claim.job)
        pipe.delete(keys.payload(claim.job), keys.state(claim.job), keys.journal(claim.job))
        pipe.rpush(keys.journal(claim.job), rejection)
        pipe.pexpire(keys.journal(claim.job), LINGER_MS)
        if reply_to:
            frame = encode_frame((entry_head(claim.job, claim.attempt), rejection))
            pipe.publish(keys.replica_channel(reply_to), frame)
        # The other jobs of an unreadable shared request can't run either.
        pipe.delete(keys.request(claim.job.rpartition(":")[0]))
        replies = await pipe.execute(raise_on_error=False)
    for reply in replies:
        if isinstance(reply, Exception):
            logger.error("dead letter of job %s is incomplete: %s", claim.job, reply)


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
