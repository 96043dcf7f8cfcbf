"""One API replica as a process: its parts, its background tasks, and an orderly end."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
import uuid
from collections.abc import AsyncIterator, Iterator

import uvicorn
from arq.connections import ArqRedis
from redis.exceptions import RedisError

from api.admission import Admission
from api.app import create_app
from api.completion_recovery import CompletionRecovery
from api.connection import Bounds, connection_type
from api.connection_limits import ConnectionLimits, most_connections
from api.context import Context
from api.directory import Directory
from api.hosts import AllowedHosts
from api.keys import KeyFileError, Keyring, NoKeysError
from api.limits import Limiter
from api.metrics import Metrics
from api.outbox import Outbox
from api.relay import Relay
from api.service import ChatService
from api.stored import CompletionStore
from api.tune_gc import tune_gc
from shared.protocol.registry import ReplicaInfo, announce_replica, withdraw_replica
from shared.redis import outage
from shared.redis.client import connect, raw_connection
from shared.runtime import logs
from shared.runtime.event_loop import run as run_loop
from shared.runtime.settings import ApiSettings
from shared.runtime.tasks import cancel_all, keep_running
from shared.runtime.ticks import next_tick
from shared.runtime.version import VERSION

logger = logging.getLogger(__name__)

BACKLOG = 4096
SEND_BUFFER = 128 * 1024
"""Bytes that the kernel keeps for a client that reads slowly; what comes on top is merged in the answer."""

_CLOSE_TIMEOUT = 2.0
"""Seconds that leaving the registry may take."""

_KEYS_PATIENCE = 5.0
"""Seconds that the store may take at start to tell whether there is an API key."""

_DATE_AGE = 1.0
"""Seconds for which the Date header is good."""

KEEP_ALIVE = 75
"""Seconds that an idle connection is kept; longer than the 60 s that load balancers usually keep theirs."""


def run(settings: ApiSettings) -> int:
    """Serve until SIGINT or SIGTERM; return the process's exit code."""
    logs.configure(settings.log_level)
    open_files = _raise_open_files()
    limits = _connection_limits(settings, open_files)
    try:
        listener = _listen(settings.host, settings.port, settings.client_timeout)
    except OSError as error:
        logger.error("can't listen on %s:%d: %s", settings.host, settings.port, error)
        return 1
    with listener:
        try:
            run_loop(_serve(settings, listener, limits))
        except (KeyFileError, NoKeysError) as error:
            logger.error("%s", error)
            return 1
        except Exception:
            logger.exception("the API ends, because one of its parts has failed")
            return 1
    return 0


def build(redis: ArqRedis, settings: ApiSettings) -> Context:
    """Return the parts of a replica, nothing running yet. Raises :class:`KeyFileError`."""
    replica = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    relay = Relay(redis, replica)
    directory = Directory(redis)
    keyring = Keyring(
        redis, plain=settings.api_keys, file=settings.keys_file, required=settings.require_keys, address=settings.host
    )
    limiter = Limiter(redis, replica=replica, lease=settings.lease, longest=settings.request_timeout)
    admission = Admission(keyring, limiter, settings)
    service = ChatService(redis, relay, directory, replica, settings)
    stored = CompletionStore(redis, ttl=settings.store_ttl, limit=settings.store_limit)
    outbox = Outbox(redis, replica, longest=settings.request_timeout)
    return Context(
        settings=settings,
        replica=replica,
        redis=redis,
        hosts=AllowedHosts(settings.allowed_hosts.split(","), settings.host),
        relay=relay,
        directory=directory,
        keyring=keyring,
        admission=admission,
        service=service,
        stored=stored,
        completion_recovery=CompletionRecovery(
            outbox, service, directory, stored, admission, replica=replica, lease=settings.lease
        ),
        metrics=Metrics(directory, relay, service),
    )


@contextlib.asynccontextmanager
async def running(parts: Context, address: str) -> AsyncIterator[None]:
    """Run the replica's background tasks around a block. One that fails is logged and starts again."""
    frames = raw_connection(parts.settings.redis_url)
    tasks = [
        asyncio.create_task(keep_running(name, work), name=name)
        for name, work in (
            ("relay", lambda: parts.relay.run(frames)),
            ("sweep", parts.relay.sweep),
            ("directory", parts.directory.run),
            ("keys", parts.keyring.run),
            ("watch", parts.service.watch),
            ("promises", parts.completion_recovery.run),
            ("reaper", parts.service.reap),
            ("presence", lambda: _announce(parts, address)),
        )
    ]
    try:
        yield
    finally:
        await parts.completion_recovery.aclose()
        await parts.service.aclose()
        await parts.admission.aclose()
        await cancel_all(tasks)
        await parts.relay.close_all()
        # The entry lost_workers by itself where the store does not answer; nobody need wait for that.
        with contextlib.suppress(TimeoutError, RedisError, OSError):
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await withdraw_replica(parts.redis, parts.replica)
        await parts.redis.aclose(close_connection_pool=True)


class _Server(uvicorn.Server):
    """Uvicorn without its own reaction to signals: streams in flight end first."""

    def __init__(self, config: uvicorn.Config, limits: ConnectionLimits) -> None:
        super().__init__(config)
        self._limits = limits
        self._ending = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def end(self) -> None:
        """Have :meth:`main_loop` return."""
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        """Keep the Date header current and connections to their deadlines until the end. uvicorn's own loop wakes ten
        times as often, to see whether it is to end."""
        loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            self._limits.expire(loop.time())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(next_tick(_DATE_AGE)):
                    await self._ending.wait()


async def _serve(settings: ApiSettings, listener: socket.socket, limits: ConnectionLimits) -> None:
    parts = build(connect(settings.redis_url), settings)
    if settings.require_keys:
        try:
            await parts.keyring.ensure_any(_KEYS_PATIENCE)
        except NoKeysError:
            await parts.redis.aclose(close_connection_pool=True)
            raise
    config = uvicorn.Config(
        create_app(parts),
        interface="asgi3",
        http=connection_type(_bounds(settings), limits),
        ws="none",
        lifespan="off",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        log_config=None,
        timeout_graceful_shutdown=2,
        backlog=BACKLOG,
    )
    server = _Server(config, limits)
    tune_gc()
    host, port = listener.getsockname()[:2]
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    async with running(parts, address):
        serving = asyncio.create_task(server.serve(sockets=[listener]), name="http")
        logger.info("API replica %s listens on %s", parts.replica, address)
        stopped = asyncio.create_task(stopping.wait())
        await asyncio.wait([serving, stopped], return_when=asyncio.FIRST_COMPLETED)
        if stopping.is_set():
            logger.info("shutting down; answers in flight have %.0f s", settings.drain)
        await parts.service.drain(settings.drain if stopping.is_set() else 0)
        stopped.cancel()
        server.end()
        await serving


async def _announce(parts: Context, address: str) -> None:
    started = time.time()
    while True:
        info = ReplicaInfo(
            id=parts.replica,
            host=socket.gethostname(),
            pid=os.getpid(),
            address=address,
            started=started,
            streams=len(parts.relay.answers()),
            version=VERSION,
        )
        try:
            await announce_replica(parts.redis, info, lease=parts.settings.lease)
            outage.store.served("presence")
        except (RedisError, OSError) as error:
            outage.store.failed("presence", error)
        await asyncio.sleep(next_tick(parts.settings.lease / 3))


def _raise_open_files() -> int | None:
    """Raise the soft limit on open files, often 1,024, to the hard one: each connection is one. Return the limit."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource  # there is none for Windows

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return None if soft == resource.RLIM_INFINITY else soft
    return None


def _connection_limits(settings: ApiSettings, open_files: int | None) -> ConnectionLimits:
    total = most_connections(settings.max_connections, open_files)
    if total < settings.max_connections:
        logger.warning(
            "at most %d connections instead of %d, because this process may open %d files (ulimit -n)",
            total,
            settings.max_connections,
            open_files,
        )
    per_address = settings.max_connections_per_address
    return ConnectionLimits(total, total // 2 if per_address == "auto" else per_address)


def _bounds(settings: ApiSettings) -> Bounds:
    return Bounds(
        header_timeout=settings.header_timeout,
        body_timeout=settings.body_timeout,
        answer_timeout=settings.request_timeout + settings.client_timeout,
        client_timeout=settings.client_timeout,
        keep_alive=KEEP_ALIVE,
        max_body=settings.max_body,
    )


def _listen(host: str, port: int, patience: float) -> socket.socket:
    """Listen for connections whose peers may do nothing for ``patience`` seconds. Raises :class:`OSError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    # Accepted connections inherit these: a peer that has vanished, or reads nothing, is cut off by the kernel.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    for option, value in (
        ("TCP_KEEPIDLE", patience / 2),
        ("TCP_KEEPINTVL", max(1, patience / 8)),
        ("TCP_KEEPCNT", 4),
        ("TCP_USER_TIMEOUT", patience * 1000),
    ):
        if hasattr(socket, option):
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), max(1, int(value)))
    return listener
