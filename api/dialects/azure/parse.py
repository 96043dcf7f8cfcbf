"""Parser of Azure requests: their API version, their model and their bodies.

The fields are those of the model inference API's reference, plus those that only its SDK sends: the developer role and
the ``json_schema`` response format.
"""

import re
from collections.abc import Collection, Mapping, Set
from enum import StrEnum
from typing import Any

from api.dialects.azure.errors import INVALID_API_VERSION, INVALID_REQUEST
from api.dialects.base.fields import left_out
from api.dialects.base.interface import Lookup
from api.dialects.base.neutral import NeutralChatFields
from api.dialects.base.validation import listed, missing, validate, wrong_type
from api.dialects.openai.embeddings import EmbeddingRequest, translate_embeddings
from api.dialects.openai.extended import ExtendedChatRequest, translate_chat
from shared.protocol.errors import ProblemKind, RequestRefused, modality_refused, refuse
from shared.protocol.request import ChatRequest, formed

EXTRA_PARAMETERS_HEADER = "extra-parameters"
DEPLOYMENT_HEADER = "azureml-model-deployment"

_API_VERSION = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(-preview)?")
_RETRY_NO_WORKER = 5.0

SERVED = frozenset({
    "model", "messages", "frequency_penalty", "max_tokens", "presence_penalty", "response_format", "seed", "stop",
    "stream", "temperature", "tool_choice", "tools", "top_p",
})  # fmt: skip
PASSED = frozenset(NeutralChatFields.model_fields) | {
    "logit_bias", "logprobs", "max_completion_tokens", "n", "parallel_tool_calls", "reasoning_effort", "stream_options",
    "top_logprobs", "user",
    "add_generation_prompt", "allowed_token_ids", "bad_words", "chat_template_kwargs", "continue_final_message",
    "guided_choice", "guided_grammar", "guided_json", "guided_regex", "ignore_eos", "include_stop_str_in_output",
    "min_p", "min_tokens", "prompt_logprobs", "repeat_penalty", "repetition_penalty", "return_token_ids",
    "skip_special_tokens", "stop_token_ids", "structured_outputs", "thinking_token_budget", "top_k",
    "assistant_confidence_threshold", "best_of", "length_penalty", "max_ngram_size", "num_assistant_tokens",
}  # fmt: skip
"""Extra parameters that are passed through: of OpenAI, vLLM and OpenVINO GenAI, and others' at neutral values."""

EMBEDDINGS_SERVED = frozenset({"model", "input", "dimensions", "encoding_format", "input_type"})
EMBEDDINGS_PASSED = frozenset(EmbeddingRequest.model_fields) - EMBEDDINGS_SERVED
"""The same for vectors."""

_AUDIO = ("input_audio", "audio_url")
_IMAGE_DATA = "image"
"""The reference's second type of image: a URL or plain base64."""


class ExtraParameters(StrEnum):
    """How fields that are not in the reference are handled."""

    ERROR = "error"
    DROP = "drop"
    IGNORE = "ignore"
    PASS_THROUGH = "pass-through"  # noqa: S105 (no password)


def extra_parameters(headers: Lookup) -> ExtraParameters:
    """Return how to handle extra parameters. Raises :class:`RequestRefused` for a value that Azure does not define."""
    word = headers.get(EXTRA_PARAMETERS_HEADER)
    if word is None:
        return ExtraParameters.ERROR
    try:
        return ExtraParameters(word)
    except ValueError:
        raise refuse(
            ProblemKind.INVALID,
            f"The header '{EXTRA_PARAMETERS_HEADER}' must be one of {listed(list(ExtraParameters))}, "
            f"but got '{word[:64]}'.",
            param=EXTRA_PARAMETERS_HEADER,
            code=INVALID_REQUEST,
        ) from None


def parse_chat(value: Mapping[str, Any], model: str, extras: ExtraParameters) -> ChatRequest:
    """Translate a decoded body for ``model``. Raises :class:`RequestRefused` and no other exception."""
    fields = {field: given for field, given in value.items() if not left_out(given) and _is_taken(field, extras)}
    named = value.get("model")
    # The body's model must be valid even if it is ignored.
    fields["model"] = model if named is None or isinstance(named, str) else named
    if isinstance(value.get("messages"), list):
        fields["messages"] = [_message(index, message) for index, message in enumerate(value["messages"])]
    request = validate(ExtendedChatRequest, fields)
    chat = translate_chat(request)
    # The SDK's stream updates include the usage, and the reference has no option to request it.
    declined = request.stream_options is not None and request.stream_options.include_usage is False
    return formed(chat, include_usage=chat.response.stream and not declined)


def parse_embeddings(value: Mapping[str, Any], model: str, extras: ExtraParameters) -> ChatRequest:
    """Translate the decoded body of a request for vectors. Raises :class:`RequestRefused` and no other exception."""
    served, passed = EMBEDDINGS_SERVED, EMBEDDINGS_PASSED
    fields = {
        field: given
        for field, given in value.items()
        if not left_out(given) and _is_taken(field, extras, served, passed)
    }
    return translate_embeddings(validate(EmbeddingRequest, fields | {"model": model}))


def _is_taken(field: str, extras: ExtraParameters, served: Set[str] = SERVED, passed: Set[str] = PASSED) -> bool:
    """Whether a field of the body is used. Raises :class:`RequestRefused` if it is not allowed."""
    if field in served:
        return True
    match extras:
        case ExtraParameters.ERROR:
            remedy = "'pass-through' or 'ignore'" if field in passed else "'ignore'"
            raise _extra(field, f"Set the header '{EXTRA_PARAMETERS_HEADER}' to {remedy} to allow it")
        case ExtraParameters.PASS_THROUGH if field not in passed:
            raise _extra(field, "The model does not support it, so it can't be passed through")
    return extras is ExtraParameters.PASS_THROUGH


def _extra(field: str, why: str) -> RequestRefused:
    shown = field[:64]
    message = f"Extra parameter '{shown}' is not allowed. {why}."
    return refuse(ProblemKind.INVALID, message, param=shown, code=INVALID_REQUEST)


def _message(index: int, message: object) -> object:
    """Return a message in OpenAI's form. In Azure's, the content of a tool message may be null."""
    if not isinstance(message, dict):
        return message
    content = message.get("content")
    if message.get("role") == "tool" and content is None:
        return message | {"content": ""}
    if isinstance(content, list):
        return message | {"content": [_part(index, place, part) for place, part in enumerate(content)]}
    return message


def _part(message: int, index: int, part: object) -> object:
    """Return a content part in OpenAI's form."""
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or not isinstance(kind, str):
        return part
    place = f"messages[{message}].content[{index}]"
    if kind in _AUDIO:
        raise modality_refused(kind, place)
    if kind != _IMAGE_DATA:
        return part
    if "content" not in part:
        raise missing(f"{place}.content")
    data = part["content"]
    if not isinstance(data, str):
        raise wrong_type(f"{place}.content", "a string", data)
    url = data if data.startswith(("http:", "https:", "data:")) else f"data:;base64,{data}"
    about = {name: given for name, given in part.items() if name not in ("type", "content", "detail")}
    return about | {"type": "image_url", "image_url": {"url": url, "detail": part.get("detail")}}


def check_api_version(query: Lookup) -> None:
    """Raise :class:`RequestRefused` unless ``api-version`` is present and has the reference's format.

    Every version in that format is accepted, because the served features are the same in all of them.
    """
    version = query.get("api-version")
    if version is None or not _API_VERSION.fullmatch(version):
        got = "it is missing" if version is None else f"got '{version[:64]}'"
        raise refuse(
            ProblemKind.INVALID,
            f"The query parameter 'api-version' must be given as YYYY-MM-DD or YYYY-MM-DD-preview, but {got}.",
            param="api-version",
            code=INVALID_API_VERSION,
        )


def choose_model(headers: Lookup, serving: Collection[str], named: object) -> str:
    """Return the name of the model that a request selects, whether or not a worker serves it.

    The order, by the reference, is: the deployment header, the only served model regardless of the body, the model
    in the body. ``named`` is the body's value, of any type. Raises :class:`RequestRefused` if none of them applies.
    """
    deployment = headers.get(DEPLOYMENT_HEADER)
    if deployment:
        return deployment
    if len(serving) == 1:
        return next(iter(serving))
    if isinstance(named, str) and named:
        return named
    if not serving:
        raise refuse(
            ProblemKind.NO_WORKER,
            "No worker serves a model at the moment. Please try again later.",
            retry_after=_RETRY_NO_WORKER,
        )
    names = ", ".join(f"'{name}'" for name in serving)
    raise refuse(
        ProblemKind.INVALID,
        f"Several models are served: name one of {names} in the header '{DEPLOYMENT_HEADER}' or in the body's 'model'.",
        param="model",
        code=INVALID_REQUEST,
    )
