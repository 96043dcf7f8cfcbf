"""The records of stored responses in the store, separated by owner: the id of an API key, or empty without one."""

import logging
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple, cast

import msgspec
from arq.connections import ArqRedis
from redis.exceptions import RedisError

from api.fairness import FairThread
from api.records.errors import store_errors
from api.records.paging import keep_place, read_page
from api.stored.record import Selection, StoredResponse, from_fields, is_completion_id, is_id, to_fields
from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.queue.texts import JOB_TTL_MS, queue_keys, script_text
from shared.redis import keys
from shared.redis.client import database_of
from shared.redis.clock import store_time
from shared.redis.outage import when_reachable
from shared.redis.records import UNREADABLE, report_unreadable
from shared.redis.scripts import text_with_prelude
from shared.runtime.settings import ApiSettings
from shared.runtime.tasks import BackgroundTasks

MAX_RESPONSES = 1000
"""Maximum number of stored responses of an owner."""

logger = logging.getLogger(__name__)

_SCAN = 100
"""Entries read per round trip."""

_PAGE_BYTES = 8 * 2**20
"""Size of a page in bytes beyond which it gets no more completions. Each may have megabytes."""

_JOURNAL_READ = 4096
"""Maximum number of journalled events that are read at a time."""

_RETRY_AFTER = 5.0
"""``Retry-After`` in seconds while responses that run leave no room."""

_CONSTANTS = {
    "RECORDS": keys.STORED_PREFIX,
    "INDEXES": keys.stored_index(""),
    "RUNNING": keys.stored_running(""),
    "KEPT": keys.STORED_JOURNAL_PREFIX,
}


class Progress(NamedTuple):
    """Progress of a response without a document."""

    started: bool
    """Whether a worker has started one of its jobs."""
    over: bool
    """Whether none of its jobs is queued or running."""
    age: float
    """Seconds since its request was accepted, by the store's clock."""


class JournalPart(NamedTuple):
    """A part of the journal of a background response's job."""

    running: bool
    """Whether the response has no document. As long as there are more events, it seems to run."""
    events: list[bytes]
    before: tuple[bytes | None, bytes | None]
    """The first event of the journal, and the one before ``events``; None where there is none."""


class ResponseStore:
    """Stored responses. Methods raise :class:`RequestRefused` when the store is unreachable, unless they say otherwise.

    Responses of one owner have a maximum number and a maximum of bytes, and those of all owners have a maximum of bytes
    (see ``prelude.lua``). The oldest that have ended make room for new ones.
    """

    def __init__(self, redis: ArqRedis, tasks: BackgroundTasks, thread: FairThread, settings: ApiSettings) -> None:
        self._redis = redis
        self._tasks = tasks
        self.thread = thread
        """Makes large documents (:mod:`api.responses.documents`)."""
        self._ttl_ms = int(settings.store_ttl * 1000)
        self._limits = (MAX_RESPONSES, settings.store_bytes, settings.store_total_bytes)
        self._max_bytes = min(settings.store_bytes, settings.store_total_bytes)
        self.followers = 0
        """Number of streams that read journals in this replica (:func:`api.stored.replay.follow`)."""
        self._scripts = {
            name: redis.register_script(text_with_prelude("api.stored", name, _CONSTANTS))
            for name in ("create", "end", "delete", "tag")
        }
        self._complete = redis.register_script(script_text("journals", database_of(redis)))
        self._measure = redis.register_script((files("api.stored") / "measure.lua").read_text())

    async def create(self, owner: str, record: StoredResponse) -> None:
        """Store the record of a request that is about to be queued.

        Raises :class:`RequestRefused` also when the owner's responses that run leave no room for it.
        """
        fields = [part for pair in to_fields(record).items() for part in pair]
        async with store_errors():
            # Journals are needed before there is a record, and there is none after a refusal.
            async with self._redis.pipeline(transaction=False) as pipe:
                for job in record.jobs:
                    pipe.set(keys.journal_needed(job), "", px=self._ttl_ms + JOB_TTL_MS)
                await pipe.execute()
            stored = await self._run("create", owner, record.id, "", *fields)
            if isinstance(stored, list):
                measured = await self._measured([part.decode() for part in stored])
                stored = await self._run("create", owner, record.id, len(measured) // 5, *measured, *fields)
            if stored < 1:
                await self._forget_journals(record.jobs)
        if stored < 0:
            raise refuse(
                ProblemKind.TOO_LARGE,
                f"The request is larger than the responses that are stored for one API key together, {self._max_bytes} "
                "bytes. Shorten it, or send 'store': false.",
                param="store",
            )
        if not stored:
            remedy = "" if record.background else ", or send 'store': false"
            raise refuse(
                ProblemKind.QUEUE_FULL,
                "The responses that are generated at present use up the room for stored responses. "
                f"Please try again later{remedy}.",
                retry_after=_RETRY_AFTER,
            )

    async def end(self, owner: str, record: StoredResponse, document: bytes) -> bool:
        """End a response with its ``document``; return whether it had none and was not deleted."""
        async with store_errors():
            return await self._end(owner, record, document)

    async def save(self, owner: str, record: StoredResponse, document: bytes) -> bool:
        """End a response unless it has ended; return whether the store was reachable. Failures are only logged."""
        try:
            await self._end(owner, record, document)
        except (RedisError, OSError) as error:
            logger.warning("response %s not stored: %s", record.id, error)
            return False
        return True

    async def _end(self, owner: str, record: StoredResponse, document: bytes) -> bool:
        events: list[bytes] = []
        if record.background and record.jobs:
            events = await cast("Any", self._redis.lrange(keys.journal(record.jobs[0]), 0, -1))
        ended = await self._run("end", owner, record.id, document, int(record.background), *events)
        if ended:
            await self._forget_journals(record.jobs)
        return bool(ended)

    async def _forget_journals(self, jobs: Sequence[str]) -> None:
        if jobs:
            await self._redis.delete(*(key(job) for job in jobs for key in (keys.journal, keys.journal_needed)))

    async def _measured(self, journals: Sequence[str]) -> list[str | int]:
        """Measure running responses' journals as ``create.lua`` lists them; return them as it reads them."""
        rows = [*zip(journals[::4], journals[1::4], journals[2::4], journals[3::4], strict=True)]
        measured: list[str | int] = []
        for model in {row[0] for row in rows}:
            of_model = [row[1:] for row in rows if row[0] == model]
            names = [keys.journal(job) for _, job, _ in of_model]
            found = await self._measure(names, [known for _, _, known in of_model])
            for row, events, size in zip(of_model, found[::2], found[1::2], strict=True):
                measured += (*row, events, size)
        return measured

    async def delete(self, owner: str, response_id: str) -> None:
        """Delete a response and its journals, if it exists."""
        async with store_errors():
            await self._delete(owner, response_id)

    async def _delete(self, owner: str, response_id: str) -> None:
        jobs = await cast("Any", self._redis.hget(keys.stored(owner, response_id), "jobs"))
        await self._run("delete", owner, response_id)
        await self._forget_journals(jobs.decode().split() if jobs else ())

    def withdraw(self, owner: str, response_id: str) -> None:
        """Delete a response in the background. Retries while the store is unreachable."""
        self._tasks.run(when_reachable(lambda: self._delete(owner, response_id)), "delete a response")

    async def tag(self, owner: str, response_id: str, metadata: Mapping[str, str]) -> bool:
        """Replace a response's metadata; return whether it exists."""
        async with store_errors():
            return bool(await self._run("tag", owner, response_id, msgspec.json.encode(metadata)))

    async def get(self, owner: str, response_id: str) -> StoredResponse | None:
        """Return a record; None if it does not exist, has expired or is unreadable."""
        if not is_id(response_id):
            return None
        key = keys.stored(owner, response_id)
        async with store_errors():
            fields: dict[bytes, bytes] = await cast("Any", self._redis.hgetall(key))
        if not fields:
            return None
        try:
            return from_fields(response_id, fields)
        except (*UNREADABLE, KeyError) as error:
            report_unreadable(key, error)
            return None

    async def keep(self, owner: str, response_ids: Sequence[str]) -> None:
        """Keep responses as long as one that ends now, and count them as new ones, in the given order."""
        index = keys.stored_index(owner)
        async with store_errors():
            now = await store_time(self._redis)
            ages = {response_id: now + place / 1e6 for place, response_id in enumerate(response_ids)}
            expiry = dict.fromkeys(response_ids, 1000 * now + self._ttl_ms)
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.zadd(index, ages, xx=True)
                pipe.zadd(keys.STORED_EXPIRY, expiry, xx=True)
                for key in (index, keys.STORED_EXPIRY, keys.STORED_SIZES, keys.STORED_OWNERS):
                    pipe.pexpire(key, 2 * self._ttl_ms + JOB_TTL_MS)
                for response_id in response_ids:
                    pipe.pexpire(keys.stored(owner, response_id), self._ttl_ms)
                    pipe.pexpire(keys.stored_journal(owner, response_id), self._ttl_ms)
                await pipe.execute()

    async def progress(self, owner: str, record: StoredResponse) -> Progress:
        """Return the progress of a response without a document."""
        async with store_errors():
            now = await store_time(self._redis)
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.exists(*map(keys.payload, record.jobs))
                pipe.exists(*map(keys.journal, record.jobs))
                pipe.zscore(keys.stored_running(owner), record.id)
                queued, started, accepted = await pipe.execute()
        return Progress(bool(started), not queued, now - accepted if accepted is not None else 0.0)

    async def journals(self, record: StoredResponse) -> list[list[bytes]]:
        """Return the journals of the jobs of a response without a document."""
        async with store_errors(), self._redis.pipeline(transaction=False) as pipe:
            for job in record.jobs:
                pipe.lrange(keys.journal(job), 0, -1)
            return await pipe.execute()

    async def journal(self, owner: str, record: StoredResponse, start: int) -> JournalPart:
        """Return the events of a background response's job from the index ``start`` on."""
        stop = start + _JOURNAL_READ - 1
        key, journal = keys.stored(owner, record.id), keys.journal(record.jobs[0] if record.jobs else "")
        async with store_errors():
            await self._complete(queue_keys(record.model), record.jobs)
            events, *before = await self._part(journal, start, stop)
            # What was read before is the journal if the response still runs.
            running = await cast("Any", self._redis.hexists(key, "jobs"))
            if not running:
                events, *before = await self._part(keys.stored_journal(owner, record.id), start, stop)
        return JournalPart(
            running=bool(running) or len(events) == _JOURNAL_READ, events=events, before=(before[0], before[1])
        )

    async def _part(self, journal: str, start: int, stop: int) -> Any:
        """Return the events from ``start`` to ``stop``, the first of all, and the one before ``start``."""
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.lrange(journal, start, stop)
            pipe.lindex(journal, 0)
            pipe.lindex(journal, max(0, start - 1))
            return await pipe.execute()

    async def running(self, owner: str) -> list[str]:
        """Return the ids of an owner's responses without a document."""
        index = keys.stored_running(owner)
        async with store_errors():
            return [name.decode() for name in await self._redis.zrange(index, 0, -1)]

    async def without_payloads(self, owner: str, response_ids: Sequence[str]) -> list[str]:
        """Return which of these responses without a document have no job that is queued or running."""
        async with store_errors():
            async with self._redis.pipeline(transaction=False) as pipe:
                for response_id in response_ids:
                    pipe.hget(keys.stored(owner, response_id), "jobs")
                rows = await pipe.execute()
            jobs = [row.decode().split() if row else [] for row in rows]
            async with self._redis.pipeline(transaction=False) as pipe:
                for names in jobs:
                    pipe.exists(*map(keys.payload, names or [""]))
                queued = await pipe.execute()
        return [response_id for response_id, count in zip(response_ids, queued, strict=True) if not count]

    async def select(self, owner: str, wanted: Selection) -> tuple[list[StoredResponse], bool]:
        """Return a page of the chat completions that have ended, ordered by that, and whether there are more.

        Large completions make it shorter.
        """
        index = keys.stored_index(owner)
        async with store_errors():
            names, more = await read_page(
                self._redis,
                index,
                lambda names: self._matching(owner, [name for name in names if is_completion_id(name)], wanted),
                after=wanted.after,
                limit=wanted.limit,
                scan=_SCAN,
                newest_first=wanted.newest_first,
            )
            page: list[StoredResponse] = []
            size = 0
            for place, name in enumerate(names):
                if (completion := await self.get(owner, name)) is None:
                    continue
                page.append(completion)
                size += len(completion.document) + len(completion.input)
                if size > _PAGE_BYTES:
                    more = more or place + 1 < len(names)
                    break
            if more and page:
                await keep_place(self._redis, index, page[-1].id)
        return page, more

    async def _matching(self, owner: str, names: list[str], wanted: Selection) -> list[str]:
        async with self._redis.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.hmget(keys.stored(owner, name), ["model", "metadata"])
            rows = await pipe.execute()
        return [name for name, row in zip(names, rows, strict=True) if _matches(keys.stored(owner, name), row, wanted)]

    async def _run(self, script: str, owner: str, response_id: str, *arguments: str | bytes | int) -> Any:
        names = [
            keys.STORED_SIZES,
            keys.STORED_OWNERS,
            keys.STORED_EXPIRY,
            keys.stored_index(owner),
            keys.stored_running(owner),
            keys.stored(owner, response_id),
        ]
        head = (response_id, owner, self._ttl_ms, self._ttl_ms + JOB_TTL_MS, *self._limits)
        return await self._scripts[script](names, [*head, *arguments])


def _matches(key: str, row: Any, wanted: Selection) -> bool:
    """Return whether a completion matches ``wanted``. Unreadable ones do not."""
    model, metadata = row
    if model is None:
        return False
    try:
        tags = msgspec.json.decode(metadata or b"", type=dict[str, str])
        return (wanted.model is None or wanted.model == model.decode()) and wanted.metadata.items() <= tags.items()
    except UNREADABLE as error:
        report_unreadable(key, error)
        return False
