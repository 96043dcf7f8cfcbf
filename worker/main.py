"""The worker's supervisor process: construction, background tasks and shutdown."""

import asyncio
import logging
import os
import signal
import uuid
from contextlib import suppress
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import msgspec
from arq.connections import ArqRedis
from redis.exceptions import RedisError

from shared.parsers.formats import AUTO, NONE, PARSERS
from shared.protocol.formats import MAX_WARNING
from shared.protocol.queue import Emitter, JobQueue
from shared.protocol.registry import LeaseMismatch
from shared.protocol.request import ChatRequest, Embed, Generate, Rerank, Tokenize, Work, fill_in
from shared.redis.client import connect, raw_connection
from shared.redis.reconnections import Reconnections
from shared.redis.store_check import StoreCheck
from shared.runtime.event_loop import on_signal
from shared.runtime.event_loop import run as run_loop
from shared.runtime.health_file import HealthFile
from shared.runtime.placement import cpus_for_others, own_cpus, run_on
from shared.runtime.settings import WorkerSettings
from shared.runtime.tasks import cancel_all, keep_running
from shared.runtime.ticks import Backoff, until
from shared.tracing import Tracing, TracingUnavailable, start_tracing
from worker.engine.backends import BACKENDS, computes_on_cpus
from worker.engine.handle import CurrentEngine, EngineSupervisor
from worker.engine.options import EngineOptions
from worker.engine.protocol import EngineLoadError
from worker.engine.unchanged import UnchangedModel
from worker.grammar.messages import GrammarOptions
from worker.grammar.service import GrammarProcess
from worker.images.messages import ImageOptions
from worker.images.service import ImageProcess
from worker.images.tokens import ImageTokens
from worker.jobs.active_jobs import ActiveJobs
from worker.jobs.consumer import JobConsumer
from worker.jobs.control_channel import run_control_channel
from worker.jobs.draining import Draining, release_jobs
from worker.jobs.embedding import EmbeddingRunner
from worker.jobs.gates.batches import BatchGate
from worker.jobs.gates.prefix import PrefixGate
from worker.jobs.gates.quarantine import Quarantine
from worker.jobs.generation import GenerationRunner
from worker.jobs.heartbeat import Heartbeat
from worker.jobs.joining import join_fleet
from worker.jobs.output_processor import OutputProcessor
from worker.jobs.publisher import Publisher
from worker.jobs.registry_record import RegistryRecord
from worker.jobs.request_cache import RequestCache
from worker.jobs.runner import JobRunner, KindRunner
from worker.jobs.tokenization import TokenizationRunner
from worker.model.chat_template import read_template
from worker.model.request_defaults import given_defaults
from worker.model.source import ModelError, check_parser
from worker.processes.call_process import ServiceUnavailable
from worker.processes.child import LoadError
from worker.prompt.messages import PromptOptions
from worker.prompt.service import prompt_process
from worker.served_model import ServedModel, find_model, served_names

logger = logging.getLogger(__name__)

_RELOAD = (1.0, 60.0)
"""First and longest pause in seconds before a changed model that can't be loaded is tried again: it may be written."""

_FIRST = 1.0
"""Seconds that the first requests have the CPUs for themselves."""

_CLOSE_TIMEOUT = 2.0
"""Seconds that each of the Redis calls of the shutdown may take."""


def run(settings: WorkerSettings) -> int:
    """Run the worker until SIGINT, SIGTERM or SIGHUP. Returns the exit code: 1 when the model cannot be served."""
    try:
        return run_loop(_serve(settings))
    except (ModelError, EngineLoadError, LoadError, LeaseMismatch, ServiceUnavailable, TracingUnavailable) as error:
        logger.error("%s", error)
        if settings.termination_log:
            with suppress(OSError):
                Path(settings.termination_log).write_text(str(error), encoding="utf-8")
        return 1


class _Worker:
    """The components of a worker, constructed in one place, those that others depend on first."""

    def __init__(
        self,
        worker: str,
        settings: WorkerSettings,
        redis: ArqRedis,
        payloads: ArqRedis,
        images: ArqRedis,
        model: ServedModel,
        names: tuple[str, ...],
        cpus: frozenset[int],
        tracing: Tracing,
        note: str,
        reconnections: Reconnections,
    ) -> None:
        """``worker`` is this worker's id. ``payloads`` and ``images`` are further clients of the store, so that leases
        are renewed and jobs claimed while large values are read. ``names`` are the names under which ``model`` is
        served; the first one names its queue. ``cpus`` are the CPUs that the engine may use,
        ``note`` is what to add to each stage of loading.

        Raises :class:`ModelError` when the chat template named in the settings can't be read, and
        :class:`EngineLoadError` for properties that no engine can have.
        """
        template, defaults = read_template(settings.chat_template), given_defaults()
        model = model._replace(sampling=fill_in(defaults.sampling, model.sampling))
        changes: dict[str, Any] = {kind: check_parser(kind, getattr(settings, kind)) for kind in PARSERS}
        changes |= {"template_kwargs": defaults.template_kwargs, "system": defaults.system or ""}
        backend = BACKENDS[model.engine or settings.engine]
        options: EngineOptions = resolve_name(backend.options).from_settings(
            settings,
            path=model.path,
            context_length=model.context_length,
            engine=model.engine,
            cpus=cpus,
            chat_template=template,
            prompts="".join(f"{name}={value}" for name, value in changes.items() if value not in (AUTO, {}, "")),
            vectors=defaults.vectors,
        )
        self.id, self._warnings = worker, model.warnings
        self.settings = settings
        self.reconnections = reconnections
        self.queue, claims, files = (
            JobQueue(client, names[0], lease_ms=int(settings.lease * 1000)) for client in (redis, payloads, images)
        )
        self.jobs = jobs = ActiveJobs()
        self.model = UnchangedModel(*((model.path, settings.draft_model) if backend.has_model else ()))
        self.engine = engine = CurrentEngine(slots=options.max_batch, note=note)
        events = raw_connection(settings.redis_url)
        self.publisher = Publisher(Emitter(names[0], self.id, events.database), events, jobs, engine, reconnections)
        self.prompts = prompt_process(
            PromptOptions(
                engine=options.engine,
                path=model.path,
                context_length=model.context_length,
                max_prompt=options.max_prompt,
                chat_template=template,
                self_test=settings.self_test,
                vectors=defaults.vectors,
                **changes,
            ),
            module=backend.prompts,
            check_loaded=self.model.check,
        )
        self.images = ImageProcess(ImageOptions(), image_pixels=settings.image_pixels)
        self.grammars = (
            GrammarProcess(
                GrammarOptions(engine=options.engine, path=model.path),
                max_seconds=settings.grammar_seconds,
                check_loaded=self.model.check,
            )
            if backend.grammars
            else None
        )
        tokens = ImageTokens(Path(model.path) if backend.has_model else None)
        requests = RequestCache(claims, files, self.prompts, self.images)
        gates = (
            Quarantine(),
            PrefixGate(caching=backend.caches_prefixes and settings.prefix_caching),
            BatchGate(),
        )
        kinds: dict[type[Work], KindRunner] = {
            Tokenize: TokenizationRunner(self.id, engine, self.publisher, requests, tokens)
        }
        if model.work == "generate":
            kinds[Generate] = GenerationRunner(self.id, engine, requests, self.grammars, gates, model.sampling)
        else:
            vectors = EmbeddingRunner(self.id, engine, requests, gates)
            kinds[Rerank if model.work == "rerank" else Embed] = vectors
        runner = JobRunner(
            self.id, claims, jobs, self.publisher, requests, kinds, tracing, log_poison=settings.log_poison_requests
        )
        self.consumer = JobConsumer(
            claims,
            self.id,
            runner,
            jobs,
            requests,
            engine,
            poll=settings.poll,
            batch_reserve=None if settings.batch_reserve == "auto" else settings.batch_reserve,
        )
        self.record = RegistryRecord(
            self.id,
            names,
            settings,
            engine,
            jobs,
            modalities=model.modalities,
            kinds=(model.work,),
            sampling=model.sampling,
        )
        health = HealthFile(settings.health_file)
        self.heartbeat = Heartbeat(
            self.queue,
            self.id,
            jobs,
            self.record,
            lease=settings.lease,
            health=health,
            yield_slot=self.consumer.yield_slot,
            cancel_orphans=self.publisher.cancel_orphans,
        )
        self.draining = Draining(
            self.id,
            self.queue,
            jobs,
            self.consumer,
            self.publisher,
            self.record,
            self.heartbeat,
            seconds=settings.drain,
        )
        outputs = OutputProcessor(jobs, engine, self.publisher)
        # The package of the engine lies below that of the jobs, so what its supervisor calls are callbacks.
        self.engine_supervisor = EngineSupervisor(
            options,
            engine,
            step_timeout=settings.step_timeout,
            on_stepped=outputs.on_stepped,
            on_refused=outputs.on_refused,
            on_change=self._on_engine_change,
            release_jobs=partial(release_jobs, self.queue, self.publisher, self.id, jobs, cause="engine_lost"),
            others_loaded=self.prompts.ready,
            check_model=self.model.check,
        )

    async def run(self, stopping: asyncio.Event) -> None:
        """Serve until ``stopping`` is set or the model has changed, then drain.

        Raises :class:`LoadError` or :class:`ServiceUnavailable` when the model can't be loaded at all.
        """
        background: set[asyncio.Task[Any]] = {
            asyncio.create_task(keep_running(name, work), name=name)
            for name, work in (
                ("heartbeat", self.heartbeat.run),
                ("control channel", self._run_control_channel),
                ("publisher", self.publisher.run),
                ("consumer", self.consumer.run),
            )
        }
        loading = asyncio.create_task(self._load(), name="engine")
        ends = {asyncio.create_task(event.wait(), name="end") for event in (stopping, self.model.changed)}
        try:
            await asyncio.wait([loading, *ends], return_when=asyncio.FIRST_COMPLETED)
            if loading.done() and not self.model.changed.is_set():
                loading.result()
            await self.draining.finish()
        finally:
            stops = [self.engine_supervisor.stop(), self.prompts.stop(), self.images.stop()]
            if self.grammars is not None:
                stops.append(self.grammars.stop())
            await asyncio.gather(*stops)
            await cancel_all({loading, *ends, *background})
            await self.consumer.stop()
            # Best effort: a registry record that is not removed expires with the lease.
            with suppress(TimeoutError, RedisError, OSError):
                async with asyncio.timeout(_CLOSE_TIMEOUT):
                    await self.heartbeat.withdraw()

    async def _run_control_channel(self) -> None:
        connection = raw_connection(self.settings.redis_url)
        await run_control_channel(
            connection,
            self.id,
            self.consumer,
            self.jobs,
            self.draining,
            publish=self.queue.redis.publish,
            reconnections=self.reconnections,
        )

    async def _load(self) -> None:
        """Start the subprocesses and keep them running. Raises the error of one that can't be loaded."""
        self.prompts.start()
        await asyncio.gather(self.prompts.ended(), self.engine_supervisor.run(), self._after_prompts())

    async def _after_prompts(self) -> None:
        """Once prompts can be made, log what the template does. When the first requests have tokens, start the grammar
        process, which few need; a request that does starts it too."""
        await self.prompts.ready()
        description = ChatRequest(model="", work=Tokenize(describe=True))
        described = await self.prompts.call(description, "")
        warnings = (*self._warnings, *(f"self-test: {finding}" for finding in described.findings or ()))
        for warning in warnings:
            logger.warning("%s", warning)
        if described.findings == ():
            logger.info("self-test passed")
        if described.formats is not None:
            shown = tuple(warning[:MAX_WARNING] for warning in warnings)
            self.record.formats = msgspec.structs.replace(described.formats, warnings=shown)
            logger.info("chat template: %s", self.record.formats)
            self.heartbeat.trigger()
        budget, engine = self.record.sampling.thinking_budget, (await self.engine.wait()).info
        thinks = self.record.formats is not None and self.record.formats.reasoning_parser != NONE
        if budget is not None and not (thinks and engine.adjusts_logits):
            logger.warning("the model's thinking_token_budget has no effect: it needs --logits and a reasoning parser")
        await asyncio.sleep(_FIRST)
        if self.grammars is not None:
            self.grammars.start()

    def _on_engine_change(self) -> None:
        """Handle the start or the end of an engine."""
        self.consumer.wake()
        self.heartbeat.trigger()


async def _serve(settings: WorkerSettings) -> int:
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        on_signal(number, stopping.set)
    cpus = own_cpus()
    if computes_on_cpus(settings):
        run_on(cpus_for_others(cpus))
    names = served_names(settings)
    for kind in PARSERS:
        check_parser(kind, getattr(settings, kind))
    name = settings.worker_id or f"{settings.node}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    reconnections = Reconnections()
    redis, payloads, images = clients = tuple(connect(settings.redis_url, reconnections) for _ in range(3))
    check = asyncio.create_task(keep_running("store check", StoreCheck(redis).run), name="store check")
    tracing = start_tracing(
        settings,
        service="vinoqueue-worker",
        instance=name,
        attributes={"vinoqueue.device": settings.device, "host.name": settings.node},
        makes_roots=False,
    )
    try:
        await join_fleet(redis, settings.redis_url, lease=settings.lease, stopping=stopping)
        backoff, note = Backoff(*_RELOAD), ""
        while not stopping.is_set():
            try:
                model = await find_model(settings, redis, name, names)
                worker = _Worker(
                    name, settings, redis, payloads, images, model, names, cpus, tracing, note, reconnections
                )
                await worker.run(stopping)
            except (ModelError, EngineLoadError, LoadError, ServiceUnavailable) as error:
                if not note:
                    raise
                pause = backoff.pause()
                logger.error("the changed model can't be loaded, trying again in %.0f s: %s", pause, error)
                await until(stopping, pause)
            else:
                if not worker.model.changed.is_set():
                    break
                note = ", because the model has changed"
                logger.warning("loads the model as a whole%s: %s", note, worker.model.difference)
    finally:
        await cancel_all({check})
        for client in clients:
            await client.aclose(close_connection_pool=True)
        tracing.close()
    return 0
