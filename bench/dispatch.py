"""dispatch: from a job in the queue to its first token, with an engine whose steps take no time."""

import asyncio
import time
import uuid
from pathlib import Path
from typing import Any

from bench.fleet import Fleet
from bench.report import percentile, save, table
from shared import keys
from shared.events import Started, decode_frame
from shared.queue import JobQueue
from shared.request import ChatRequest, Job, Message, Sampling
from shared.store import connect

JOBS = 500


def run(folder: Path, *, workers: tuple[int, ...] = (1, 4, 8)) -> dict[str, Any]:
    """Measure with growing fleets, print the table, and return the result."""
    rows = []
    for count in workers:
        fleet = Fleet(folder / str(count))
        try:
            for _ in range(count):
                fleet.worker("--engine", "simulated", "--model", "sim", "--sim-step", "0", "--max-batch", "64")
            rows.append({"workers": count, **asyncio.run(_measure(fleet.url))})
        finally:
            fleet.stop()
    print(table(f"dispatch: enqueue to first token, {JOBS} jobs one after the other", rows))
    save("dispatch", {"rows": rows})
    return {"rows": rows}


async def _measure(url: str) -> dict[str, object]:
    redis = connect(url)
    queue = JobQueue(redis, "sim")
    replica = uuid.uuid4().hex
    request = ChatRequest(
        model="sim", messages=(Message(role="user", content="hello"),), sampling=Sampling(max_tokens=1)
    )
    latencies: list[float] = []
    served: dict[str, int] = {}
    async with redis.pubsub(ignore_subscribe_messages=True) as pubsub:
        await pubsub.subscribe(keys.replica_channel(replica))
        for _ in range(JOBS):
            job = Job(id=uuid.uuid4().hex, reply_to=replica, request=request)
            began = time.perf_counter()
            await queue.enqueue([job], limit=1_000_000)
            worker = None
            while worker is None:
                message = await pubsub.get_message(timeout=10)
                for entry in decode_frame(message["data"]) if message else []:
                    if entry.job == job.id and isinstance(entry.event, Started):
                        worker = entry.event.worker
            latencies.append((time.perf_counter() - began) * 1000)
            served[worker] = served.get(worker, 0) + 1
    await redis.aclose(close_connection_pool=True)
    return {
        "p50 ms": percentile(latencies, 0.5),
        "p99 ms": percentile(latencies, 0.99),
        "busiest worker / mean": max(served.values()) / (JOBS / len(served)),
    }
