"""The API replica process: constructs its parts, runs background tasks, serves HTTP, drains and exits."""

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

from api import web_page
from api.admission import Admission
from api.app import create_app
from api.batches.feeder import BatchFeeder
from api.batches.store import BatchStore
from api.bodies import LARGE_BODIES
from api.completion_recovery import CompletionRecovery
from api.connection import DRAIN_FACTOR, Bounds, connection_type
from api.connection_limits import ConnectionLimits, most_connections
from api.context import Context
from api.cross_origin import CrossOrigin
from api.directory import Directory
from api.draining import Draining
from api.files import FilesDirError, FileStore, storage_root
from api.files.cleanup import FileCleanup
from api.files.folder import FilesFolder
from api.first_token_times import FirstTokenTimes
from api.fleet.watch import FleetWatch
from api.hosts import AllowedHosts
from api.jobs.cancellation import JobCancellation
from api.jobs.charges import TenantCharges
from api.jobs.deadlines import Deadlines
from api.jobs.queues import JobQueues
from api.jobs.reaper import Reaper
from api.jobs.submission import Submission
from api.keys import KeyFileError, Keyring, NoKeysError
from api.limits import Limiter
from api.listener import BACKLOG, listen
from api.media.download import Downloads
from api.media.holds import MediaHolds
from api.media.loader import MediaLoader
from api.metrics import Metrics
from api.model_lookup import ModelLookup
from api.open_streams import OpenStreams
from api.outbox import Outbox
from api.queue_events import QueueEvents
from api.relay import Relay
from api.responses.store import ResponseStore
from api.stored import CompletionStore
from api.tune_gc import tune_gc
from api.worker_watch import WorkerWatch
from shared.protocol.media import MediaStore
from shared.protocol.registry import ReplicaInfo, announce_replica, withdraw_replica
from shared.redis import outage
from shared.redis.client import connect, raw_connection
from shared.runtime import logs
from shared.runtime.event_loop import run as run_loop
from shared.runtime.settings import ApiSettings
from shared.runtime.tasks import BackgroundTasks, cancel_all, keep_running
from shared.runtime.ticks import next_tick
from shared.runtime.version import VERSION
from shared.tracing import NO_TRACING, Tracing, TracingUnavailable, start_tracing

logger = logging.getLogger(__name__)

_CLOSE_TIMEOUT = 2.0
"""Timeout in seconds for removing the replica from the registry."""

_JOBS_TIMEOUT = 3.0
"""Seconds to wait for background cancellations at shutdown."""

_KEYS_TIMEOUT = 5.0
"""Timeout in seconds for checking at start that an API key exists."""

_DATE_AGE = 1.0
"""Maximum age of the Date header in seconds."""

KEEP_ALIVE = 75
"""Idle timeout of connections in seconds. Longer than the usual 60 s of load balancers, so that they close first."""


def run(settings: ApiSettings) -> int:
    """Serve until SIGINT or SIGTERM; return the process's exit code."""
    logs.configure(settings.log_level, as_json=settings.log_format == "json")
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
        except (KeyFileError, NoKeysError, FilesDirError, TracingUnavailable) as error:
            logger.error("%s", error)
            return 1
        except Exception:
            logger.exception("the API replica failed and exits")
            return 1
    return 0


def build(redis: ArqRedis, settings: ApiSettings, replica: str, tracing: Tracing = NO_TRACING) -> Context:
    """Construct the parts of the replica with the id ``replica``, leaves first; nothing runs yet.

    Raises :class:`KeyFileError` and :class:`FilesDirError`.
    """
    relay = Relay(redis, replica)
    directory = Directory(redis)
    models = ModelLookup(directory)
    keyring = Keyring(
        redis, plain=settings.api_keys, file=settings.keys_file, required=settings.require_keys, address=settings.host
    )
    limiter = Limiter(redis, replica=replica, lease=settings.lease, longest=settings.request_timeout)
    admission = Admission(keyring, limiter, settings)
    queues = JobQueues(redis, prefix_routing=settings.prefix_routing, lease=settings.lease)
    job_tasks = BackgroundTasks()
    charges = TenantCharges(queues, job_tasks)
    deadlines = Deadlines(
        queues, job_tasks, queue_timeout=settings.queue_timeout, request_timeout=settings.request_timeout
    )
    downloads = Downloads(
        domains=settings.media_domains.split(","),
        private_addresses=settings.media_private_addresses,
        redirects=settings.media_redirects,
        timeout=settings.media_timeout,
        limit=settings.max_image_bytes,
    )
    loader = MediaLoader(
        downloads,
        local_path=settings.allowed_local_media_path,
        max_images=settings.max_images,
        max_image_bytes=settings.max_image_bytes,
    )
    media = MediaHolds(loader, MediaStore(redis, limit=settings.max_media_bytes), job_tasks)
    draining = Draining(relay)
    cancellation = JobCancellation(queues, job_tasks)
    streams = OpenStreams(relay, deadlines, cancellation, draining)
    submission = Submission(
        queues,
        directory,
        models,
        draining,
        streams,
        replica=replica,
        max_queue=settings.max_queue,
        max_wait=settings.max_wait,
        max_choice_bytes=settings.max_choice_bytes,
    )
    outbox = Outbox(redis, replica, longest=settings.request_timeout)
    stored = CompletionStore(redis, ttl=settings.store_ttl, limit=settings.store_limit)
    responses = ResponseStore(redis, ttl=settings.store_ttl, limit=settings.store_limit)
    completion_recovery = CompletionRecovery(
        outbox,
        stored,
        streams,
        draining,
        directory,
        admission,
        charges,
        media,
        responses,
        replica=replica,
        lease=settings.lease,
    )
    first_token_times = FirstTokenTimes()
    batches = BatchStore(redis, limit=settings.max_batches)
    return Context(
        settings=settings,
        replica=replica,
        redis=redis,
        hosts=AllowedHosts(settings.allowed_hosts.split(","), settings.host),
        relay=relay,
        directory=directory,
        models=models,
        keyring=keyring,
        admission=admission,
        draining=draining,
        large_bodies=asyncio.Semaphore(LARGE_BODIES),
        media=media,
        downloads=downloads,
        streams=streams,
        cancellation=cancellation,
        submission=submission,
        charges=charges,
        job_tasks=job_tasks,
        reaper=Reaper(queues, directory, lease=settings.lease),
        worker_watch=WorkerWatch(relay, directory, grace=settings.worker_grace, lease=settings.lease),
        stored=stored,
        responses=responses,
        completion_recovery=completion_recovery,
        background=BackgroundTasks(),
        metrics=Metrics(directory, relay, queues, loader, first_token_times, vllm_names=settings.vllm_metric_names),
        first_token_times=first_token_times,
        queue_events=QueueEvents(queues, directory),
        cross_origin=CrossOrigin(settings.cors_origins.split(",")),
        tracing=tracing,
        page=web_page.load(enabled=settings.web),
        fleet=FleetWatch(redis, directory, batches, replica=replica, lease=settings.lease),
        files=FileStore(redis, FilesFolder(redis, storage_root(settings.files_dir)), limit=settings.max_files),
        batches=batches,
    )


@contextlib.asynccontextmanager
async def running(parts: Context, address: str) -> AsyncIterator[None]:
    """Run the replica's background tasks for the duration of the context. Failed tasks are logged and restarted."""
    frames = raw_connection(parts.settings.redis_url)
    tasks = [
        asyncio.create_task(keep_running(name, work), name=name)
        for name, work in (
            ("relay", lambda: parts.relay.run(frames)),
            ("sweep", parts.relay.sweep),
            ("directory", parts.directory.run),
            ("keys", parts.keyring.run),
            ("worker watch", parts.worker_watch.run),
            ("completion recovery", parts.completion_recovery.run),
            ("reaper", parts.reaper.run),
            ("batches", BatchFeeder(parts).run),
            ("file cleanup", FileCleanup(parts.files).run),
            ("heartbeat", lambda: _announce(parts, address)),
        )
    ]
    try:
        yield
    finally:
        await parts.background.finish(_CLOSE_TIMEOUT)
        await parts.completion_recovery.aclose()
        # Jobs that are not cancelled end when their worker finds that the replica has no subscription.
        await parts.job_tasks.finish(_JOBS_TIMEOUT)
        await parts.admission.aclose()
        await parts.downloads.aclose()
        await cancel_all(tasks)
        await parts.relay.close_all()
        # If the store does not respond, the registry record expires on its own.
        with contextlib.suppress(TimeoutError, RedisError, OSError):
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await withdraw_replica(parts.redis, parts.replica)
        await parts.redis.aclose(close_connection_pool=True)
        await asyncio.to_thread(parts.tracing.close)


class _Server(uvicorn.Server):
    """A uvicorn server without signal handlers: the replica drains open streams before it stops the server."""

    def __init__(self, config: uvicorn.Config, limits: ConnectionLimits) -> None:
        super().__init__(config)
        self._limits = limits
        self._ending = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

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
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(next_tick(_DATE_AGE)):
                    await self._ending.wait()


async def _serve(settings: ApiSettings, listener: socket.socket, limits: ConnectionLimits) -> None:
    replica = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    tracing = start_tracing(settings, service="vinoqueue-api", instance=replica, attributes={}, makes_roots=True)
    parts = build(connect(settings.redis_url), settings, replica, tracing)
    try:
        await parts.files.check()
        if settings.require_keys:
            await parts.keyring.ensure_any(_KEYS_TIMEOUT)
    except (NoKeysError, FilesDirError):
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
        logger.info("API replica %s listening on %s", parts.replica, address)
        stopped = asyncio.create_task(stopping.wait())
        await asyncio.wait([serving, stopped], return_when=asyncio.FIRST_COMPLETED)
        if stopping.is_set():
            logger.info("shutting down; draining for up to %.0f s", settings.drain)
        await parts.draining.drain(settings.drain if stopping.is_set() else 0)
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
            streams=len(parts.relay.streams()),
            version=VERSION,
            first_token_times={model: dict(one) for model, one in parts.first_token_times.histograms().items()},
        )
        try:
            await announce_replica(parts.redis, info, lease=parts.settings.lease)
            outage.store.served("heartbeat")
        except (RedisError, OSError) as error:
            outage.store.failed("heartbeat", error)
        await asyncio.sleep(next_tick(parts.settings.lease / 3))


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
    total = most_connections(settings.max_connections, open_files)
    if total < settings.max_connections:
        logger.warning(
            "connection limit lowered from %d to %d, because this process may open only %d files (ulimit -n)",
            settings.max_connections,
            total,
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
        max_body=settings.max_request_body,
        max_discarded=max(DRAIN_FACTOR * settings.max_body, 2 * settings.max_request_body),
    )
