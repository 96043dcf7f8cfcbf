"""Tools for models whose chat template knows none: they are described in a message, and calls are plain text.

The description is part of the system message, or of the first user message where the template has no system messages.
The format is that of Nous Research's Hermes models, which many small models have met in training.
"""

from collections.abc import Iterable

import msgspec

from shared.protocol.formats import ToolFormatName
from shared.protocol.request import ChatRequest, Message, Tool, ToolCall

SPELLED_FORMAT: ToolFormatName = "hermes"
"""The format that the instructions ask for, and the history is written in."""

_INSTRUCTIONS = """You can call functions. Here they are, each described as JSON:
{tools}
To call a function, answer with its name and arguments as JSON between tags, like this:
<tool_call>
{{"name": "function_name", "arguments": {{"argument": "value"}}}}
</tool_call>
The results come back between <tool_response> tags. Call functions only where they help; otherwise answer in words."""


def knows_tools(template: str) -> bool:
    """Whether a chat template (Jinja source) does anything with tools."""
    return "tools" in template or "tool_call" in template


def spelled_out(request: ChatRequest, *, system: bool) -> ChatRequest:
    """Return the request with its tools, calls and results written into ordinary messages.

    ``system`` tells whether the template renders system messages.
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
            told = msgspec.structs.replace(message, content=f"{instructions}\n\n{message.content}")
            return [*messages[:index], told, *messages[index + 1 :]]
    return [Message(role="user", content=instructions), *messages]


def _messages(messages: Iterable[Message]) -> list[Message]:
    """Return the messages with calls and results as text.

    Results become part of one user message with what the user says next: many templates want roles to alternate.
    """
    result: list[Message] = []
    after_result = False
    for message in messages:
        shown = _as_text(message)
        if after_result and shown.role == "user":
            shown = msgspec.structs.replace(shown, content=f"{result.pop().content}\n{shown.content}")
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
