"""Requests with the engine's own settings besides OpenAI's: what the other dialects' requests are made of."""

import json
from typing import Annotated, Any

import msgspec
from pydantic import Field

from api.dialects.openai.completions_parse import translate_completion
from api.dialects.openai.completions_schema import CompletionRequest
from api.dialects.openai.fields import Items, Strict
from api.dialects.openai.parse import translate
from api.dialects.openai.schema import MAX_COUNT, ChatCompletionRequest
from shared.errors import ProblemKind, RequestRefused, refuse
from shared.request import ChatRequest, Sampling

MAX_SEQUENCES = 128
"""Most texts that one request may have made, as OpenAI's reference has it for ``n``."""

NATIVE_VARIABLES = frozenset({"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"})
"""What chat templates are given by the service itself, so that ``chat_template_kwargs`` can't set it."""

Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]


class EngineFields(Strict):
    """The engine's settings that OpenAI's reference lacks, named as OpenVINO Model Server and vLLM name them."""

    assistant_confidence_threshold: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
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


class ExtendedChatRequest(ChatCompletionRequest, EngineFields):
    """OpenAI's chat request with more fields."""

    best_of: Annotated[int, Field(ge=1, le=MAX_SEQUENCES)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class ExtendedCompletionRequest(CompletionRequest, EngineFields):
    """OpenAI's plain completion request with more fields."""


EXTENSIONS = frozenset(ExtendedChatRequest.model_fields) - frozenset(ChatCompletionRequest.model_fields)
"""The names of the fields of chats that OpenAI's reference does not have."""


def translate_chat(request: ExtendedChatRequest) -> ChatRequest:
    """Return the internal form of a validated request.

    ``best_of`` above 1 is the width of a beam search, as OpenVINO Model Server has it. Raises
    :class:`shared.errors.RequestRefused` for a rule that the request breaks, and for what is not served.
    """
    if request.stream_options is not None and request.stream_options.include_obfuscation:
        # It is a protection, so it is not dropped in silence.
        raise invalid("stream_options.include_obfuscation", "only streams under /v1 can be obfuscated")
    reserved = sorted(NATIVE_VARIABLES & (request.chat_template_kwargs or {}).keys())
    if reserved:
        raise invalid(
            "chat_template_kwargs", f"'{reserved[0]}' is given to the template by the service, so it can't be set here"
        )
    chat = translate(request)
    return msgspec.structs.replace(
        chat,
        sampling=_sampling(request, request.best_of, chat),
        template_kwargs=_template_kwargs(request, chat),
    )


def translate_plain(request: ExtendedCompletionRequest) -> ChatRequest:
    """Return the internal form of a validated plain completion, with ``best_of`` as in chats.

    Raises :class:`shared.errors.RequestRefused` for a rule that the request breaks, and for what is not served.
    """
    plain = translate_completion(request.model_copy(update={"best_of": None}))
    return msgspec.structs.replace(plain, sampling=_sampling(request, request.best_of, plain))


def invalid(field: str, why: str) -> RequestRefused:
    """The refusal of a field's value."""
    return refuse(ProblemKind.INVALID, f"Invalid '{field}': {why}.", param=field, code="invalid_value")


def _sampling(fields: EngineFields, best_of: int | None, request: ChatRequest) -> Sampling:
    """The sampling of ``request`` with the engine's own settings."""
    if best_of is not None and request.n > best_of:
        raise invalid("n", f"it can't be greater than 'best_of', which is {best_of}")
    if fields.num_assistant_tokens is not None and fields.assistant_confidence_threshold is not None:
        raise invalid("assistant_confidence_threshold", "it can't be used together with 'num_assistant_tokens'")
    return msgspec.structs.replace(
        request.sampling,
        min_tokens=fields.min_tokens,
        top_k=0 if fields.top_k == -1 else fields.top_k,
        min_p=fields.min_p,
        repetition_penalty=fields.repetition_penalty,
        stop_token_ids=tuple(fields.stop_token_ids or ()),
        include_stop=bool(fields.include_stop_str_in_output),
        ignore_eos=bool(fields.ignore_eos),
        skip_special_tokens=fields.skip_special_tokens is not False,
        beams=best_of or 1,
        length_penalty=fields.length_penalty,
        num_assistant_tokens=fields.num_assistant_tokens,
        assistant_confidence_threshold=fields.assistant_confidence_threshold,
        max_ngram_size=fields.max_ngram_size,
    )


def _template_kwargs(request: ExtendedChatRequest, chat: ChatRequest) -> str | None:
    """The client's own variables, over those that other fields of the request amount to."""
    if not request.chat_template_kwargs:
        return chat.template_kwargs
    return json.dumps(json.loads(chat.template_kwargs or "{}") | request.chat_template_kwargs)
