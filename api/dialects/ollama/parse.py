"""Parser of Ollama's requests."""

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from api.dialects.base.body import decode_object, json_text
from api.dialects.base.conversation import Conversation, Part, image
from api.dialects.base.sampling import sampling
from api.dialects.base.schemas import check_parameters, json_constraint
from api.dialects.base.unsupported import check_supported
from api.dialects.base.validation import invalid, validate
from api.dialects.ollama.schema import (
    OllamaChatRequest,
    OllamaGenerateRequest,
    OllamaMessage,
    OllamaRequest,
    OllamaTool,
)
from shared.protocol import request as internal
from shared.protocol.request import ChatRequest, ResponseForm, Sampling, ToolCall

DEFAULTS = Sampling(temperature=0.8, top_p=0.9, top_k=40)
"""The reference's defaults, used if neither the client nor the model specifies a value."""


def parse_chat(body: bytes) -> ChatRequest:
    """Parse a chat. Raises :class:`RequestRefused` and no other exception."""
    request = validate(OllamaChatRequest, decode_object(body))
    return _request(request, messages=_messages(request.messages), tools=tuple(_tools(request.tools or ())))


def parse_generate(body: bytes) -> ChatRequest:
    """Parse a prompt: a message of the user, unless it is ``raw``. Raises :class:`RequestRefused` and no other."""
    request = validate(OllamaGenerateRequest, decode_object(body))
    if request.raw:
        if field := next((name for name in ("images", "system", "think") if getattr(request, name)), ""):
            raise invalid(field, "it can't be combined with 'raw', which leaves the chat template out")
        return _request(request, prompts=(request.prompt,))
    conversation = Conversation()
    if request.system:
        conversation.system([request.system])
    conversation.user([*_images(request.images, ""), request.prompt])
    return _request(request, messages=conversation.finish())


def _request(request: OllamaRequest, **fields: Any) -> ChatRequest:
    notes = check_supported(request)
    found = sampling(request.options) if request.options is not None else Sampling()
    if request.logprobs:
        found = replace(found, logprobs=True, top_logprobs=request.top_logprobs or 0)
    schema = request.format if isinstance(request.format, dict) else None
    return ChatRequest(
        model=request.model,
        sampling=found,
        defaults=DEFAULTS,
        constraint=json_constraint(schema, "format") if request.format else None,
        template_kwargs=None if request.think is None else _template_variables(request.think),
        response=ResponseForm(stream=request.stream is not False, notes=notes),
        **fields,
    )


def _template_variables(think: bool | str) -> str:
    on = think is not False
    effort = {"reasoning_effort": think if on else "none"} if think is not True else {}
    return json_text({"enable_thinking": on, "thinking": on} | effort)


def _messages(messages: Sequence[OllamaMessage]) -> tuple[internal.Message, ...]:
    conversation = Conversation()
    waiting: defaultdict[str, deque[str]] = defaultdict(deque)
    for index, message in enumerate(messages):
        parts = [*_images(message.images, f"messages[{index}]."), message.content or ""]
        if message.role == "tool":
            conversation.result(_answered(message, conversation, waiting), parts, name=message.tool_name)
        elif message.role == "assistant":
            calls = [*_calls(message, index)]
            conversation.assistant(message.content or "", reasoning=message.thinking, calls=calls)
            for call in calls:
                waiting[call.name].append(call.id)
        else:
            (conversation.user if message.role == "user" else conversation.system)(parts)
    return conversation.finish()


def _calls(message: OllamaMessage, index: int) -> Iterator[ToolCall]:
    for place, call in enumerate(one.function for one in message.tool_calls or ()):
        # Some chat templates accept no other form of ids.
        yield ToolCall(id=f"c{index:04}{place:04}", name=call.name, arguments=json_text(call.arguments or {}))


def _answered(message: OllamaMessage, conversation: Conversation, waiting: dict[str, deque[str]]) -> str | None:
    """Return the call that a result is of: the first one without a result, of the tool if it is named."""
    if not message.tool_name:
        return next(iter(conversation.unanswered), None)
    calls = waiting[message.tool_name]
    while calls and calls[0] not in conversation.unanswered:
        calls.popleft()
    return calls.popleft() if calls else None


def _images(images: Sequence[str] | None, place: str) -> Iterator[Part]:
    return (image(f"data:;base64,{data}", f"{place}images[{index}]") for index, data in enumerate(images or ()))


def _tools(tools: Sequence[OllamaTool]) -> Iterator[internal.Tool]:
    for index, function in enumerate(tool.function for tool in tools):
        check_parameters(function.name, function.parameters, f"tools[{index}].function.parameters")
        schema = None if function.parameters is None else json_text(function.parameters)
        yield internal.Tool(name=function.name, description=function.description, parameters=schema)
