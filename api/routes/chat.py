"""Chat routes: bytes to a dialect, its request to the service, the answer back through the dialect."""

import time
import uuid
from typing import cast

from quart import Blueprint, Response, g, request

from api.answers.tally import Tally
from api.answers.writing import collect, stream
from api.bodies import read_json_body
from api.context import context
from api.dialects.interface import Dialect, MessagesMissing
from api.lifetime import lifetime

blueprint = Blueprint("chat", __name__)

STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


@blueprint.post("/v1/chat/completions")
@blueprint.post("/v3/chat/completions")
@blueprint.post("/chat/completions")
@blueprint.post("/models/chat/completions")
async def chat_completions() -> Response:
    """Create a chat completion. The HTTP status waits for the worker's verdict."""
    parts = context()
    dialect = cast(Dialect, g.dialect)
    tally = Tally()
    body = await read_json_body(request, parts.settings.max_body)
    try:
        chat = dialect.parse(body)
    except MessagesMissing as missing:
        await parts.service.require_model(missing.model)
        raise
    answer = await parts.service.submit(chat)
    lifetime(request).callback(parts.metrics.record, chat.model, tally)
    lifetime(request).callback(parts.service.close, answer)
    started = await answer.verdict()
    rendering = dialect.render(
        chat, answer_id=uuid.uuid4().hex, created=int(time.time()), fingerprint=started.fingerprint
    )
    if chat.stream:
        response = Response(stream(answer, chat, rendering, tally), headers=STREAM_HEADERS)
    else:
        body = rendering.completion(await collect(answer, chat, tally), tally.usage())
        response = Response(body, content_type="application/json")
    response.timeout = None
    return response
