"""Chat routes: parse the body by the dialect, submit the request, encode the response stream."""

import time
import uuid
from typing import cast

from quart import Blueprint, Response, g, request

from api.access import accept, current_key
from api.admission import Ticket
from api.answers.selection import check_size
from api.answers.usage_recorder import UsageRecorder
from api.answers.writing import collect, stream
from api.bodies import read_json_body
from api.connection_extension import connection_extension
from api.context import context
from api.dialects.interface import Choice, Dialect, MessagesMissing
from api.dialects.openai.stored import sent_messages
from api.outbox import PendingCompletion
from api.request_cleanup import request_cleanup
from api.response_stream import ResponseStream

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
    """Create a chat completion or a plain completion. The HTTP status is sent after the first event from a worker."""
    parts = context()
    dialect = cast(Dialect, g.dialect)
    recorder = UsageRecorder()
    body = await read_json_body(request, parts.settings)
    try:
        chat = dialect.parse(body)
    except MessagesMissing as missing:
        await parts.models.require(missing.model)
        raise
    check_size(chat, parts.settings.max_choices)
    ticket, answer = await accept(chat, recorder)
    chat = ticket.request
    request_cleanup(request).callback(parts.metrics.record, chat.model, recorder)
    request_cleanup(request).callback(parts.streams.close, answer)
    g.log.key = current_key()
    g.log.accepted(chat, answer.jobs, recorder)
    answer_id, accepted = uuid.uuid4().hex, time.time()
    pending = await _register(ticket, answer, answer_id, accepted, body, recorder) if chat.store else None
    started = await answer.started()
    encoder = dialect.render(chat, answer_id=answer_id, created=int(accepted), fingerprint=started.fingerprint)

    async def keep(choices: list[Choice]) -> None:
        if pending is not None:
            await parts.completion_recovery.store(pending, encoder.completion(choices, recorder.usage()))

    if chat.stream:
        connection = connection_extension(request)
        pieces = stream(
            answer,
            chat,
            encoder,
            recorder,
            keep if pending is not None else None,
            connection["write_chunk"] if connection is not None else None,
        )
        response = Response(pieces, headers=STREAM_HEADERS)
    else:
        choices = await collect(answer, chat, recorder)
        whole = encoder.completion(choices, recorder.usage())
        if pending is not None:
            await parts.completion_recovery.store(pending, whole)
        response = Response(whole, content_type="application/json")
    response.timeout = None
    return response


async def _register(
    ticket: Ticket, answer: ResponseStream, answer_id: str, accepted: float, body: bytes, recorder: UsageRecorder
) -> PendingCompletion:
    """Register the pending completion of a response with ``store: true``. Raises :class:`RequestRefused`."""
    completion_recovery = context().completion_recovery
    reservation = ticket.reservation
    pending = PendingCompletion(
        answer_id=answer_id,
        accepted=accepted,
        request=ticket.request,
        messages=sent_messages(body),
        jobs=tuple(answer.jobs),
        tenant=ticket.tenant,
        queue_timeout=ticket.queue_timeout,
        reserved=(reservation.name, reservation.tokens) if reservation is not None else None,
    )
    request_cleanup(request).callback(completion_recovery.end, pending, answer, recorder)
    await completion_recovery.register(pending, answer)
    return pending
