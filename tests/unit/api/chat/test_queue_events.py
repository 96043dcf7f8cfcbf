"""The place in the queue of a waiting request, while it waits, is claimed, and while the store does not respond."""

import json
from typing import Any

import pytest
from arq.connections import ArqRedis

from api.chat import queue_events
from api.chat.queue_events import QueueEvents
from api.models.directory import Directory
from shared.protocol.events import Started
from shared.protocol.queue import JobQueue
from tests.support.answers import ResponseStream, job_queues
from tests.support.jobs import enqueue


async def test_the_place_until_the_first_event(
    redis: ArqRedis, queue: JobQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_events, "INTERVAL", 0.001)
    directory = Directory(redis)
    events = QueueEvents(job_queues(redis), directory)
    await enqueue(queue, "a", "b", "c")
    stream = ResponseStream(["c"], "tiny")
    comments = events.until_started(stream)

    async def told() -> dict[str, Any]:
        comment = await anext(comments)
        assert comment.startswith(b": ")
        assert comment.endswith(b"\n\n")
        place: dict[str, Any] = json.loads(comment[2:])["queue"]
        return place

    assert await told() == {"request": "c", "ahead": 2, "expected_wait": None}
    monkeypatch.setattr(directory, "service_rate", lambda model: 2.0)
    await queue.claim("w1", used=0, slots=1)
    assert await told() == {"request": "c", "ahead": 1, "expected_wait": 1.0}

    place = JobQueue.place

    async def unreachable(*_: object) -> None:
        await queue.claim("w1", used=0, slots=2)
        monkeypatch.setattr(JobQueue, "place", place)
        raise ConnectionError

    monkeypatch.setattr(JobQueue, "place", unreachable)
    assert await told() == {"request": "c", "ahead": None, "expected_wait": 0.0}
    stream.put(0, Started("w1", 1, "fp"), last=False)
    with pytest.raises(StopAsyncIteration):
        await told()
