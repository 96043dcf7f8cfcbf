"""The end of an HTTP exchange: what was acquired is released, even where a cancellation gets lost."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import pytest
from quart import Quart, Response

from api.http.application import ExchangeApplication
from api.http.exchange import current_exchange
from shared.tracing import NO_TRACING

SCOPE = {
    "type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "path": "/live", "raw_path": b"/live",
    "query_string": b"", "root_path": "", "headers": [(b"host", b"localhost")], "server": None, "client": None,
}  # fmt: skip


class Resource(AbstractAsyncContextManager[object]):
    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release

    async def __aexit__(self, *_: object) -> None:
        self._release()


def app_with(route: Callable[[], Awaitable[Any]]) -> Quart:
    app = ExchangeApplication(NO_TRACING, {})
    app.config["PROPAGATE_EXCEPTIONS"] = True
    app.add_url_rule("/live", view_func=route)
    return app


class Client:
    """A client that disconnects when :attr:`leaving` is set."""

    def __init__(self) -> None:
        self.leaving = asyncio.Event()
        self.sent: list[dict[str, Any]] = []
        self._asked = False

    async def receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.leaving.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    async def ask(self, route: Callable[[], Awaitable[Any]]) -> None:
        await app_with(route)(SCOPE, self.receive, self.send)  # type: ignore[arg-type]


async def test_what_was_acquired_is_released_when_the_response_is_complete() -> None:
    released: list[str] = []
    client = Client()

    async def route() -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"one"
            assert not released
            yield b"two"

        await current_exchange().enter(Resource(lambda: released.append("answer")))
        return Response(pieces())

    await client.ask(route)
    assert b"".join(message.get("body", b"") for message in client.sent) == b"onetwo"
    assert released == ["answer"]


async def test_what_was_acquired_is_released_when_the_route_fails() -> None:
    released: list[str] = []

    async def route() -> str:
        await current_exchange().enter(Resource(lambda: released.append("answer")))
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await Client().ask(route)
    assert released == ["answer"]


async def test_the_last_acquired_is_released_first_and_all_are_whatever_fails() -> None:
    released: list[str] = []

    def fail() -> None:
        raise ValueError("broken")

    async def route() -> str:
        await current_exchange().enter(Resource(lambda: released.append("answer")))
        await current_exchange().enter(Resource(fail))
        await current_exchange().enter(Resource(lambda: released.append("count")))
        return ""

    with pytest.raises(ValueError, match="broken"):
        await Client().ask(route)
    assert released == ["count", "answer"]


async def test_a_stream_that_was_never_begun_is_released() -> None:
    released: list[str] = []
    client = Client()

    async def route() -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            raise AssertionError("begun")
            yield b""

        await current_exchange().enter(Resource(lambda: released.append("answer")))
        return Response(pieces())

    async def slow(message: dict[str, Any]) -> None:
        client.leaving.set()
        await asyncio.sleep(3600)

    client.send = slow  # type: ignore[method-assign]
    await client.ask(route)
    assert released == ["answer"]


async def test_a_route_that_goes_on_without_its_client_is_ended() -> None:
    released: list[str] = []
    lost: list[str] = []
    client = Client()

    async def route() -> str:
        await current_exchange().enter(Resource(lambda: released.append("answer")))
        client.leaving.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        lost.append("a cancellation")
        await asyncio.sleep(3600)
        return ""

    await client.ask(route)
    assert lost == ["a cancellation"]
    assert released == ["answer"]


async def test_a_cancellation_from_elsewhere_is_passed_on() -> None:
    released: list[str] = []
    serving = asyncio.Event()

    async def route() -> str:
        await current_exchange().enter(Resource(lambda: released.append("answer")))
        serving.set()
        await asyncio.sleep(3600)
        return ""

    task = asyncio.create_task(Client().ask(route))
    await serving.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert released == ["answer"]
