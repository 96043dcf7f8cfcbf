"""The feeding of one batch by one replica: from its claim to its end, or to the loss of the claim."""

import asyncio
import itertools
import logging
import os
import time
from collections.abc import Awaitable, Callable
from typing import BinaryIO, TypeVar

import msgspec
from redis.exceptions import RedisError

from api.batches.input import Lines, find_lines, read_line, validate_file
from api.batches.record import Batch, BatchCounts, LineError, Outcome, Segment, segment_name
from api.batches.request import BatchServices, serve_request
from api.batches.results import Result, assemble, encode, failure_of, remove_segments
from api.batches.store import LEASE, BatchClaim, BatchStore, Superseded
from api.files.record import FileRecord, new_file_id
from api.files.storage import Storage
from shared.protocol.errors import RequestRefused
from shared.redis import outage
from shared.runtime.tasks import cancel_all

logger = logging.getLogger(__name__)

_POLL_INTERVAL = 1.0
"""Seconds without new results after which the lease is renewed, which also detects a cancellation."""

_RETRY = 0.5
"""Seconds between retries after a failure of the store or the storage."""

_WARN_EVERY = 120
"""Number of retries after which a failure is logged again."""

_MAX_FAILURES = 10
"""Number of unexpected failures without a new result after which a batch is not tried again."""

_BACKOFF = 1.0
_MAX_BACKOFF = 30.0
"""Seconds until a batch that failed unexpectedly is tried again; doubled after each failure up to the maximum."""

_WINDOW_PER_SLOT = 2
_MIN_WINDOW, _MAX_WINDOW = 8, 512
"""Limits of the number of requests that are submitted at a time: enough to keep all slots busy."""

_BURST = 16
_BURST_PAUSE = 0.01
"""Number of requests that are submitted at once, and the pause in seconds before the next ones if none ends: a whole
window would keep the event loop from other requests for half a second."""

_RESULTS_PER_WRITE = 2000
"""Number of results of unserved requests that are written at a time."""

_UNPROCESSED = "The batch could not be processed."
_EARLY_OUTCOMES: dict[Outcome, tuple[str, str]] = {
    "expired": ("batch_expired", "This request could not be executed before the completion window expired."),
    "cancelled": ("batch_cancelled", "This request was not executed, because the batch was cancelled."),
    "failed": ("server_error", _UNPROCESSED),
}

_Value = TypeVar("_Value")


class BatchRun:
    """Validates a batch, submits its requests, commits their results and writes the result files.

    A result is written to this claim's segment first; then one commit marks its request as done and counts the bytes. A
    crash between the two leaves bytes that are never read, and the request is served again. So each has exactly one
    committed result.
    """

    def __init__(self, services: BatchServices, claim: BatchClaim) -> None:
        self._services = services
        self._store: BatchStore = services.store
        self._claim = claim
        self._done = bytearray(claim.done)
        self._renewed = time.monotonic()
        self._yielding = asyncio.Event()
        self._clock = 0.0
        """The store's time minus that of the monotonic clock. Wall clocks may be wrong."""

    @property
    def owner(self) -> str:
        return self._batch.owner

    @property
    def failures(self) -> int:
        """Number of unexpected failures of the batch since its last result."""
        return self._batch.failures

    @property
    def yielding(self) -> bool:
        return self._yielding.is_set()

    def request_yield(self) -> None:
        """Stop submitting requests, and release the claim once the submitted ones have their results.

        Requests that wait for a retry get no result here.
        """
        self._yielding.set()

    @property
    def _batch(self) -> Batch:
        return self._claim.batch

    async def run(self) -> None:
        """Feed the batch to its end or until it yields. Releases the claim when cancelled and when it yields. Raises
        :class:`Superseded`."""
        try:
            # 1. The store's clock, by which batches expire, and where results go.
            self._clock = await self._now() - time.monotonic()
            storage = await self._keep_lease(self._retrying(self._services.files.storage))
            # 2. An earlier feeder may have served everything.
            if self._batch.status == "finalizing":
                await self._finish(storage)
                return
            # 3. The input is opened and validated.
            file = await self._open_input()
            if file is None:
                if self._batch.outcome is not None:
                    await self._finish(storage)
                return
            with file:
                lines = await self._prepare(file)
                if lines is not None:
                    # 4. Requests are served, and results committed in groups. 5. The output files are made.
                    if await self._serve(storage, file, lines):
                        await self._finish(storage)
                    else:
                        await self._release()
        except asyncio.CancelledError:
            await self._release()
            raise
        except Superseded:
            raise
        except Exception:
            await self._count_failure()
            raise

    async def _count_failure(self) -> None:
        """Leave a batch that failed unexpectedly until the lease has expired, but not for ever."""
        await self._commit(msgspec.structs.replace(self._batch, failures=self.failures + 1))
        validating = self._batch.status == "validating"
        # Requests that are served end by an early outcome, so that the results of others remain.
        most = 2 * _MAX_FAILURES if self._batch.status == "in_progress" else _MAX_FAILURES
        if self.failures >= most or (validating and self._early_outcome() is not None):
            logger.error("batch %s is given up after %d failures", self._batch.id, self.failures)
            await self._fail([LineError(code="server_error", message=_UNPROCESSED)])
        else:
            await self._keep_lease(asyncio.sleep(min(_BACKOFF * 2 ** (self.failures - 1), _MAX_BACKOFF)))

    async def _release(self) -> None:
        try:
            await self._store.release(self._claim)
        except (RedisError, OSError) as error:
            logger.warning("batch %s not released: %s", self._batch.id, error)

    # Validation.

    async def _open_input(self) -> BinaryIO | None:
        """Open the input file. A batch without one fails; it is to be finished if it has results."""
        batch = self._batch
        record = await self._retrying(lambda: self._services.files.get(batch.owner, batch.input_file))
        if record is not None:
            try:
                return await self._keep_lease(self._retrying(lambda: self._services.files.open_local(record)))
            except FileNotFoundError:
                pass
        message = f"The input file {batch.input_file} was deleted or has expired."
        await self._fail([LineError(code="file_not_found", message=message, param="input_file_id")])
        return None

    async def _prepare(self, file: BinaryIO) -> Lines | None:
        """Find the lines. Validates the file if that has not been done; returns ``None`` if it is not valid."""
        batch, max_line = self._batch, self._services.settings.max_request_body
        if batch.status != "validating":
            self._done = bytearray(self._claim.done.ljust((batch.counts.total + 7) // 8, b"\0"))
            return await self._keep_lease(asyncio.to_thread(find_lines, file, max_line))
        found = await self._keep_lease(asyncio.to_thread(validate_file, file, batch.endpoint, max_line))
        if found.errors:
            await self._fail(found.errors)
            return None
        self._done = bytearray((len(found.lines) + 7) // 8)
        now = await self._now()
        batch = msgspec.structs.replace(batch, model=found.model, counts=BatchCounts(total=len(found.lines)))
        await self._commit(batch.at("in_progress", now))
        logger.info("batch %s: %d requests", batch.id, len(found.lines))
        return found.lines

    async def _fail(self, errors: list[LineError]) -> None:
        """End the batch as failed. If it has results, it is finalized first: they were served, and are charged."""
        now = await self._now()
        batch = msgspec.structs.replace(self._batch, errors=tuple(errors))
        if batch.status == "in_progress" and batch.counts.completed + batch.counts.failed:
            await self._commit(batch)
            await self._finalize("failed")
            return
        await self._commit(batch.at("failed", now), ended=True)
        self._services.metrics.ended("failed")

    # Serving.

    async def _serve(self, storage: Storage, file: BinaryIO, lines: Lines) -> bool:
        """Serve all remaining requests until the batch must end, then write results for those that were not served.

        Returns False if the batch yielded before its end.
        """
        remaining = iter([index for index in range(len(lines)) if not self._is_done(index)])
        running: set[asyncio.Task[Result | None]] = set()
        waiting: list[Result] = []
        try:
            while (outcome := self._early_outcome()) is None:
                free = 0 if self.yielding else self._window() - len(running)
                burst = list(itertools.islice(remaining, max(0, min(free, _BURST))))
                for index in burst:
                    task = asyncio.create_task(self._request(file, lines, index), name=f"{self._batch.id} {index}")
                    running.add(task)
                if running:
                    pause = storage.write_every if waiting else _POLL_INTERVAL
                    if len(burst) == _BURST:
                        pause = _BURST_PAUSE
                    ended, running = await asyncio.wait(running, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                    waiting += [result for task in ended if (result := task.result()) is not None]
                else:
                    break
                if waiting and self._is_due(storage.write_every):
                    await self._write(storage, waiting)
                    waiting = []
                elif self._is_due(_POLL_INTERVAL):
                    await self._renew()
        finally:
            await cancel_all(running)
        await self._write(storage, waiting)
        if outcome is not None:
            await self._fail_remaining(storage, file, lines, outcome)
        elif not all(self._is_done(index) for index in range(len(lines))):
            return False
        await self._finalize(outcome or "completed")
        return True

    async def _request(self, file: BinaryIO, lines: Lines, index: int) -> Result | None:
        def read() -> Awaitable[bytes]:
            return asyncio.to_thread(_read_at, file, lines.offsets[index], lines.sizes[index])

        return await serve_request(self._services, self._batch, index, read, self._yielding)

    def _window(self) -> int:
        """Return how many requests may be submitted now."""
        slots = sum(worker.slots for worker in self._services.directory.fleet.workers if worker.status == "serving")
        return max(_MIN_WINDOW, min(_MAX_WINDOW, _WINDOW_PER_SLOT * slots))

    def _early_outcome(self) -> Outcome | None:
        """Return how the batch ends, if it does so before all requests are served."""
        if self._claim.cancelling is not None:
            return "cancelled"
        if self.failures >= _MAX_FAILURES:
            return "failed"
        return "expired" if time.monotonic() + self._clock >= self._batch.expires else None

    async def _fail_remaining(self, storage: Storage, file: BinaryIO, lines: Lines, outcome: Outcome) -> None:
        """Write a result for each request that was not served."""
        code, message = _EARLY_OUTCOMES[outcome]
        rest = [index for index in range(len(lines)) if not self._is_done(index)]

        def results(indexes: list[int]) -> list[Result]:
            found = []
            for index in indexes:
                line = read_line(_read_at(file, lines.offsets[index], lines.sizes[index]))
                found.append(failure_of(index, line.custom_id, code, message))
            return found

        for start in range(0, len(rest), _RESULTS_PER_WRITE):
            part = rest[start : start + _RESULTS_PER_WRITE]
            await self._write(storage, await asyncio.to_thread(results, part))

    async def _write(self, storage: Storage, results: list[Result]) -> None:
        """Write results to the segment, then commit them."""
        if not results:
            return
        batch, epoch = self._batch, self._claim.epoch
        own = (
            batch.segments[-1] if batch.segments and batch.segments[-1].epoch == epoch else Segment(epoch=epoch, size=0)
        )
        data = encode(results)
        name = segment_name(batch.id, epoch)
        await self._keep_lease(self._retrying(lambda: asyncio.to_thread(storage.write_at, name, own.size, data)))
        others = tuple(segment for segment in batch.segments if segment.epoch != epoch)
        written = msgspec.structs.replace(
            batch,
            failures=self.failures if self.failures >= _MAX_FAILURES else 0,
            counts=_add_counts(batch.counts, results),
            segments=(*others, Segment(epoch=epoch, size=own.size + len(data))),
        )
        for result in results:
            self._done[result.number // 8] |= 1 << result.number % 8
        await self._commit(written)
        completed = written.counts.completed - batch.counts.completed
        self._services.metrics.requests(completed=completed, failed=len(results) - completed)

    def _is_done(self, index: int) -> bool:
        return bool(self._done[index // 8] & 1 << index % 8)

    # The end.

    async def _finalize(self, outcome: Outcome) -> None:
        """Set the status ``finalizing``, and the ids of the result files."""
        batch, now = self._batch, await self._now()
        times = batch.times
        if outcome == "cancelled" and self._claim.cancelling is not None:
            times = times | {"cancelling": self._claim.cancelling}
        output = new_file_id() if batch.counts.completed else None
        errors = new_file_id() if batch.counts.failed else None
        batch = msgspec.structs.replace(
            batch, times=times, outcome=outcome, output_file=output, error_file=errors, failures=0
        )
        await self._commit(batch.at("finalizing", now))

    async def _finish(self, storage: Storage) -> None:
        """Write the result files and end the batch. All of it can be repeated by another replica."""
        batch = self._batch
        assert batch.outcome is not None
        try:
            sizes = await self._keep_lease(self._retrying(lambda: asyncio.to_thread(assemble, storage, batch)))
        except (FileNotFoundError, ValueError) as error:
            logger.error("results of batch %s are lost: %s", batch.id, error)
            await self._fail([LineError(code="results_lost", message="Results in the folder for files are damaged.")])
            return
        now = await self._now()
        for file_id, size, name in (
            (batch.output_file, sizes.output, "output"),
            (batch.error_file, sizes.errors, "error"),
        ):
            if file_id is not None:
                record = FileRecord(
                    id=file_id,
                    owner=batch.owner,
                    filename=f"{batch.id}_{name}.jsonl",
                    size=size,
                    purpose="batch_output",
                    created=int(now),
                    expires=int(now) + batch.retention,
                )
                await self._retrying(lambda record=record: self._services.files.add(record))  # type: ignore[misc]
        ended = msgspec.structs.replace(batch, segments=())
        await self._commit(ended.at(batch.outcome, now), ended=True)
        self._services.metrics.ended(batch.outcome)
        logger.info("batch %s %s: %s", batch.id, batch.outcome, batch.counts)
        try:
            await asyncio.to_thread(remove_segments, storage, batch)
        except OSError as error:
            logger.warning("segments of batch %s not deleted: %s", batch.id, error)  # the cleanup does it

    # The claim.

    async def _commit(self, batch: Batch, *, ended: bool = False) -> None:
        done = bytes(self._done)
        self._claim = await self._retrying(lambda: self._store.commit(self._claim, batch, done, ended=ended))
        self._renewed = time.monotonic()

    async def _renew(self) -> None:
        self._claim = await self._retrying(lambda: self._store.renew(self._claim))
        self._renewed = time.monotonic()

    async def _keep_lease(self, work: Awaitable[_Value]) -> _Value:
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                await asyncio.wait([task], timeout=LEASE / 3)
                if not task.done():
                    await self._renew()
            return task.result()
        finally:
            task.cancel()

    def _is_due(self, pause: float) -> bool:
        """Return whether ``pause`` seconds have passed since the last commit or renewal."""
        return time.monotonic() - self._renewed >= pause

    async def _now(self) -> float:
        return await self._retrying(self._store.now)

    async def _retrying(self, work: Callable[[], Awaitable[_Value]]) -> _Value:
        failures = 0
        while True:
            try:
                return await work()
            except FileNotFoundError:
                raise
            except (RequestRefused, RedisError, OSError) as error:
                level = outage.store.level if failures % _WARN_EVERY == 0 else logging.DEBUG
                logger.log(level, "batch %s waits: %s", self._batch.id, error)
                failures += 1
                await asyncio.sleep(_RETRY)


def _read_at(file: BinaryIO, offset: int, size: int) -> bytes:
    return os.pread(file.fileno(), size, offset)


def _add_counts(counts: BatchCounts, results: list[Result]) -> BatchCounts:
    completed = sum(result.kind == "o" for result in results)
    return BatchCounts(
        total=counts.total,
        completed=counts.completed + completed,
        failed=counts.failed + len(results) - completed,
        prompt_tokens=counts.prompt_tokens + sum(result.usage.prompt_tokens for result in results),
        cached_tokens=counts.cached_tokens + sum(result.usage.cached_tokens for result in results),
        completion_tokens=counts.completion_tokens + sum(result.usage.completion_tokens for result in results),
        reasoning_tokens=counts.reasoning_tokens + sum(result.usage.reasoning_tokens for result in results),
    )
