"""A chat request with the engine's own settings besides OpenAI's: what the other dialects' requests are made of."""

import json
from typing import Annotated, Any

import msgspec
from pydantic import Field

from api.dialects.openai.fields import Items
from api.dialects.openai.parse import translate
from api.dialects.openai.schema import MAX_COUNT, ChatCompletionRequest
from shared.errors import ProblemKind, RequestRefused, refuse
from shared.request import ChatRequest, Sampling

MAX_SEQUENCES = 128
"""Most texts that one request may have made, as OpenAI's reference has it for ``n``."""

NATIVE_VARIABLES = frozenset({"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"})
"""What chat templates are given by the service itself, so that ``chat_template_kwargs`` can't set it."""

Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]


class ExtendedChatRequest(ChatCompletionRequest):
    """OpenAI's request with more fields, named as OpenVINO Model Server and vLLM name them."""

    assistant_confidence_threshold: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    best_of: Annotated[int, Field(ge=1, le=MAX_SEQUENCES)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    length_penalty: float | None = None
    max_ngram_size: Count | None = None
    min_p: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None
    min_tokens: Annotated[int, Field(ge=0, le=MAX_COUNT)] | None = None
    num_assistant_tokens: Count | None = None
    repetition_penalty: Annotated[float, Field(gt=0.0, le=100.0)] | None = None
    skip_special_tokens: bool | None = None
    stop_token_ids: Annotated[Items[Annotated[int, Field(ge=0, le=MAX_COUNT)]], Field(max_length=64)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=MAX_COUNT)] | None = None


EXTENSIONS = frozenset(ExtendedChatRequest.model_fields) - frozenset(ChatCompletionRequest.model_fields)
"""The names of the fields that OpenAI's reference does not have."""


def translate_extended(request: ExtendedChatRequest) -> ChatRequest:
    """Return the internal form of a validated request.

    ``best_of`` above 1 is the width of a beam search, as OpenVINO Model Server has it. Raises
    :class:`shared.errors.RequestRefused` for a rule that the request breaks, and for what is not served.
    """
    chat = translate(request)
    _check(request)
    return msgspec.structs.replace(
        chat,
        sampling=_sampling(request, chat.sampling),
        template_kwargs=_template_kwargs(request, chat),
    )


def _check(request: ExtendedChatRequest) -> None:
    if (request.n or 1) > (request.best_of or request.n or 1):
        raise _wrong("n", f"it can't be greater than 'best_of', which is {request.best_of}")
    if request.num_assistant_tokens is not None and request.assistant_confidence_threshold is not None:
        raise _wrong("assistant_confidence_threshold", "it can't be used together with 'num_assistant_tokens'")
    reserved = sorted(NATIVE_VARIABLES & (request.chat_template_kwargs or {}).keys())
    if reserved:
        raise _wrong(
            "chat_template_kwargs", f"'{reserved[0]}' is given to the template by the service, so it can't be set here"
        )


def _wrong(field: str, why: str) -> RequestRefused:
    return refuse(ProblemKind.INVALID, f"Invalid '{field}': {why}.", param=field, code="invalid_value")


def _sampling(request: ExtendedChatRequest, sampling: Sampling) -> Sampling:
    return msgspec.structs.replace(
        sampling,
        min_tokens=request.min_tokens,
        top_k=0 if request.top_k == -1 else request.top_k,
        min_p=request.min_p,
        repetition_penalty=request.repetition_penalty,
        stop_token_ids=tuple(request.stop_token_ids or ()),
        include_stop=bool(request.include_stop_str_in_output),
        ignore_eos=bool(request.ignore_eos),
        skip_special_tokens=request.skip_special_tokens is not False,
        beams=request.best_of or 1,
        length_penalty=request.length_penalty,
        num_assistant_tokens=request.num_assistant_tokens,
        assistant_confidence_threshold=request.assistant_confidence_threshold,
        max_ngram_size=request.max_ngram_size,
    )


def _template_kwargs(request: ExtendedChatRequest, chat: ChatRequest) -> str | None:
    """The client's own variables, over those that other fields of the request amount to."""
    if not request.chat_template_kwargs:
        return chat.template_kwargs
    return json.dumps(json.loads(chat.template_kwargs or "{}") | request.chat_template_kwargs)
