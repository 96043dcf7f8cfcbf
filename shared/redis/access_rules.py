"""Check at start that the store's access rules let it replay its append-only file.

A store replays a transaction, and so every script that writes twice, with the rights of its user ``default``, even
while this user is off. What the user may not write is dropped without an error. Seen on Redis 7.0 to 8.2 and on Valkey
before 9.1.2.
"""

import logging

from arq.connections import ArqRedis
from redis.exceptions import ConnectionError, NoPermissionError, RedisError, TimeoutError

from shared.redis.outage import when_reachable

logger = logging.getLogger(__name__)

_RETRY = 5.0
"""Seconds between attempts while the store is unreachable."""

_REMEDY = (
    "Write 'user default off ~* &* +@all' into its ACL file and run ACL LOAD before it restarts (docs/security.md); "
    "passwordless logins stay refused"
)


async def replay_error(redis: ArqRedis) -> str | None:
    """Return what is wrong with the store's rules for its default user, or that they cannot be seen; None if nothing.

    Raises redis-py's ``ConnectionError`` and ``TimeoutError``, or :class:`OSError`, when the store is unreachable.
    """
    try:
        reply = await redis.execute_command("ACL DRYRUN", "default", "SET", "vinoqueue:rules", "")  # type: ignore[no-untyped-call]
    except NoPermissionError:
        return (
            "This process may not check the store's rules for the user 'default' (its own user lacks +acl|dryrun). If "
            f"they are 'off' alone, the store loses requests when it restarts. {_REMEDY}."
        )
    except (ConnectionError, TimeoutError):
        raise
    except RedisError:
        return None  # a store without these commands has no such rules
    if reply in (b"OK", "OK"):
        return None
    return (
        "The store loses requests when it restarts, because its user 'default' may not write, and it replays its "
        f"append-only file as that user. {_REMEDY}."
    )


async def warn_of_rules(redis: ArqRedis) -> None:
    """Log :func:`replay_error` once, as soon as the store responds."""
    if (error := await when_reachable(lambda: replay_error(redis), _RETRY)) is not None:
        logger.warning("%s", error)
