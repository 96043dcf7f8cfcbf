"""Token requests, which run as jobs: those of vLLM and OpenVINO Model Server, and Anthropic's token count."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec
from quart import Response, request

from api.chat.exchange import ChatExchange, ChatServices
from api.dialects import anthropic, openai
from api.dialects.anthropic.schema import CountTokensRequest
from api.dialects.base.routes import Body
from api.dialects.openai.tokens import (
    DetokenizeRequest,
    TokenizeRequest,
    TokenizerInfoQuery,
    parse_apply_template,
    parse_detokenize,
    parse_tokenize,
    parse_tokenizer_info,
    render_text,
    render_tokenizer_info,
    render_tokens,
)
from api.dialects.ovms import tokens as ovms
from api.http.bodies import BodyParser
from api.http.exchange import current_exchange, key_owner
from api.http.routes import ERRORS, json_response, route
from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.events import Failed, Rejected, Tokenized
from shared.protocol.request import ChatRequest

_Parsed = TypeVar("_Parsed")


class TokenHandler:
    """The tokens of a text or of messages, the text of tokens, and what the tokenizer is."""

    def __init__(self, services: ChatServices, parser: BodyParser) -> None:
        self._services = services
        self._parser = parser

    @route("POST", "/tokenize", "tokenize", body=Body(TokenizeRequest), errors=ERRORS)
    async def tokenize(self) -> Response:
        """Return the tokens of a prompt or of messages. A worker of the model computes them, as it does a response."""
        asked = await self._parsed(partial(parse_tokenize, served=self._served()))
        return json_response(render_tokens(asked, await tokenized(self._services, asked)))

    @route("POST", "/detokenize", "detokenize", body=Body(DetokenizeRequest), errors=ERRORS)
    async def detokenize(self) -> Response:
        """Return the text of tokens."""
        asked = await self._parsed(partial(parse_detokenize, served=self._served()))
        return json_response(render_text(asked, await tokenized(self._services, asked)))

    @route("POST", "/apply-template", "applyTemplate", body=openai.CHAT, errors=ERRORS)
    async def apply_template(self) -> Response:
        """Return what the model's chat template makes of a chat completion's body, as llama.cpp does."""
        asked = await self._parsed(partial(parse_apply_template, served=self._served()))
        return json_response(render_text(asked, await tokenized(self._services, asked)))

    @route("GET", "/tokenizer_info", "tokenizerInfo", query=TokenizerInfoQuery, errors=ERRORS)
    async def tokenizer_info(self) -> Response:
        """Return the tokenizer's special tokens and chat template, as vLLM does."""
        asked = parse_tokenizer_info(request.args, self._served())
        return json_response(render_tokenizer_info(asked, await tokenized(self._services, asked)))

    @route("POST", "/v3/tokenize", "modelServerTokenize", body=Body(ovms.ModelServerTokenizeRequest), errors=ERRORS)
    async def model_server_tokenize(self) -> Response:
        """Return the tokens of a text or of several, in the form of OpenVINO Model Server."""
        asked, body = await self._parsed(partial(ovms.parse_tokenize, served=self._served()))
        return json_response(ovms.render_tokens(body, await all_tokenized(self._services, asked)))

    @route(
        "POST",
        "/v1/messages/count_tokens",
        "countTokens",
        dialect=anthropic.CountTokens,
        body=Body(CountTokensRequest),
        parameters=anthropic.PARAMETERS,
        errors=anthropic.CountTokens.statuses,
    )
    async def count_tokens(self) -> Response:
        """Return the number of tokens of an Anthropic request's prompt."""
        found = await tokenized(self._services, await self._parsed(current_exchange().dialect.parse))
        return json_response(msgspec.json.encode({"input_tokens": found.count}))

    def _served(self) -> list[str]:
        return [*self._services.admission.directory.fleet.serving()]

    async def _parsed(self, parse: Callable[[bytes], _Parsed]) -> _Parsed:
        return await self._parser.read(request, key_owner(), parse)


async def tokenized(services: ChatServices, asked: ChatRequest) -> Tokenized:
    """Have a worker's prompt process tokenize a prompt, within the limits of the client's key."""
    (found,) = await all_tokenized(services, asked)
    return found


async def all_tokenized(services: ChatServices, asked: ChatRequest) -> list[Tokenized]:
    """Have workers' prompt processes tokenize all prompts of a request, within the limits of the client's key."""
    exchange = current_exchange()
    exchange.details = chat = ChatExchange.of(services, exchange, asked, request.headers)
    await exchange.enter(chat)
    found: dict[int, Tokenized] = {}
    async for batch in chat.stream.batches():
        for index, event in batch:
            match event:
                case Tokenized():
                    found[index] = event
                    chat.recorder.outcome = "stop"
                case Failed() | Rejected():
                    chat.recorder.outcome = event.problem.kind
                    raise RequestRefused(event.problem)
    if len(found) < len(chat.stream.jobs):
        raise refuse(ProblemKind.LOST, "The worker sent no tokens. Please send the request again.")
    return [found[index] for index in sorted(found)]
