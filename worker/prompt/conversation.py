"""Converts a request to the variables of a chat template, in the form that the template expects.

Templates agree on ``messages``, ``tools`` and ``add_generation_prompt``. They differ in whether a tool call's arguments
are an object or JSON text, in how content is represented, and in the name of the reasoning field.
:func:`detect_message_format` detects the form by rendering a small conversation.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import msgspec

from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.request import ChatRequest, Message, Tool
from worker.prompt.template import ChatTemplate, ChatTemplateError
from worker.prompt.tools import prefixed

Sanitize = Callable[[str], str]
"""Escapes special tokens in client text. Applied to every client text."""

MarkImage = Callable[[int], str]
"""Returns the placeholder for the image with a number."""


_SYSTEM = {"role": "system", "content": "Xanadu"}
_USER = {"role": "user", "content": "Hi"}
"""Messages of the conversations by which the format is detected."""


class MessageFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The form of messages that a template expects.

    - ``parts``: content is a list of parts, otherwise a text.
    - ``object_arguments``: a tool call's arguments are an object, otherwise JSON text.
    - ``null_content``: a message with only tool calls has ``None`` as content, otherwise "".
    - ``developer``: the template supports that role, otherwise it is replaced by "system".
    - ``system``: the template renders system messages.
    - ``later_system_messages``: the template renders system messages within a conversation, too.
    - ``reasoning_key``: the name of a message's reasoning field.
    """

    parts: bool = False
    object_arguments: bool = True
    null_content: bool = False
    developer: bool = False
    system: bool = True
    later_system_messages: bool = True
    reasoning_key: str = "reasoning_content"


def detect_message_format(template: ChatTemplate) -> MessageFormat:
    """Return the form in which ``template`` renders a tool call completely; the default if there is none."""
    parts = _wants_parts(template)
    form = MessageFormat(
        parts=parts,
        developer="developer" in template.source,
        system=_shows_system(template, [_SYSTEM, _USER], parts=parts),
        later_system_messages=_shows_system(
            template, [_USER, _SYSTEM, {"role": "assistant", "content": "Yes?"}, _USER], parts=parts
        ),
        reasoning_key=_reasoning_key(template.source),
    )
    for objects in (True, False):
        for null in (False, True):
            candidate = msgspec.structs.replace(form, object_arguments=objects, null_content=null)
            if _shows_call(template, candidate):
                return candidate
    return form


def template_variables(
    request: ChatRequest, form: MessageFormat, sanitize: Sanitize, mark_image: MarkImage, end: str = ""
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
    return {
        **extra,
        "messages": [
            _message(message, form, sanitize, marks, end if index == last else "")
            for index, message in enumerate(request.messages)
        ],
        "tools": [_tool(tool, index, sanitize) for index, tool in enumerate(shown)] or None,
        "documents": extra.get("documents"),
        "add_generation_prompt": request.turn == "opened",
    }


def _message(
    message: Message, form: MessageFormat, sanitize: Sanitize, marks: Iterator[str], end: str
) -> dict[str, Any]:
    role = "system" if message.role == "developer" and not form.developer else message.role
    text = _content(message, sanitize, marks) + end
    content = _parts(text) if form.parts else text
    if message.tool_calls and not text and form.null_content:
        content = None
    result: dict[str, Any] = {"role": role, "content": content}
    if message.name is not None:
        result["name"] = sanitize(message.name)
    if message.reasoning is not None:
        result[form.reasoning_key] = sanitize(message.reasoning)
    if message.tool_calls:
        result["tool_calls"] = [
            {
                "id": sanitize(call.id),
                "type": "function",
                "function": {"name": sanitize(call.name), "arguments": _arguments(call.arguments, form, sanitize)},
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


def _arguments(text: str, form: MessageFormat, sanitize: Sanitize) -> Any:
    if form.object_arguments:
        try:
            # Invalid arguments in the history are a model's mistake, not an error of the request.
            return _sanitized(msgspec.json.decode(text), sanitize)
        except (msgspec.DecodeError, RecursionError):
            pass
    return sanitize(text)


def _tool(tool: Tool, index: int, sanitize: Sanitize) -> dict[str, Any]:
    function: dict[str, Any] = {"name": sanitize(tool.name)}
    if tool.description is not None:
        function["description"] = sanitize(tool.description)
    # OpenAI's reference: omitted parameters mean an empty parameter list.
    parameters = tool.parameters or '{"type":"object","properties":{}}'
    function["parameters"] = _parsed(parameters, f"tools[{index}].function.parameters", sanitize)
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


def _reasoning_key(source: str) -> str:
    return "thinking" if ".thinking" in source and "reasoning_content" not in source else "reasoning_content"


def _wants_parts(template: ChatTemplate) -> bool:
    """Return whether the template renders content only if it is a list of parts."""
    message = {"role": "user", "content": "Xanadu"}
    return "Xanadu" not in _rendered(template, [message]) and "Xanadu" in _rendered(template, [message], parts=True)


def _shows_system(template: ChatTemplate, messages: Sequence[Mapping[str, str]], *, parts: bool) -> bool:
    return "Xanadu" in _rendered(template, messages, parts=parts)


def _shows_call(template: ChatTemplate, form: MessageFormat) -> bool:
    arguments = {"place": "Xanadu"} if form.object_arguments else '{"place":"Xanadu"}'
    # Some templates require ids of nine letters and digits.
    call = {"id": "call12345", "type": "function", "function": {"name": "find_city", "arguments": arguments}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": None if form.null_content else "", "tool_calls": [call]},
        {"role": "tool", "content": "There.", "name": "find_city", "tool_call_id": "call12345"},
    ]
    text = _rendered(template, messages, parts=form.parts)
    # A Python dictionary or doubly escaped JSON in the text means that the template expects another form.
    mangled = any(sign in text for sign in ("{'place'", '\\"place\\"', "None"))
    return "find_city" in text and "Xanadu" in text and not mangled


def _rendered(template: ChatTemplate, messages: Sequence[Mapping[str, Any]], *, parts: bool = False) -> str:
    """Return the rendered messages, or an empty text if the template refuses them."""
    if parts:
        messages = [{**message, "content": _parts(message["content"] or "")} for message in messages]
    try:
        return template.render({"messages": messages, "tools": None, "documents": None, "add_generation_prompt": True})
    except ChatTemplateError:
        return ""


_INSTRUCTING = ("system", "developer")


def in_turns(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return the messages with the leading instructions as one message, and later ones as text between tags.

    It is for chat templates that take a system message at the start only. Agents send instructions where they become
    relevant. They stay there, so that the prefix of the prompt stays the same and cached. The text is part of the
    user's message that follows, or of the user's message or tool result before. Elsewhere it becomes a message of the
    user.
    """
    result: list[Message] = []
    late: list[str] = []
    for message in messages:
        if message.role in _INSTRUCTING:
            if not result:
                result.append(message)
            elif len(result) == 1 and result[0].role in _INSTRUCTING:
                result[0] = _extended(result[0], message.content)
            else:
                late.append(f"<system>\n{message.content}\n</system>")
        elif late and message.role == "user":
            result.append(prefixed(message, "\n".join([*late, ""])))
            late = []
        else:
            _add(result, late)
            result.append(message)
            late = []
    _add(result, late)
    return tuple(result)


def _add(result: list[Message], late: Sequence[str]) -> None:
    text = "\n".join(late)
    if text and result[-1].role in ("user", "tool"):
        result[-1] = _extended(result[-1], text)
    elif text:
        result.append(Message(role="user", content=text))


def _extended(message: Message, text: str) -> Message:
    return msgspec.structs.replace(message, content="\n".join(filter(None, (message.content, text))))
