"""Token requests, which run as jobs: vLLM's ``/tokenize`` and ``/detokenize``, and Anthropic's token count."""

from collections.abc import Callable
from typing import cast

import msgspec
from quart import Response, request

from api.chat.exchange import ChatExchange, ChatServices
from api.dialects.anthropic import Anthropic
from api.dialects.openai.tokens import parse_detokenize, parse_tokenize, render_text, render_tokens
from api.http.bodies import BodyParser
from api.http.exchange import current_exchange, key_owner
from api.http.routes import ANTHROPIC_ERRORS, ERRORS, json_response, route
from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.events import Failed, Rejected, Tokenized
from shared.protocol.request import ChatRequest


class TokenHandler:
    """The tokens of a text or of messages, and the text of tokens."""

    def __init__(self, services: ChatServices, parser: BodyParser) -> None:
        self._services = services
        self._parser = parser

    @route("POST", "/tokenize", "tokenize", body="TokenizeRequest", errors=ERRORS)
    async def tokenize(self) -> Response:
        """Return the tokens of a prompt or of messages. A worker of the model computes them, as it does a response."""
        asked = await self._parsed(parse_tokenize)
        return json_response(render_tokens(asked, await tokenized(self._services, asked)))

    @route("POST", "/detokenize", "detokenize", body="DetokenizeRequest", errors=ERRORS)
    async def detokenize(self) -> Response:
        """Return the text of tokens."""
        asked = await self._parsed(parse_detokenize)
        return json_response(render_text(asked, await tokenized(self._services, asked)))

    @route("POST", "/v1/messages/count_tokens", "countTokens", body="CountTokensRequest", errors=ANTHROPIC_ERRORS)
    async def count_tokens(self) -> Response:
        """Return the number of tokens of an Anthropic request's prompt."""
        dialect = cast(Anthropic, current_exchange().dialect)
        found = await tokenized(self._services, await self._parsed(dialect.parse_count))
        return json_response(msgspec.json.encode({"input_tokens": len(found.tokens)}))

    async def _parsed(self, parse: Callable[[bytes], ChatRequest]) -> ChatRequest:
        return await self._parser.read(request, key_owner(), parse)


async def tokenized(services: ChatServices, asked: ChatRequest) -> Tokenized:
    """Have a worker's prompt process tokenize a prompt, within the limits of the client's key."""
    exchange = current_exchange()
    exchange.details = chat = ChatExchange.of(services, exchange, asked, request.headers)
    await exchange.enter(chat)
    found: Tokenized | None = None
    async for batch in chat.stream.batches():
        for _, event in batch:
            match event:
                case Tokenized():
                    found = event
                    chat.recorder.outcome = "stop"
                case Failed() | Rejected():
                    chat.recorder.outcome = event.problem.kind
                    raise RequestRefused(event.problem)
    if found is None:
        raise refuse(ProblemKind.LOST, "The worker sent no tokens. Please send the request again.")
    return found
