"""The directory: this replica's copy of the registry, refreshed every second. Refuses models that nobody serves."""

import asyncio
import logging
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice

import msgspec
from arq.connections import ArqRedis
from redis.exceptions import RedisError

from api.keys import ApiKey
from api.models.catalogue import CatalogueModel, catalogue
from api.models.service_rate import ServiceRate
from api.records.errors import store_errors
from shared.protocol.errors import ProblemKind, RequestRefused, logits_refused, modality_refused, refuse
from shared.protocol.registry import (
    EMBED,
    GENERATE,
    IMAGE,
    RERANK,
    ModelInfo,
    NodeInfo,
    ReplicaInfo,
    WorkerInfo,
    WorkerStatus,
    read_registry,
)
from shared.protocol.request import ChatRequest, Embed, Generate, Rerank, Sampling, Work
from shared.protocol.version import PROTOCOL
from shared.redis import keys, outage
from shared.runtime.ticks import next_tick

logger = logging.getLogger(__name__)

REFRESH = 1.0
"""Refresh interval in seconds."""

RETRY_NO_WORKER = 5.0
"""``Retry-After`` in seconds while no worker can serve a request."""

_MAX_LISTED = 20
"""Maximum number of models that a refusal names."""

_INDEXES = (keys.queue, keys.inflight)

_KINDS: dict[type[Work], str] = {Generate: GENERATE, Embed: EMBED, Rerank: RERANK}
"""What a model must do for each kind of work; for others, any will do."""

_NAMES = {GENERATE: "chats and completions", EMBED: "embeddings", RERANK: "rerank and scores"}

_SERVES: tuple[WorkerStatus, ...] = ("serving", "loading", "failing")
"""Statuses of workers that serve their model or are expected to."""


@dataclass(frozen=True, slots=True)
class Depth:
    waiting: int
    claimed: int


@dataclass(frozen=True, slots=True)
class Fleet:
    """A snapshot of the registry."""

    workers: tuple[WorkerInfo, ...] = ()
    replicas: tuple[ReplicaInfo, ...] = ()
    models: dict[str, ModelInfo] = field(default_factory=dict)
    """Known models: those that workers have announced, and those that nodes declare."""
    catalogue: dict[str, CatalogueModel] = field(default_factory=dict)
    """Models that live nodes declare."""
    depths: dict[str, Depth] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """Own names and aliases, mapped to the model's own name."""
    nodes: tuple[NodeInfo, ...] = ()

    def serving(self) -> dict[str, ModelInfo]:
        """Return the models that a live worker serves or is expected to serve, or that live nodes declare, by name."""
        names = {worker.model for worker in self.workers if worker.status in _SERVES} | self.catalogue.keys()
        return {name: info for name, info in sorted(self.models.items()) if name in names}

    def can_serve(self) -> bool:
        """Return whether a worker serves any model, or a node can load one."""
        loadable = any(not model.problem for model in self.catalogue.values())
        return loadable or any(worker.status == "serving" for worker in self.workers)

    def listed(self) -> dict[str, ModelInfo]:
        """Return the models of :meth:`serving` with an entry for each alias."""
        serving = self.serving()
        return {
            name: msgspec.structs.replace(serving[model], name=name)
            for name, model in sorted(self.names.items())
            if model in serving
        }

    def loaded(self) -> frozenset[str]:
        """Return the names and aliases of the models that a worker serves now."""
        serving = {worker.model for worker in self.workers if worker.status == "serving"}
        return frozenset(name for name, model in self.names.items() if model in serving)

    def own_name(self, name: str) -> str:
        """Resolve an alias to the model's own name; return ``name`` itself if it is unknown."""
        return self.names.get(name, name)

    def sampling_defaults(self, model: str) -> Sampling:
        """Return the defaults that ``model`` has for sampling fields, as far as replicas know them."""
        info = self.models.get(model)
        if info is None:
            return Sampling()
        return Sampling(temperature=info.temperature, top_p=info.top_p, max_tokens=info.max_tokens or None)

    def context_length(self, model: str) -> int:
        """Return the longest context of the workers of ``model`` in tokens; 0 if none is known."""
        info = self.models.get(model)
        known = [worker.context_length for worker in self.workers if worker.model == model]
        return max((info.context_length if info is not None else 0, *known))

    def reads_images(self) -> bool:
        """Return whether any served model reads images, or may read them as nothing is known of it yet."""
        return any(IMAGE in info.modalities or not info.modalities for info in self.serving().values())

    def has_logits(self, model: str) -> bool:
        """Return whether all workers that serve ``model`` have access to its logits."""
        return all(worker.logits for worker in self.workers if worker.model == model and worker.status == "serving")

    def unreadable_for(self, model: str) -> tuple[WorkerInfo, ...]:
        """Return the workers that may claim jobs of ``model`` and cannot read those of this replica.

        Workers that do not serve yet count only while none serves.
        """
        own = [worker for worker in self.workers if worker.model == model and worker.status in _SERVES]
        claiming = [worker for worker in own if worker.status == "serving"] or own
        return tuple(worker for worker in claiming if PROTOCOL not in worker.protocols)

    def free_slots(self, model: str) -> int:
        serving = (worker for worker in self.workers if worker.model == model and worker.status == "serving")
        return sum(max(0, worker.slots - worker.used) for worker in serving)

    def loading(self, model: str) -> bool:
        """Return whether a worker is loading ``model`` for the first time."""
        return model not in self.models and any(
            worker.model == model and worker.status in _SERVES for worker in self.workers
        )


class Directory:
    """The latest snapshot of the registry, and how long each model has been without a worker."""

    def __init__(self, redis: ArqRedis) -> None:
        self._redis = redis
        self._refreshing = asyncio.Lock()
        self._last_seen: dict[str, float] = {}
        self._rates: dict[str, ServiceRate] = {}
        self._unreadable: dict[str, frozenset[str]] = {}
        self.fleet = Fleet()
        self.reachable = False

    async def run(self) -> None:
        while True:
            try:
                await self.refresh()
            except (RedisError, OSError) as error:
                outage.store.failed("registry", error)
                self.reachable = False
            await asyncio.sleep(next_tick(REFRESH))

    async def start(self, patience: float) -> None:
        """Refresh once before the replica serves.

        If the store doesn't respond within ``patience`` seconds, the replica serves without a snapshot, and :meth:`run`
        reports the outage.
        """
        with suppress(TimeoutError, RedisError, OSError):
            async with asyncio.timeout(patience):
                await self.refresh()

    async def refresh(self) -> None:
        """Refresh now. Raises what redis-py raises when the store is unreachable."""
        async with self._refreshing:
            before = self.fleet.workers
            workers, replicas, nodes, models = await read_registry(self._redis)
            declared = catalogue(nodes, workers, models)
            models |= {name: entry.info for name, entry in declared.items()}
            depths = await self._depths(models)
            names = _names(workers, models.values())
            self.fleet = Fleet(tuple(workers), tuple(replicas), models, declared, depths, names, tuple(nodes))
            self._report_unreadable()
            now = time.monotonic()
            outage.store.succeeded("registry")
            if self.reachable:
                _report_gone(before, workers)
            else:
                # Workers could not renew their records during the outage, so absence means nothing.
                self._last_seen |= dict.fromkeys(models, now)
            for worker in workers:
                self._last_seen[worker.model] = now
            self._last_seen |= {name: now for name, entry in declared.items() if not entry.problem}
            for model in models:
                rate = self._rates.setdefault(model, ServiceRate())
                rate.observe((worker for worker in workers if worker.model == model), now)
            self.reachable = True

    async def own_name(self, name: str) -> str:
        """Resolve an alias to the model's own name. Refreshes the directory if no known worker serves the model.

        Raises :class:`RequestRefused` when the store is unreachable.
        """
        if self.fleet.own_name(name) not in self.fleet.serving():
            await self._refresh_for_request()
        return self.fleet.own_name(name)

    async def refresh_if_empty(self) -> None:
        """Refresh the directory if it has no model that is served, as before the first worker was seen.

        Raises :class:`RequestRefused` when the store is unreachable.
        """
        if not self.fleet.serving():
            await self._refresh_for_request()

    async def require(self, name: str, key: ApiKey | None) -> None:
        """Raise :class:`RequestRefused` unless the model or alias ``name`` is served. ``key`` is the client's."""
        self.check(await self.own_name(name), key)

    def visible(self, key: ApiKey | None) -> dict[str, ModelInfo]:
        """Return the served models that ``key`` may use, by name and by alias."""
        return {name: info for name, info in self.fleet.listed().items() if self.may_use(key, name)}

    def may_use(self, key: ApiKey | None, name: str) -> bool:
        """Return whether ``key`` allows the model ``name``, by this name or by the model's own."""
        return key is None or key.may_use(name) or key.may_use(self.fleet.own_name(name))

    def not_found(self, name: str, key: ApiKey | None) -> RequestRefused:
        """Return the refusal of a model that is unknown, or that ``key`` may not use. It lists those that exist."""
        models = ", ".join(islice(self.visible(key), _MAX_LISTED)) or "none"
        return refuse(
            ProblemKind.MODEL_NOT_FOUND,
            f"The model `{name}` does not exist or you do not have access to it. Models: {models}.",
        )

    def check_request(self, request: ChatRequest, key: ApiKey | None) -> None:
        """Raise :class:`RequestRefused` unless workers can serve ``request`` of ``key``. Its model has its own name.

        All workers of a model share one queue, so all of them must read its jobs, and have access to logits if the
        request needs them.
        """
        model = request.model
        self.check(model, key)
        kinds, wanted = self.fleet.models[model].kinds, _KINDS.get(type(request.work))
        if wanted is not None and kinds and wanted not in kinds:
            served = " and ".join(_NAMES.get(kind, kind) for kind in kinds)
            raise refuse(
                ProblemKind.INVALID,
                f"The model '{model}' does not serve {_NAMES[wanted]}. It serves {served}.",
                param="model",
                code="model_kind_mismatch",
            )
        modalities = self.fleet.models[model].modalities
        # Nothing is known of a declared model before its first load. Its worker then checks its prompts.
        if request.images and modalities and IMAGE not in modalities:
            raise modality_refused("image_url", request.images[0].param)
        if workers := self.fleet.unreadable_for(model):
            raise refuse(
                ProblemKind.NO_WORKER,
                f"The model '{model}' is being upgraded: {len(workers)} of its workers cannot read requests of this "
                f"server's protocol version {PROTOCOL}. Please try again later.",
                retry_after=RETRY_NO_WORKER,
            )
        if request.logits_param is not None and not self.fleet.has_logits(model):
            raise logits_refused(request.logits_param)

    def check(self, model: str, key: ApiKey | None) -> None:
        """Raise :class:`RequestRefused` unless ``model``, the model's own name, is served. ``key`` is the client's."""
        if problem := self._load_problem(model):
            raise refuse(ProblemKind.NO_WORKER, problem, retry_after=RETRY_NO_WORKER)
        if model in self.fleet.serving():
            return
        if self.fleet.loading(model):
            state = f"The model '{model}' is loading."
        elif model in self.fleet.models:
            state = f"No worker serves the model '{model}' at the moment."
        else:
            raise self.not_found(model, key)
        raise refuse(ProblemKind.NO_WORKER, f"{state} Please try again later.", retry_after=RETRY_NO_WORKER)

    async def _refresh_for_request(self) -> None:
        async with store_errors():
            await self.refresh()

    def _report_unreadable(self) -> None:
        """Log, once, which workers keep this replica from submitting jobs for their model."""
        unreadable: dict[str, frozenset[str]] = {}
        for model in self.fleet.models:
            workers = self.fleet.unreadable_for(model)
            unreadable[model] = frozenset(worker.id for worker in workers)
            if unreadable[model] != self._unreadable.get(model, frozenset()):
                if workers:
                    logger.warning(
                        "requests for model %s are refused: workers that cannot read jobs of protocol version %d: %s",
                        model,
                        PROTOCOL,
                        ", ".join(f"{worker.id} (version {worker.version})" for worker in workers),
                    )
                else:
                    logger.warning("all workers of model %s read jobs of protocol version %d again", model, PROTOCOL)
        self._unreadable = unreadable

    def service_rate(self, model: str) -> float | None:
        """Return the jobs per second that leave a non-empty queue of ``model``; ``None`` if unknown."""
        rate = self._rates.get(model)
        return rate.requests_per_second if rate is not None else None

    def jobs_within(self, model: str, seconds: float) -> int | None:
        """Return how many jobs may be in the queue of ``model`` for the last to leave it within ``seconds``.

        That is ``None`` if the service rate is unknown. Free slots take jobs at once.
        """
        rate = self.service_rate(model)
        return None if rate is None else self.fleet.free_slots(model) + int(rate * seconds)

    def without_worker_for(self, model: str) -> float:
        """Return the seconds since the last worker of ``model`` disappeared; 0 while there is one, or a node that can
        load the model."""
        if (declared := self.fleet.catalogue.get(model)) is not None and not declared.problem:
            return 0.0
        seen = self._last_seen.get(model)
        if seen is not None and any(worker.model == model for worker in self.fleet.workers):
            return 0.0
        return time.monotonic() - seen if seen is not None else float("inf")

    def why_without_worker(self, model: str) -> str:
        """Return why requests of ``model`` fail that waited for a worker, or had lost theirs."""
        lost = f"The model '{model}' has lost its last worker. Please try again later."
        return self._load_problem(model) or lost

    def why_waited(self, model: str) -> str:
        """Return why no worker has claimed a request of ``model`` within its queue timeout."""
        declared = self.fleet.catalogue.get(model)
        state = declared.state if declared is not None else ""
        if declared is not None and declared.problem:
            return self._load_problem(model)
        if declared is not None and state == "loading":
            why = f"The model '{model}' was still loading at the queue timeout. {declared.info.detail}."
        elif state in ("unloading", "unloaded"):
            detail = declared.info.detail if declared is not None else ""
            detail = detail or "Other models use the memory"
            why = f"The model '{model}' was not loaded within the queue timeout. {detail}."
        else:
            why = "No worker became free within the queue timeout."
        return f"{why} Please try again later."

    def _load_problem(self, model: str) -> str:
        declared = self.fleet.catalogue.get(model)
        if declared is None or not declared.problem:
            return ""
        return f"The model '{model}' can't be loaded at the moment. {declared.problem}."

    async def _depths(self, models: dict[str, ModelInfo]) -> dict[str, Depth]:
        counts = await asyncio.gather(*(self._redis.zcard(index(model)) for model in models for index in _INDEXES))
        return {
            model: Depth(waiting, claimed)
            for model, waiting, claimed in zip(models, counts[::2], counts[1::2], strict=True)
        }


def _report_gone(before: Collection[WorkerInfo], now: Collection[WorkerInfo]) -> None:
    """Log workers that have disappeared without draining."""
    present = {worker.id for worker in now}
    for worker in before:
        # A node reports what becomes of its workers.
        if worker.id not in present and worker.status != "draining" and "/" not in worker.id:
            logger.warning(
                "worker %s of model %s is gone (host %s, pid %d, %d requests)",
                worker.id,
                worker.model,
                worker.host,
                worker.pid,
                worker.used,
            )


def _names(workers: Collection[WorkerInfo], models: Collection[ModelInfo]) -> dict[str, str]:
    """Return the model's own name for every name.

    Names of serving workers take precedence over those of other live workers, and these over those of remembered
    models; then own names over aliases; then the last model in alphabetical order. So an alias moves to the model with
    the highest version in its name once that serves, and back when it no longer does.
    """
    groups = (
        [(worker.model, worker.aliases) for worker in workers if worker.status == "serving"],
        [(worker.model, worker.aliases) for worker in workers],
        [(model.name, model.aliases) for model in models],
    )
    names: dict[str, str] = {}
    for group in groups:
        for model, _ in group:
            names.setdefault(model, model)
        for model, aliases in sorted(group, reverse=True):
            for alias in aliases:
                names.setdefault(alias, model)
    return names
