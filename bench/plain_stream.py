"""``python -m bench.plain_stream SOCKET STEP``: streams as a plain Quart route writes them, with nothing behind it.

On the listening socket of that number, all streams get a ready-made chunk every STEP seconds, under the same server and
event loop as the API's. What the API takes for a token, with all that it does for it, is compared with what that takes.
"""

import asyncio
import sys
from collections.abc import AsyncIterator

import uvicorn
from quart import Quart, Response, request

from shared.runtime.event_loop import run

_HEAD = (
    b'data: {"id":"chatcmpl-0123456789abcdef0123456789abcdef","object":"chat.completion.chunk","created":1700000000,'
)
_CHUNK = _HEAD + b'"model":"sim","choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}\n\n'
_CLOSING = b'data: {"choices":[],"usage":{"completion_tokens":%d}}\n\ndata: [DONE]\n\n'


class _Beat:
    """Wakes all that wait for it, again and again."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    async def run(self, step: float) -> None:
        while True:
            await asyncio.sleep(step)
            due, self._next = self._next, asyncio.Event()
            due.set()

    async def wait(self) -> None:
        await self._next.wait()


def _application(beat: _Beat) -> Quart:
    app = Quart("plain_stream", static_folder=None)
    app.config["RESPONSE_TIMEOUT"] = None

    @app.post("/v1/chat/completions")
    async def chat() -> Response:
        tokens: int = (await request.get_json())["max_tokens"]

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(tokens):
                await beat.wait()
                yield _CHUNK
            yield _CLOSING % tokens

        return Response(pieces(), content_type="text/event-stream")

    return app


async def _serve(listener: int, step: float) -> None:
    beat = _Beat()
    beating = asyncio.create_task(beat.run(step))
    config = uvicorn.Config(
        _application(beat), fd=listener, ws="none", lifespan="off", access_log=False, log_config=None
    )
    await uvicorn.Server(config).serve()
    beating.cancel()


if __name__ == "__main__":
    run(_serve(int(sys.argv[1]), float(sys.argv[2])))
