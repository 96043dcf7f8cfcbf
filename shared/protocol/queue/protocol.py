"""The queue of one model: the Python interface to the queue's scripts."""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

from arq.connections import ArqRedis

from shared.protocol.cost import LARGEST, prompt_cost, response_cost
from shared.protocol.events import (
    CANCELLED,
    Event,
    MoveCause,
    decode_journal,
    encode_event,
    encode_frame,
    entry_head,
)
from shared.protocol.prefix import prefix_digests
from shared.protocol.queue.bookings import BOOK, Bookings
from shared.protocol.queue.packing import MAX_BYTES, pack_jobs
from shared.protocol.queue.texts import PRIORITY_CLASSES, queue_keys, script_text
from shared.protocol.registry import WorkerInfo
from shared.protocol.request import ChatRequest, Embed, Job, Tier, decode_request
from shared.protocol.usage import UsageCounts, account_of
from shared.redis import keys
from shared.redis.client import database_of
from shared.redis.raw_connection import Argument
from shared.redis.records import skipped_unreadable

REAP_LIMIT = 256

DEAD_LETTER_LIMIT = 100
"""Maximum number of dead letters of a model kept for inspection."""

RESERVED_MS = 100
"""How long (ms) a job is reserved for the worker that was woken for it; longer than a busy worker takes to claim."""

Route = Literal["followed", "diverted", "new", "waited"]
"""Outcome of prefix routing: ``followed`` to a worker with the prefix; ``diverted`` to another because of the load;
``new``, because no worker has the prefix; ``waited``, because no worker had a free slot."""

FullBy = Literal["jobs", "bytes", "tenant_bytes", "images"]
"""What is full: the number of jobs, the bytes of all jobs or the tenant's share of them, or those of images."""

_ROUTES: tuple[Route, ...] = ("followed", "diverted", "new", "waited")
"""Order of the counters in *enqueue*'s reply."""

_REPEAT_TTL_MS = 60_000
"""How long cancellations and notes are remembered, in case a command comes late or again; longer than a hanging store
buffers commands."""

_BOOKED = 500
"""Maximum number of ended jobs that are counted at a time."""

_SCRIPTS = ("enqueue", "note", "claim", "cancel", "renew", "release", "yield", "reap", "dead_letter")

_QUERY_TOKENS = 256
"""Maximum cost of what is served as a query: texts that a step of the engine computes."""

_FULL: dict[int, FullBy] = {1: "jobs", 2: "bytes", 3: "tenant_bytes", 4: "images"}
"""The reasons in *enqueue*'s reply."""


class Weights(NamedTuple):
    """Shares in fair queueing: of a key, among the keys of its team if it has one, and of that team."""

    key: int = 1
    team: int = 1


EQUAL = Weights()


@dataclass(frozen=True, slots=True)
class Claim:
    """A claimed job. ``payload`` is arq's job definition, ``journal`` the encoded events of earlier attempts.

    ``crashes`` counts engine crashes with the job as a suspect, ``lost_workers`` workers that disappeared with it.
    ``cause`` is why the job last went back to the queue (:data:`~shared.protocol.events.MoveCause`), or empty.
    ``foreign``: the tokens in the journal are of another vocabulary or chat template, so the job cannot be continued.
    ``keeper``: the tenant, if the job keeps its slot until it ends; otherwise, or without a key, empty.
    """

    job: str
    attempt: int
    payload: bytes
    journal: tuple[bytes, ...] = ()
    crashes: int = 0
    lost_workers: int = 0
    cause: str = ""
    foreign: bool = False
    keeper: str = ""

    def history(self) -> list[Event]:
        """Return the events of earlier attempts. Raises :class:`msgspec.DecodeError` on malformed bytes."""
        return decode_journal(self.journal)


class QueueFull(Exception):
    """Nothing was enqueued, because too many jobs are ahead, or too many bytes are stored.

    ``ahead`` is the number of jobs ahead. They fit when about ``excess`` jobs have ended.
    """

    def __init__(self, by: FullBy, ahead: int, excess: int) -> None:
        super().__init__(f"{ahead} jobs wait")
        self.by = by
        self.ahead = ahead
        self.excess = excess


class JobQueue:
    """The queue of one model.

    API replicas enqueue and cancel; workers claim, renew and release; both reap. Workers publish events through an
    :class:`~shared.protocol.queue.emitter.Emitter`.
    """

    def __init__(
        self,
        redis: ArqRedis,
        model: str,
        *,
        prefix_routing: bool = False,
        reserved_ms: int = RESERVED_MS,
        lease_ms: int = 2_000,
    ) -> None:
        """``prefix_routing`` makes *enqueue* send prompts with a shared prefix to the same worker if its load allows,
        reserve them for ``reserved_ms``, and count outcomes in ``routed``. ``lease_ms`` is the duration of a lease.
        """
        self.redis = redis
        self.model = model
        self._database = database_of(redis)
        self._lease_ms = lease_ms
        self._keys = queue_keys(model)
        self._prefix_routing = prefix_routing
        self._reserved_ms = reserved_ms
        self.routed: Counter[Route] = Counter()
        self._book = redis.register_script(BOOK)
        self._scripts = {name: redis.register_script(script_text(name, self._database)) for name in _SCRIPTS}

    async def enqueue(
        self,
        jobs: Sequence[Job],
        *,
        limit: int,
        weights: Weights = EQUAL,
        context: int = LARGEST,
        max_bytes: int = MAX_BYTES,
        limit_bytes: int = 2**53,
        images: Mapping[str, bytes] | None = None,
        max_media_bytes: int = 0,
    ) -> int:
        """Enqueue the ``jobs`` of one request and wake workers; return the number of jobs ahead of them.

        ``images`` are the files of its images by digest, which are stored until the last job has ended. Priority
        classes are served strictly in order; within one, tenants share the workers by tokens, in proportion to their
        ``weights``. A prompt and its output are estimated at no more than the model's ``context`` (tokens).

        Raises without enqueueing any job: :class:`QueueFull` when the jobs ahead and the new ones exceed ``limit``, or
        all queued and claimed jobs ``limit_bytes``, or their images ``max_media_bytes``, or those of the tenant its
        share of them (see ``enqueue.lua``); and :class:`JobsTooLarge` when the encoded requests of all jobs exceed
        ``max_bytes`` or ``limit_bytes``.
        """
        packed = pack_jobs(jobs, min(max_bytes, limit_bytes))
        images = images or {}
        stored = [part for pair in (*packed.shared.items(), *images.items()) for part in pair]
        quadruples: list[str | bytes | int] = []
        request, cost, digests = None, 0, ""
        for job, payload in zip(jobs, packed.payloads, strict=True):
            if job.request is not request:
                request, cost = job.request, prompt_cost(job.request) + response_cost(job.request)
                cost = min(cost, context * max(request.sampling.beams, len(request.prompts)))
                digests = prefix_digests(job.request) if self._prefix_routing else ""
            quadruples += (job.id, payload, cost, digests)
        priority_class, account = _class_of(jobs[0].request.tier), account_of(jobs[0].tenant, jobs[0].team)
        embeds = isinstance(jobs[0].request.work, Embed)
        is_query = embeds and len(jobs) == 1 and cost <= _QUERY_TOKENS
        ahead, *routed = await self._run(
            "enqueue",
            [
                keys.prefixes(self.model),
                keys.reserved(self.model),
            ],
            [
                limit,
                limit_bytes,
                priority_class,
                account,
                self._reserved_ms,
                max_media_bytes,
                len(packed.shared),
                len(images),
                *weights,
                int(jobs[0].is_first) if jobs[0].request.work.metered else "",
                int(jobs[0].request.keeps_slot or (embeds and not is_query)),
                int(is_query),
                *stored,
                *quadruples,
            ],
        )
        if ahead < 0:
            reason, ahead, excess = routed
            raise QueueFull(_FULL[reason], ahead, excess)
        self.routed.update({route: count for route, count in zip(_ROUTES, routed, strict=True) if count})
        return int(ahead)

    async def note_reasoning(self, account: str, tier: Tier | None, tokens: int, *, job: str) -> None:
        """Note the ``tokens`` of reasoning of a request of ``account`` (:func:`~shared.protocol.usage.account_of`),
        which no worker knows, once. ``job`` is its first job."""
        used = UsageCounts(reasoning_tokens=tokens).encode()
        await self._run("note", [keys.noted(job)], [_class_of(tier), account, _REPEAT_TTL_MS, used])

    async def any_claimed(self, jobs: Iterable[str]) -> bool:
        """Return whether any of ``jobs`` is or was claimed."""
        return bool(await self.redis.exists(*(key(job) for job in jobs for key in (keys.state, keys.journal))))

    async def any_unfinished(self, jobs: Collection[str]) -> bool:
        """Return whether any of ``jobs`` waits or is claimed."""
        return bool(jobs and await self.redis.exists(*map(keys.payload, jobs)))

    async def cancel(self, jobs: Iterable[str]) -> frozenset[str]:
        """Cancel jobs, even before they are enqueued. Returns those that workers had claimed."""
        arguments: list[Argument] = [_REPEAT_TTL_MS, encode_event(CANCELLED), *jobs]
        return frozenset(job.decode() for job in await self._run("cancel", [], arguments))

    async def shared_request(self, request_id: str) -> ChatRequest | None:
        """Return the shared request with this id; ``None`` when all of its jobs have ended.

        Raises :class:`msgspec.DecodeError` on malformed bytes.
        """
        data = await cast("Any", self.redis.hget(keys.request(request_id), "request"))
        return None if data is None else decode_request(data)

    async def images(self, request_id: str, digests: Sequence[str]) -> list[bytes | None]:
        """Return the files of a shared request's images; ``None`` for those that are not stored."""
        fields = [f"image:{digest}" for digest in digests]
        files: list[bytes | None] = await cast("Any", self.redis.hmget(keys.request(request_id), fields))
        return files

    async def claim(
        self,
        worker: str,
        *,
        used: int,
        slots: int,
        batch_reserve: int = 0,
        query_reserve: int = 0,
        vocabulary: str = "",
        keepers: Iterable[str] = (),
    ) -> tuple[list[Claim], int]:
        """Claim jobs for ``worker``, which uses ``used`` of its ``slots``, and update its load.

        ``vocabulary`` is the digest of its vocabulary and chat template. Jobs with tokens of another one are left for
        workers that serve with it; without any, they are claimed as ``foreign``.

        Claims at most an equal share of the queue while other workers have free slots, and no job reserved for another
        worker. Batch requests leave ``batch_reserve`` slots free. ``keepers`` are the tenants of the running jobs that
        keep their slots until they end: a tenant may keep as many as it leaves to others, if another was active lately.
        On a worker that serves vectors, texts to index leave ``query_reserve`` slots free instead. A worker that gets
        nothing while jobs wait must claim again after ``RESERVED_MS``. Returns the claims and the number of jobs that
        are still waiting, without those that the worker may not claim.
        """
        reserves = [batch_reserve, query_reserve]
        remaining, *rows = await self._run(
            "claim",
            [keys.reserved(self.model), keys.moves(self.model)],
            [worker, used, slots, self._lease_ms, self._reserved_ms, *reserves, vocabulary, *keepers],
        )
        claims = [
            Claim(
                job.decode(), attempt, payload, tuple(past), died, lost, cause.decode(), bool(foreign), keeper.decode()
            )
            for job, attempt, died, lost, payload, past, cause, foreign, keeper in rows
        ]
        return claims, int(remaining)

    async def renew(
        self, worker: str, claims: Iterable[tuple[str, int]] = (), info: WorkerInfo | None = None
    ) -> list[str]:
        """Renew leases given as ``(job, attempt)``; return the jobs that ``worker`` must stop computing.

        ``info`` is its registry record. Jobs with tokens of its vocabulary wait for it while it is ``serving``.
        """
        entry = f"{int(info.prefix_caching)} {info.vocabulary}" if info and info.status == "serving" else ""
        arguments: list[str | int] = [worker, self._lease_ms, entry]
        for claim in claims:
            arguments += claim
        return [job.decode() for job in await self._run("renew", [], arguments)]

    async def release(
        self,
        worker: str,
        claims: Iterable[tuple[str, int]],
        *,
        cause: MoveCause = "worker_draining",
        suspects: Collection[str] = frozenset(),
    ) -> int:
        """Return claimed jobs, given as ``(job, attempt)``, to the queue; return how many were requeued.

        ``suspects`` are the jobs that may have crashed the engine.
        """
        arguments: list[str | int] = [worker, cause]
        for job, attempt in claims:
            arguments += (job, attempt, int(job in suspects))
        return int(await self._run("release", [keys.moves(self.model)], arguments))

    async def yield_slot(
        self, worker: str, offered: Iterable[tuple[str, int]], *, slots: int, keepers: Collection[str] = ()
    ) -> str | None:
        """Return one of the ``offered`` jobs to the queue if a tenant waits with fewer slots than its share.

        Returns the id of the job, which ``worker`` must stop.

        ``offered`` has at most one job of each tenant, as ``(job, attempt)``. ``slots`` and ``keepers`` are as in
        :meth:`claim`: the slot is for a job that may claim it.
        """
        arguments = [worker, slots, len(keepers), *keepers, *(part for claim in offered for part in claim)]
        job = await self._run("yield", [keys.moves(self.model)], arguments)
        return None if job is None else job.decode()

    async def move_to_dead_letters(self, worker: str, claim: Claim, event: bytes, *, reply_to: str = "") -> None:
        """Move the payload of an unreadable job to the dead letters, and end the job with the encoded ``event``.

        ``reply_to`` is the job's replica, if it is known; any other finds the event in the journal. Does nothing when
        ``worker`` no longer holds the lease.
        """
        channel = keys.replica_channel(reply_to, self._database) if reply_to else ""
        frame = encode_frame((entry_head(claim.job, claim.attempt), event))
        arguments: list[Argument] = [
            claim.job, claim.attempt, worker, event, DEAD_LETTER_LIMIT, channel, frame
        ]  # fmt: skip
        await self._run("dead_letter", [keys.dead_letters(self.model)], arguments)

    async def reap(self) -> tuple[list[str], float | None]:
        """Return jobs with expired leases to the queue, and count what ended jobs have used.

        Returns their ids and the seconds until the next lease ends, ``None`` without any lease. Must be called more
        than twice per lease: a longer pause counts as an outage of the store, and leases that expired during it are
        extended once.
        """
        expires_ms, due, *requeued = await self._run(
            "reap",
            [key(self.model) for key in (keys.reaped, keys.moves, keys.booking)],
            [REAP_LIMIT, self._lease_ms],
        )
        if due:
            await self.book()
        return [job.decode() for job in requeued], expires_ms / 1000 if expires_ms >= 0 else None

    async def book(self) -> None:
        """Count what ended jobs have used, for their keys, teams and days. Several processes may do so at once."""
        while entries := await self.redis.xrange(keys.ended(self.model), count=_BOOKED):
            booked = Bookings(self.model)
            for entry, fields in entries:
                for name, counts in fields.items():
                    with skipped_unreadable(f"{keys.ended(self.model)} {entry!r}"):
                        booked.add(entry, name.decode(), UsageCounts.decode(counts))
            for names, arguments in booked.calls():
                await self._book(names, arguments)
            await self.redis.xdel(keys.ended(self.model), *(entry for entry, _ in entries))

    async def withdraw(self, worker: str) -> None:
        """Remove ``worker`` from the wake-up list, and from those that serve."""
        await asyncio.gather(self.redis.zrem(keys.load(self.model), worker), self.renew(worker))

    async def place(self, job: str) -> int | None:
        """Return the number of jobs ahead of a waiting ``job``; ``None`` when it does not wait."""
        place: int | None = await self.redis.zrank(keys.queue(self.model), job)
        return place

    async def depth(self) -> tuple[int, int]:
        waiting, claimed = await asyncio.gather(
            self.redis.zcard(keys.queue(self.model)), self.redis.zcard(keys.inflight(self.model))
        )
        return waiting, claimed

    async def _run(self, script: str, names: Sequence[str], arguments: Sequence[Argument]) -> Any:
        return await self._scripts[script]([*self._keys, *names], arguments)


def _class_of(tier: Tier | None) -> int:
    return PRIORITY_CLASSES["default" if tier is None or tier == "auto" else tier]
