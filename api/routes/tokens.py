"""Routes for tokens: vLLM's, for the tokens of a text or of messages and the text of tokens, and Anthropic's."""

from typing import cast

import msgspec
from quart import Blueprint, Response, request

from api.bodies import read_json_body
from api.chat_exchange import ChatExchange
from api.context import context
from api.dialects.anthropic import Anthropic
from api.dialects.openai.tokens import parse_detokenize, parse_tokenize, render_text, render_tokens
from api.http_exchange import current_exchange
from api.json_response import json_response
from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.events import Failed, Rejected, Tokenized
from shared.protocol.request import ChatRequest

blueprint = Blueprint("tokens", __name__)


@blueprint.post("/tokenize")
async def tokenize() -> Response:
    """Return the tokens of a prompt or of messages. A worker of the model computes them, like an answer."""
    asked = parse_tokenize(await read_json_body(request, context().settings))
    return json_response(render_tokens(asked, await _tokenized(asked)))


@blueprint.post("/detokenize")
async def detokenize() -> Response:
    """Return the text of tokens."""
    asked = parse_detokenize(await read_json_body(request, context().settings))
    return json_response(render_text(asked, await _tokenized(asked)))


@blueprint.post("/v1/messages/count_tokens")
async def count_tokens() -> Response:
    """Return the number of tokens of an Anthropic request's prompt."""
    dialect = cast(Anthropic, current_exchange().dialect)
    asked = dialect.parse_count(await read_json_body(request, context().settings))
    return json_response(msgspec.json.encode({"input_tokens": len((await _tokenized(asked)).tokens)}))


async def _tokenized(asked: ChatRequest) -> Tokenized:
    """Have a worker tokenize a prompt, within the limits of the client's key."""
    exchange = current_exchange()
    exchange.chat = chat = ChatExchange(
        context(),
        asked,
        key=exchange.key,
        headers=request.headers,
        messages=b"",
        began=exchange.began,
        span=exchange.span,
    )
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
