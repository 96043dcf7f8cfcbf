"""Waiting for the end of a response without a streaming reader."""

import logging

from api.chat.stream import ResponseStream
from api.chat.usage_recorder import UsageRecorder
from api.chat.writer import stream as written
from api.dialects.responses.render import ResponsesEncoder
from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.request import ChatRequest

logger = logging.getLogger(__name__)

_BROKEN = Problem(kind=ProblemKind.INTERNAL, message="The server had an error while processing your request.")


async def run_to_end(
    stream: ResponseStream, request: ChatRequest, recorder: UsageRecorder, *, answer_id: str, created: int
) -> bytes:
    """Wait until a response has ended, failed or not, and return its document."""
    encoder = ResponsesEncoder(request, answer_id=answer_id, created=created)
    try:
        async for _ in written(stream, request, encoder, recorder, kept=True):
            pass
    except Exception:
        logger.exception("response %s failed", answer_id)
        encoder.failure(_BROKEN)
    return encoder.document
