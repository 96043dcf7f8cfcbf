"""Dead letters: payloads that no worker can read, kept in the store for inspection."""

import logging

from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.events import Rejected, encode_event
from shared.protocol.queue import LINGER_MS, Claim, JobQueue
from shared.redis import keys

logger = logging.getLogger(__name__)

DEAD_LETTER_LIMIT = 100
"""Maximum number of dead letters kept for inspection."""

_REJECTED = Rejected(
    Problem(kind=ProblemKind.LOST, message="The worker can't read this request from the store. Please send it again.")
)


async def move_to_dead_letters(queue: JobQueue, claim: Claim, error: Exception) -> None:
    """Move an unreadable job to the dead letters, so that it is not retried, and end it for its client.

    Raises :class:`redis.exceptions.RedisError` or :class:`OSError` when the store is unreachable.
    """
    logger.error("unreadable job %s moved to %s: %r", claim.job, keys.DEAD_LETTERS, error)
    async with queue.redis.pipeline(transaction=True) as pipe:
        pipe.lpush(keys.DEAD_LETTERS, claim.payload)
        pipe.ltrim(keys.DEAD_LETTERS, 0, DEAD_LETTER_LIMIT - 1)
        pipe.zrem(keys.inflight(queue.model), claim.job)
        pipe.delete(keys.payload(claim.job), keys.state(claim.job), keys.journal(claim.job))
        # The replica is unknown without the payload; it finds the rejection in the journal.
        pipe.rpush(keys.journal(claim.job), encode_event(_REJECTED))
        pipe.pexpire(keys.journal(claim.job), LINGER_MS)
        # The other jobs of an unreadable shared request can't run either.
        pipe.delete(keys.request(claim.job.rpartition(":")[0]))
        replies = await pipe.execute(raise_on_error=False)
    for reply in replies:
        if isinstance(reply, Exception):
            logger.error("dead letter of job %s is incomplete: %s", claim.job, reply)
