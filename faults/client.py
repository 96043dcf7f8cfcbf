"""A chat client on a bare socket: cheap enough for hundreds at once, and it sees every byte."""

import asyncio
import json
import time
from contextlib import suppress
from operator import itemgetter
from typing import Any

from faults.history import Exchange
from faults.prompts import VECTORS, Model, request_fields


async def chat(port: int, model: Model, exchange: Exchange) -> None:
    """Send the request of ``exchange`` to a replica and write what comes back into it.

    Cancel it to leave in the middle; the connection is then closed at once.
    """
    writer = None
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            request_bytes(
                model,
                exchange.prompt,
                exchange.tokens,
                streamed=exchange.streamed,
                sampled=exchange.sampled,
                name=exchange.model,
                stored_as=exchange.stored_as,
            )
        )
        exchange.status, length = await _read_head(reader, exchange)
        exchange.headers_at = time.monotonic()
        if exchange.status != 200:
            exchange.error = (await reader.readexactly(length)).decode() if length else ""
            exchange.outcome = "refused"
        elif exchange.streamed:
            await _read_stream(reader, exchange)
        else:
            _read_completion(await reader.readexactly(length), exchange)
    except (OSError, EOFError) as error:
        exchange.outcome = "cut"
        exchange.error = repr(error)
    except asyncio.CancelledError:
        exchange.outcome = "aborted"
        raise
    finally:
        exchange.ended = time.monotonic()
        if writer is not None:
            writer.transport.abort()


def request_bytes(
    model: Model, prompt: str, tokens: int, *, streamed: bool, name: str, sampled: bool = False, stored_as: str = ""
) -> bytes:
    """A chat completion as HTTP, to be stored under ``stored_as`` where that is given. ``name`` is the model's for
    clients."""
    if name in VECTORS:
        path = {"embed": "/v1/embeddings", "rerank": "/v1/rerank"}[name]
        return _post(path, {"model": name, **json.loads(prompt)})
    value: dict[str, object] = {
        "model": name,
        "temperature": int(sampled),
        "stream": streamed,
        **request_fields(model, prompt, tokens),
    }
    if streamed:
        value["stream_options"] = {"include_usage": True}
    if stored_as:
        value |= {"store": True, "metadata": {"request": stored_as}}
    return _post("/v1/chat/completions", value)


def _post(path: str, value: dict[str, object]) -> bytes:
    body = json.dumps(value).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _read_head(reader: asyncio.StreamReader, exchange: Exchange) -> tuple[int, int]:
    """Return the status and the body's length (0 where the body is chunked)."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    with suppress(ValueError):
        exchange.retry_after = float(headers.get("retry-after", "0"))
    return int(lines[0].split(" ")[1]), int(headers.get("content-length", "0"))


async def _read_stream(reader: asyncio.StreamReader, exchange: Exchange) -> None:
    buffer = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        buffer += (await reader.readexactly(size + 2))[:-2]
        *lines, buffer = buffer.split(b"\n")
        for line in lines:
            if line == b"data: [DONE]":
                exchange.outcome = "failed" if exchange.error else "completed"
            elif line.startswith(b"data: "):  # a comment says that the response begins
                _note_chunk(line, exchange)
    if exchange.outcome == "open":
        exchange.outcome = "cut"


def _note_chunk(line: bytes, exchange: Exchange) -> None:
    chunk = json.loads(line.removeprefix(b"data: "))
    if "error" in chunk:
        exchange.error = json.dumps(chunk["error"])
        exchange.endings += 1
        return
    if chunk.get("usage"):
        _note_usage(chunk["usage"], exchange)
    if not chunk["choices"]:
        return
    choice = chunk["choices"][0]
    if text := choice["delta"].get("content"):
        exchange.pieces.append(text)
        exchange.arrivals.append(time.monotonic())
        exchange.after_end += exchange.endings > 0
    if choice["finish_reason"] is not None:
        exchange.endings += 1


def _read_completion(body: bytes, exchange: Exchange) -> None:
    answer = json.loads(body)
    _note_usage({"completion_tokens": 0} | answer["usage"], exchange)
    vectors = exchange.model in VECTORS
    exchange.pieces.append(json.dumps(_numbers(answer)) if vectors else answer["choices"][0]["message"]["content"])
    exchange.arrivals.append(time.monotonic())
    exchange.endings += 1
    exchange.outcome = "completed"


def _numbers(answer: dict[str, Any]) -> list[list[float]]:
    """Return the vector of each text, or the score of each document, in the order of the request."""
    if "data" in answer:
        return [one["embedding"] for one in sorted(answer["data"], key=itemgetter("index"))]
    return [[one["relevance_score"]] for one in sorted(answer["results"], key=itemgetter("index"))]


def _note_usage(usage: dict[str, int], exchange: Exchange) -> None:
    exchange.prompt_tokens, exchange.completion_tokens = usage["prompt_tokens"], usage["completion_tokens"]
