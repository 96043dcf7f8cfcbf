"""Renders a request with a chat template, with the variables and turns that the template expects.

Templates agree on ``messages``, ``tools`` and ``add_generation_prompt``. They differ in whether a tool call's arguments
are an object or JSON text, in how content is represented, and in the name of the reasoning field.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import msgspec

from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.request import ChatRequest, Message, Tool
from worker.prompt.facts import TemplateFacts
from worker.prompt.template import ChatTemplate
from worker.prompt.tools import with_tools_as_text, written_calls
from worker.prompt.turns import accepted_turns

Sanitize = Callable[[str], str]
"""Escapes special tokens in client text. Applied to every client text."""

MarkImage = Callable[[int], str]
"""Returns the placeholder for the image with a number."""


def render(
    template: ChatTemplate,
    request: ChatRequest,
    facts: TemplateFacts,
    sanitize: Sanitize = str,
    mark_image: MarkImage = str,
    end: str = "",
) -> str:
    """Return the prompt for ``request``. Other arguments are those of :func:`template_variables`.

    Raises :class:`RequestRefused` for invalid JSON text in the request, and
    :class:`~worker.prompt.template.ChatTemplateError` if the template refuses the conversation.
    """
    if facts.tools_as_text:
        request = with_tools_as_text(request)
    request = msgspec.structs.replace(request, messages=accepted_turns(request.messages, facts))
    return template.render(template_variables(request, facts, sanitize, mark_image, end))


def template_variables(
    request: ChatRequest, facts: TemplateFacts, sanitize: Sanitize, mark_image: MarkImage, end: str = ""
) -> dict[str, Any]:
    """Return the template variables for ``request``. Images are numbered in the order of the request.

    ``end`` marks the end of the last message's text if the output continues it.

    Raises :class:`RequestRefused` for invalid JSON text in the request.
    """
    extra = _parsed(request.template_kwargs or "{}", "chat_template_kwargs", sanitize)
    if not isinstance(extra, dict):
        raise refuse(ProblemKind.INVALID, "'chat_template_kwargs' is not an object.", param="chat_template_kwargs")
    # A model that must not call tools does not get their descriptions.
    shown = request.tools if request.tool_choice != "none" else ()
    marks = map(mark_image, count())
    last = len(request.messages) - 1 if request.turn == "continued" else -1
    variables = {
        **extra,
        "messages": [
            _message(message, facts, sanitize, marks, end if index == last else "")
            for index, message in enumerate(request.messages)
        ],
        "tools": [_tool(tool, index, facts, sanitize) for index, tool in enumerate(shown)] or None,
        "documents": extra.get("documents"),
        "add_generation_prompt": request.turn == "opened",
    }
    if not shown and not facts.tools_variable:
        del variables["tools"]
    return variables


def _message(
    message: Message, facts: TemplateFacts, sanitize: Sanitize, marks: Iterator[str], end: str
) -> dict[str, Any]:
    role = "system" if message.role == "developer" and not facts.developer else message.role
    text = _content(message, sanitize, marks) + end
    if message.tool_calls and facts.written_calls:
        text += written_calls(message.tool_calls, facts.written_calls, sanitize)
    content = _parts(text) if facts.parts else text
    if message.tool_calls and not text and facts.null_content:
        content = None
    result: dict[str, Any] = {"role": role, "content": content}
    if message.name is not None:
        result["name"] = sanitize(message.name)
    if message.reasoning is not None:
        result[facts.reasoning_key] = sanitize(message.reasoning)
    if message.tool_calls and not facts.written_calls:
        result["tool_calls"] = [
            {
                "id": sanitize(call.id),
                "type": "function",
                "function": {"name": sanitize(call.name), "arguments": _arguments(call.arguments, facts, sanitize)},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        result["tool_call_id"] = sanitize(message.tool_call_id)
    return result


def _content(message: Message, sanitize: Sanitize, marks: Iterator[str]) -> str:
    """Return the message's text with the marks of its images."""
    parts, start = [], 0
    for image in message.images:
        parts += [sanitize(message.content[start : image.at]), next(marks)]
        start = image.at
    return "".join([*parts, sanitize(message.content[start:])])


def _parts(text: str) -> Any:
    return [{"type": "text", "text": text}]


def _arguments(text: str, facts: TemplateFacts, sanitize: Sanitize) -> Any:
    """Return a call's arguments. Invalid ones in the history are a model's mistake, not an error of the request."""
    text = text if text.strip() else "{}"
    if not facts.object_arguments:
        return sanitize(text)
    try:
        decoded = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        decoded = text
    if not isinstance(decoded, dict) and not facts.text_arguments:
        return {"arguments": sanitize(text)}
    return _sanitized(decoded, sanitize)


def _tool(tool: Tool, index: int, facts: TemplateFacts, sanitize: Sanitize) -> dict[str, Any]:
    function: dict[str, Any] = {"name": sanitize(tool.name)}
    if tool.description is not None or facts.described_tools:
        function["description"] = sanitize(tool.description or "")
    # OpenAI's reference: omitted parameters mean an empty parameter list.
    parameters = tool.parameters or '{"type":"object","properties":{}}'
    function["parameters"] = shown = _parsed(parameters, f"tools[{index}].function.parameters", sanitize)
    if facts.described_tools and isinstance(shown, dict) and isinstance(shown.get("properties"), dict):
        for schema in shown["properties"].values():
            if isinstance(schema, dict):
                schema.setdefault("description", "")
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _parsed(text: str, param: str, sanitize: Sanitize) -> Any:
    try:
        return _sanitized(msgspec.json.decode(text), sanitize)
    except (msgspec.DecodeError, RecursionError) as error:
        raise refuse(ProblemKind.INVALID, f"'{param}' can't be read as JSON: {error}", param=param) from error


def _sanitized(value: Any, sanitize: Sanitize) -> Any:
    """Return decoded JSON with all strings sanitized, including keys: property names are client text too."""
    if isinstance(value, str):
        return sanitize(value)
    if isinstance(value, list):
        return [_sanitized(item, sanitize) for item in value]
    if isinstance(value, dict):
        return {sanitize(key): _sanitized(item, sanitize) for key, item in value.items()}
    return value
