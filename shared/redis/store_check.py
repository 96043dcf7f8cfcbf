"""Checks of the store's own settings, again and again: they can be changed, and another server may respond.

It must evict no keys, and not be a cluster, where scripts may not use keys of several slots. Its access rules must let
it replay its append-only file. A store replays a transaction, and so every script that writes twice, with the rights of
its user ``default``, even while this user is off. What the user may not write is dropped without an error. Seen on
Redis 7.0 to 8.2 and on Valkey before 9.1.2.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn

from redis.asyncio import Redis
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.exceptions import ConnectionError, NoPermissionError, RedisError, TimeoutError

logger = logging.getLogger(__name__)

_INTERVAL = 10.0
"""Seconds between two checks."""

_REMEDY = (
    "Write 'user default off ~* &* +@all' into its ACL file and run ACL LOAD before it restarts (docs/security.md); "
    "passwordless logins stay refused"
)


async def store_problems(redis: Redis) -> list[str]:
    """Return what is wrong with the store's settings, as far as this user may see them.

    Raises redis-py's ``ConnectionError`` and ``TimeoutError``, or :class:`OSError`, when the store is unreachable.
    """
    info = await store_info(redis)
    policy = info.get("maxmemory_policy", "noeviction")
    problems = [await _replay_error(redis)]
    if info.get("maxmemory") and policy != "noeviction":
        problems.append(
            f"The store deletes keys when its memory is full (maxmemory-policy {policy}): requests, results and API "
            "keys get lost. Set it to noeviction (docs/security.md)."
        )
    if info.get("cluster_enabled"):
        problems.append(
            "The store is a cluster, which is not supported: no request can be served. Use one server, or Sentinels "
            "(docs/scaling.md)."
        )
    by_sentinel = isinstance(redis.connection_pool, SentinelConnectionPool)
    if by_sentinel and info.get("role") == "master" and "min_slaves_good_slaves" not in info:
        problems.append(
            "After a failover by Sentinel, the old master accepts writes until it is demoted, and loses them. Set "
            "min-replicas-to-write to 1 on each server (docs/operations.md)."
        )
    return [problem for problem in problems if problem is not None]


async def store_info(redis: Redis) -> Mapping[str, Any]:
    """Return the fields of INFO; empty if this user may not see them. Raises as :func:`store_problems`."""
    try:
        return await redis.info()  # type: ignore[no-any-return]
    except (ConnectionError, TimeoutError):
        raise
    except RedisError:
        return {}


async def _replay_error(redis: Redis) -> str | None:
    """Return what is wrong with the rules for the store's default user, or that they can't be seen; None if nothing."""
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


class StoreCheck:
    """Logs what is wrong with the store's settings."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self.problems: list[str] = []
        """What the last check has found."""

    async def run(self) -> NoReturn:
        """Check until cancelled."""
        while True:
            with suppress(RedisError, OSError):  # other parts report an outage
                before, self.problems = self.problems, await store_problems(self._redis)
                for problem in self.problems:
                    if problem not in before:
                        logger.warning("%s", problem)
            await asyncio.sleep(_INTERVAL)
