"""The chat handler: reads and parses a request by its dialect, accepts it and responds."""

from functools import partial

from quart import Response
from quart import request as http_request

from api.chat.exchange import ChatExchange, ChatServices
from api.chat.request_body import RequestBodies
from api.chat.responder import Responder
from api.dialects.base.interface import Dialect
from api.dialects.openai.stored import sent_messages
from api.http.exchange import current_exchange
from api.http.routes import route
from shared.protocol.request import ChatRequest


class ChatHandler:
    """Chat completions, plain completions and messages, in all dialects."""

    def __init__(self, bodies: RequestBodies, services: ChatServices, responder: Responder) -> None:
        self._bodies = bodies
        self._services = services
        self._responder = responder

    @route(
        "POST",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/messages",
        "/v3/chat/completions",
        "/v3/completions",
        "/v3/responses",
        "/chat/completions",
        "/models/chat/completions",
    )
    async def create(self) -> Response:
        """Create a chat completion, a plain completion or a message."""
        exchange = current_exchange()
        (request, messages), size = await self._bodies.read(partial(_translated, exchange.dialect))
        self._bodies.check(request, size)
        chat = ChatExchange.of(self._services, exchange, request, http_request.headers, messages=messages)
        return await self._responder.respond(exchange, chat)


def _translated(dialect: Dialect, body: bytes) -> tuple[ChatRequest, bytes]:
    """Return the request in ``body`` and, if its response is to be stored, its messages."""
    request = dialect.parse(body)
    return request, sent_messages(body) if request.store else b""
