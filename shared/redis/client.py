"""Construction of clients and connections for a Redis or Valkey URL."""

import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import redis.sentinel
from arq.connections import ArqRedis
from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import BusyLoadingError, ConnectionError, TimeoutError

from shared.redis.command_pipeline import CommandPipeline, PipelinedRedis
from shared.redis.raw_connection import RawConnection

CONNECT_TIMEOUT = 3.0
"""Timeout in seconds for connecting."""

READ_TIMEOUT = 5.0
"""Timeout in seconds for a reply, or for the next bytes of a transfer."""

SENTINEL_PORT = 26379

_MAX_CONNECTIONS = 64
"""Maximum number of connections for pipelines and transactions; all other commands share two."""

_RETRIES = 2

_SENTINEL = "+sentinel://"


def connect(url: str) -> ArqRedis:
    """Return a client for ``url``, without connecting yet.

    ``url`` is ``redis://``, ``rediss://`` (TLS) or ``unix://``, or the URL of Sentinels:
    ``redis+sentinel://[user:password@]host[:port][,host[:port]...]/service[/database]``, likewise ``rediss+sentinel://``.
    Dead peers are detected by keep-alive. A command that fails because of its connection is retried twice, within half
    a second. Raises :class:`ValueError` for a malformed URL.
    """
    options = _options(url) | {
        "max_connections": _MAX_CONNECTIONS,
        # A failed health check reconnects, and the handshake checks health again: without end if a password is missing.
        "health_check_interval": 0,
        "retry": _retry(_RETRIES),
        "retry_on_error": [ConnectionError, TimeoutError, BusyLoadingError],
    }
    pool: ConnectionPool
    if _SENTINEL in url:
        sentinels = _Sentinels.of(url, options)
        sentinel = Sentinel(sentinels.addresses, sentinel_kwargs=sentinels.sentinel_options)  # type: ignore[no-untyped-call]
        pool = SentinelConnectionPool(sentinels.service, sentinel, **sentinels.options)  # type: ignore[no-untyped-call]
    else:
        pool = BlockingConnectionPool.from_url(url, timeout=READ_TIMEOUT, **options)
    pool.connection_class = type("PoolConnection", (_UvloopErrors, pool.connection_class), {})
    # PipelinedRedis retries once by itself before it applies the policy.
    pipelines = (CommandPipeline(raw_connection(url), timeout=READ_TIMEOUT) for _ in range(2))
    return PipelinedRedis(pool, *pipelines, retry=_retry(_RETRIES - 1))


def database_of(client: Redis) -> int:
    """Return the number of the store's database that ``client`` uses."""
    return int(client.connection_pool.connection_kwargs.get("db") or 0)


class _UvloopErrors(AbstractConnection):
    """Mixin for redis-py's connections: uvloop's error for writing to a closed connection becomes one that redis-py
    knows and retries."""

    async def _send_packed_command(self, command: Iterable[bytes]) -> None:
        try:
            await super()._send_packed_command(command)
        except RuntimeError as error:
            raise ConnectionResetError(str(error)) from error


def raw_connection(url: str) -> RawConnection:
    """Return an unopened connection for ``url``, as :func:`connect` accepts it. Raises :class:`ValueError` for a
    malformed URL."""
    options = _options(url)
    if _SENTINEL in url:
        sentinels = _Sentinels.of(url, options)
        sentinel = redis.sentinel.Sentinel(sentinels.addresses, sentinel_kwargs=sentinels.sentinel_options)  # type: ignore[no-untyped-call]
        pool = redis.sentinel.SentinelConnectionPool(sentinels.service, sentinel, **sentinels.options)  # type: ignore[no-untyped-call]
        return RawConnection(pool)
    return RawConnection(redis.ConnectionPool.from_url(url, **options))


def _retry(times: int) -> Retry:
    return Retry(ExponentialWithJitterBackoff(cap=0.25, base=0.02), times)


def _options(url: str) -> dict[str, Any]:
    options: dict[str, Any] = {"socket_connect_timeout": CONNECT_TIMEOUT, "socket_timeout": READ_TIMEOUT}
    if not url.startswith("unix://"):
        options |= {"socket_keepalive": True, "socket_keepalive_options": _keepalive()}
    return options


@dataclass(frozen=True)
class _Sentinels:
    """A parsed Sentinel URL: addresses, options for the Sentinels, and options for the master of ``service``."""

    service: str
    addresses: list[tuple[str, int]]
    sentinel_options: dict[str, Any]
    options: dict[str, Any]

    @classmethod
    def of(cls, url: str, options: dict[str, Any]) -> "_Sentinels":
        """Parse ``url``; ``options`` apply to every connection. Raises :class:`ValueError` when it is malformed."""
        scheme, _, rest = url.partition(_SENTINEL)
        if scheme not in ("redis", "rediss"):
            raise ValueError(f"'{scheme}+sentinel' is not a URL scheme: use redis+sentinel:// or rediss+sentinel://")
        authority, _, path = rest.partition("/")
        credentials, _, hosts = authority.rpartition("@")
        service, _, database = path.partition("?")[0].partition("/")
        if not hosts or not service:
            raise ValueError(
                "a Sentinel URL needs hosts and a service: redis+sentinel://host:26379,host2:26379/mymaster/0"
            )
        if database and not database.isdecimal():
            raise ValueError(f"'{database}' is not a database number")
        if credentials:
            user, _, password = credentials.partition(":")
            options = options | {"username": unquote(user) or None, "password": unquote(password) or None}
        return cls(
            service,
            [_address(host) for host in hosts.split(",")],
            {name: options[name] for name in ("socket_connect_timeout", "socket_timeout", "socket_keepalive")},
            options | {"db": int(database or 0), "ssl": scheme == "rediss"},
        )


def _address(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError(f"'{text}' is not a Sentinel address")
    return parts.hostname, parts.port or SENTINEL_PORT


def _keepalive() -> dict[int, int]:
    """Return socket options that detect a dead peer within about ten seconds, as far as the platform has them."""
    options = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}
    return {getattr(socket, name): value for name, value in options.items() if hasattr(socket, name)}
