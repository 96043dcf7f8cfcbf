"""Features of the Responses API that are refused, with the reasons."""

from collections.abc import Iterator
from typing import Literal

from api.dialects.base.unsupported import NotServed, PartlyServed, check_fields, unsupported, unsupported_value
from api.dialects.responses.items import (
    InputFile,
    InputImage,
    InputText,
    Message,
)
from api.dialects.responses.offered_tools import functions
from api.dialects.responses.schema import PromptCacheOptions, ResponsesRequest
from api.dialects.responses.tools import FunctionDefinition
from shared.protocol.errors import ProblemKind, RequestRefused, modality_refused, refuse

_CACHED_ALWAYS = "Prompt prefixes are always cached automatically."
_IMPLICIT: tuple[Literal["implicit"] | None, ...] = (None, "implicit")

NOT_SERVED: dict[str, NotServed] = {
    "access_programs": NotServed("Access programs are not available."),
    "background_options": NotServed(
        "Background responses run as soon as possible.", neutral=({}, {"completion_window": "soonest"})
    ),
    "context_management": NotServed("Conversations are not compacted.", neutral=([],)),
    "conversation": NotServed("Conversations are not stored; send their items."),
    "image": NotServed("Images are prepared as the model needs them.", neutral=({}, {"context_compression": "auto"})),
    "moderation": NotServed("No moderation model is available."),
    "prompt": NotServed("Prompt templates are not stored; send instructions and input."),
    "prompt_cache_options": NotServed(
        _CACHED_ALWAYS,
        neutral=tuple(
            PromptCacheOptions(mode=mode, prewarm=prewarm) for mode in _IMPLICIT for prewarm in (None, False)
        ),
    ),
}
"""Unsupported fields."""

PARTLY_SERVED: dict[str, PartlyServed] = {
    "prompt_cache_retention": PartlyServed(_CACHED_ALWAYS, served=("in_memory",)),
    "service_tier": PartlyServed(
        "No reserved capacity is available.", served=("auto", "default", "flex", "priority", "fast")
    ),
}
"""Fields with unsupported values."""

_CONTEXT = PartlyServed("The model's chat template decides which reasoning it repeats.", served=("auto",))
_MODE = PartlyServed("There is one reasoning mode.", served=("standard",))


def check_served(request: ResponsesRequest) -> None:
    """Raise :class:`RequestRefused` for the first unsupported feature in ``request``."""
    check_fields(request, NOT_SERVED, PARTLY_SERVED)
    if request.background and request.store is False:
        raise refuse(
            ProblemKind.INVALID, "Background responses are stored: 'store' can't be false.", param="background"
        )
    for refusal in _unsupported(request):
        raise refusal


def _unsupported(request: ResponsesRequest) -> Iterator[RequestRefused]:
    if request.stream_options is not None and request.stream_options.include_obfuscation:
        yield unsupported("stream_options.include_obfuscation", "It is supported for chat completions only.")
    reasoning = request.reasoning
    if reasoning is not None and reasoning.context not in (None, "auto"):
        yield unsupported_value("reasoning.context", reasoning.context, _CONTEXT)
    if reasoning is not None and reasoning.mode not in (None, "standard"):
        yield unsupported_value("reasoning.mode", reasoning.mode[:64], _MODE)
    items = request.input if isinstance(request.input, list) else []
    for function in functions(request.tools or (), [(f"input[{index}]", item) for index, item in enumerate(items)]):
        yield from _in_tool(function.path, function.definition)
    for index, item in enumerate(items):
        content = item.content if isinstance(item, Message) else getattr(item, "output", None)
        name = "content" if isinstance(item, Message) else "output"
        for place, part in enumerate(content if isinstance(content, list) else ()):
            yield from _in_part(f"input[{index}].{name}[{place}]", part)


def _in_tool(path: str, tool: FunctionDefinition) -> Iterator[RequestRefused]:
    if tool.allowed_callers not in (None, ["direct"]):
        yield unsupported(f"{path}.allowed_callers", "Programs that call tools are not available.")
    if tool.defer_loading:
        yield unsupported(f"{path}.defer_loading", "Tools are always loaded.")


def _in_part(path: str, part: object) -> Iterator[RequestRefused]:
    match part:
        case InputText() | InputImage() if part.prompt_cache_breakpoint is not None:
            yield unsupported(f"{path}.prompt_cache_breakpoint", _CACHED_ALWAYS)
        case InputImage() if part.file_id is not None:
            yield unsupported(f"{path}.file_id", "Send the image in 'image_url'.")
        case InputFile():
            yield modality_refused("input_file", path)
        case _ if getattr(part, "type", None) == "input_audio":
            yield modality_refused("input_audio", path)
