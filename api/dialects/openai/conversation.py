"""Conversion of validated messages to the internal form."""

from collections.abc import Sequence

from api.dialects.openai.content import Content, ContentPart, ImagePart, RefusalPart, TextPart
from api.dialects.openai.messages import AssistantMessage, FunctionMessage, FunctionToolCall, Message, ToolMessage
from shared.protocol import request as internal


def translate_messages(messages: Sequence[Message]) -> tuple[internal.Message, ...]:
    """Return the internal form of validated messages.

    Deprecated function calls and their results become tool calls and tool results. They have no ids, so ids are
    generated: nine letters and digits, because some chat templates accept no other form.
    """
    names: dict[str, str] = {}
    function_id: str | None = None
    translated = []
    for index, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            said = _assistant(message, f"call{index:05}")
            names |= {call.id: call.name for call in said.tool_calls}
            if message.function_call is not None:
                function_id = said.tool_calls[-1].id
        elif isinstance(message, ToolMessage):
            # Some chat templates need the tool's name with its result.
            call_id = message.tool_call_id
            content = flatten(message.content)
            said = internal.Message(role="tool", content=content, name=names.get(call_id), tool_call_id=call_id)
        elif isinstance(message, FunctionMessage):
            said = internal.Message(
                role="tool", content=message.content or "", name=message.name, tool_call_id=function_id
            )
        else:
            content, images = _flattened(message.content, f"messages[{index}]")
            said = internal.Message(role=message.role, content=content, images=images, name=message.name)
        translated.append(said)
    return tuple(translated)


def flatten(content: Content | None) -> str:
    """Join the text parts of a message, adjacent ones with line breaks.

    Text chat templates expect one string, and render a list as its Python repr. vLLM, llama.cpp's server and OpenVINO
    Model Server also join parts with a line break, so the prompt is the same on all of them.
    """
    return _flattened(content, "")[0]


def _flattened(content: Content | None, message: str) -> tuple[str, tuple[internal.Image, ...]]:
    """Return the text of a message, and the images with their places in it. ``message`` is its path."""
    if content is None or isinstance(content, str):
        return content or "", ()
    texts: list[str] = []
    images: list[internal.Image] = []
    size, after_text = 0, False
    for index, part in enumerate(content):
        if isinstance(part, ImagePart):
            low = part.image_url.detail == "low"
            param = f"{message}.content[{index}]"
            images.append(internal.Image(at=size, param=param, low=low, url=part.image_url.url))
        text = _text(part)
        if text is not None:
            texts.append(f"\n{text}" if after_text else text)
            size += len(texts[-1])
        after_text = text is not None
    return "".join(texts), tuple(images)


def _text(part: ContentPart) -> str | None:
    match part:
        case TextPart():
            return part.text
        case RefusalPart():
            return part.refusal
    return None


def _assistant(message: AssistantMessage, function_id: str) -> internal.Message:
    calls = [
        internal.ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
        for call in message.tool_calls or ()
        if isinstance(call, FunctionToolCall)
    ]
    if message.function_call is not None:
        call = message.function_call
        calls.append(internal.ToolCall(id=function_id, name=call.name, arguments=call.arguments))
    return internal.Message(
        role="assistant",
        # Templates have no field for a refusal, so it becomes the content.
        content=flatten(message.content) or message.refusal or "",
        name=message.name,
        reasoning=message.reasoning_content,
        tool_calls=tuple(calls),
    )
