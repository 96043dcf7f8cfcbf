"""Request schemas with OpenVINO GenAI's parameters in addition to OpenAI's and vLLM's; shared by the other dialects."""

from typing import Annotated

from pydantic import Field

from api.dialects.base.sampling import Beams, EngineSampling, Into, LengthPenalty
from api.dialects.base.validation import invalid
from api.dialects.openai.completions_parse import translate_completion
from api.dialects.openai.extensions import ServedChatRequest, ServedCompletionRequest
from api.dialects.openai.parse import translate
from api.dialects.openai.tools import FunctionTools
from shared.protocol.request import ChatRequest, Sampling


class ExtendedChatRequest(ServedChatRequest, EngineSampling):
    """The chat request of ``/v1`` with the additional fields."""

    best_of: Beams | None = None
    length_penalty: LengthPenalty | None = None
    # By the other dialects' references, all tools are functions. (Models are frozen, so a narrower list is safe.)
    tools: FunctionTools | None = None  # type: ignore[assignment]


class ExtendedCompletionRequest(ServedCompletionRequest, EngineSampling):
    """The plain completion request of ``/v1`` with the additional fields."""

    best_of: Annotated[int, Field(ge=1, le=20), Into("beams")] | None = None
    length_penalty: LengthPenalty | None = None


_RANDOM = {"temperature": 0, "top_p": 1, "top_k": 0, "min_p": 0}
"""The fields of random sampling, with the values that have no effect on a beam search."""


def translate_chat(request: ExtendedChatRequest) -> ChatRequest:
    """Return the internal form of a validated request.

    ``best_of`` above 1 selects beam search with that width, as in OpenVINO Model Server. Raises
    :class:`RequestRefused` for a broken rule, and for unsupported features.
    """
    if request.stream_options is not None and request.stream_options.include_obfuscation:
        # Obfuscation is a security feature, so it is refused rather than ignored.
        raise invalid("stream_options.include_obfuscation", "only streams under /v1 can be obfuscated")
    return _checked(translate(request), request)


def translate_plain(request: ExtendedCompletionRequest) -> ChatRequest:
    """Return the internal form of a validated plain completion, with ``best_of`` as in :func:`translate_chat`.

    Raises :class:`RequestRefused` for a broken rule, and for unsupported features.
    """
    return _checked(translate_completion(request), request)


def _checked(chat: ChatRequest, fields: ExtendedChatRequest | ExtendedCompletionRequest) -> ChatRequest:
    if fields.best_of is not None and chat.n > fields.best_of:
        raise invalid("n", f"it can't be greater than 'best_of', which is {fields.best_of}")
    check_combinations(chat.sampling)
    return chat


def check_combinations(sampling: Sampling) -> None:
    """Raise :class:`RequestRefused` for fields that exclude each other.

    They are both ways to limit the number of speculated tokens, and beam search and what only random sampling obeys.
    """
    if sampling.num_assistant_tokens is not None and sampling.assistant_confidence_threshold is not None:
        raise invalid("assistant_confidence_threshold", "it can't be used together with 'num_assistant_tokens'")
    if sampling.beams > 1:
        for field, neutral in _RANDOM.items():
            if getattr(sampling, field) not in (None, neutral):
                reason = f"a beam search ('best_of' above 1) does not use it. Omit it or set it to {neutral}"
                raise invalid(field, reason)
