"""From the body of an Azure request to the internal request.

The fields are those of the model inference API's reference, and what its SDK sends besides: the developer role and the
``json_schema`` response format.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from api.dialects.azure.errors import INVALID_REQUEST
from api.dialects.extended import EXTENSIONS, ExtendedChatRequest, translate_chat
from api.dialects.interface import Lookup
from api.dialects.openai.validation import listed, validate
from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.request import ChatRequest

EXTRA_PARAMETERS_HEADER = "extra-parameters"

SERVED = frozenset(
    {
        "model",
        "messages",
        "frequency_penalty",
        "max_tokens",
        "presence_penalty",
        "response_format",
        "seed",
        "stop",
        "stream",
        "temperature",
        "tool_choice",
        "tools",
        "top_p",
    }
)
PASSED = EXTENSIONS | {
    "logprobs",
    "max_completion_tokens",
    "n",
    "parallel_tool_calls",
    "reasoning_effort",
    "stream_options",
    "user",
}
"""Extra parameters that are passed through. No other one means anything to the engine."""

_MODALITIES = {"image": "Images", "image_url": "Images", "input_audio": "Audio", "audio_url": "Audio"}


class ExtraParameters(StrEnum):
    """What becomes of fields that the reference does not have."""

    ERROR = "error"
    DROP = "drop"
    IGNORE = "ignore"
    PASS_THROUGH = "pass-through"  # noqa: S105 (no password)


def extra_parameters(headers: Lookup) -> ExtraParameters:
    """Return what the request wants. Raises :class:`RequestRefused` for a word that Azure lacks."""
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
    """Translate a decoded body for ``model``. Raises :class:`RequestRefused`, and nothing else."""
    fields = {field: given for field, given in value.items() if _is_taken(field, extras)}
    named = value.get("model")
    # Even where the body's own word does not count, it must be a name.
    fields["model"] = model if named is None or isinstance(named, str) else named
    if isinstance(value.get("messages"), list):
        fields["messages"] = [_message(index, message) for index, message in enumerate(value["messages"])]
    chat = translate_chat(validate(ExtendedChatRequest, fields))
    # The SDK's updates have the usage, and its reference no option to ask for it.
    return msgspec.structs.replace(chat, include_usage=chat.stream)


def _is_taken(field: str, extras: ExtraParameters) -> bool:
    """Whether a field of the body counts. Raises :class:`RequestRefused` if it must not be there."""
    if field in SERVED:
        return True
    match extras:
        case ExtraParameters.ERROR:
            raise _extra(field, f"Set the header '{EXTRA_PARAMETERS_HEADER}' to 'pass-through' or 'ignore' to allow it")
        case ExtraParameters.PASS_THROUGH if field not in PASSED:
            raise _extra(field, "The model does not know it, so it can't be passed through")
    return extras is ExtraParameters.PASS_THROUGH


def _extra(field: str, why: str) -> RequestRefused:
    shown = field[:64]
    message = f"Extra parameter '{shown}' is not allowed. {why}."
    return refuse(ProblemKind.INVALID, message, param=shown, code=INVALID_REQUEST)


def _message(index: int, message: object) -> object:
    """Return a message in OpenAI's form: that of a tool may have null for content in Azure's."""
    if not isinstance(message, dict):
        return message
    content = message.get("content")
    for place, part in enumerate(content if isinstance(content, list) else ()):
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind in _MODALITIES:
            raise refuse(
                ProblemKind.MODALITY,
                f"Modality not supported by the model. {_MODALITIES[kind]} can't be sent: it reads text only.",
                param=f"messages[{index}].content[{place}].type",
            )
    return message | {"content": ""} if message.get("role") == "tool" and content is None else message
