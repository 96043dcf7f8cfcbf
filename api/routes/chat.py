"""Chat routes: bytes to a dialect, its request to the service, the answer back through the dialect."""

import time
import uuid
from typing import cast

from quart import Blueprint, Response, g, request

from api.access import accept
from api.answers.selection import check_size
from api.answers.tally import Tally
from api.answers.writing import collect, stream
from api.bodies import read_json_body
from api.context import context
from api.dialects.interface import Choice, Dialect, MessagesMissing
from api.dialects.openai.stored import to_store
from api.lifetime import lifetime

blueprint = Blueprint("chat", __name__)

STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


@blueprint.post("/v1/chat/completions")
@blueprint.post("/v1/completions")
@blueprint.post("/v3/chat/completions")
@blueprint.post("/v3/completions")
@blueprint.post("/chat/completions")
@blueprint.post("/models/chat/completions")
async def chat_completions() -> Response:
    """Create a chat completion, or a plain one. The HTTP status waits for the worker's verdict."""
    parts = context()
    dialect = cast(Dialect, g.dialect)
    tally = Tally()
    body = await read_json_body(request, parts.settings)
    try:
        chat = dialect.parse(body)
    except MessagesMissing as missing:
        await parts.service.require_model(missing.model)
        raise
    check_size(chat, parts.settings.max_choices)
    ticket, answer = await accept(chat, tally)
    chat = ticket.request
    lifetime(request).callback(parts.metrics.record, chat.model, tally)
    lifetime(request).callback(parts.service.close, answer)
    started = await answer.verdict()
    rendering = dialect.render(
        chat, answer_id=uuid.uuid4().hex, created=int(time.time()), fingerprint=started.fingerprint
    )

    async def save(whole: bytes) -> None:
        await parts.stored.save(ticket.tenant, to_store(whole, chat, body))

    async def keep(choices: list[Choice]) -> None:
        await save(rendering.completion(choices, tally.usage()))

    if chat.stream:
        pieces = stream(answer, chat, rendering, tally, keep if chat.store else None)
        response = Response(pieces, headers=STREAM_HEADERS)
    else:
        choices = await collect(answer, chat, tally)
        whole = rendering.completion(choices, tally.usage())
        if chat.store:
            await save(whole)
        response = Response(whole, content_type="application/json")
    response.timeout = None
    return response
