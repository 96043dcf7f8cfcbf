"""The connection to Redis or Valkey."""

import socket
from typing import Any
from urllib.parse import unquote, urlsplit

from arq.connections import ArqRedis
from redis.asyncio import BlockingConnectionPool, ConnectionPool
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import BusyLoadingError, ConnectionError, TimeoutError

from shared.connections import lean

CONNECT_TIMEOUT = 3.0
"""Seconds to wait for a connection."""

READ_TIMEOUT = 5.0
"""Seconds to wait for an answer."""

SENTINEL_PORT = 26379

_RETRIES = 2


def connect(url: str, *, max_connections: int = 64) -> ArqRedis:
    """Return a client for ``url``; nothing is sent yet.

    ``url`` is ``redis://``, ``rediss://`` (TLS) or ``unix://``, or names Sentinels, which know the master:
    ``redis+sentinel://[user:password@]host[:port][,host[:port]...]/service[/database]``, likewise ``rediss+sentinel://``.
    Silent peers are found by keep-alive and health checks; a command that fails for the connection's sake is tried
    twice more, within half a second. Raises :class:`ValueError` for a malformed URL.
    """
    options: dict[str, Any] = {
        "max_connections": max_connections,
        "socket_connect_timeout": CONNECT_TIMEOUT,
        "socket_timeout": READ_TIMEOUT,
        "health_check_interval": 15,
        "retry": Retry(ExponentialWithJitterBackoff(cap=0.25, base=0.02), _RETRIES),
        "retry_on_error": [ConnectionError, TimeoutError, BusyLoadingError],
    }
    if not url.startswith("unix://"):
        options |= {"socket_keepalive": True, "socket_keepalive_options": _keepalive()}
    if "+sentinel://" in url:
        pool: ConnectionPool = _sentinel_pool(url, options)
    else:
        pool = BlockingConnectionPool.from_url(url, timeout=READ_TIMEOUT, **options)
    pool.connection_class = lean(pool.connection_class)
    return ArqRedis(pool_or_conn=pool)


def undivided(client: ArqRedis) -> ArqRedis:
    """Return a client that keeps one connection of ``client``'s pool to itself, and so sends cheaper; one command at a
    time. To be closed before ``client`` is."""
    return ArqRedis(pool_or_conn=client.connection_pool, single_connection_client=True)


def _sentinel_pool(url: str, options: dict[str, Any]) -> SentinelConnectionPool:
    scheme, _, rest = url.partition("+sentinel://")
    if scheme not in ("redis", "rediss"):
        raise ValueError(f"'{scheme}+sentinel' is no URL scheme: use redis+sentinel:// or rediss+sentinel://")
    authority, _, path = rest.partition("/")
    credentials, _, hosts = authority.rpartition("@")
    service, _, database = path.partition("?")[0].partition("/")
    if not hosts or not service:
        raise ValueError("a Sentinel URL needs hosts and a service: redis+sentinel://host:26379,host2:26379/mymaster/0")
    if database and not database.isdecimal():
        raise ValueError(f"'{database}' is no database number")
    if credentials:
        user, _, password = credentials.partition(":")
        options |= {"username": unquote(user) or None, "password": unquote(password) or None}
    sentinels = [_address(host) for host in hosts.split(",")]
    reach = {name: options[name] for name in ("socket_connect_timeout", "socket_timeout", "socket_keepalive")}
    sentinel = Sentinel(sentinels, sentinel_kwargs=reach)  # type: ignore[no-untyped-call]
    return SentinelConnectionPool(  # type: ignore[no-untyped-call]
        service, sentinel, db=int(database or 0), ssl=scheme == "rediss", **options
    )


def _address(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError(f"'{text}' is no Sentinel address")
    return parts.hostname, parts.port or SENTINEL_PORT


def _keepalive() -> dict[int, int]:
    """Find a vanished peer within about ten seconds, where the platform lets one choose."""
    wanted = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}
    return {getattr(socket, name): value for name, value in wanted.items() if hasattr(socket, name)}
