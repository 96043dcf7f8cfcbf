"""Conversion of validated messages to the internal form."""

from collections.abc import Iterator, Sequence

from api.dialects.base.conversation import Conversation, Part, flatten, image
from api.dialects.base.custom_tools import custom_call
from api.dialects.openai.content import Content, ImagePart, RefusalPart, TextPart
from api.dialects.openai.messages import AssistantMessage, FunctionMessage, FunctionToolCall, Message, ToolMessage
from shared.protocol import request as internal


def translate_messages(messages: Sequence[Message]) -> tuple[internal.Message, ...]:
    """Return the internal form of validated messages.

    Deprecated function calls and their results become tool calls and tool results. They have no ids, so ids are
    generated: nine letters and digits, because some chat templates accept no other form.
    """
    conversation = Conversation()
    function_id: str | None = None
    for index, message in enumerate(messages):
        match message:
            case AssistantMessage():
                # Templates have no field for a refusal, so it becomes the content.
                text = flatten(_parts(message.content, "")) or message.refusal or ""
                calls = _calls(message, f"call{index:05}")
                conversation.assistant(text, reasoning=message.reasoning_content, calls=calls, name=message.name)
                if message.function_call is not None:
                    function_id = calls[-1].id
            case ToolMessage():
                conversation.result(message.tool_call_id, _parts(message.content, ""), name=message.name)
            case FunctionMessage():
                conversation.result(function_id, _parts(message.content, ""), name=message.name)
            case _:
                parts = _parts(message.content, f"messages[{index}]")
                if message.role == "user":
                    conversation.user(parts, name=message.name)
                else:
                    conversation.system(parts, role=message.role, name=message.name)
    return conversation.finish()


def _parts(content: Content | None, message: str) -> Iterator[Part]:
    for index, part in enumerate([content] if isinstance(content, str) else content or ()):
        match part:
            case str():
                yield part
            case TextPart():
                yield part.text
            case RefusalPart():
                yield part.refusal
            case ImagePart(image_url=picture):
                yield image(picture.url, f"{message}.content[{index}]", low=picture.detail == "low")
            case _:
                yield None


def _calls(message: AssistantMessage, function_id: str) -> list[internal.ToolCall]:
    calls = [
        internal.ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
        if isinstance(call, FunctionToolCall)
        else custom_call(call.id, call.custom.name, call.custom.input)
        for call in message.tool_calls or ()
    ]
    if message.function_call is not None:
        call = message.function_call
        calls.append(internal.ToolCall(id=function_id, name=call.name, arguments=call.arguments))
    return calls
