"""Routes for tokens: vLLM's, for the tokens of a text or of messages and the text of tokens, and Anthropic's."""

from typing import cast

import msgspec
from quart import Blueprint, Response, request

from api.bodies import read_json_body
from api.dialects.anthropic import Anthropic
from api.dialects.openai.tokens import parse_detokenize, parse_tokenize, render_text, render_tokens
from api.http_exchange import current_exchange
from api.json_response import json_response
from api.replica import current_replica
from api.tokenized import tokenized

blueprint = Blueprint("tokens", __name__)


@blueprint.post("/tokenize")
async def tokenize() -> Response:
    """Return the tokens of a prompt or of messages. A worker of the model computes them, like an answer."""
    asked = parse_tokenize(await read_json_body(request, current_replica().settings))
    return json_response(render_tokens(asked, await tokenized(asked)))


@blueprint.post("/detokenize")
async def detokenize() -> Response:
    """Return the text of tokens."""
    asked = parse_detokenize(await read_json_body(request, current_replica().settings))
    return json_response(render_text(asked, await tokenized(asked)))


@blueprint.post("/v1/messages/count_tokens")
async def count_tokens() -> Response:
    """Return the number of tokens of an Anthropic request's prompt."""
    dialect = cast(Anthropic, current_exchange().dialect)
    asked = dialect.parse_count(await read_json_body(request, current_replica().settings))
    return json_response(msgspec.json.encode({"input_tokens": len((await tokenized(asked)).tokens)}))
