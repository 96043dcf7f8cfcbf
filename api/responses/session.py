"""A session over a WebSocket: its client asks for one response after the other."""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, TypeVar

import msgspec
from quart import Request

from api import http_span
from api.access import key_owner, may_use
from api.chat_exchange import ChatExchange
from api.chat_stream import streamed
from api.dialects.interface import MessagesMissing, Usage
from api.dialects.openai.body import decode_object
from api.dialects.responses import Draft, History, Responses
from api.dialects.responses.schema import ResponsesRequest
from api.dialects.responses.socket_events import (
    error_message,
    lifetime_over,
    messages,
    not_storable,
    parse_create,
)
from api.exchange_end import end_exchange
from api.http_exchange import HttpExchange, current_exchange
from api.limits.headers import openai_rate_headers
from api.replica import Replica
from api.responses.connection_memory import ConnectionMemory
from api.responses.exchange import chat_exchange_of, is_stored
from api.responses.history import history_of
from api.websocket.socket import CloseCode, WebSocket
from shared.protocol.errors import Problem, ProblemKind, RequestRefused, refuse

logger = logging.getLogger(__name__)

_Parsed = TypeVar("_Parsed")

LIFETIME = 60
"""Maximum age of a session in minutes; the reference's."""

METHOD = "WEBSOCKET"
"""Stands for the HTTP method in the request log."""

_FAILURE = Problem(
    kind=ProblemKind.INTERNAL, message="The server had an error while processing your request. Please try again."
)


class ResponseSession:
    """Serves one WebSocket. Each of its messages is an exchange of its own, with a line in the request log."""

    def __init__(self, replica: Replica, request: Request, socket: WebSocket) -> None:
        """``request`` is that of the handshake."""
        self._replica = replica
        self._request = request
        self._socket = socket
        self._memory = ConnectionMemory(replica.settings.max_body, replica.memories)

    async def run(self) -> None:
        """Answer messages until the server shuts down or the session is too old or idle for too long."""
        end = asyncio.get_running_loop().time() + 60 * LIFETIME
        with self._memory:
            while (message := await self._next(end)) is not None:
                self._socket.set_idle(idle=False)
                await self._answer(message)
                del message  # It may be large, and the next one may come much later.
                self._socket.set_idle(idle=True)
                if self._replica.draining.draining:
                    break
        self._socket.close(CloseCode.GOING_AWAY)

    async def _next(self, end: float) -> bytes | None:
        """Return the next message; None if the session is to end, as at the time ``end`` at the latest."""
        loop = asyncio.get_running_loop()
        with suppress(TimeoutError):
            if loop.time() < end:
                async with asyncio.timeout_at(min(end, loop.time() + self._replica.settings.request_timeout)):
                    return await self._socket.message()
        if loop.time() >= end:
            await self._socket.send([error_message(Responses().error(lifetime_over(LIFETIME)), {})])
        return None

    async def _answer(self, message: bytes) -> None:
        """Answer one message, with a response or an error."""
        started_at = time.monotonic()
        span = http_span.begin(self._replica.tracing, self._request, started_at)
        exchange = HttpExchange(self._request, Responses(), f"req_{uuid.uuid4().hex}", started_at=started_at, span=span)
        exchange.method = METHOD
        try:
            await self._respond(exchange, message)
        except RequestRefused as refusal:
            await self._refuse(exchange, refusal.problem)
        except Exception:
            logger.exception("request %s failed", exchange.id)
            await self._refuse(exchange, _FAILURE)
        finally:
            await end_exchange(exchange, self._request)

    async def _refuse(self, exchange: HttpExchange, problem: Problem) -> None:
        self._replica.metrics.refused(problem.kind)
        reply = exchange.dialect.error(problem)
        exchange.problem, exchange.status = problem.kind, reply.status
        headers = openai_rate_headers(exchange.chat.counts) if exchange.chat is not None else {}
        await self._socket.send([error_message(reply, headers)])

    async def _respond(self, exchange: HttpExchange, message: bytes) -> None:
        # The key may have been revoked since the handshake.
        exchange.key = current_exchange().key = await self._replica.admission.identify(self._request.headers)
        event = await self._parse(exchange, len(message), partial(decode_object, message))
        try:
            completed = await self._create(exchange, event, len(message))
        except BaseException:
            self._memory.evict(event.get("previous_response_id"))
            raise
        if not completed:
            self._memory.evict(event.get("previous_response_id"))

    async def _create(self, exchange: HttpExchange, event: Mapping[str, Any], size: int) -> bool:
        """Make the response that ``event`` asks for; return whether it did not fail."""
        try:
            draft, generate = await self._parse(exchange, size, partial(parse_create, event))
        except MessagesMissing as missing:
            await self._replica.models.require(missing.model)
            raise
        kept = self._memory.history(draft.previous)
        if kept is not None and generate and draft.store:
            raise not_storable()
        history = kept or await history_of(
            self._replica.stored,
            self._replica.body_parser,
            key_owner(),
            draft,
            max_bytes=self._replica.settings.max_request_body,
        )
        chat = await chat_exchange_of(
            self._replica,
            exchange,
            self._request.headers,
            draft,
            history,
            size=size,
            store=generate and kept is None and is_stored(draft, is_large=False),
        )
        document = await self._stream(exchange, chat) if generate else await self._warm_up(exchange, chat)
        response: dict[str, Any] = msgspec.json.decode(document)
        if response["status"] == "failed":
            return False
        self._remember(chat, draft, history, response)
        return True

    async def _parse(self, exchange: HttpExchange, size: int, parse: Callable[[], _Parsed]) -> _Parsed:
        return await self._replica.body_parser.run(exchange.key.id if exchange.key is not None else "", size, parse)

    async def _stream(self, exchange: HttpExchange, chat: ChatExchange) -> bytes:
        """Have the response made and send its events; return the response."""
        exchange.chat = chat
        await exchange.enter(chat)
        await chat.stream.started()
        exchange.status = 200
        encoder = Responses().render(chat.request, answer_id=chat.id, created=int(chat.accepted), fingerprint="")
        async with aclosing(streamed(chat, encoder, None)) as pieces:
            async for piece in pieces:
                await self._socket.send(messages(piece))
        return encoder.document

    async def _warm_up(self, exchange: HttpExchange, chat: ChatExchange) -> bytes:
        """Send the events of a response without output; return the response."""
        model = chat.request.model
        if not may_use(model):
            raise refuse(ProblemKind.FORBIDDEN, f"This API key does not have access to model '{model[:64]}'.")
        await self._replica.models.require(model)
        exchange.status = 200
        encoder = Responses().render(chat.request, answer_id=chat.id, created=int(time.time()), fingerprint="")
        events = encoder.opening(0) + encoder.usage(Usage(prompt_tokens=0, completion_tokens=0))
        await self._socket.send(messages(events))
        return encoder.document

    def _remember(
        self, chat: ChatExchange, draft: Draft[ResponsesRequest], history: History, response: Mapping[str, Any]
    ) -> None:
        """Keep the conversation for the next message, unless it is stored."""
        if chat.request.store:
            self._memory.clear()
        else:
            items = [*history.earlier, *draft.input_items(history), *response["output"]]
            self._memory.keep(response["id"], items)
