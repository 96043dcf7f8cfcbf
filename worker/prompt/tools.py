"""Tool use for models whose chat template does not support tools: a message describes them instead.

The description is part of the system message, or of the first user message if the template has no system messages.
The format is that of Nous Research's Hermes models, which is common in the training data of small models.
"""

from collections.abc import Iterable

import msgspec

from shared.protocol.formats import ToolFormatName
from shared.protocol.request import ChatRequest, Message, Tool, ToolCall

TOOL_FORMAT: ToolFormatName = "hermes"
"""The tool-call format of the instructions and of the history."""

_INSTRUCTIONS = """You can call functions. Here they are, each described as JSON:
{tools}
To call a function, answer with its name and arguments as JSON between tags, like this:
<tool_call>
{{"name": "function_name", "arguments": {{"argument": "value"}}}}
</tool_call>
The results come back between <tool_response> tags. Call functions only where they help; otherwise answer in words."""


def supports_tools(template: str) -> bool:
    """Return whether a chat template (Jinja source) supports tools."""
    return "tools" in template or "tool_call" in template


def with_tools_as_text(request: ChatRequest, *, system: bool) -> ChatRequest:
    """Return the request with its tools, tool calls and results converted to ordinary messages.

    ``system``: whether the template renders system messages.
    """
    messages = _messages(request.messages)
    if request.tools and request.tool_choice != "none":
        instructions = _INSTRUCTIONS.format(tools="\n".join(_described(tool) for tool in request.tools))
        messages = (_in_system_message if system else _in_user_message)(messages, instructions)
    return msgspec.structs.replace(request, messages=tuple(messages), tools=())


def _in_system_message(messages: list[Message], instructions: str) -> list[Message]:
    if messages and messages[0].role in ("system", "developer"):
        first = messages[0]
        return [Message(role="system", content=f"{first.content}\n\n{instructions}"), *messages[1:]]
    return [Message(role="system", content=instructions), *messages]


def _in_user_message(messages: list[Message], instructions: str) -> list[Message]:
    for index, message in enumerate(messages):
        if message.role == "user":
            return [*messages[:index], prefixed(message, f"{instructions}\n\n"), *messages[index + 1 :]]
    return [Message(role="user", content=instructions), *messages]


def _messages(messages: Iterable[Message]) -> list[Message]:
    """Return the messages with tool calls and results as text.

    Results are merged with the next user message, because many templates require alternating roles.
    """
    result: list[Message] = []
    after_result = False
    for message in messages:
        shown = _as_text(message)
        if after_result and shown.role == "user":
            shown = prefixed(shown, f"{result.pop().content}\n")
        result.append(shown)
        after_result = message.role == "tool"
    return result


def _as_text(message: Message) -> Message:
    if message.role == "tool":
        return Message(role="user", content=f"<tool_response>\n{message.content}\n</tool_response>")
    if not message.tool_calls:
        return message
    parts = [message.content] if message.content else []
    parts += [_call(call) for call in message.tool_calls]
    return msgspec.structs.replace(message, content="\n".join(parts), tool_calls=())


def prefixed(message: Message, prefix: str) -> Message:
    images = tuple(msgspec.structs.replace(image, at=image.at + len(prefix)) for image in message.images)
    return msgspec.structs.replace(message, content=prefix + message.content, images=images)


def _described(tool: Tool) -> str:
    parts = [f'"name": {_json(tool.name)}']
    if tool.description is not None:
        parts.append(f'"description": {_json(tool.description)}')
    if tool.parameters is not None:
        parts.append(f'"parameters": {tool.parameters}')
    return f"{{{', '.join(parts)}}}"


def _call(call: ToolCall) -> str:
    return f'<tool_call>\n{{"name": {_json(call.name)}, "arguments": {call.arguments or "{}"}}}\n</tool_call>'


def _json(text: str) -> str:
    return msgspec.json.encode(text).decode()
