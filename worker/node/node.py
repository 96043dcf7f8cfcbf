"""The node: observes the queues and its workers, follows the placement policy, and announces itself."""

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import cast

import msgspec
from arq.connections import ArqRedis
from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared.protocol.cost import UNBOUNDED_RESPONSE
from shared.protocol.model_commands import read_commands
from shared.protocol.queue.occupancy import Occupancy, OccupancyReader, waiting_tokens
from shared.protocol.registry import NodeInfo, WorkerInfo, announce, registered, withdraw
from shared.redis import keys, outage
from shared.redis.client import database_of
from shared.runtime.health_file import HealthFile
from shared.runtime.settings import NodeSettings, WorkerSettings, environment
from shared.runtime.ticks import until
from shared.runtime.version import VERSION
from worker.engine.backends import BACKENDS
from worker.model.request_defaults import VARIABLE
from worker.node.catalogue import CatalogueEntry, CatalogueError, read_catalogue
from worker.node.devices import HOST, Memory, place
from worker.node.memory import DEFAULT_CACHE_GB, Measurement, Measurements, expected, needed
from worker.node.policy import KnownModel, MemoryPlan, PolicyTimes, plan
from worker.node.resident import Resident

logger = logging.getLogger(__name__)

_INTERVAL = 0.2
"""Seconds between two looks at the queues."""

_BATCH_IDLE = 10.0
_STOP_MARGIN = 3.0
"""Seconds that workers have to exit after the drain time."""


class Node:
    """Loads and unloads the models of a catalogue."""

    def __init__(
        self,
        node: str,
        settings: NodeSettings,
        redis: ArqRedis,
        measurements: Measurements,
        *,
        pid: int,
        capacity: Memory,
    ) -> None:
        """``node`` is this node's id. ``capacity`` is what its models may take.

        Raises :class:`CatalogueError`.
        """
        self._id = node
        self._settings = settings
        self._redis = redis
        self._measurements = measurements
        self._pid = pid
        self._capacity = capacity
        self._started = time.time()
        self._health = HealthFile(settings.health_file)
        self._changes = asyncio.Event()
        """Set when a worker has exited."""
        self._placements = Placements(redis, node, lease=settings.lease)
        self._occupancies = OccupancyReader(redis)
        self._rules = PolicyTimes(
            spread_wait=settings.spread_wait,
            swap_wait=settings.swap_wait,
            min_residence=settings.swap_wait,
            batch_idle=_BATCH_IDLE,
        )
        self._path = Path(settings.models)
        self._read_at = self._modified()
        self._entries = {entry.name: entry for entry in read_catalogue(self._path, settings)}
        """The catalogue. Models whose workers have not ended yet keep their earlier entries."""
        self._residents = {name: self._resident(entry) for name, entry in self._entries.items()}
        self._count = 0

    async def run(self) -> None:
        """Run until cancelled. While the store is unreachable, the workers go on, and nothing is loaded or unloaded."""
        while True:
            with outage.store.reported("node"):
                await self.step()
            await until(self._changes, min(_INTERVAL, self._settings.lease / 3))
            self._changes.clear()
            if self._modified() != self._read_at:
                self.reload()

    async def step(self) -> None:
        """Look at queues and workers once, and do what the policy says. Raises what redis-py raises."""
        workers = await registered(self._redis, WorkerInfo)
        by_id = {worker.id: worker for worker in workers}
        for resident in self._residents.values():
            if (measured := resident.observe(by_id.get(resident.worker))) is not None:
                self._measurements.put(self._worker_settings(resident.entry, ""), measured)
                resident.measured = measured
                resident.memory = self._needed(resident.entry, measured)
        self._follow_catalogue()
        commands = await read_commands(self._redis, [*self._residents])
        for name, resident in self._residents.items():
            resident.obey(commands.get(name))
        states = [await self._state(resident, workers) for resident in self._residents.values()]
        todo = plan(states, self._capacity, self._rules)
        for name, resident in self._residents.items():
            resident.room = todo.short.get(name)
        for name, reason in todo.load.items():
            await self._load(self._residents[name], reason)
        await self._make_room(todo, by_id)
        await self._keep_leases(todo)
        await announce(self._redis, self.info(), lease=self._settings.lease)
        self._health.write("serving")

    def info(self) -> NodeInfo:
        """Return the node's registry record."""
        return NodeInfo(
            id=self._id,
            host=self._settings.node,
            pid=self._pid,
            started=self._started,
            memory=self._capacity[HOST],
            devices={where: size for where, size in self._capacity.items() if where != HOST},
            models=tuple(resident.declared() for resident in self._residents.values()),
            version=VERSION,
        )

    def reload(self) -> None:
        """Read the catalogue again. An invalid one is reported, and the old one stays."""
        self._read_at = self._modified()
        try:
            entries = {entry.name: entry for entry in read_catalogue(self._path, self._settings)}
        except CatalogueError as error:
            logger.error("%s The old catalogue stays.", error)
            return
        logger.info("catalogue read: %s", ", ".join(sorted(entries)))
        self._entries = entries
        self._follow_catalogue()

    async def stop(self, drain: float) -> None:
        """Unload all models; requests have ``drain`` seconds to finish. Then withdraw from the registry."""
        residents = [*self._residents.values()]
        for resident in residents:
            resident.unload("stop", "the node stops")
        try:
            async with asyncio.timeout(drain + _STOP_MARGIN):
                await asyncio.gather(*(resident.ended() for resident in residents))
        except TimeoutError:
            self.kill()
            await asyncio.gather(*(resident.ended() for resident in residents))
        with suppress(RedisError, OSError):
            await asyncio.gather(*(self._placements.release(name) for name in self._residents))
            await withdraw(self._redis, NodeInfo, self._id)

    def kill(self) -> None:
        for resident in self._residents.values():
            resident.kill()

    async def _state(self, resident: Resident, workers: list[WorkerInfo]) -> KnownModel:
        entry = resident.entry
        occupancy, leases = await asyncio.gather(self._occupancies.read(entry.name), self._placements.count(entry.name))
        waiting, batch = _waiting(occupancy)
        tokens, batch_tokens = await waiting_tokens(self._redis, entry.name, occupancy)
        serving = sum(worker.model == entry.name and worker.status == "serving" for worker in workers)
        if serving:
            resident.requested_since = None
        requested = resident.requested_since is not None
        waiting += requested
        tokens += requested * UNBOUNDED_RESPONSE
        resident.waiting_since = (resident.waiting_since or time.monotonic()) if waiting + batch else None
        waited = time.monotonic() - resident.waiting_since if resident.waiting_since else 0.0
        resident.waited = 0.0 if serving else waited
        alone = sum(worker.model == entry.name and "/" not in worker.id for worker in workers)
        own = resident.here != "absent" and not resident.has_lease
        return KnownModel(
            name=entry.name,
            priority=entry.priority,
            keep=entry.keep_seconds,
            least=entry.least,
            most=entry.most,
            memory=resident.memory,
            load_seconds=resident.measured.load_seconds if resident.measured else 0.0,
            waiting=waiting,
            waiting_batch=batch,
            tokens=tokens or batch_tokens,
            requested=requested,
            waited=waited,
            workers=leases + alone + own - (resident.has_lease and resident.here == "absent"),
            serving=serving,
            here=resident.here,
            resident=resident.residence,
            idle=resident.idle if not occupancy.held_by(resident.worker) else 0.0,
            blocked=resident.blocked,
            unwanted=self._entries.get(entry.name) != entry,
        )

    async def _load(self, resident: Resident, reason: str) -> None:
        entry = resident.entry
        if not await self._placements.take(entry.name, entry.most):
            return
        resident.has_lease = True
        self._count += 1
        worker = f"{self._id}/{self._count}"
        await resident.load(worker, self._environment(entry, worker), reason)

    async def _retire(self, old: Resident, workers: Mapping[str, WorkerInfo]) -> None:
        """Have a model with an old entry claim no more jobs, and unload it when its jobs have ended.

        The new entry may have another vocabulary, so no other worker could continue its streams.
        """
        info = workers.get(old.worker)
        if info is None:
            return  # it renews its record late, or is about to exit
        if info.status != "draining":
            await self._redis.publish(keys.worker_channel(old.worker, database_of(self._redis)), "retire")
        elif info.used == 0:
            old.unload("changed", "its entry has changed")

    async def _make_room(self, todo: MemoryPlan, workers: Mapping[str, WorkerInfo]) -> None:
        """Unload what the policy says. What makes room for a model does so only once this node may load that model."""
        granted = set()
        for name in todo.awaited:
            entry = self._residents[name].entry
            if await self._placements.take(name, entry.most):
                self._residents[name].has_lease = True
                granted.add(name)
        for name, why in todo.unload.items():
            if why.cause == "changed":
                await self._retire(self._residents[name], workers)
            elif (reserved := todo.reserved_for.get(name)) is None or reserved in granted:
                self._residents[name].unload(*why)

    async def _keep_leases(self, todo: MemoryPlan) -> None:
        for name, resident in self._residents.items():
            if resident.here != "absent":
                resident.has_lease = await self._placements.take(name, resident.entry.most)
            elif resident.has_lease and name not in todo.awaited:
                resident.has_lease = False
                await self._placements.release(name)

    def _follow_catalogue(self) -> None:
        """Give models without a worker their new entries, and drop those that the catalogue has no more."""
        for name, resident in list(self._residents.items()):
            if resident.here == "absent" and name not in self._entries:
                del self._residents[name]
        for name, entry in self._entries.items():
            current = self._residents.get(name)
            if current is None or (current.here == "absent" and current.entry != entry):
                self._residents[name] = self._resident(entry, current)

    def _resident(self, entry: CatalogueEntry, before: Resident | None = None) -> Resident:
        measured, wake = self._measurements.get(self._worker_settings(entry, "")), self._changes.set
        made = Resident(
            entry,
            self._needed(entry, measured),
            measured,
            expected=None if measured else self._expected(entry),
            capacity=self._capacity,
            wake=wake,
        )
        if before is not None:
            made.succeed(before)
        return made

    def _needed(self, entry: CatalogueEntry, measured: Measurement | None) -> Memory:
        settings = self._worker_settings(entry, "")
        return needed(entry, measured, settings, place(settings.device, self._capacity))

    def _expected(self, entry: CatalogueEntry) -> Measurement | None:
        settings = self._worker_settings(entry, "")
        has_model = BACKENDS[settings.engine].has_model
        return expected(entry.source, max_context=settings.max_context) if has_model else None

    def _environment(self, entry: CatalogueEntry, worker: str) -> Mapping[str, str]:
        defaults = {VARIABLE: msgspec.json.encode(entry.defaults).decode()}
        return environment(self._worker_settings(entry, worker), WorkerSettings) | defaults

    def _worker_settings(self, entry: CatalogueEntry, worker: str) -> WorkerSettings:
        own = {name: getattr(self._settings, name) for name in WorkerSettings.model_fields}
        if own["cache_size"] == "auto":
            own["cache_size"] = DEFAULT_CACHE_GB
        own |= {
            "model": f"{entry.name}={entry.source}",
            "served_model_name": ",".join((entry.name, *entry.aliases)),
            "worker_id": worker,
            "drain": self._settings.swap_drain,
            "health_file": "",
        }
        return WorkerSettings(**(own | entry.settings))

    def _modified(self) -> float:
        try:
            return self._path.stat().st_mtime
        except OSError:
            return 0.0


def _waiting(occupancy: Occupancy) -> tuple[int, int]:
    batch = occupancy.waiting["batch"]
    return sum(occupancy.waiting.values()) - batch, batch


_PLACE = (files("worker.node") / "place.lua").read_text()


class Placements:
    """The placement leases of one node. All methods raise what redis-py raises."""

    def __init__(self, redis: Redis, node: str, *, lease: float) -> None:
        """``node`` is the node's id. ``lease`` is the duration of a lease in seconds."""
        self._redis = redis
        self._node = node
        self._lease_ms = int(lease * 1000)
        self._place = redis.register_script(_PLACE)

    async def take(self, model: str, most: int) -> bool:
        """Take or renew the lease of ``model``. Return False if ``most`` other nodes have one."""
        return bool(await self._place([keys.placements(model)], (self._node, self._lease_ms, most)))

    async def release(self, model: str) -> None:
        """Give the lease of ``model`` back."""
        await self._redis.zrem(keys.placements(model), self._node)

    async def count(self, model: str) -> int:
        """Return how many nodes have a lease of ``model``. Leases that have just ended may count."""
        return cast(int, await self._redis.zcard(keys.placements(model)))
