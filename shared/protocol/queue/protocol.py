"""Python's side of the queue scripts."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from arq.connections import ArqRedis

from shared.protocol.cost import answer_cost, prompt_cost
from shared.protocol.events import Event, decode_journal
from shared.protocol.prefix import prefix_digests
from shared.protocol.queue.emitter import JOB_TTL_MS
from shared.protocol.queue.packing import MOST_BYTES, pack_jobs
from shared.protocol.queue.texts import PREFIXES, script_text
from shared.protocol.request import ChatRequest, Job, Tier, decode_request
from shared.redis import keys
from shared.redis.raw_connection import Argument
from shared.redis.records import report_unreadable
from shared.redis.scripts import KeyType, Script

REAP_LIMIT = 256

RESERVED_MS = 100
"""For how long (ms) a job is kept for the worker that was woken for it: longer than a busy one takes to look."""

Route = Literal["followed", "diverted", "new", "waited"]
"""Where a job with a long prompt went: to a worker that has computed its beginning; to another one, because of the
load; to any, because nobody has; to none, because nobody had a free slot."""

_ROUTES: tuple[Route, ...] = ("followed", "diverted", "new", "waited")
"""In the order of *enqueue*'s reply."""

_LATENESS_MS = 60_000
"""For how long a cancelled job may still arrive: longer than commands lie in the buffers of a store that hangs."""

_BANDS: dict[Tier, int] = {"priority": -2, "default": -1, "auto": -1, "flex": 0}
"""The band of each tier; lower ones go first. Scores are far below the current time in ms, because arq takes a score in
the future for a job that must not run yet; nor is a score ever 0, which arq takes for a job that has gone."""

_SCRIPTS: dict[str, tuple[KeyType, ...]] = {
    "enqueue": ("zset", "zset", "hash", "hash", "zset"),
    "charge": ("hash",),
    "claim": ("zset", "zset", "zset", "hash", "zset"),
    "cancel": ("zset",),
    "renew": ("zset",),
    "release": ("zset", "zset", "zset"),
    "reap": ("zset", "zset", "zset", "string"),
}
"""The scripts, and the types of their keys."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that a worker has taken. ``payload`` is arq's job definition, ``journal`` what earlier attempts sent.

    ``crashes`` counts the engines that died of it, ``lost_workers`` the workers that vanished with it.
    """

    job: str
    attempt: int
    payload: bytes
    journal: tuple[bytes, ...] = ()
    crashes: int = 0
    lost_workers: int = 0

    def history(self) -> list[Event]:
        """The events that earlier attempts published. Raises :class:`msgspec.DecodeError` on foreign bytes."""
        return decode_journal(self.journal)


class QueueFull(Exception):
    """Nothing was queued, because too many jobs would have been served before: ``ahead``."""

    def __init__(self, ahead: int) -> None:
        super().__init__(f"{ahead} jobs wait")
        self.ahead = ahead


class JobQueue:
    """The queue of one model. The API enqueues and cancels; workers claim, renew and release; both reap. What workers
    publish goes by way of an :class:`~shared.protocol.queue.emitter.Emitter`."""

    def __init__(
        self,
        redis: ArqRedis,
        model: str,
        *,
        prefix_routing: bool = False,
        keep_ms: int = RESERVED_MS,
        lease_ms: int = 2_000,
    ) -> None:
        """``prefix_routing`` has *enqueue* send jobs whose prompts begin alike to the same worker where its load
        allows, keep them for it for ``keep_ms``, and count them in ``routed``. ``lease_ms`` is how long a claim holds
        without renewal."""
        self.redis = redis
        self.model = model
        self._lease_ms = lease_ms
        self._queue = keys.queue(model)
        self._inflight = keys.inflight(model)
        self._load = keys.load(model)
        self._shares = keys.fair_queue(model)
        self._prefixes = keys.prefixes(model)
        self._kept = keys.reserved(model)
        self._prefix_routing = prefix_routing
        self._keep_ms = keep_ms
        self.routed: Counter[Route] = Counter()
        self._reaped = keys.reaped(model)
        self._scripts = {name: Script(redis, script_text(name), types) for name, types in _SCRIPTS.items()}

    async def enqueue(self, jobs: Sequence[Job], *, limit: int, most_bytes: int = MOST_BYTES) -> int:
        """Queue the ``jobs`` of one request and wake workers; return how many jobs are ahead of them.

        A tier's jobs are claimed before all that wait in the tiers below it; within a tier, tenants share the workers
        equally by tokens. Raises :class:`QueueFull`, having queued none, when more than ``limit`` would wait, of those
        that are claimed before jobs of this tenant, and :class:`JobsTooLarge` when the requests of all jobs together
        have more than ``most_bytes``, encoded.
        """
        packed = pack_jobs(jobs, most_bytes)
        shared = [part for pair in packed.shared.items() for part in pair]
        quadruples: list[str | bytes | int] = []
        request, cost, digests = None, 0, ""
        for job, payload in zip(jobs, packed.payloads, strict=True):
            if job.request is not request:
                request, cost = job.request, prompt_cost(job.request) + answer_cost(job.request)
                digests = prefix_digests(job.request) if self._prefix_routing else ""
            quadruples += (job.id, payload, cost, digests)
        band, tenant = _band(jobs[0].request.tier), jobs[0].tenant
        ahead, *routed = await self._run(
            "enqueue",
            [self._queue, self._load, self._shares, self._prefixes, self._kept],
            [
                keys.PAYLOAD_PREFIX,
                keys.WORKER_CHANNEL_PREFIX,
                keys.STATE_PREFIX,
                JOB_TTL_MS,
                limit,
                band,
                tenant,
                self._keep_ms,
                len(packed.shared),
                *shared,
                *quadruples,
            ],
        )
        if ahead < 0:
            raise QueueFull(-int(ahead) - 1)
        self.routed.update({route: count for route, count in zip(_ROUTES, routed, strict=True) if count})
        return int(ahead)

    async def charge(self, tenant: str, tier: Tier | None, tokens: int) -> None:
        """Count ``tokens`` more, or fewer where negative, for ``tenant`` than were guessed of a request."""
        await self._run("charge", [self._shares], [_band(tier), tenant, tokens])

    async def any_claimed(self, jobs: Iterable[str]) -> bool:
        """Whether a worker has, or had, one of these jobs."""
        return bool(await self.redis.exists(*(key(job) for job in jobs for key in (keys.state, keys.journal))))

    async def cancel(self, jobs: Iterable[str]) -> frozenset[str]:
        """End jobs whose client has gone, even before they are queued; return those that workers have."""
        arguments: list[str | int] = [*PREFIXES, keys.WORKER_CHANNEL_PREFIX, _LATENESS_MS, *jobs]
        return frozenset(job.decode() for job in await self._run("cancel", [self._queue], arguments))

    async def shared_request(self, request_id: str) -> ChatRequest | None:
        """The request with this id that several jobs share; ``None`` when none of them is left.

        Raises :class:`msgspec.DecodeError` on foreign bytes.
        """
        data = await cast("Any", self.redis.hget(keys.request(request_id), "request"))
        return None if data is None else decode_request(data)

    async def claim(self, worker: str, *, used: int, slots: int) -> tuple[list[Claim], int]:
        """Take jobs for ``worker``, which has ``used`` of its ``slots`` busy, and tell its new load.

        Takes only a share of the queue while other workers have free slots, and no job that is reserved for another
        worker: a worker that gets nothing though jobs wait must look again after ``RESERVED_MS``. Returns the claims
        and the number of jobs that still wait.
        """
        left, *rows = await self._run(
            "claim",
            [self._queue, self._inflight, self._load, self._shares, self._kept],
            [*PREFIXES, worker, used, slots, self._lease_ms, JOB_TTL_MS, keys.WORKER_CHANNEL_PREFIX, self._keep_ms],
        )
        claims = []
        for job, attempt, crashes, lost_workers, payload, journal in rows:
            try:
                claims.append(Claim(job.decode(), attempt, payload, tuple(journal), crashes, lost_workers))
            except UnicodeDecodeError as error:
                report_unreadable(f"{self._queue} {job!r}", error)
                await self._discard(job)
        return claims, int(left)

    async def renew(self, worker: str, claims: Iterable[tuple[str, int]]) -> list[str]:
        """Renew the leases of ``(job, attempt)`` claims; return the jobs that ``worker`` must stop computing."""
        arguments: list[str | int] = [keys.STATE_PREFIX, worker, self._lease_ms]
        for claim in claims:
            arguments += claim
        return [job.decode() for job in await self._run("renew", [self._inflight], arguments)]

    async def release(
        self, worker: str, claims: Iterable[tuple[str, int]], *, suspects: Collection[str] = frozenset()
    ) -> int:
        """Give ``(job, attempt)`` claims back to the queue; return how many wait again.

        ``suspects`` are the jobs of which the engine may have died.
        """
        arguments: list[str | int] = [*PREFIXES, keys.WORKER_CHANNEL_PREFIX, worker]
        for job, attempt in claims:
            arguments += (job, attempt, int(job in suspects))
        return int(await self._run("release", [self._queue, self._inflight, self._load], arguments))

    async def reap(self) -> tuple[list[str], float | None]:
        """Put jobs whose lease has lapsed back into the queue; return their ids, and in how many seconds the next lease
        ends if it is not renewed, ``None`` where there is none.

        To be called more than twice in a lease: after a longer pause, the store was away, and leases that lapsed
        meanwhile hold for once more.
        """
        arguments: list[str | int] = [
            *PREFIXES, keys.WORKER_CHANNEL_PREFIX, REAP_LIMIT, self._lease_ms, JOB_TTL_MS
        ]  # fmt: skip
        holds, *back = await self._run("reap", [self._queue, self._inflight, self._load, self._reaped], arguments)
        return [job.decode(errors="replace") for job in back], holds / 1000 if holds >= 0 else None

    async def journal(self, job: str) -> list[Event]:
        """What has been published for ``job``, in order; empty when it is unknown or long over."""
        items = await cast("Any", self.redis.lrange(keys.journal(job), 0, -1))
        return decode_journal(items)

    async def withdraw(self, worker: str) -> None:
        """Take ``worker`` out of the wake-up list: it claims no more."""
        await self.redis.zrem(self._load, worker)

    async def _discard(self, job: bytes) -> None:
        """Forget a claimed job with an id that none of ours has given it."""
        await self.redis.zrem(self._inflight, job)
        await self.redis.delete(*(prefix.encode() + job for prefix in PREFIXES))

    async def depth(self) -> tuple[int, int]:
        """The numbers of waiting and of claimed jobs."""
        async with self.redis.pipeline(transaction=False) as pipe:
            pipe.zcard(self._queue)
            pipe.zcard(self._inflight)
            waiting, claimed = await pipe.execute()
        return waiting, claimed

    async def _run(self, script: str, names: Sequence[str], arguments: Sequence[Argument]) -> Any:
        return await self._scripts[script](names, arguments)


def _band(tier: Tier | None) -> int:
    return _BANDS[tier or "default"]
