"""Stored responses for tests."""

import json
from typing import Any

from arq.connections import ArqRedis

from api.dialects.responses import Responses
from api.dialects.responses.parse import StoredConversation
from api.fairness import FairThread
from api.stored.record import StoredResponse, record_of
from api.stored.store import ResponseStore
from shared.protocol.request import ChatRequest, Message, ResponseForm, Sampling
from shared.runtime.settings import ApiSettings
from shared.runtime.tasks import BackgroundTasks

OWNER = "key-1"
MESSAGES = b'[{"role":"user","content":"a"}]'


def response_store(redis: ArqRedis, **limits: Any) -> ResponseStore:
    """A store with wide limits, except those given."""
    wide: dict[str, Any] = {"ttl": 60.0, "bytes": 2**26, "total_bytes": 2**30}
    settings = ApiSettings.model_construct(**{f"store_{name}": value for name, value in (wide | limits).items()})
    return ResponseStore(redis, BackgroundTasks(), FairThread(), settings)


def completion(
    number: int = 1, model: str = "tiny", messages: bytes = MESSAGES, n: int = 1, **metadata: str
) -> StoredResponse:
    """The record of a chat completion that was accepted. Its jobs are ``jNUMBER`` or ``jNUMBER:CHOICE``."""
    request = ChatRequest(
        model=model,
        messages=(Message(role="user", content="a"),),
        sampling=Sampling(max_tokens=10),
        store=True,
        n=n,
        response=ResponseForm(metadata=tuple(metadata.items())),
    )
    jobs = (f"j{number}",) if n == 1 else tuple(f"j{number}:{choice}" for choice in range(n))
    return record_of(request, f"{number:032x}", jobs, created=7, messages=messages)


def response(number: int = 1, *, background: bool = True, messages: bytes = MESSAGES, **fields: Any) -> StoredResponse:
    """The record of a response that was accepted. ``fields`` are further ones of its request."""
    tool = {"type": "function", "name": "f"}
    body = {"model": "m", "input": "a", "background": background, "tools": [tool], **fields}
    request = Responses().validate(json.dumps(body).encode()).request(StoredConversation(), store=True)
    return record_of(request, f"{number:032x}", (f"j{number}",), created=7, messages=messages)


def document(status: str = "completed", text: str = "Hi", **fields: Any) -> bytes:
    """The document of a response."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    output = [{"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content}]
    return json.dumps({"id": "resp", "status": status, "output": output} | fields).encode()


async def put(store: ResponseStore, record: StoredResponse, body: bytes = b"{}", owner: str = OWNER) -> StoredResponse:
    """Store a response that has ended with the document ``body``; return its record."""
    await store.create(owner, record)
    assert await store.end(owner, record, body)
    found = await store.get(owner, record.id)
    assert found is not None
    return found
