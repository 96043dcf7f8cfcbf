"""Chat routes: bytes to a dialect, its request to the service, the answer back through the dialect."""

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
from api.context import context
from api.dialects.interface import Choice, Dialect, MessagesMissing
from api.dialects.openai.stored import sent_messages
from api.direct_writer import direct_writer
from api.outbox import PendingCompletion
from api.relay import ResponseStream
from api.request_cleanup import request_cleanup

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
    tally = UsageRecorder()
    body = await read_json_body(request, parts.settings)
    try:
        chat = dialect.parse(body)
    except MessagesMissing as missing:
        await parts.service.require_model(missing.model)
        raise
    check_size(chat, parts.settings.max_choices)
    ticket, answer = await accept(chat, tally)
    chat = ticket.request
    request_cleanup(request).callback(parts.metrics.record, chat.model, tally)
    request_cleanup(request).callback(parts.service.close, answer)
    g.log.key = current_key()
    g.log.accepted(chat, answer.jobs, tally)
    answer_id, accepted = uuid.uuid4().hex, time.time()
    promise = await _promise(ticket, answer, answer_id, accepted, body, tally) if chat.store else None
    started = await answer.started()
    encoder = dialect.render(chat, answer_id=answer_id, created=int(accepted), fingerprint=started.fingerprint)

    async def keep(choices: list[Choice]) -> None:
        if promise is not None:
            await parts.completion_recovery.store(promise, encoder.completion(choices, tally.usage()))

    if chat.stream:
        direct = direct_writer(request)
        pieces = stream(
            answer, chat, encoder, tally, keep if promise is not None else None, direct.write if direct else None
        )
        response = Response(pieces, headers=STREAM_HEADERS)
    else:
        choices = await collect(answer, chat, tally)
        whole = encoder.completion(choices, tally.usage())
        if promise is not None:
            await parts.completion_recovery.store(promise, whole)
        response = Response(whole, content_type="application/json")
    response.timeout = None
    return response


async def _promise(
    ticket: Ticket, answer: ResponseStream, answer_id: str, accepted: float, body: bytes, tally: UsageRecorder
) -> PendingCompletion:
    """PendingCompletion to store ``answer``, whatever becomes of this replica. Raises :class:`RequestRefused`."""
    completion_recovery = context().completion_recovery
    reservation = ticket.reservation
    promise = PendingCompletion(
        answer_id=answer_id,
        accepted=accepted,
        request=ticket.request,
        messages=sent_messages(body),
        jobs=tuple(answer.jobs),
        tenant=ticket.tenant,
        queue_timeout=ticket.queue_timeout,
        reserved=(reservation.name, reservation.tokens) if reservation is not None else None,
    )
    request_cleanup(request).callback(completion_recovery.end, promise, answer, tally)
    await completion_recovery.promise(promise, answer)
    return promise
