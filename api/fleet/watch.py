"""The fleet watch: reads the state of the service while somebody watches it, once for all watchers of the replica."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable

import msgspec
from arq.connections import ArqRedis
from redis.exceptions import RedisError

from api.batches.record import Batch
from api.batches.store import BatchStore
from api.fleet.document import (
    FleetDocument,
    WorkerState,
    batch_entry,
    jobs_of,
    model_entry,
    replica_entry,
    worker_entry,
)
from api.models.catalogue import catalogue
from api.models.directory import Directory
from shared.protocol.queue.occupancy import Move, Occupancy, OccupancyReader
from shared.protocol.queue.texts import MOVES_TTL_MS
from shared.protocol.registry import WorkerInfo, heartbeats, model_of, read_registry
from shared.redis import outage
from shared.redis.clock import store_time
from shared.redis.store_check import StoreCheck
from shared.runtime.tasks import cancel_all, keep_running
from shared.runtime.ticks import next_tick

logger = logging.getLogger(__name__)

INTERVAL = 0.5
"""Seconds between two readings."""

_FAST_INTERVAL = 0.1
"""The same while a worker is silent: its requests are likely to move soon."""
_GONE_SHOWN = 60.0
"""Seconds for which a worker is shown after its lease has ended, and a batch after its end."""
_MAX_BATCHES = 100
_ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
_MAX_MOVES = 200


class FleetWatch:
    """Reads fleet documents, and publishes them to watchers at least every :data:`INTERVAL` seconds."""

    def __init__(
        self,
        redis: ArqRedis,
        directory: Directory,
        batches: BatchStore,
        store_check: StoreCheck,
        *,
        replica: str,
        lease: float,
    ) -> None:
        """``lease`` is the duration of workers' leases in seconds."""
        self._store_check = store_check
        self._redis = redis
        self._directory = directory
        self._replica = replica
        self._lease = lease
        self._occupancies = OccupancyReader(redis)
        self._batches = batches
        self._unfinished: dict[str, float] = {}
        """When each recent batch was last seen unfinished."""
        self._seen: dict[str, tuple[WorkerInfo, float]] = {}
        """Every recent worker's last record and heartbeat."""
        self._watchers: set[Watcher] = set()
        self._polling: list[asyncio.Task[None]] = []
        self._latest: FleetDocument | None = None
        self._reading = asyncio.Lock()

    async def snapshot(self) -> bytes:
        """Return the current document as JSON: the watchers' latest one if anybody watches."""
        document = self._latest if self._watchers and self._latest is not None else await self._read()
        return msgspec.json.encode(document)

    def join(self, watcher: "Watcher") -> None:
        """Add a watcher, and start reading for the first one."""
        self._watchers.add(watcher)
        if len(self._watchers) == 1:
            self._polling = [asyncio.create_task(keep_running("fleet watch", self._poll), name="fleet watch")]

    async def leave(self, watcher: "Watcher") -> None:
        """Remove a watcher, and stop reading after the last one."""
        self._watchers.discard(watcher)
        if not self._watchers:
            stopped, self._polling = self._polling, []
            self._latest = None
            await cancel_all(stopped)

    async def _poll(self) -> None:
        while True:
            self._latest = await self._read()
            encoded = msgspec.json.encode(self._latest)
            for watcher in self._watchers:
                watcher.put(encoded)
            troubled = any(worker.status == "silent" for worker in self._latest.workers)
            await asyncio.sleep(next_tick(_FAST_INTERVAL if troubled else INTERVAL))

    async def _read(self) -> FleetDocument:
        async with self._reading:
            try:
                document = await self._read_store()
                outage.store.succeeded("fleet watch")
            except (RedisError, OSError) as error:
                outage.store.failed("fleet watch", error)
                document = msgspec.structs.replace(self._latest or _empty(self._replica), store="down")
        return msgspec.structs.replace(document, store_problems=self._store_check.problems)

    async def _read_store(self) -> FleetDocument:
        (workers, replicas, nodes, models), now, beats = await asyncio.gather(
            read_registry(self._redis), store_time(self._redis), heartbeats(self._redis, lease=self._lease)
        )
        models |= {name: model.info for name, model in catalogue(nodes, workers, models).items()}
        for worker in workers:
            models.setdefault(worker.model, model_of(worker))
        names = sorted(models)
        occupancies = dict(zip(names, await asyncio.gather(*map(self._occupancies.read, names)), strict=True))
        self._seen |= {worker.id: (worker, beats.get(worker.id, now)) for worker in workers}
        self._seen = {
            name: (info, beat)
            for name, (info, beat) in self._seen.items()
            if name in beats and now - beat < self._lease + _GONE_SHOWN
        }
        present = {worker.id for worker in workers}
        held = jobs_of(occupancies)
        entries: list[WorkerState] = []
        for name, (info, beat) in sorted(self._seen.items()):
            status = "gone" if name not in present else "silent" if now - beat > self._lease / 2 else info.status
            entries.append(worker_entry(info, status, beat, held.get(name, []), replicas))
        batches = await self._read_batches(now)
        return FleetDocument(
            time=round(now, 3),
            replica=self._replica,
            store="up",
            models=[
                model_entry(
                    models[name],
                    [worker for worker in workers if worker.model == name],
                    occupancies[name],
                    self._directory.service_rate(name),
                    replicas,
                )
                for name in names
            ],
            workers=entries,
            nodes=nodes,
            replicas=[replica_entry(replica) for replica in replicas],
            batches=[batch_entry(batch) for batch in batches],
            moves=_moves(occupancies.values(), now),
        )

    async def _read_batches(self, now: float) -> list[Batch]:
        recent = {name: seen for name, seen in self._unfinished.items() if now - seen < _GONE_SHOWN}
        batches = await self._batches.current(recent, limit=_MAX_BATCHES)
        self._unfinished = recent | {batch.id: now for batch in batches if batch.status not in _ENDED}
        return sorted(batches, key=lambda batch: (batch.created, batch.id))


class Watcher:
    """One client that watches the fleet. An async context manager.

    A watcher that is slow skips documents.
    """

    def __init__(self, watch: FleetWatch) -> None:
        self._watch = watch
        self._newest: bytes | None = None
        self._arrived = asyncio.Event()

    async def __aenter__(self) -> "Watcher":
        self._watch.join(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._watch.leave(self)

    def put(self, document: bytes) -> None:
        self._newest = document
        self._arrived.set()

    async def documents(self) -> AsyncIterator[bytes]:
        """Yield new documents, without end."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            if self._newest is not None:
                yield self._newest


def _moves(occupancies: Iterable[Occupancy], now: float) -> list[Move]:
    """Return the newest moves, oldest first."""
    moves = [move for occupancy in occupancies for move in occupancy.moves if now - move.time < MOVES_TTL_MS / 1000]
    return sorted(moves, key=lambda move: move.time)[-_MAX_MOVES:]


def _empty(replica: str) -> FleetDocument:
    return FleetDocument(
        time=0.0, replica=replica, store="down", models=[], workers=[], nodes=[], replicas=[], batches=[], moves=[]
    )
