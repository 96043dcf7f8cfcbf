"""Batches through the official SDK."""

import json
from collections.abc import Iterable
from typing import Any

import openai
from openai.types import Batch

from tests.support.eventually import wait_until

CHAT = "/v1/chat/completions"
ENDED = {"completed", "failed", "expired", "cancelled"}


def chat_line(custom_id: str, content: str = "hello", *, url: str = CHAT, **fields: Any) -> dict[str, Any]:
    """One line of an input file."""
    body = {"model": "sim", "messages": [{"role": "user", "content": content}], "max_tokens": 8, **fields}
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


def submit(
    client: openai.OpenAI, lines: Iterable[dict[str, Any]] | bytes, endpoint: str = CHAT, **fields: Any
) -> Batch:
    """Upload lines and create a batch of them."""
    content = lines if isinstance(lines, bytes) else b"\n".join(json.dumps(line).encode() for line in lines)
    file = client.files.create(file=("in.jsonl", content), purpose="batch")
    arguments: dict[str, Any] = {"endpoint": endpoint, **fields}
    return client.batches.create(input_file_id=file.id, completion_window="24h", **arguments)


def ended(client: openai.OpenAI, batch: Batch, details: Any = None) -> Batch:
    """Wait until a batch has ended."""
    found = batch

    def has_ended() -> bool:
        nonlocal found
        try:
            found = client.batches.retrieve(batch.id)
        except openai.APIConnectionError:
            return False  # its replica was killed
        except openai.InternalServerError:
            return False  # its store was
        return found.status in ENDED

    wait_until(has_ended, f"batch {batch.id} to end", details=details or (lambda: str(found)))
    return found


def results(client: openai.OpenAI, file_id: str | None) -> list[dict[str, Any]]:
    """The lines of a result file."""
    if file_id is None:
        return []
    return [json.loads(line) for line in client.files.content(file_id).read().splitlines()]
