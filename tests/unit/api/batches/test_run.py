"""Batches on a simulated store: claims that fence each other off, commits, and the assembly of results."""

import asyncio
import errno
import io
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from arq.connections import ArqRedis

from api.batches.feeder import BatchFeeder
from api.batches.forms import render_batch
from api.batches.input import validate_file
from api.batches.record import UNFINISHED, Batch, BatchCounts, Segment, new_batch_id, segment_name
from api.batches.request import serve_request
from api.batches.results import Result, assemble, encode, failure_of, response_of
from api.batches.run import BatchRun
from api.batches.store import BatchClaim, BatchStore, Superseded
from api.build import Parts, build
from api.files.record import FileRecord, new_file_id
from api.files.storage import DirectoryStorage
from shared.protocol.errors import RequestRefused
from shared.protocol.request import ChatRequest
from shared.redis import keys
from shared.redis.outage import Outage
from shared.runtime.settings import ApiSettings
from shared.runtime.tasks import cancel_all
from tests.support.answers import ChatExchange
from tests.support.eventually import PATIENCE, eventually
from tests.support.redis_types import awaitable

LINES = [
    {"custom_id": f"c{number}", "method": "POST", "url": "/v1/completions", "body": {"model": "m", "prompt": "a"}}
    for number in range(5)
]


@pytest.fixture
async def replica(redis: ArqRedis, tmp_path: Path) -> Parts:
    return build(redis, ApiSettings(files_dir=str(tmp_path)), "r")


@pytest.fixture
def store(redis: ArqRedis) -> BatchStore:
    return BatchStore(redis, limit=2)


def new_batch(input_file: str = "file-1", *, expires: float = 60.0) -> Batch:
    now = int(time.time())
    return Batch(
        id=new_batch_id(),
        owner="",
        endpoint="/v1/completions",
        input_file=input_file,
        created=now,
        expires=int(now + expires),
        retention=3600,
    )


async def put_file(replica: Parts, content: bytes) -> str:
    writer = (await replica.batches.files.storage()).create()
    writer.write(content)
    now = int(time.time())
    record = FileRecord(
        id=new_file_id(), owner="", filename="a", size=len(content), purpose="batch", created=now, expires=now + 60
    )
    writer.commit(record.id)
    await replica.batches.files.add(record)
    return record.id


async def content_of(replica: Parts, file_id: str | None) -> list[dict[str, object]]:
    record = await replica.batches.files.get("", file_id or "")
    assert record is not None
    with await replica.batches.files.open(record) as file:
        return [json.loads(line) for line in file]


async def claimed(store: BatchStore) -> BatchClaim:
    (claim,) = await store.claim(5)
    return claim


async def expire_lease(redis: ArqRedis, batch: Batch) -> None:
    await redis.zadd(keys.UNFINISHED_BATCHES, {batch.id: 1})


async def test_a_batch_expires(replica: Parts) -> None:
    file = await put_file(replica, b"\n".join(json.dumps(line).encode() for line in LINES))
    batch = new_batch(file, expires=-1)
    await replica.batches.store.create(batch)
    await BatchRun(replica.batches, await claimed(replica.batches.store)).run()
    ended = await replica.batches.store.get("", batch.id)
    assert ended is not None
    assert (ended.status, ended.counts.failed, ended.output_file) == ("expired", 5, None)
    assert json.loads(render_batch(ended))["expired_at"] >= batch.created
    lines = await content_of(replica, ended.error_file)
    assert [line["custom_id"] for line in lines] == [f"c{number}" for number in range(5)]
    assert {json.dumps(line["error"]) for line in lines} == {
        '{"code": "batch_expired", '
        '"message": "This request could not be executed before the completion window expired."}'
    }
    assert await replica.batches.store.unfinished() == 0


async def test_a_key_that_is_gone_serves_no_more_lines(
    replica: Parts, redis: ArqRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.batches.request._FIRST_PAUSE", 0.01)
    file = await put_file(replica, json.dumps(LINES[0]).encode())
    record = await replica.batches.files.get("", file)
    assert record is not None
    await replica.batches.files.add(msgspec.structs.replace(record, owner="gone"))
    batch = msgspec.structs.replace(new_batch(file), owner="gone")
    await replica.batches.store.create(batch)
    running = asyncio.create_task(BatchRun(replica.batches, await claimed(replica.batches.store)).run())

    async def in_progress() -> bool:
        found = await replica.batches.store.get("gone", batch.id)
        return found is not None and found.status == "in_progress"

    await eventually(in_progress, "the batch to be validated")
    for _ in range(10):
        await asyncio.sleep(0.01)
        assert not running.done(), "before the keys have been read, no line fails"
    await replica.keyring.refresh()
    await running
    ended = await replica.batches.store.get("gone", batch.id)
    assert ended is not None
    assert ended.status == "completed"
    errors = await replica.batches.files.get("gone", ended.error_file or "")
    assert errors is not None
    with await replica.batches.files.open(errors) as content:
        (line,) = map(json.loads, content)
    assert (line["custom_id"], line["response"]["status_code"]) == ("c0", 401)


async def test_the_wall_clock_does_not_expire_a_batch(replica: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    file = await put_file(replica, json.dumps(LINES[0]).encode())
    batch = new_batch(file)
    await replica.batches.store.create(batch)
    claim = await claimed(replica.batches.store)
    ahead = time.time() + 2 * 86_400
    monkeypatch.setattr("api.batches.run.time", SimpleNamespace(time=lambda: ahead, monotonic=time.monotonic))
    await BatchRun(replica.batches, claim).run()
    ended = await replica.batches.store.get("", batch.id)
    assert ended is not None
    assert ended.status == "completed"


@pytest.mark.parametrize("expires", [-1.0, 3600.0])
async def test_a_batch_that_cannot_be_processed_fails_when_it_expires(
    replica: Parts, monkeypatch: pytest.MonkeyPatch, expires: float
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("an error in the program")

    monkeypatch.setattr("api.batches.run.validate_file", broken)
    monkeypatch.setattr("api.batches.run._BACKOFF", 0)
    batch = new_batch(await put_file(replica, b"{}"), expires=expires)
    await replica.batches.store.create(batch)
    with pytest.raises(RuntimeError):
        await BatchRun(replica.batches, await claimed(replica.batches.store)).run()
    found = await replica.batches.store.get("", batch.id)
    assert found is not None
    assert (found.status, [error.code for error in found.errors]) == (
        ("failed", ["server_error"]) if expires < 0 else ("validating", [])
    )
    assert await replica.batches.store.unfinished() == (0 if expires < 0 else 1)


async def test_a_batch_whose_input_is_gone_writes_the_results_that_it_has(
    replica: Parts, redis: ArqRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = await put_file(replica, b"\n".join(json.dumps(line).encode() for line in LINES))
    batch = new_batch(file)

    async def serve(replica: Parts, batch: Batch, index: int, read: object, yielding: asyncio.Event) -> Result:
        if index == 3:
            await asyncio.Event().wait()
        return failure_of(index, f"c{index}", "error", "message")

    monkeypatch.setattr("api.batches.run.serve_request", serve)
    await replica.batches.store.create(batch)
    first = asyncio.create_task(BatchRun(replica.batches, await claimed(replica.batches.store)).run())

    async def counted() -> bool:
        found = await replica.batches.store.get("", batch.id)
        return found is not None and found.counts.failed == 4

    await eventually(counted, "the other lines to be committed")
    await cancel_all({first})
    await awaitable(redis.delete(keys.file(file)))
    await BatchRun(replica.batches, await claimed(replica.batches.store)).run()
    ended = await replica.batches.store.get("", batch.id)
    assert ended is not None
    assert (ended.status, [error.code for error in ended.errors]) == ("failed", ["file_not_found"])
    assert [line["custom_id"] for line in await content_of(replica, ended.error_file)] == ["c0", "c1", "c2", "c4"]
    assert await replica.batches.store.unfinished() == 0


async def test_the_input_of_a_batch_is_kept_until_the_batch_expires(replica: Parts, redis: ArqRedis) -> None:
    file = await put_file(replica, b"{}")
    record = await replica.batches.files.get("", file)
    assert record is not None
    await replica.batches.files.keep(record, time.time() + 3600)
    assert await redis.ttl(keys.file(file)) > 3500
    await replica.batches.files.keep(record, time.time() + 60)
    assert await redis.ttl(keys.file(file)) > 3500


async def test_a_batch_that_keeps_failing_ends_with_the_results_that_it_has(
    replica: Parts, redis: ArqRedis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    batch = new_batch(await put_file(replica, b"\n".join(json.dumps(line).encode() for line in LINES)))

    async def counted() -> bool:
        found = await replica.batches.store.get("", batch.id)
        return found is not None and found.counts.failed == 4

    async def serve(replica: Parts, batch: Batch, index: int, read: object, yielding: asyncio.Event) -> Result:
        if index == 4:
            await eventually(counted, "the other lines to be committed")
            raise RuntimeError("an error in the program")
        return failure_of(index, f"c{index}", "error", "message")

    monkeypatch.setattr("api.batches.run.serve_request", serve)
    monkeypatch.setattr("api.batches.run._BACKOFF", 0)
    await replica.batches.store.create(batch)
    feeder, tries = BatchFeeder(replica.batches), 0
    while await replica.batches.store.unfinished():
        tries += 1
        assert tries < 20
        claim = await claimed(replica.batches.store)
        await feeder._feed(BatchRun(replica.batches, claim), claim)
        await expire_lease(redis, batch) if await replica.batches.store.unfinished() else None
    ended = await replica.batches.store.get("", batch.id)
    assert ended is not None
    assert ended.status == "failed"
    lines = await content_of(replica, ended.error_file)
    codes = {str(line["custom_id"]): cast("dict[str, str]", line["error"])["code"] for line in lines}
    assert codes == {"c0": "error", "c1": "error", "c2": "error", "c3": "error", "c4": "server_error"}
    assert json.loads(render_batch(ended))["failed_at"] >= batch.created
    assert sum(record.exc_info is not None and record.levelname == "ERROR" for record in caplog.records) == 1


async def test_lines_are_submitted_in_bursts_until_the_window_is_full(
    replica: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    bursts: list[int] = []
    wait = asyncio.wait

    async def serve(replica: Parts, batch: Batch, index: int, read: object, yielding: asyncio.Event) -> Result:
        await eventually(lambda: 40 in bursts, "the window to be full")
        return failure_of(index, "c", "error", "message")

    async def watched(tasks: set[asyncio.Task[Result]], **options: Any) -> Any:
        bursts.append(len(tasks))
        return await wait(tasks, **options)

    monkeypatch.setattr("api.batches.run.serve_request", serve)
    monkeypatch.setattr(BatchRun, "_window", lambda _: 40)
    lines = [LINES[0] | {"custom_id": f"c{number}"} for number in range(40)]
    batch = new_batch(await put_file(replica, b"\n".join(json.dumps(line).encode() for line in lines)))
    await replica.batches.store.create(batch)
    run = BatchRun(replica.batches, await claimed(replica.batches.store))
    monkeypatch.setattr("api.batches.run.asyncio.wait", watched)
    await run.run()
    assert [size for size in bursts if size > 1][:3] == [16, 32, 40]
    ended = await replica.batches.store.get("", batch.id)
    assert ended is not None
    assert (ended.status, ended.counts.failed) == ("completed", 40)


async def test_a_batch_that_cannot_be_validated_is_tried_a_few_times(
    replica: Parts, redis: ArqRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("an error in the program")

    monkeypatch.setattr("api.batches.run.validate_file", broken)
    monkeypatch.setattr("api.batches.run._MAX_FAILURES", 3)
    monkeypatch.setattr("api.batches.run._BACKOFF", 0)
    batch = new_batch(await put_file(replica, b"{}"))
    await replica.batches.store.create(batch)
    for attempt in range(1, 4):
        with pytest.raises(RuntimeError):
            await BatchRun(replica.batches, await claimed(replica.batches.store)).run()
        found = await replica.batches.store.get("", batch.id)
        assert found is not None
        assert found.status == ("validating" if attempt < 3 else "failed")
        await redis.zadd(keys.UNFINISHED_BATCHES, {batch.id: 1}, xx=True)
    assert found is not None
    assert [error.code for error in found.errors] == ["server_error"]
    assert await replica.batches.store.claim(1) == []


async def test_a_batch_is_kept_while_its_results_cannot_be_written(
    replica: Parts, redis: ArqRedis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = renewals = 0
    write_at = DirectoryStorage.write_at

    def full(storage: DirectoryStorage, name: str, offset: int, data: bytes) -> None:
        nonlocal failures
        failures += 1
        if failures < 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_at(storage, name, offset, data)

    async def serve(replica: Parts, batch: Batch, index: int, read: object, yielding: asyncio.Event) -> Result:
        return failure_of(index, "c", "error", "message")

    async def renew(store: BatchStore, claim: BatchClaim) -> BatchClaim:
        nonlocal renewals
        renewals += 1
        return claim

    monkeypatch.setattr(DirectoryStorage, "write_at", full)
    monkeypatch.setattr(BatchStore, "renew", renew)
    monkeypatch.setattr("api.batches.run.serve_request", serve)
    monkeypatch.setattr("api.batches.run.LEASE", 0.03)
    monkeypatch.setattr("api.batches.run._RETRY", 0.03)
    monkeypatch.setattr("shared.redis.outage.store", Outage())  # another test's may go on
    batch = new_batch(await put_file(replica, json.dumps(LINES[0]).encode()))
    await replica.batches.store.create(batch)
    await BatchRun(replica.batches, await claimed(replica.batches.store)).run()
    ended = await replica.batches.store.get("", batch.id)
    assert ended is not None
    assert ended.status == "completed"
    assert renewals > 0
    assert [message for message in caplog.messages if "No space" in message] == [
        f"batch {batch.id} waits: [Errno 28] No space left on device"
    ]


async def test_batches_that_make_no_progress_do_not_keep_others_waiting(
    replica: Parts, redis: ArqRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as those of a model whose workers are down."""

    async def serve(replica: Parts, batch: Batch, index: int, read: object, yielding: asyncio.Event) -> Result | None:
        if batch.owner != "stuck":
            return failure_of(index, "c", "error", "message")
        await yielding.wait()
        return None

    monkeypatch.setattr("api.batches.run.serve_request", serve)
    monkeypatch.setattr("api.batches.feeder._POLL_INTERVAL", 0.3)
    many = build(redis, replica.settings, "r")
    file = await put_file(replica, json.dumps(LINES[0]).encode())
    record = await replica.batches.files.get("", file)
    assert record is not None
    await replica.batches.files.add(msgspec.structs.replace(record, owner="stuck"))
    feeding = asyncio.create_task(BatchFeeder(many.batches, time_slice=0).run())
    for _ in range(6):
        await many.batches.store.create(msgspec.structs.replace(new_batch(file), owner="stuck"))
    other = new_batch(await put_file(replica, json.dumps(LINES[0]).encode()))
    await many.batches.store.create(other)

    async def ended() -> bool:
        found = await many.batches.store.get("", other.id)
        return found is not None and found.status not in UNFINISHED

    await eventually(ended, "the other batch to end")
    await cancel_all([feeding])
    assert await many.batches.store.unfinished() == 6


async def test_a_feeder_that_is_stopped_releases_its_batch(replica: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted = asyncio.Event()

    async def serve(replica: Parts, batch: Batch, index: int, read: object, yielding: asyncio.Event) -> None:
        submitted.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("api.batches.run.serve_request", serve)
    await replica.batches.store.create(new_batch(await put_file(replica, json.dumps(LINES[0]).encode())))
    running = asyncio.create_task(BatchRun(replica.batches, await claimed(replica.batches.store)).run())
    async with asyncio.timeout(PATIENCE):
        await submitted.wait()
    running.cancel()
    await asyncio.wait([running])
    assert await replica.batches.store.unfinished() == await replica.batches.store.waiting() == 1


async def test_a_line_that_waits_keeps_no_copy_of_its_body(replica: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    data = json.dumps(LINES[0]).encode()
    references, found = sys.getrefcount(data), list[int]()

    async def read() -> bytes:
        return data

    async def serve(*_: object) -> None:
        found.append(sys.getrefcount(data))

    monkeypatch.setattr("api.batches.request._serve", serve)
    await serve_request(replica.batches, new_batch(), 0, read, asyncio.Event())
    assert found == [references]


async def test_a_line_that_waits_keeps_no_copy_of_its_images(replica: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exchange replaces its request by one without them when it has queued them."""
    requests, references, found = list[ChatRequest](), list[int](), list[int]()

    async def read() -> bytes:
        return json.dumps(LINES[0]).encode()

    async def serve(*arguments: object) -> None:
        (chat,) = (argument for argument in arguments if isinstance(argument, ChatExchange))
        requests.append(chat.request)
        references.append(sys.getrefcount(requests[0]))
        chat.request = ChatRequest(model="m")
        found.append(sys.getrefcount(requests[0]))

    monkeypatch.setattr("api.batches.request._serve", serve)
    await serve_request(replica.batches, new_batch(), 0, read, asyncio.Event())
    assert (references, found) == ([3], [2])


def test_a_long_model_name_is_not_repeated_in_each_record() -> None:
    body = {"model": "m" * 10_000, "prompt": "a"}
    line = {"custom_id": "c", "method": "POST", "url": "/v1/completions", "body": body}
    found = validate_file(io.BytesIO(json.dumps(line).encode()), "/v1/completions", 100_000)
    assert (found.errors, found.model) == ([], None)


async def test_one_replica_at_a_time_has_a_batch(store: BatchStore, redis: ArqRedis) -> None:
    batch = new_batch()
    await store.create(batch)
    first = await claimed(store)
    assert await store.claim(5) == []
    await expire_lease(redis, batch)
    second = await claimed(store)
    assert second.epoch > first.epoch
    for late in (store.commit(first, batch, b"\1"), store.renew(first)):
        with pytest.raises(Superseded):
            await late
    renewed = await store.renew(await store.commit(second, batch, b"\1"))
    await store.release(renewed)
    third = await claimed(store)
    assert (third.revision, third.done) == (1, b"\1")


async def test_a_batch_that_has_ended_cannot_be_claimed_again(store: BatchStore) -> None:
    """A feeder that is stopped just after the end releases its claim nevertheless."""
    await store.create(new_batch())
    claim = await claimed(store)
    ended = await store.commit(claim, claim.batch.at("completed", 0), b"\1", ended=True)
    for of_claim in (claim, ended):
        await store.release(of_claim)
        await store.renew(of_claim)
    assert await store.unfinished() == 0


async def test_a_commit_whose_reply_is_lost_can_be_repeated(store: BatchStore) -> None:
    await store.create(new_batch())
    claim = await claimed(store)
    for _ in range(2):
        after = await store.commit(claim, claim.batch, b"\1")
    assert (await store.commit(after, claim.batch, b"\3")).revision == 2


async def test_a_store_that_lost_commits_ends_the_claim(store: BatchStore, redis: ArqRedis) -> None:
    batch = new_batch()
    await store.create(batch)
    key = keys.batch(batch.id)
    claim = await claimed(store)
    before = await awaitable(redis.hgetall(key))
    for _ in range(2):
        claim = await store.commit(claim, batch, b"\1")
    await awaitable(redis.hset(key, mapping=before))
    with pytest.raises(Superseded):
        await store.commit(claim, batch, b"\3")


async def test_an_owner_has_a_limited_number_of_unfinished_batches(store: BatchStore) -> None:
    batches = [new_batch() for _ in range(3)]
    for batch in batches[:2]:
        await store.create(batch)
    with pytest.raises(RequestRefused, match="2 unfinished batches"):
        await store.create(batches[2])
    (claim, _) = await store.claim(5)
    await store.commit(claim, claim.batch.at("failed", 1), b"", ended=True)
    await store.create(batches[2])


async def test_the_oldest_batches_that_have_ended_make_room(store: BatchStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.batches.store.MAX_BATCHES", 2)
    running, ended, newest = (new_batch() for _ in range(3))
    await store.create(running)
    await store.create(ended)
    claims = {claim.batch.id: claim for claim in await store.claim(5)}
    await store.commit(claims[ended.id], ended.at("failed", 1), b"", ended=True)
    await store.create(newest)
    assert [await store.get(batch.owner, batch.id) is not None for batch in (running, ended, newest)] == [
        True,
        True,
        True,
    ]
    await store.commit(claims[running.id], running.at("failed", 1), b"", ended=True)
    await store.create(new_batch())
    assert [await store.get(batch.owner, batch.id) is not None for batch in (running, ended, newest)] == [
        False,
        False,
        True,
    ]


def test_only_committed_results_are_assembled(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path)
    batch = new_batch()
    good = [response_of(number, f"c{number}", 200, b'{"a":1}', request_id="r") for number in (3, 0)]
    bad = failure_of(1, "c1", "code", "message")
    first, second = encode(good), encode([bad, response_of(2, "c2", 200, b"{}", request_id="r")])
    storage.write_at(segment_name(batch.id, 1), 0, first + second[:20])
    storage.write_at(segment_name(batch.id, 2), 0, second + first)
    batch = msgspec.structs.replace(
        batch,
        counts=BatchCounts(total=4, completed=3, failed=1),
        segments=(Segment(epoch=1, size=len(first)), Segment(epoch=2, size=len(second))),
        output_file=new_file_id(),
        error_file=new_file_id(),
    )
    for _ in range(2):
        sizes = assemble(storage, batch)
    output = (tmp_path / (batch.output_file or "")).read_bytes()
    assert len(output) == sizes.output
    assert [json.loads(line)["custom_id"] for line in output.splitlines()] == ["c0", "c2", "c3"]
    assert (tmp_path / (batch.error_file or "")).read_bytes() == bad.json + b"\n"
    lost = msgspec.structs.replace(batch, segments=batch.segments[:1])
    with pytest.raises(ValueError, match="2 of 4"):
        assemble(storage, lost)
    storage.write_at(segment_name(batch.id, 3), 0, b"0 o {")
    torn = msgspec.structs.replace(batch, segments=(Segment(epoch=3, size=9),))
    with pytest.raises(ValueError, match="shorter"):
        assemble(storage, torn)
