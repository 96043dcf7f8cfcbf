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
from api.http.routes import ANTHROPIC_ERRORS, ERRORS, STREAMED, route
from shared.protocol.request import ChatRequest

_completion = partial(route, "POST", returns=STREAMED, errors=ERRORS)


class ChatHandler:
    """Chat completions, plain completions and messages, in all dialects."""

    def __init__(self, bodies: RequestBodies, services: ChatServices, responder: Responder) -> None:
        self._bodies = bodies
        self._services = services
        self._responder = responder

    @_completion("/v1/chat/completions", "createChatCompletion", body="ChatCompletionRequest")
    @_completion("/v1/completions", "createCompletion", body="CompletionRequest")
    @_completion("/v1/messages", "createMessage", body="MessagesRequest", errors=ANTHROPIC_ERRORS)
    @_completion("/v3/chat/completions", "modelServerChat", body="ModelServerChatRequest")
    @_completion("/v3/completions", "modelServerCompletion", body="ModelServerCompletionRequest")
    @_completion("/v3/responses", "modelServerResponse", body="ModelServerResponsesRequest")
    @_completion("/chat/completions", "azureChat", body="AzureChatRequest", errors=(*ERRORS, 422))
    @_completion("/models/chat/completions", "azureModelsChat", body="AzureChatRequest", errors=(*ERRORS, 422))
    async def create(self) -> Response:
        """Create a completion, streamed or not."""
        exchange = current_exchange()
        (request, messages), size = await self._bodies.read(partial(_translated, exchange.dialect))
        self._bodies.check(request, size)
        chat = ChatExchange.of(self._services, exchange, request, http_request.headers, messages=messages)
        return await self._responder.respond(exchange, chat)


def _translated(dialect: Dialect, body: bytes) -> tuple[ChatRequest, bytes]:
    """Return the request in ``body`` and, if its response is to be stored, its messages."""
    request = dialect.parse(body)
    return request, sent_messages(body) if request.store else b""
