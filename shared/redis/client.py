"""Construction of clients and connections for a Redis or Valkey URL."""

import socket
from typing import Any

import redis as blocking
import redis.sentinel
from arq.connections import ArqRedis
from redis.asyncio import (
    BlockingConnectionPool,
    Connection,
    ConnectionPool,
    Redis,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import BusyLoadingError, ConnectionError, TimeoutError

from shared.redis.command_pipeline import CommandPipeline, PipelinedRedis
from shared.redis.pool_connection import PoolConnection
from shared.redis.raw_connection import RawConnection
from shared.redis.reconnections import Reconnections
from shared.redis.url import StoreUrl, parse_url

CONNECT_TIMEOUT = 3.0
"""Timeout in seconds for connecting."""

READ_TIMEOUT = 5.0
"""Timeout in seconds for a reply, or for the next bytes of a transfer."""

_MAX_CONNECTIONS = 64
"""Maximum number of connections for pipelines and transactions; all other commands share two."""

_RETRIES = 2

_TIMEOUTS = {"socket_connect_timeout": CONNECT_TIMEOUT, "socket_timeout": READ_TIMEOUT}

_KEEPALIVE = {
    "socket_keepalive": True,
    "socket_keepalive_options": {
        getattr(socket, name): value
        for name, value in {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}.items()
        if hasattr(socket, name)
    },
}
"""Detects a dead peer within about ten seconds, as far as the platform has the options."""

_SENTINEL_OPTIONS = _TIMEOUTS | {"socket_keepalive": True}


def connect(url: str, reconnections: Reconnections | None = None) -> ArqRedis:
    """Return a client for ``url`` (:func:`shared.redis.url.parse_url`), without connecting yet.

    ``reconnections`` are those of the process, if it has other connections.
    Dead peers are detected by keep-alive. A command that fails because of its connection is retried twice, within half
    a second. Raises :class:`ValueError` for a malformed URL.
    """
    store = parse_url(url)
    options = _options(store) | {
        "max_connections": _MAX_CONNECTIONS,
        # A failed health check reconnects, and the handshake checks health again: without end if a password is missing.
        "health_check_interval": 0,
        "retry": _retry(_RETRIES),
        "retry_on_error": [ConnectionError, TimeoutError, BusyLoadingError],
    }
    pool: ConnectionPool
    if store.service:
        sentinel = Sentinel(store.addresses, sentinel_kwargs=_SENTINEL_OPTIONS)  # type: ignore[no-untyped-call]
        pool = SentinelConnectionPool(store.service, sentinel, **options)  # type: ignore[no-untyped-call]
    else:
        connection = {"tcp": Connection, "tls": SSLConnection, "unix": UnixDomainSocketConnection}[store.kind]
        pool = BlockingConnectionPool(connection_class=connection, timeout=int(READ_TIMEOUT), **options)
    pool.connection_class = type("PoolConnection", (PoolConnection, pool.connection_class), {})
    # PipelinedRedis retries once by itself before it applies the policy.
    reconnections = reconnections or Reconnections()
    pipelines = [CommandPipeline(raw_connection(url), timeout=READ_TIMEOUT, reconnections=reconnections) for _ in "12"]
    return PipelinedRedis(pool, *pipelines, reconnections=reconnections, retry=_retry(_RETRIES - 1))


def database_of(client: Redis) -> int:
    """Return the number of the store's database that ``client`` uses."""
    return int(client.connection_pool.connection_kwargs.get("db") or 0)


def raw_connection(url: str) -> RawConnection:
    """Return an unopened connection for ``url``, as :func:`connect` accepts it. Raises :class:`ValueError` for a
    malformed URL."""
    store = parse_url(url)
    if store.service:
        sentinel = blocking.sentinel.Sentinel(store.addresses, sentinel_kwargs=_SENTINEL_OPTIONS)  # type: ignore[no-untyped-call]
        pool = blocking.sentinel.SentinelConnectionPool(store.service, sentinel, **_options(store))  # type: ignore[no-untyped-call]
        return RawConnection(pool)
    connection = {
        "tcp": blocking.Connection,
        "tls": blocking.SSLConnection,
        "unix": blocking.UnixDomainSocketConnection,
    }[store.kind]
    return RawConnection(blocking.ConnectionPool(connection_class=connection, **_options(store)))


def _retry(times: int) -> Retry:
    return Retry(ExponentialWithJitterBackoff(cap=0.25, base=0.02), times)


def _options(store: StoreUrl) -> dict[str, Any]:
    """Return the arguments of redis-py's connections to ``store``."""
    if store.kind == "unix":
        return _TIMEOUTS | store.options
    if store.service:
        return _TIMEOUTS | _KEEPALIVE | {"ssl": store.kind == "tls"} | store.options
    ((host, port),) = store.addresses
    return _TIMEOUTS | _KEEPALIVE | {"host": host, "port": port} | store.options
