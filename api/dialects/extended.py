"""Requests with the engine's own settings besides OpenAI's and vLLM's: the other dialects build on them."""

from typing import Annotated

import msgspec
from pydantic import Field

from api.dialects.openai.completions_parse import translate_completion
from api.dialects.openai.extensions import ServedChatRequest, ServedCompletionRequest, invalid
from api.dialects.openai.fields import Strict
from api.dialects.openai.parse import translate
from api.dialects.openai.schema import MAX_COUNT, ChatCompletionRequest
from shared.protocol.request import ChatRequest, Sampling

MAX_SEQUENCES = 128
"""Most texts that one request may have made, as OpenAI's reference has it for ``n``."""

Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]


class EngineFields(Strict):
    """The engine's settings for beam search and speculative decoding, as OpenVINO Model Server names them."""

    assistant_confidence_threshold: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    length_penalty: float | None = None
    max_ngram_size: Count | None = None
    num_assistant_tokens: Count | None = None


class ExtendedChatRequest(ServedChatRequest, EngineFields):
    """The chat request of ``/v1`` with more fields."""

    best_of: Annotated[int, Field(ge=1, le=MAX_SEQUENCES)] | None = None


class ExtendedCompletionRequest(ServedCompletionRequest, EngineFields):
    """The plain completion request of ``/v1`` with more fields."""


EXTENSIONS = frozenset(ExtendedChatRequest.model_fields) - frozenset(ChatCompletionRequest.model_fields)
"""The names of the fields of chats that OpenAI's reference does not have."""


def translate_chat(request: ExtendedChatRequest) -> ChatRequest:
    """Return the internal form of a validated request.

    ``best_of`` above 1 is the width of a beam search, as OpenVINO Model Server has it. Raises
    :class:`RequestRefused` for a rule that the request breaks, and for what is not served.
    """
    if request.stream_options is not None and request.stream_options.include_obfuscation:
        # It is a protection, so it is not dropped in silence.
        raise invalid("stream_options.include_obfuscation", "only streams under /v1 can be obfuscated")
    chat = translate(request)
    return msgspec.structs.replace(chat, sampling=_sampling(request, request.best_of, chat))


def translate_plain(request: ExtendedCompletionRequest) -> ChatRequest:
    """Return the internal form of a validated plain completion, with ``best_of`` as in chats.

    Raises :class:`RequestRefused` for a rule that the request breaks, and for what is not served.
    """
    plain = translate_completion(request.model_copy(update={"best_of": None}))
    return msgspec.structs.replace(plain, sampling=_sampling(request, request.best_of, plain))


def _sampling(fields: EngineFields, best_of: int | None, request: ChatRequest) -> Sampling:
    """The sampling of ``request`` with the engine's own settings."""
    if best_of is not None and request.n > best_of:
        raise invalid("n", f"it can't be greater than 'best_of', which is {best_of}")
    if fields.num_assistant_tokens is not None and fields.assistant_confidence_threshold is not None:
        raise invalid("assistant_confidence_threshold", "it can't be used together with 'num_assistant_tokens'")
    return msgspec.structs.replace(
        request.sampling,
        beams=best_of or 1,
        length_penalty=fields.length_penalty,
        num_assistant_tokens=fields.num_assistant_tokens,
        assistant_confidence_threshold=fields.assistant_confidence_threshold,
        max_ngram_size=fields.max_ngram_size,
    )
