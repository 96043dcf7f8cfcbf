"""Unsupported features of the reference, with the reasons.

These fields are validated like all others, so removing a row requires changes only in ``parse.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from api.dialects.openai.content import ImagePart, RefusalPart, TextPart
from api.dialects.openai.messages import AssistantMessage, CustomToolCall, Message
from api.dialects.openai.schema import ChatCompletionRequest, PromptCacheOptions
from api.dialects.openai.tools import CustomTool
from api.dialects.openai.validation import listed
from shared.protocol.errors import ProblemKind, RequestRefused, modality_refused, refuse


@dataclass(frozen=True, slots=True)
class NotServed:
    """An unsupported field. ``neutral`` values mean the same as omitting the field, and are accepted.

    ``in_message`` is False if the reason is left out of the message, as in the OpenAI service's own.
    """

    reason: str
    neutral: tuple[Any, ...] = ()
    in_message: bool = True


@dataclass(frozen=True, slots=True)
class PartlyServed:
    """A field with unsupported values. ``served`` are the supported ones."""

    reason: str
    served: tuple[Any, ...]


TEXT_ONLY = "This service supports text only."
_CACHED_ALWAYS = "Prompt prefixes are always cached automatically."
_FUNCTIONS_ONLY = "Only tools of type 'function' are supported."

NOT_SERVED: dict[str, NotServed] = {
    "audio": NotServed(TEXT_ONLY),
    "modalities": NotServed(TEXT_ONLY, neutral=(["text"],)),
    "moderation": NotServed("No moderation model is available."),
    "prediction": NotServed("The engine does not support predicted outputs.", in_message=False),
    "prompt_cache_options": NotServed(
        _CACHED_ALWAYS, neutral=(PromptCacheOptions(), PromptCacheOptions(mode="implicit"))
    ),
    "web_search_options": NotServed("Web search is not available."),
}
"""Unsupported fields."""

PARTLY_SERVED: dict[str, PartlyServed] = {
    "prompt_cache_retention": PartlyServed(_CACHED_ALWAYS, served=("in_memory",)),
    "service_tier": PartlyServed(
        "No reserved capacity is available.", served=("auto", "default", "flex", "priority", "fast")
    ),
}
"""Fields with unsupported values."""


def check_served(request: ChatCompletionRequest) -> None:
    """Raise :class:`RequestRefused` for the first unsupported feature in ``request``."""
    for index, message in enumerate(request.messages):
        _check_message(f"messages[{index}]", message)
        _check_modality(index, message)
    check_fields(request, NOT_SERVED, PARTLY_SERVED)
    for index, tool in enumerate(request.tools or ()):
        if isinstance(tool, CustomTool):
            raise unsupported(f"tools[{index}].type", _FUNCTIONS_ONLY)


def check_fields(
    request: BaseModel, not_served: Mapping[str, NotServed], partly_served: Mapping[str, PartlyServed]
) -> None:
    """Raise :class:`RequestRefused` for the first field of ``request`` that the tables refuse."""
    for field, row in not_served.items():
        value = getattr(request, field)
        if value is not None and value not in row.neutral:
            raise unsupported(field, row.reason if row.in_message else "")
    for field, part in partly_served.items():
        value = getattr(request, field)
        if value is not None and value not in part.served:
            raise unsupported_value(field, value, part)


def unsupported(param: str, reason: str) -> RequestRefused:
    """Return the refusal of a field; ``reason`` is a sentence, or empty."""
    message = f"Unsupported parameter: '{param}' is not supported with this model. {reason}".rstrip()
    return refuse(ProblemKind.INVALID, message, param=param, code="unsupported_parameter")


def unsupported_value(param: str, value: object, part: PartlyServed) -> RequestRefused:
    """Return the refusal of one value of a field."""
    message = (
        f"Unsupported value: '{param}' does not support {value!r} with this model. "
        f"Supported values are: {listed([str(served) for served in part.served])}. {part.reason}"
    )
    return refuse(ProblemKind.INVALID, message, param=param, code="unsupported_value")


def _check_message(path: str, message: Message) -> None:
    if isinstance(message, AssistantMessage):
        if message.audio is not None:
            raise unsupported(f"{path}.audio", TEXT_ONLY)
        for place, call in enumerate(message.tool_calls or ()):
            if isinstance(call, CustomToolCall):
                raise unsupported(f"{path}.tool_calls[{place}].type", _FUNCTIONS_ONLY)
    for place, part in enumerate(message.content if isinstance(message.content, list) else ()):
        if isinstance(part, TextPart | ImagePart) and part.prompt_cache_breakpoint is not None:
            raise unsupported(f"{path}.content[{place}].prompt_cache_breakpoint", _CACHED_ALWAYS)


def _check_modality(index: int, message: Message) -> None:
    """Refuse audio and files with the OpenAI service's message and path. Images depend on the model."""
    for place, part in enumerate(message.content if isinstance(message.content, list) else ()):
        if not isinstance(part, TextPart | RefusalPart | ImagePart):
            raise modality_refused(part.type, f"messages[{index}].content[{place}]")
