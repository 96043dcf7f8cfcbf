"""Workers and replicas of different protocol versions, side by side."""

import logging

import msgspec
import pytest
from arq.connections import ArqRedis

from api.build import Parts, build
from api.fleet.document import worker_entry
from api.models.directory import Directory, Fleet
from cli.monitor.status import Snapshot, as_table
from shared.protocol import request
from shared.protocol.errors import ProblemKind, RequestRefused
from shared.protocol.events import Rejected, decode_frame
from shared.protocol.queue import JobQueue
from shared.protocol.registry import ReplicaInfo, WorkerInfo, announce
from shared.protocol.request import QueuedJob
from shared.protocol.version import PROTOCOL, READABLE
from shared.redis import keys
from shared.runtime.settings import ApiSettings
from tests.support.emitting import journal_of
from tests.support.eventually import eventually
from tests.support.job_rig import JobRig, consumer_of, no_publisher, run_until_empty
from tests.support.jobs import REPLICA, WORKER, enqueue, job
from tests.support.redis_types import awaitable

NEXT = PROTOCOL + 1
REPLICA_INFO = ReplicaInfo(id="r", host="h", pid=1, address="", started=0.0)


def worker(name: str, *protocols: int, status: str = "serving") -> WorkerInfo:
    return msgspec.structs.replace(WORKER, id=name, protocols=protocols, status=status)


async def replica_with(redis: ArqRedis, *workers: WorkerInfo) -> Parts:
    for one in workers:
        await announce(redis, one, lease=60)
    replica = build(redis, ApiSettings(), "r")
    await replica.directory.refresh()
    return replica


def test_workers_read_what_replicas_of_the_same_version_write() -> None:
    assert PROTOCOL in READABLE


def test_records_and_jobs_without_a_version_are_of_the_first() -> None:
    record = b'{"id":"w","host":"h","pid":1,"model":"m","status":"serving","engine":"e","device":"","fingerprint":"",'
    assert msgspec.json.decode(record + b'"started":0,"slots":1}', type=WorkerInfo).protocols == (1,)
    replica = b'{"id":"r","host":"h","pid":1,"address":"","started":0}'
    assert msgspec.json.decode(replica, type=ReplicaInfo).protocol == 1
    assert request.decode_job(msgspec.msgpack.encode({"id": "j", "reply_to": "r"})).protocol == 1


@pytest.mark.parametrize(
    ("workers", "served"),
    [
        ([worker("a", PROTOCOL)], True),
        ([worker("a", NEXT)], False),
        ([worker("a", PROTOCOL, NEXT)], True),
        # Either may claim the job.
        ([worker("a", PROTOCOL), worker("b", NEXT)], False),
        ([worker("a", PROTOCOL), worker("b", NEXT, status="draining")], True),
        ([worker("a", PROTOCOL), worker("b", NEXT, status="loading")], True),
        ([worker("b", NEXT, status="loading")], False),
        ([worker("a", PROTOCOL), msgspec.structs.replace(worker("b", NEXT), model="other")], True),
    ],
)
def test_a_model_is_served_if_all_workers_that_may_claim_its_jobs_read_them(
    workers: list[WorkerInfo], served: bool
) -> None:
    assert (Fleet(tuple(workers)).unreadable_for("tiny") == ()) is served


async def test_a_request_that_workers_cannot_read_is_refused_with_a_time_to_come_back(redis: ArqRedis) -> None:
    replica = await replica_with(redis, worker("a", PROTOCOL), worker("b", NEXT))
    asked = job("j").request
    with pytest.raises(RequestRefused, match=f"1 of its workers cannot read .* protocol version {PROTOCOL}") as refused:
        await replica.chat.admission.admit(None, asked, {})
    assert refused.value.problem.kind == ProblemKind.NO_WORKER
    assert refused.value.problem.retry_after
    assert await JobQueue(redis, "tiny").depth() == (0, 0)


async def test_the_log_names_workers_that_keep_requests_out_once(
    redis: ArqRedis, caplog: pytest.LogCaptureFixture
) -> None:
    directory = Directory(redis)
    await announce(redis, worker("b", NEXT), lease=60)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await directory.refresh()
        await announce(redis, worker("b", PROTOCOL), lease=60)
        for _ in range(3):
            await directory.refresh()
    lines = [line.getMessage() for line in caplog.records]
    assert len(lines) == 2
    assert "protocol version" in lines[0]
    assert "b (version" in lines[0]
    assert "again" in lines[1]


async def test_a_job_of_another_version_is_rejected_at_once(redis: ArqRedis, queue: JobQueue) -> None:
    async with redis.pubsub() as frames:
        await frames.subscribe(keys.replica_channel(REPLICA))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(request, "PROTOCOL", NEXT)
            await enqueue(queue, "j")
        await run_until_empty(consumer_of(queue, JobRig(no_publisher, queue=queue).runner), queue)
        arrived: list[bytes] = []

        async def has_arrived() -> bool:
            message = await frames.get_message(ignore_subscribe_messages=True)
            arrived.extend([message["data"]] if message is not None else [])
            return bool(arrived)

        await eventually(has_arrived)
    (entry,) = decode_frame(arrived[0])
    assert (entry.job, entry.attempt) == ("j", 1)
    assert isinstance(entry.event, Rejected)
    assert entry.event.problem.kind == ProblemKind.NO_WORKER
    assert entry.event.problem.retry_after
    assert await journal_of(queue, "j") == [entry.event]
    assert await awaitable(redis.llen(keys.dead_letters("tiny"))) == 1


def test_a_job_says_its_version() -> None:
    assert QueuedJob.of(job("j"), None).protocol == PROTOCOL


def test_status_and_fleet_view_name_the_versions_that_a_worker_cannot_read() -> None:
    old, new = REPLICA_INFO, msgspec.structs.replace(REPLICA_INFO, id="new", protocol=NEXT)
    workers = [worker("a", PROTOCOL), worker("b", PROTOCOL, NEXT)]
    lines = as_table(
        Snapshot(nodes=[], workers=workers, queues=[], replicas=[old, new], batches=[]), now=0.0
    ).splitlines()
    assert f"serving: cannot read jobs of protocol version {NEXT} " in lines[1]
    assert "protocol" not in lines[2]
    assert [worker_entry(one, one.status, 0.0, [], [old, new]).unread_protocols for one in workers] == [[NEXT], []]
