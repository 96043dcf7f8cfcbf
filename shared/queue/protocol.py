"""Python's side of the queue scripts."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, cast

import msgspec
from arq.connections import ArqRedis
from arq.jobs import serialize_job
from arq.utils import timestamp_ms

from shared import keys
from shared.cost import answer_cost, prompt_cost
from shared.events import Event, decode_journal
from shared.request import Job, Tier, encode_job

JOB_FUNCTION = "chat"
"""Name of the arq function that serves a job."""

REAP_LIMIT = 256

_LATENESS_MS = 60_000
"""For how long a cancelled job may still arrive: longer than commands lie in the buffers of a store that hangs."""

_BANDS: dict[Tier, int] = {"priority": -2, "default": -1, "auto": -1, "flex": 0}
"""The band of each tier; lower ones go first. Scores are far below the current time in ms, because arq takes a score in
the future for a job that must not run yet; nor is a score ever 0, which arq takes for a job that has gone."""

_SCRIPTS = ("enqueue", "charge", "claim", "emit", "cancel", "renew", "release", "reap")
_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that a worker has taken. ``payload`` is arq's job definition, ``journal`` what earlier attempts sent.

    ``crashes`` counts the engines that died of it, ``lapses`` the workers that vanished with it.
    """

    job: str
    attempt: int
    payload: bytes
    journal: tuple[bytes, ...] = ()
    crashes: int = 0
    lapses: int = 0

    def history(self) -> list[Event]:
        """The events that earlier attempts published. Raises :class:`msgspec.DecodeError` on foreign bytes."""
        return decode_journal(self.journal)


@dataclass(frozen=True, slots=True)
class Publication:
    """What one step has to say about one job: encoded events, and whether the job ends with them."""

    job: str
    attempt: int
    events: Sequence[bytes]
    final: bool = False


class QueueFull(Exception):
    """Nothing was queued, because too many jobs would have been served before: ``ahead``."""

    def __init__(self, ahead: int) -> None:
        super().__init__(f"{ahead} jobs wait")
        self.ahead = ahead


class StaleClaims(Exception):
    """Nothing was published, because the worker no longer holds the claims on ``jobs``."""

    def __init__(self, jobs: frozenset[str]) -> None:
        super().__init__(f"claims moved on: {', '.join(sorted(jobs))}")
        self.jobs = jobs


class JobQueue:
    """The queue of one model. The API enqueues and cancels; workers claim, renew, emit and release; both reap."""

    def __init__(
        self,
        redis: ArqRedis,
        model: str,
        *,
        lease_ms: int = 2_000,
        job_ttl_ms: int = 6 * 3_600_000,
        journal_linger_ms: int = 60_000,
    ) -> None:
        """``lease_ms`` is how long a claim holds without renewal, ``job_ttl_ms`` how long a job may exist at all,
        ``journal_linger_ms`` how long the journal can be read after the end."""
        self.redis = redis
        self.model = model
        self._lease_ms = lease_ms
        self._job_ttl_ms = job_ttl_ms
        self._journal_linger_ms = journal_linger_ms
        self._queue = keys.queue(model)
        self._inflight = keys.inflight(model)
        self._load = keys.load(model)
        self._shares = keys.shares(model)
        self._reaped = keys.reaped(model)
        self._scripts = {name: redis.register_script(_source(name)) for name in _SCRIPTS}

    async def enqueue(self, jobs: Sequence[Job], *, limit: int) -> int:
        """Queue the ``jobs`` of one request and wake workers; return how many jobs are ahead of them.

        A tier's jobs are claimed before all that wait in the tiers below it; within a tier, tenants share the workers
        equally by tokens. Raises :class:`QueueFull`, having queued none, when more than ``limit`` would wait, of those
        that are claimed before jobs of this tenant.
        """
        triples: list[str | bytes | int] = []
        for job in jobs:
            body = serialize_job(JOB_FUNCTION, (encode_job(job),), {}, None, timestamp_ms(), serializer=_encode)
            triples += (job.id, body, prompt_cost(job.request) + answer_cost(job.request))
        band, tenant = _band(jobs[0].request.tier), jobs[0].tenant
        ahead = await self._run(
            "enqueue",
            [self._queue, self._load, self._shares],
            [
                keys.PAYLOAD_PREFIX,
                keys.WORKER_CHANNEL_PREFIX,
                keys.STATE_PREFIX,
                self._job_ttl_ms,
                limit,
                band,
                tenant,
                *triples,
            ],
        )
        if ahead < 0:
            raise QueueFull(-int(ahead) - 1)
        return int(ahead)

    async def charge(self, tenant: str, tier: Tier | None, tokens: int) -> None:
        """Count ``tokens`` more, or fewer where negative, for ``tenant`` than were guessed of a request."""
        await self._run("charge", [self._shares], [_band(tier), tenant, tokens])

    async def any_claimed(self, jobs: Iterable[str]) -> bool:
        """Whether a worker has, or had, one of these jobs."""
        return bool(await self.redis.exists(*(keys.state(job) for job in jobs)))

    async def cancel(self, jobs: Iterable[str]) -> int:
        """End jobs whose client has gone, even before they are queued; return how many of them were waiting."""
        arguments: list[str | int] = [*_PREFIXES, keys.WORKER_CHANNEL_PREFIX, _LATENESS_MS, *jobs]
        return int(await self._run("cancel", [self._queue], arguments))

    async def claim(self, worker: str, *, used: int, slots: int) -> tuple[list[Claim], int]:
        """Take jobs for ``worker``, which has ``used`` of its ``slots`` busy, and tell its new load.

        Takes only a share of the queue while other workers have free slots. Returns the claims and the
        number of jobs that still wait.
        """
        left, *rows = await self._run(
            "claim",
            [self._queue, self._inflight, self._load, self._shares],
            [*_PREFIXES, worker, used, slots, self._lease_ms, self._job_ttl_ms],
        )
        claims = [
            Claim(job.decode(), attempt, payload, tuple(journal), crashes, lapses)
            for job, attempt, crashes, lapses, payload, journal in rows
        ]
        return claims, int(left)

    async def emit(
        self,
        worker: str,
        publications: Iterable[Publication],
        frames: Sequence[tuple[str, bytes]],
        *,
        load: float | None = None,
    ) -> list[int]:
        """Publish ``frames`` of (channel, bytes) and journal the publications, atomically.

        Returns the number of receivers of each frame: 0 means that the API replica is gone.
        Raises :class:`StaleClaims`, having done nothing, when a claim has moved to another worker.
        """
        arguments: list[str | bytes | int | float] = [
            *_PREFIXES,
            worker,
            "" if load is None else load,
            self._job_ttl_ms,
            self._journal_linger_ms,
            len(frames),
        ]
        for frame in frames:
            arguments += frame
        for one in publications:
            arguments += (one.job, one.attempt, int(one.final), len(one.events), *one.events)
        reply = await self._run("emit", [self._inflight, self._load], arguments)
        if reply[0] == 0:
            raise StaleClaims(frozenset(job.decode() for job in reply[1:]))
        return cast("list[int]", reply[1:])

    async def renew(self, worker: str, claims: Iterable[tuple[str, int]]) -> list[str]:
        """Renew the leases of ``(job, attempt)`` claims; return the jobs that ``worker`` must stop computing."""
        arguments: list[str | int] = [keys.STATE_PREFIX, worker, self._lease_ms]
        for claim in claims:
            arguments += claim
        return [job.decode() for job in await self._run("renew", [self._inflight], arguments)]

    async def release(
        self, worker: str, claims: Iterable[tuple[str, int]], *, blamed: Collection[str] = frozenset()
    ) -> int:
        """Give ``(job, attempt)`` claims back to the queue; return how many wait again.

        ``blamed`` are the jobs of which the engine may have died.
        """
        arguments: list[str | int] = [*_PREFIXES, keys.WORKER_CHANNEL_PREFIX, worker]
        for job, attempt in claims:
            arguments += (job, attempt, int(job in blamed))
        return int(await self._run("release", [self._queue, self._inflight, self._load], arguments))

    async def reap(self) -> list[str]:
        """Put jobs whose lease has lapsed back into the queue; return their ids.

        To be called more than twice in a lease: after a longer pause, the store was away, and leases that lapsed
        meanwhile hold for once more.
        """
        arguments: list[str | int] = [
            *_PREFIXES, keys.WORKER_CHANNEL_PREFIX, REAP_LIMIT, self._lease_ms, self._job_ttl_ms
        ]  # fmt: skip
        reply = await self._run("reap", [self._queue, self._inflight, self._load, self._reaped], arguments)
        return [job.decode() for job in reply]

    async def journal(self, job: str) -> list[Event]:
        """What has been published for ``job``, in order; empty when it is unknown or long over."""
        items = await cast("Any", self.redis.lrange(keys.journal(job), 0, -1))
        return decode_journal(items)

    async def withdraw(self, worker: str) -> None:
        """Take ``worker`` out of the wake-up list: it claims no more."""
        await self.redis.zrem(self._load, worker)

    async def depth(self) -> tuple[int, int]:
        """The numbers of waiting and of claimed jobs."""
        async with self.redis.pipeline(transaction=False) as pipe:
            pipe.zcard(self._queue)
            pipe.zcard(self._inflight)
            waiting, claimed = await pipe.execute()
        return waiting, claimed

    async def _run(self, script: str, names: Sequence[str], arguments: Sequence[str | bytes | int | float]) -> Any:
        return await self._scripts[script](keys=names, args=arguments)


_PREFIXES = (keys.PAYLOAD_PREFIX, keys.STATE_PREFIX, keys.JOURNAL_PREFIX)


def _band(tier: Tier | None) -> int:
    return _BANDS[tier or "default"]


def _source(name: str) -> str:
    folder = files("shared.queue")
    return (folder / "prelude.lua").read_text() + (folder / f"{name}.lua").read_text()
