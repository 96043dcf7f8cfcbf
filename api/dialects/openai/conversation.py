"""Conversion of validated messages to the internal form."""

from collections.abc import Sequence

from api.dialects.base.message_content import MessageContent
from api.dialects.openai.content import Content, ImagePart, RefusalPart, TextPart
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
            name = message.name or names.get(call_id)
            said = internal.Message(role="tool", content=content, name=name, tool_call_id=call_id)
        elif isinstance(message, FunctionMessage):
            said = internal.Message(
                role="tool", content=message.content or "", name=message.name, tool_call_id=function_id
            )
        else:
            parts = _collected(message.content, f"messages[{index}]")
            said = internal.Message(role=message.role, content=parts.text, images=parts.images, name=message.name)
        translated.append(said)
    return tuple(translated)


def flatten(content: Content | None) -> str:
    """Return the text of a message."""
    return _collected(content, "").text


def _collected(content: Content | None, message: str) -> MessageContent:
    """Return the text and the images of a message. ``message`` is its path."""
    collected = MessageContent()
    for index, part in enumerate([content] if isinstance(content, str) else content or ()):
        match part:
            case str():
                collected.add_text(part)
            case TextPart():
                collected.add_text(part.text)
            case RefusalPart():
                collected.add_text(part.refusal)
            case ImagePart(image_url=image):
                collected.add_image(image.url, f"{message}.content[{index}]", low=image.detail == "low")
            case _:
                collected.add_other()
    return collected


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
