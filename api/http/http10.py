"""Responses to HTTP/1.0 clients, which do not support chunks."""

from collections.abc import Callable
from typing import Any

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


def ended_by_close(cycle: RequestResponseCycle, app: Callable[..., Any]) -> ASGI3Application:
    """Wrap ``app`` for an HTTP/1.0 client, which does not support chunks: closing the connection ends the body."""

    async def unchunked(scope: Any, receive: Any, send: Any) -> None:
        open_ended = False

        async def send_plain(message: Any) -> None:
            nonlocal open_ended
            if message["type"] == "http.response.start":
                open_ended = all(name.lower() != b"content-length" for name, _ in message["headers"])
                if open_ended:
                    cycle.chunked_encoding = False
            elif open_ended:
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, send_plain)

    return unchunked
