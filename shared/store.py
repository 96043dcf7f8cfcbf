"""The connection to Redis or Valkey."""

import socket

from arq.connections import ArqRedis
from redis.asyncio import BlockingConnectionPool, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import BusyLoadingError, ConnectionError, TimeoutError

CONNECT_TIMEOUT = 3.0
"""Seconds to wait for a connection."""

READ_TIMEOUT = 5.0
"""Seconds to wait for an answer."""

_RETRIES = 2


def connect(url: str, *, max_connections: int = 64) -> ArqRedis:
    """Return a client for ``url`` (redis://, rediss:// or unix://); nothing is sent yet.

    Silent peers are found by keep-alive and health checks; a command that fails for the connection's
    sake is tried twice more, within half a second. Raises :class:`ValueError` for a malformed URL.
    """
    options = {} if url.startswith("unix://") else {"socket_keepalive": True, "socket_keepalive_options": _keepalive()}
    pool: ConnectionPool = BlockingConnectionPool.from_url(
        url,
        max_connections=max_connections,
        timeout=READ_TIMEOUT,
        socket_connect_timeout=CONNECT_TIMEOUT,
        socket_timeout=READ_TIMEOUT,
        health_check_interval=15,
        retry=Retry(ExponentialWithJitterBackoff(cap=0.25, base=0.02), _RETRIES),
        retry_on_error=[ConnectionError, TimeoutError, BusyLoadingError],
        **options,
    )
    return ArqRedis(pool_or_conn=pool)


def _keepalive() -> dict[int, int]:
    """Find a vanished peer within about ten seconds, where the platform lets one choose."""
    wanted = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}
    return {getattr(socket, name): value for name, value in wanted.items() if hasattr(socket, name)}
