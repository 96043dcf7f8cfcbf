"""Request schemas with OpenVINO GenAI's parameters in addition to OpenAI's and vLLM's; shared by the other dialects."""

from typing import Annotated

import msgspec
from pydantic import Field

from api.dialects.base.fields import Strict
from api.dialects.base.validation import invalid
from api.dialects.openai.completions_parse import translate_completion
from api.dialects.openai.extensions import ServedChatRequest, ServedCompletionRequest
from api.dialects.openai.parse import translate
from api.dialects.openai.schema import MAX_COUNT, ChatCompletionRequest
from shared.protocol.request import ChatRequest, Sampling

MAX_SEQUENCES = 128
"""Maximum number of choices of a request, OpenAI's limit for ``n``."""

Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]


class EngineFields(Strict):
    """Parameters of beam search and speculative decoding, with OpenVINO Model Server's names."""

    assistant_confidence_threshold: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    length_penalty: float | None = None
    max_ngram_size: Count | None = None
    num_assistant_tokens: Count | None = None


class ExtendedChatRequest(ServedChatRequest, EngineFields):
    """The chat request of ``/v1`` with the additional fields."""

    best_of: Annotated[int, Field(ge=1, le=MAX_SEQUENCES)] | None = None


class ExtendedCompletionRequest(ServedCompletionRequest, EngineFields):
    """The plain completion request of ``/v1`` with the additional fields."""


EXTENSIONS = frozenset(ExtendedChatRequest.model_fields) - frozenset(ChatCompletionRequest.model_fields)
"""Names of the chat request fields that are not in OpenAI's reference."""


def translate_chat(request: ExtendedChatRequest) -> ChatRequest:
    """Return the internal form of a validated request.

    ``best_of`` above 1 selects beam search with that width, as in OpenVINO Model Server. Raises
    :class:`RequestRefused` for a broken rule, and for unsupported features.
    """
    if request.stream_options is not None and request.stream_options.include_obfuscation:
        # Obfuscation is a security feature, so it is refused rather than ignored.
        raise invalid("stream_options.include_obfuscation", "only streams under /v1 can be obfuscated")
    chat = translate(request)
    return msgspec.structs.replace(chat, sampling=_sampling(request, request.best_of, chat))


def translate_plain(request: ExtendedCompletionRequest) -> ChatRequest:
    """Return the internal form of a validated plain completion, with ``best_of`` as in :func:`translate_chat`.

    Raises :class:`RequestRefused` for a broken rule, and for unsupported features.
    """
    plain = translate_completion(request.model_copy(update={"best_of": None}))
    return msgspec.structs.replace(plain, sampling=_sampling(request, request.best_of, plain))


def _sampling(fields: EngineFields, best_of: int | None, request: ChatRequest) -> Sampling:
    """Return the sampling parameters of ``request`` with the engine's own parameters added."""
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
