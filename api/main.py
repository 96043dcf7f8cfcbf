"""The API replica process: constructs its components, runs background tasks, serves HTTP, drains and exits."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn
from redis.exceptions import RedisError

from api.app import create_app
from api.batches.feeder import BatchFeeder
from api.build import Parts, build
from api.files.storage import FilesDirError
from api.files.store import FileCleanup
from api.http.connection import connection_type
from api.http.connection_limits import ConnectionLimits, max_connections
from api.http.listener import BACKLOG, collect_rarely, duplicated, listen
from api.keys import KeyFileError, NoKeysError
from shared.protocol.registry import LeaseMismatch, ReplicaInfo, announce, check_lease, withdraw
from shared.protocol.version import PROTOCOL
from shared.redis import outage
from shared.redis.client import connect, raw_connection
from shared.redis.reconnections import Reconnections
from shared.runtime.event_loop import on_signal
from shared.runtime.event_loop import run as run_loop
from shared.runtime.settings import ApiSettings
from shared.runtime.tasks import cancel_all, keep_running
from shared.runtime.ticks import next_tick, until
from shared.runtime.version import VERSION
from shared.tracing import TracingUnavailable, start_tracing

logger = logging.getLogger(__name__)

_CLOSE_TIMEOUT = 2.0
"""Timeout in seconds for removing the replica from the registry."""

_JOBS_TIMEOUT = 3.0
"""Seconds to wait for background cancellations at shutdown."""

_KEYS_TIMEOUT = 5.0
"""Timeout in seconds for checking at start that an API key exists."""

_REGISTRY_TIMEOUT = 2.0
"""Timeout in seconds for reading the registry at start; without it, the replica serves, but is not ready."""

_DATE_AGE = 1.0
"""Maximum age of the Date header in seconds."""


def run(settings: ApiSettings) -> int:
    """Serve until SIGINT, SIGTERM or SIGHUP; return the process's exit code."""
    open_files = _raise_open_files()
    limits = _connection_limits(settings, open_files)
    try:
        listener = listen(settings.host, settings.port, settings.client_timeout)
    except OSError as error:
        logger.error("can't listen on %s:%d: %s", settings.host, settings.port, error)
        return 1
    with listener:
        try:
            run_loop(_serve(settings, listener, limits))
        except (KeyFileError, NoKeysError, FilesDirError, LeaseMismatch, TracingUnavailable) as error:
            logger.error("%s", error)
            return 1
        except Exception:
            logger.exception("the API replica failed and exits")
            return 1
    return 0


@contextlib.asynccontextmanager
async def running(replica: Parts, address: str, reconnections: Reconnections) -> AsyncIterator[None]:
    """Run the replica's background tasks for the duration of the context. Failed tasks are logged and restarted."""
    # The first client must not see a fleet without models.
    await replica.directory.start(_REGISTRY_TIMEOUT)
    check_lease(replica.directory.fleet.workers, replica.settings.lease)
    frames, streams = raw_connection(replica.settings.redis_url), replica.chat.streams
    tasks = [
        *(
            asyncio.create_task(keep_running(name, work), name=name)
            for name, work in (
                ("store check", replica.store_check.run),
                ("relay", lambda: replica.relay.run(frames, reconnections)),
                ("sweep", replica.relay.sweep),
                ("directory", replica.directory.run),
                ("keys", lambda: replica.keyring.run(lambda: streams.fail_without_key(replica.keyring.allows))),
                ("worker watch", streams.watch_workers),
                ("reaper", lambda: replica.queues.reap(replica.directory)),
                ("batches", BatchFeeder(replica.batches).run),
                ("file cleanup", FileCleanup(replica.batches.files).run),
                ("heartbeat", lambda: _announce(replica, address)),
            )
        ),
    ]
    try:
        yield
    finally:
        await replica.background.finish(_CLOSE_TIMEOUT)
        # Jobs that are not cancelled end when their worker finds that the replica has no subscription.
        await replica.job_tasks.finish(_JOBS_TIMEOUT)
        await cancel_all(tasks)
        await replica.relay.close_all()
        # If the store does not respond, the registry record expires on its own.
        with contextlib.suppress(TimeoutError, RedisError, OSError):
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await withdraw(replica.redis, ReplicaInfo, replica.id)
        await replica.redis.aclose(close_connection_pool=True)
        await asyncio.to_thread(replica.tracing.close)


class _Server(uvicorn.Server):
    """A uvicorn server without signal handlers: the replica drains open streams before it stops the server."""

    def __init__(self, config: uvicorn.Config, limits: ConnectionLimits) -> None:
        super().__init__(config)
        self._limits = limits
        self._ending = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def stop_listening(self, listener: socket.socket) -> None:
        """Close ``listener``, and each connection as soon as it has no request.

        Connections in the kernel's queue are accepted first: they would be reset, and their requests lost.
        """
        queued = []
        with contextlib.suppress(OSError):
            while True:
                queued.append(listener.accept()[0])
        for server in self.servers:
            server.close()
        for connection in queued:
            with contextlib.suppress(OSError):
                await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)
        self._limits.retire()

    def _protocol(self) -> asyncio.Protocol:
        create: Any = self.config.http_protocol_class
        protocol: asyncio.Protocol = create(config=self.config, server_state=self.server_state, app_state={})
        return protocol

    def end(self) -> None:
        """Make :meth:`main_loop` return."""
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        """Update the Date header and enforce connection deadlines once per second, until :meth:`end`.

        uvicorn's own loop polls for its end ten times per second.
        """
        loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            self._limits.expire(loop.time())
            await until(self._ending, next_tick(_DATE_AGE))


async def _serve(settings: ApiSettings, listener: socket.socket, limits: ConnectionLimits) -> None:
    replica_id = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    tracing = start_tracing(settings, service="vinoqueue-api", instance=replica_id, attributes={}, makes_roots=True)
    reconnections = Reconnections()
    replica = build(connect(settings.redis_url, reconnections), settings, replica_id, tracing)
    try:
        await replica.batches.files.check()
        if settings.require_keys:
            await replica.keyring.ensure_any(_KEYS_TIMEOUT)
    except (NoKeysError, FilesDirError):
        await replica.redis.aclose(close_connection_pool=True)
        raise
    config = uvicorn.Config(
        create_app(replica),
        interface="asgi3",
        http=connection_type(settings, limits, replica.refusals),
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
    collect_rarely()
    host, port = listener.getsockname()[:2]
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    stopping, at_once = asyncio.Event(), asyncio.Event()

    def stop_now() -> None:
        at_once.set()
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGHUP):
        on_signal(number, stopping.set)
    on_signal(signal.SIGINT, stop_now)  # Ctrl-C: no load balancer needs to notice
    async with running(replica, address, reconnections):
        serving = asyncio.create_task(server.serve(sockets=duplicated(listener)), name="http")
        logger.info("API replica %s listening on %s", replica.id, address)
        stopped = asyncio.create_task(stopping.wait())
        await asyncio.wait([serving, stopped], return_when=asyncio.FIRST_COMPLETED)
        if stopping.is_set():
            replica.chat.streams.draining = limits.closing = True
            delay = 0 if at_once.is_set() else settings.drain_delay
            logger.info("shutting down in %.0f s; requests then have %.0f s to finish", delay, settings.drain)
            await until(at_once, delay)
            await server.stop_listening(listener)
            await replica.chat.streams.drain(settings.drain, limits)
        else:
            await replica.chat.streams.drain(0)
        stopped.cancel()
        server.end()
        await serving


async def _announce(replica: Parts, address: str) -> None:
    started = time.time()
    while True:
        info = ReplicaInfo(
            id=replica.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            address=address,
            started=started,
            streams=len(replica.chat.streams),
            version=VERSION,
            protocol=PROTOCOL,
            first_token_times=replica.first_token_times.counts(),
            failures=dict(replica.chat.metrics.failures),
        )
        with outage.store.reported("heartbeat"):
            await announce(replica.redis, info, lease=replica.settings.lease)
        await asyncio.sleep(next_tick(replica.settings.lease / 3))


def _raise_open_files() -> int | None:
    """Raise the soft limit of open files, often 1,024, to the hard limit, and return it; None means no limit."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource  # not available on Windows

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return None if soft == resource.RLIM_INFINITY else soft
    return None


def _connection_limits(settings: ApiSettings, open_files: int | None) -> ConnectionLimits:
    total = max_connections(settings.max_connections, open_files)
    if total < settings.max_connections:
        logger.warning(
            "connection limit lowered from %d to %d, because this process may open only %d files (ulimit -n)",
            settings.max_connections,
            total,
            open_files,
        )
    per_address = settings.max_connections_per_address
    return ConnectionLimits(total, total // 2 if per_address == "auto" else per_address)
