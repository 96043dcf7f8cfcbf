"""A load generator cheap enough to share two cores with what it measures.

It speaks just enough HTTP/1.1 to send a chat request, to time the content of the stream that comes back, and to read
the number of tokens from its usage chunk; it decodes no JSON.
"""

import asyncio
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

_TEXT = re.compile(rb'"delta": ?\{(?:"role": ?(?:null|"assistant"), ?)?"content": ?"[^"]')
"""The beginning of a chunk with text, as several servers write it; the opening of a choice has none."""
_USAGE = re.compile(rb'"completion_tokens": ?(\d+)')
_END = b"data: [DONE]"


@dataclass(slots=True)
class Stream:
    """What one streamed chat did. Times are of :func:`time.perf_counter`, in seconds."""

    began: float
    first: float = 0.0
    ended: float = 0.0
    tokens: int = 0
    """Generated tokens, from the usage at the end; 0 if the server reports none."""
    pieces: int = 0
    """Chunks with text."""
    arrivals: list[float] = field(default_factory=list)
    """When data with content arrived."""
    complete: bool = False
    status: int = 0

    @property
    def gaps(self) -> list[float]:
        """Seconds between arrivals."""
        return [later - earlier for earlier, later in zip(self.arrivals, self.arrivals[1:], strict=False)]


class _Receiver(asyncio.Protocol):
    def __init__(self, request: bytes) -> None:
        self._request = request
        self._tail = b""
        self.stream = Stream(began=time.perf_counter())
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not checked by isinstance: uvloop's transports don't say that they are any of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self.stream.began = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        stream = self.stream
        if not stream.status:
            stream.status = int(data[9:12])
        if pieces := len(_TEXT.findall(data)):
            now = time.perf_counter()
            stream.first = stream.first or now
            stream.arrivals.append(now)
            stream.pieces += pieces
        end = self._tail + data
        self._tail = end[-1000:]
        if _END in end:
            usage = _USAGE.search(end)
            stream.tokens = int(usage[1]) if usage else 0
            stream.complete = True
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.stream.ended = time.perf_counter()
        if not self.done.done():
            self.done.set_result(None)


async def chat(port: int, model: str, prompt: str, tokens: int) -> Stream:
    """Stream one greedy chat of ``tokens`` tokens, where the model does not end earlier."""
    body = json.dumps(
        {
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()
    request = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
    ) + body
    loop = asyncio.get_running_loop()
    _, receiver = await loop.create_connection(lambda: _Receiver(request), "127.0.0.1", port)
    await receiver.done
    return receiver.stream


async def chats(port: int, model: str, prompts: Sequence[str], tokens: int, concurrency: int) -> list[Stream]:
    """Stream a chat for each of ``prompts``, at most ``concurrency`` at a time."""
    slots = asyncio.Semaphore(concurrency)

    async def one(prompt: str) -> Stream:
        async with slots:
            return await chat(port, model, prompt, tokens)

    return await asyncio.gather(*map(one, prompts))
