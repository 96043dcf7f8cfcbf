"""Routes for tokens: vLLM's, for the tokens of a text or of messages and the text of tokens, and Anthropic's."""

from collections.abc import Callable
from typing import cast

import msgspec
from quart import Blueprint, Response, request

from api.chat.tokenized import tokenized
from api.dialects.anthropic import Anthropic
from api.dialects.openai.tokens import parse_detokenize, parse_tokenize, render_text, render_tokens
from api.http.access import key_owner
from api.http.exchange import current_exchange
from api.http.json_response import json_response
from api.replica import current_replica
from shared.protocol.request import ChatRequest

blueprint = Blueprint("tokens", __name__)


@blueprint.post("/tokenize")
async def tokenize() -> Response:
    """Return the tokens of a prompt or of messages. A worker of the model computes them, like an answer."""
    asked = await _parsed(parse_tokenize)
    return json_response(render_tokens(asked, await tokenized(asked)))


@blueprint.post("/detokenize")
async def detokenize() -> Response:
    """Return the text of tokens."""
    asked = await _parsed(parse_detokenize)
    return json_response(render_text(asked, await tokenized(asked)))


@blueprint.post("/v1/messages/count_tokens")
async def count_tokens() -> Response:
    """Return the number of tokens of an Anthropic request's prompt."""
    dialect = cast(Anthropic, current_exchange().dialect)
    asked = await _parsed(dialect.parse_count)
    return json_response(msgspec.json.encode({"input_tokens": len((await tokenized(asked)).tokens)}))


async def _parsed(parse: Callable[[bytes], ChatRequest]) -> ChatRequest:
    return await current_replica().body_parser.read(request, key_owner(), parse)
