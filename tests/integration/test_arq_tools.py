"""arq's tools read the queues (decision 0003): the job format, which is MessagePack, and the names of the keys are
arq's."""

import json
import threading

import msgspec
from arq.connections import ArqRedis, RedisSettings, create_pool
from arq.jobs import Job, JobStatus

from shared.redis import keys
from tests.support.fleet import SIMULATED, Fleet
from tests.support.redis_types import at_once

BODY = json.dumps({"model": "sim", "messages": [{"role": "user", "content": "[[tokens 2000]]"}], "max_tokens": 2000})


async def test_arq_reads_a_live_queue(patient_fleet: Fleet) -> None:
    patient_fleet.worker(*SIMULATED[:-1], "0.05", "--max-batch", "1")
    patient_fleet.api("--request-timeout", "2000")
    clients = [
        threading.Thread(target=patient_fleet.request, args=("POST", "/v1/chat/completions", BODY), daemon=True)
        for _ in range(3)
    ]
    for client in clients:
        client.start()
    store = patient_fleet.redis()
    queue = keys.queue("sim")
    patient_fleet.until(lambda: store.zcard(queue) == 2 and store.zcard(keys.inflight("sim")) == 1, "two jobs to wait")
    arq: ArqRedis = await create_pool(
        RedisSettings.from_dsn(patient_fleet.url), default_queue_name=queue, job_deserializer=msgspec.msgpack.decode
    )
    try:
        waiting = await arq.queued_jobs(queue_name=queue)
        assert {job.job_id for job in waiting} == {name.decode() for name in at_once(store.zrange(queue, 0, -1))}
        for definition in waiting:
            assert definition.job_id is not None
            job = Job(definition.job_id, arq, queue, _deserializer=msgspec.msgpack.decode)
            info = await job.info()
            assert info is not None
            assert (info.function, info.args, info.score) == (definition.function, definition.args, definition.score)
            assert await job.status() == JobStatus.queued
        (claimed,) = at_once(store.zrange(keys.inflight("sim"), 0, -1))
        running = Job(claimed.decode(), arq, queue, _deserializer=msgspec.msgpack.decode)
        assert await running.info() is not None
        assert await Job("unknown", arq, queue, _deserializer=msgspec.msgpack.decode).status() == JobStatus.not_found
    finally:
        await arq.aclose(close_connection_pool=True)
