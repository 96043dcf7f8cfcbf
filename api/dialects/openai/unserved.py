"""What the reference has and this service does not serve yet, and why.

Whatever stands here is validated first, so that a row can be removed without a look at anything else but ``parse.py``.
"""

from dataclasses import dataclass
from typing import Any

from api.dialects.openai.content import RefusalPart, TextPart
from api.dialects.openai.messages import AssistantMessage, FunctionMessage, Message, ToolMessage
from api.dialects.openai.schema import ChatCompletionRequest, TextResponse
from shared.errors import ProblemKind, RequestRefused, refuse


@dataclass(frozen=True, slots=True)
class NotServed:
    """Why a field is refused. ``neutral`` values mean the same as leaving the field out, and pass."""

    reason: str
    neutral: tuple[Any, ...] = ()


_NO_PENALTIES = "Penalties are not passed to the engine yet."
_NO_LOGPROBS = "Log probabilities are not reported yet."
_NO_TOOLS = "Tool calls are neither constrained nor parsed yet."
_NO_STORE = "Completions are not stored yet."
_NO_AUDIO = "The models here write text only."
_NO_CACHE_CONTROL = "Every prompt's prefix is cached, and clients have no say in it."
_NO_EFFORT = "The field is not passed to chat templates yet."
_NO_SAFETY = "Nothing here tells one end user from another for safety's sake."

NOT_SERVED: dict[str, NotServed] = {
    "audio": NotServed(_NO_AUDIO),
    "frequency_penalty": NotServed(_NO_PENALTIES, neutral=(0,)),
    "function_call": NotServed(_NO_TOOLS, neutral=("none",)),
    "functions": NotServed(_NO_TOOLS),
    "logit_bias": NotServed("The engine has no such setting.", neutral=({},)),
    "logprobs": NotServed(_NO_LOGPROBS, neutral=(False,)),
    "metadata": NotServed(_NO_STORE, neutral=({},)),
    "modalities": NotServed(_NO_AUDIO, neutral=(["text"],)),
    "moderation": NotServed("There is no moderation model."),
    "n": NotServed("A request makes one choice for now.", neutral=(1,)),
    "parallel_tool_calls": NotServed(_NO_TOOLS),
    "prediction": NotServed("The engine can't start from predicted text."),
    "presence_penalty": NotServed(_NO_PENALTIES, neutral=(0,)),
    "prompt_cache_key": NotServed(_NO_CACHE_CONTROL),
    "prompt_cache_options": NotServed(_NO_CACHE_CONTROL),
    "prompt_cache_retention": NotServed(_NO_CACHE_CONTROL),
    "reasoning_effort": NotServed(_NO_EFFORT),
    "response_format": NotServed("Output can't be constrained yet.", neutral=(TextResponse(type="text"),)),
    "safety_identifier": NotServed(_NO_SAFETY),
    "service_tier": NotServed("There is one tier for now.", neutral=("auto", "default")),
    "store": NotServed(_NO_STORE, neutral=(False,)),
    "tool_choice": NotServed(_NO_TOOLS, neutral=("none",)),
    "tools": NotServed(_NO_TOOLS),
    "top_logprobs": NotServed(_NO_LOGPROBS),
    "verbosity": NotServed(_NO_EFFORT, neutral=("medium",)),
    "web_search_options": NotServed("There is no web search."),
}


def check_served(request: ChatCompletionRequest) -> None:
    """Raise :class:`shared.errors.RequestRefused` for the first thing in ``request`` that is not served."""
    for index, message in enumerate(request.messages):
        _check_message(f"messages[{index}]", message)
        _check_modality(index, message)
    for field, row in NOT_SERVED.items():
        value = getattr(request, field)
        if value is not None and value not in row.neutral:
            raise _unsupported(field)
    if request.stream_options is not None and request.stream_options.include_obfuscation:
        # It was asked for as a protection, so it can't just be dropped; leaving it out or false is fine.
        raise _unsupported("stream_options.include_obfuscation")


def _check_message(path: str, message: Message) -> None:
    if isinstance(message, ToolMessage | FunctionMessage):
        raise _unsupported(f"{path}.role")
    if isinstance(message, AssistantMessage):
        for field in ("refusal", "audio", "tool_calls", "function_call"):
            if getattr(message, field) is not None:
                raise _unsupported(f"{path}.{field}")
    for place, part in enumerate(message.content if isinstance(message.content, list) else ()):
        if isinstance(part, RefusalPart):
            raise _unsupported(f"{path}.content[{place}].refusal")
        if isinstance(part, TextPart) and part.prompt_cache_breakpoint is not None:
            raise _unsupported(f"{path}.content[{place}].prompt_cache_breakpoint")


def _check_modality(index: int, message: Message) -> None:
    """No model here sees or hears; the service has its own words and path for that."""
    for place, part in enumerate(message.content if isinstance(message.content, list) else ()):
        if not isinstance(part, TextPart):
            raise refuse(
                ProblemKind.MODALITY,
                f"Invalid content type. {part.type} is only supported by certain models.",
                param=f"messages.[{index}].content.[{place}].type",
            )


def _unsupported(param: str) -> RequestRefused:
    message = f"Unsupported parameter: '{param}' is not supported with this model."
    return refuse(ProblemKind.INVALID, message, param=param, code="unsupported_parameter")
