"""Sample jobs and the worker and replica they belong to."""

from typing import Any

from shared.protocol.queue import JobQueue
from shared.protocol.registry import WorkerInfo
from shared.protocol.request import ChatRequest, Job, Message, ResponseForm

REPLICA = "api-1"
"""The replica that the jobs' events are sent to."""

WORKER = WorkerInfo(
    id="w1", host="h", pid=1, model="tiny", status="serving", engine="simulated", device="CPU", fingerprint="fp",
    started=0.0, slots=4, context_length=100,
)  # fmt: skip


def job(name: str, text: str = "hello") -> Job:
    """A job for the model of :data:`WORKER`."""
    request = ChatRequest(model=WORKER.model, messages=(Message(role="user", content=text),))
    return Job(id=name, reply_to=REPLICA, request=request)


async def enqueue(queue: JobQueue, *names: str, limit: int = 100) -> int:
    """Queue a job for each of ``names`` in one call; return how many were waiting before."""
    return await queue.enqueue([job(name) for name in names], limit=limit)


def request_of(model: str = "m", **fields: Any) -> ChatRequest:
    """A request with fields of its own and of the form of its response."""
    form = {name: fields.pop(name) for name in ResponseForm.__struct_fields__ if name in fields}
    return ChatRequest(model=model, response=ResponseForm(**form), **fields)
