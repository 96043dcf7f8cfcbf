"""Tool use for models whose chat template does not support tools: a message describes them instead.

The description is part of the system message. The format is that of Nous Research's Hermes models, which is common in
the training data of small models.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from shared.parsers.format import Elements
from shared.parsers.formats import TOOL_FORMATS, ToolFormatName
from shared.parsers.schema_types import ITEM, kinds_of_value
from shared.protocol.request import ChatRequest, Message, Tool, ToolCall
from worker.prompt.turns import INSTRUCTION_ROLES

TOOL_FORMAT: ToolFormatName = "hermes"
"""The tool-call format of the instructions and of the history."""

_INSTRUCTIONS = """You can call functions. Here they are, each described as JSON:
{tools}
To call a function, answer with its name and arguments as JSON between tags, like this:
<tool_call>
{{"name": "function_name", "arguments": {{"argument": "value"}}}}
</tool_call>
The results come back between <tool_response> tags. Call functions only where they help; otherwise answer in words."""


def with_tools_as_text(request: ChatRequest) -> ChatRequest:
    """Return the request with its tools, tool calls and results converted to ordinary messages."""
    messages = [_as_text(message) for message in request.messages]
    if request.tools and request.tool_choice != "none":
        instructions = _INSTRUCTIONS.format(tools="\n".join(_described(tool) for tool in request.tools))
        if messages and messages[0].role in INSTRUCTION_ROLES:
            instructions = f"{messages.pop(0).content}\n\n{instructions}"
        messages.insert(0, Message(role="system", content=instructions))
    return msgspec.structs.replace(request, messages=tuple(messages), tools=())


def written_calls(calls: Sequence[ToolCall], name: ToolFormatName, sanitize: Callable[[str], str]) -> str:
    """Return calls as a model writes them in the format ``name``, with names and arguments after ``sanitize``."""
    form = TOOL_FORMATS[name]
    shape = form.shape
    if shape.content == "python_calls":
        listed = (shape.separator or ", ").join(_python_call(call, sanitize) for call in calls)
        return f"{shape.begin}{listed}{shape.end}"
    pairs = [(sanitize(call.name), sanitize(call.arguments.strip() or "{}")) for call in calls]
    if shape.content == "calls":
        listed = ", ".join(
            f"{shape.item_for(called, index)}{arguments}{shape.item[1]}"
            for index, (called, arguments) in enumerate(pairs)
        )
        return f"{shape.begin}[{listed}]{shape.end}"
    if shape.elements:
        pairs = [(called, _elements(arguments, shape.elements)) for called, arguments in pairs]
    if shape.content == "nested":
        pairs = [(called, _nested(_decoded(arguments), shape.quote)) for called, arguments in pairs]
    begin, end = shape.group or ("", "")
    begins = [shape.begin_for(called).replace("{n}", str(index)) for index, (called, _) in enumerate(pairs)]
    texts = [f"{text}{arguments}{shape.end}" for text, (_, arguments) in zip(begins, pairs, strict=True)]
    return begin + shape.separator.join(texts) + end


def _elements(arguments: str, elements: Elements) -> str:
    texts = []
    for key, value in _decoded(arguments).items():
        begin = elements.begin_for(key, max(kinds_of_value(value)))
        written = value if isinstance(value, str) else _json(value)
        texts.append(begin + written + elements.newline + elements.value_end + elements.separator)
    return "".join(texts)


def _nested(value: Any, token: str) -> str:
    """Return a value as elements, with ``token`` before each tag."""
    if isinstance(value, str):
        return value
    if not isinstance(value, dict | list):
        return _json(value)
    members = value.items() if isinstance(value, dict) else ((ITEM, item) for item in value)
    return "".join(f"{token}<{key}>{_nested(part, token)}{token}</{key}>" for key, part in members)


def _python_call(call: ToolCall, sanitize: Callable[[str], str]) -> str:
    listed = ", ".join(f"{sanitize(key)}={sanitize(repr(value))}" for key, value in _decoded(call.arguments).items())
    return f"{sanitize(call.name)}({listed})"


def _decoded(text: str) -> dict[str, Any]:
    try:
        arguments: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        return {"arguments": text} if text.strip() else {}
    return arguments


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


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
