"""Tools for models whose chat template knows none: they are described in the system message, calls are plain text.

The format is that of Nous Research's Hermes models, which many small models have met in training.
"""

import msgspec

from shared.formats import ToolFormatName
from shared.request import ChatRequest, Message, Tool, ToolCall

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


def spelled_out(request: ChatRequest) -> ChatRequest:
    """Return the request with its tools, calls and results written into ordinary messages."""
    messages = [_message(message) for message in request.messages]
    if request.tools and request.tool_choice != "none":
        described = "\n".join(_described(tool) for tool in request.tools)
        instructions = _INSTRUCTIONS.format(tools=described)
        if messages and messages[0].role in ("system", "developer"):
            first = messages.pop(0)
            instructions = f"{first.content}\n\n{instructions}"
        messages.insert(0, Message(role="system", content=instructions))
    return msgspec.structs.replace(request, messages=tuple(messages), tools=())


def _message(message: Message) -> Message:
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
