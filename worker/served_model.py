"""Finds the model to serve, and downloads it if necessary. Meanwhile, the registry says that it is loading."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

from arq.connections import ArqRedis
from redis.exceptions import RedisError

from shared.protocol.queue import JobQueue
from shared.protocol.registry import FINDING_FILES, IMAGE, TEXT
from shared.protocol.request import Sampling
from shared.runtime.health_file import HealthFile
from shared.runtime.settings import WorkerSettings
from shared.runtime.tasks import cancel_all
from worker.engine.backends import BACKENDS, EMBEDDING
from worker.engine.handle import CurrentEngine
from worker.jobs.active_jobs import ActiveJobs
from worker.jobs.heartbeat import Heartbeat
from worker.jobs.registry_record import RegistryRecord
from worker.model.embedding import Kind
from worker.model.files import sees_images
from worker.model.huggingface import Download
from worker.model.local import LocalModel, resolve
from worker.model.source import check_name, parse_source

_PROGRESS = 1.0
"""Seconds between two looks at a download."""


class ServedModel(NamedTuple):
    """The model to serve.

    ``path`` is a file or folder, or a simulated engine's directives. ``context_length`` is in tokens. ``warnings`` say
    what in the file may make the model compute something else.
    """

    path: str
    context_length: int
    sampling: Sampling = Sampling()
    modalities: tuple[str, ...] = (TEXT,)
    warnings: tuple[str, ...] = ()
    work: Kind = "generate"
    """The kind of work that it serves."""

    @property
    def engine(self) -> str:
        """The key of its backend if its files decide on that; otherwise empty, and the settings do."""
        return "" if self.work == "generate" else EMBEDDING


def served_names(settings: WorkerSettings) -> tuple[str, ...]:
    """Return the names under which the model is served; the first one names its queue.

    Raises :class:`ModelError` for a name that clients can't send, or an unknown form of model source.
    """
    names = tuple(map(check_name, settings.served_names))
    if names:
        return names
    if not BACKENDS[settings.engine].has_model:
        return (check_name(settings.model.partition("=")[0]),)
    return (parse_source(settings.model).name,)


async def find_model(settings: WorkerSettings, redis: ArqRedis, worker: str, names: tuple[str, ...]) -> ServedModel:
    """Return the model named in the settings, downloading it in a thread if necessary.

    Until then, a record in the registry says that ``worker`` loads the model, so that requests get 503, not 404.
    Raises :class:`ModelError` when there is no such model.
    """
    if not BACKENDS[settings.engine].has_model:
        # NumPy, which real models need in other processes only, takes 10 MB.
        from worker.simulated.engine import parse_directives

        path = settings.model.partition("=")[2]
        directives = parse_directives(path)
        modalities = _modalities(images=directives.see_images)
        # Greedy unless the request has a temperature.
        return ServedModel(path, directives.context, Sampling(temperature=0.0), modalities)
    async with _announced(settings, redis, worker, names) as engine, progress(engine) as on_download:
        model: LocalModel = await asyncio.to_thread(
            resolve, settings.model, max_context=settings.max_context, on_download=on_download
        )
    modalities = _modalities(images=sees_images(model.path))
    return ServedModel(str(model.path), model.context_length, model.sampling, modalities, model.warnings, model.work)


def _modalities(*, images: bool) -> tuple[str, ...]:
    return (TEXT, IMAGE) if images else (TEXT,)


@asynccontextmanager
async def progress(engine: CurrentEngine) -> AsyncIterator[Callable[[Download], None]]:
    """Show the progress of a download as the stage of ``engine``, which is in the registry, until the block ends.

    Yields what :func:`~worker.model.local.resolve` calls, in its thread, when the download begins.
    """
    begun: list[Download] = []

    async def show() -> None:
        while True:
            if begun:
                done, size = await asyncio.to_thread(lambda: begun[0].done), begun[0].size
                engine.stage = f"{FINDING_FILES}: {done / 1e9:.2f} of {size / 1e9:.2f} GB downloaded"
            await asyncio.sleep(_PROGRESS)

    shown = asyncio.create_task(show(), name="progress of the download")
    try:
        yield begun.append
    finally:
        await cancel_all({shown})


@asynccontextmanager
async def _announced(
    settings: WorkerSettings, redis: ArqRedis, worker: str, names: tuple[str, ...]
) -> AsyncIterator[CurrentEngine]:
    """Keep the worker's registry record during the block, and until its lease expires unless the block fails."""
    jobs, engine = ActiveJobs(), CurrentEngine(slots=0)
    engine.stage = FINDING_FILES
    record = RegistryRecord(worker, names, settings, engine, jobs)
    queue = JobQueue(redis, names[0], lease_ms=int(settings.lease * 1000))
    health = HealthFile(settings.health_file)
    heartbeat = Heartbeat(queue, worker, jobs, record, lease=settings.lease, health=health)
    heartbeat_task = asyncio.create_task(heartbeat.run(), name="heartbeat")
    try:
        yield engine
    except BaseException:
        await cancel_all({heartbeat_task})
        with suppress(RedisError, OSError):
            await heartbeat.withdraw()
        raise
    await cancel_all({heartbeat_task})
