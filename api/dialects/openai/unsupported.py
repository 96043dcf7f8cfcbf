"""Unsupported features of the reference, with the reasons.

These fields are validated like all others, so removing a row requires changes only in ``parse.py``.
"""

from api.dialects.base.unsupported import NotServed, PartlyServed, check_fields, unsupported
from api.dialects.openai.content import ImagePart, RefusalPart, TextPart
from api.dialects.openai.messages import AssistantMessage, CustomToolCall, Message
from api.dialects.openai.schema import ChatCompletionRequest, PromptCacheOptions
from api.dialects.openai.tools import CustomTool
from shared.protocol.errors import modality_refused

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
