"""The worker's supervisor process: construction, background tasks, draining and shutdown."""

import asyncio
import logging
import os
import signal
import uuid
from contextlib import suppress
from typing import Any, NamedTuple

from arq.connections import ArqRedis
from redis.exceptions import RedisError

from shared.protocol.queue import Emitter, JobQueue
from shared.protocol.request import Sampling
from shared.redis.client import connect, raw_connection
from shared.runtime import logs
from shared.runtime.event_loop import run as run_loop
from shared.runtime.placement import beside_engine, own_cpus, run_on
from shared.runtime.settings import WorkerSettings
from shared.runtime.tasks import cancel_all, keep_running
from worker.consumer import ChatWorker
from worker.control_channel import ControlChannel
from worker.devices import computes_on_cpus
from worker.engine.interface import EngineLoadError
from worker.engine.options import EngineOptions
from worker.engine_supervisor import EngineSupervisor
from worker.grammar.interface import GrammarOptions
from worker.grammar.process import GrammarProcess
from worker.heartbeat import Heartbeat
from worker.model.local import LocalModel, ModelError, resolve
from worker.model.source import check_name
from worker.prefix_gate import PrefixGate
from worker.prompt.interface import PromptOptions
from worker.prompt.process import PromptError, PromptProcess
from worker.prompt.template_file import read_template
from worker.publisher import Publisher
from worker.service import ModelService

logger = logging.getLogger(__name__)

_CLOSE_TIMEOUT = 2.0
"""Seconds that each of the Redis calls of the shutdown may take."""


def run(settings: WorkerSettings) -> int:
    """Run the worker until SIGINT or SIGTERM. Returns the exit code: 1 when the model cannot be served."""
    logs.configure(settings.log_level)
    try:
        return run_loop(_serve(settings))
    except (ModelError, EngineLoadError, PromptError) as error:
        logger.error("%s", error)
        return 1


class _Worker:
    """The components of a worker, constructed and wired in one place."""

    def __init__(
        self,
        settings: WorkerSettings,
        redis: ArqRedis,
        model: "_ServedModel",
        names: tuple[str, ...],
        cpus: frozenset[int],
    ) -> None:
        """``names`` are the names under which ``model`` is served; the first one names its queue. ``cpus`` are the CPUs
        that the engine may use.

        Raises :class:`ModelError` when the chat template named in the settings can't be read.
        """
        name, path = names[0], model.path
        template = read_template(settings.chat_template)
        options = EngineOptions.from_settings(
            settings, path=path, context_length=model.context_length, cpus=cpus, chat_template=template
        )
        self.id = settings.worker_id or f"{settings.node}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
        self.settings = settings
        self.redis = redis
        lease_ms = int(settings.lease * 1000)
        self.queue = JobQueue(redis, name, lease_ms=lease_ms)
        self.service = ModelService(
            self.id,
            max_lost_workers=settings.max_lost_workers,
            log_poison=settings.log_poison_requests,
            sampling=model.sampling,
            prefix_gate=PrefixGate() if settings.engine == "openvino" and settings.caches_prefixes else None,
        )
        self.consumer = ChatWorker(
            redis,
            self.queue,
            self.id,
            self.service.serve,
            slots=options.max_batch,
            poll=settings.poll,
            prefetch=self.service.prefetch,
        )
        self.publisher = Publisher(
            Emitter(name, self.id),
            raw_connection(settings.redis_url),
            load=lambda: self.service.active / self.consumer.max_jobs,
            on_stale=self.service.abandon_these,
            on_orphaned=self.service.cancel_replica,
        )
        self.prompts = PromptProcess(
            PromptOptions(
                engine=settings.engine,
                path=path,
                context_length=model.context_length,
                schema_bytes=settings.schema_bytes,
                chat_template=template,
            )
        )
        self.grammars = (
            GrammarProcess(GrammarOptions(path=path), most_seconds=settings.grammar_seconds)
            if settings.engine == "openvino"
            else None
        )
        self.service.attach(self.publisher, self.prompts, self.grammars)
        self.engine_supervisor = EngineSupervisor(
            options,
            self.service,
            self.consumer,
            self.queue,
            self.id,
            step_timeout=settings.step_timeout,
        )
        self.heartbeat = Heartbeat(
            redis, self.queue, self.service, self.consumer, self.engine_supervisor, settings, self.id, aliases=names[1:]
        )
        self.control_channel = ControlChannel(raw_connection(settings.redis_url), self.id, self.service, self.consumer)
        self.engine_supervisor.on_change = self.heartbeat.hurry

    async def run(self, stopping: asyncio.Event) -> None:
        """Serve until ``stopping`` is set, then drain.

        Raises :class:`EngineLoadError` or :class:`PromptError` when the model can't be loaded at all.
        """
        background: set[asyncio.Task[Any]] = {
            asyncio.create_task(keep_running(name, work), name=name)
            for name, work in (
                ("heartbeat", self.heartbeat.run),
                ("control channel", self.control_channel.run),
                ("publisher", self.publisher.run),
                ("consumer", self.consumer.main),
            )
        }
        loading = asyncio.create_task(self._load(), name="engine")
        stopped = asyncio.create_task(stopping.wait(), name="stop signal")
        try:
            await asyncio.wait([loading, stopped], return_when=asyncio.FIRST_COMPLETED)
            if loading.done():
                loading.result()
            await self._drain()
        finally:
            await self.engine_supervisor.stop()
            await self.prompts.stop()
            if self.grammars is not None:
                await self.grammars.stop()
            await cancel_all({loading, stopped, *background})
            # Best effort: a registry record that is not removed expires with the lease.
            with suppress(TimeoutError, RedisError, OSError):
                async with asyncio.timeout(_CLOSE_TIMEOUT):
                    await self.heartbeat.withdraw()

    async def _load(self) -> None:
        """Start the subprocesses and keep them running. Raises the error of one that can't be loaded."""
        await self.prompts.start()
        await asyncio.gather(self.prompts.ended(), self.engine_supervisor.run(), self._load_grammars())

    async def _load_grammars(self) -> None:
        """Start the grammar process after the prompt process: only some requests need it."""
        if self.grammars is not None:
            await self.prompts.ready()
            self.grammars.start()

    async def _drain(self) -> None:
        """Stop claiming, wait for the running jobs, and release those that don't finish in time."""
        logger.info("draining: %d requests have %.0f s to finish", self.service.active, self.settings.drain)
        self.heartbeat.draining = True
        self.consumer.close_intake()
        with suppress(TimeoutError, RedisError, OSError):
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await self.heartbeat.renew()
                await self.queue.withdraw(self.id)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.drain):
                await self.consumer.drained()
        with suppress(TimeoutError, RedisError, OSError):
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await self.publisher.flushed()
                if claims := self.service.abandon_all():
                    logger.info("%d requests released to other workers", await self.queue.release(self.id, claims))


async def _serve(settings: WorkerSettings) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    cpus = own_cpus()
    if computes_on_cpus(settings):
        run_on(beside_engine(cpus))
    model = await _find_model(settings)
    names = tuple(map(check_name, settings.served_names)) or (model.name,)
    redis = connect(settings.redis_url)
    try:
        worker = _Worker(settings, redis, model, names, cpus)
        logger.info("worker %s serves %s on %s", worker.id, ", ".join(names), settings.device)
        await worker.run(stopping)
    finally:
        await redis.aclose(close_connection_pool=True)
    return 0


class _ServedModel(NamedTuple):
    """The model to serve.

    ``path`` is a file or folder, or a simulated engine's directives. ``context_length`` is in tokens.
    """

    name: str
    path: str
    context_length: int
    sampling: Sampling = Sampling()


async def _find_model(settings: WorkerSettings) -> _ServedModel:
    """Return the model named in the settings, downloading it in a thread if necessary."""
    if settings.engine == "simulated":
        name, _, faults = settings.model.partition("=")
        return _ServedModel(check_name(name), faults, settings.sim_context)
    model: LocalModel = await asyncio.to_thread(resolve, settings.model, max_context=settings.max_context)
    return _ServedModel(model.name, str(model.path), model.context_length, model.sampling)
