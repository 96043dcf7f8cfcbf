"""Turns a request into the variables of a chat template, in the form that the template at hand understands.

Templates agree on ``messages``, ``tools`` and ``add_generation_prompt``; they differ on whether a call's arguments
are an object or JSON text, on what stands for no content, and on the name of reasoning. :func:`learn_form` finds out
by rendering a small conversation.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.request import ChatRequest, Message, Tool
from worker.prompt.template import ChatTemplate, ChatTemplateError

Clean = Callable[[str], str]
"""Applied to every text that comes from a client."""


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """How a template wants its messages.

    ``object_arguments``: a call's arguments as an object, else as JSON text. ``null_content``: a message that only
    calls tools has ``None`` as content, else "". ``developer``: it knows the role, else it gets "system".
    ``system``: it renders system messages.
    """

    object_arguments: bool = True
    null_content: bool = False
    developer: bool = False
    system: bool = True
    reasoning_key: str = "reasoning_content"


def learn_form(template: ChatTemplate) -> Form:
    """Return the form in which ``template`` shows a tool call whole; the usual one if it shows none in any form."""
    form = Form(
        developer="developer" in template.source,
        system=_shows_system(template),
        reasoning_key=_reasoning_key(template.source),
    )
    for objects in (True, False):
        for null in (False, True):
            candidate = msgspec.structs.replace(form, object_arguments=objects, null_content=null)
            if _shows_call(template, candidate):
                return candidate
    return form


def template_variables(request: ChatRequest, form: Form, clean: Clean) -> dict[str, Any]:
    """Return the variables with which the template renders ``request``.

    Raises :class:`RequestRefused` when JSON text in the request can't be read.
    """
    extra = _parsed(request.template_kwargs or "{}", "chat_template_kwargs", clean)
    if not isinstance(extra, dict):
        raise refuse(ProblemKind.INVALID, "'chat_template_kwargs' is not an object.", param="chat_template_kwargs")
    # A model that must not call tools is not told of any.
    shown = request.tools if request.tool_choice != "none" else ()
    return {
        **extra,
        "messages": [_message(message, form, clean) for message in request.messages],
        "tools": [_tool(tool, index, clean) for index, tool in enumerate(shown)] or None,
        "documents": extra.get("documents"),
        "add_generation_prompt": True,
    }


def _message(message: Message, form: Form, clean: Clean) -> dict[str, Any]:
    role = "system" if message.role == "developer" and not form.developer else message.role
    content: str | None = clean(message.content)
    if message.tool_calls and not content and form.null_content:
        content = None
    result: dict[str, Any] = {"role": role, "content": content}
    if message.name is not None:
        result["name"] = clean(message.name)
    if message.reasoning is not None:
        result[form.reasoning_key] = clean(message.reasoning)
    if message.tool_calls:
        result["tool_calls"] = [
            {
                "id": clean(call.id),
                "type": "function",
                "function": {"name": clean(call.name), "arguments": _arguments(call.arguments, form, clean)},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        result["tool_call_id"] = clean(message.tool_call_id)
    return result


def _arguments(text: str, form: Form, clean: Clean) -> Any:
    if form.object_arguments:
        try:
            # Models make mistakes: a call with broken arguments is history, not a fault of the request.
            return _cleaned(msgspec.json.decode(text), clean)
        except (msgspec.DecodeError, RecursionError):
            pass
    return clean(text)


def _tool(tool: Tool, index: int, clean: Clean) -> dict[str, Any]:
    function: dict[str, Any] = {"name": clean(tool.name)}
    if tool.description is not None:
        function["description"] = clean(tool.description)
    # OpenAI's reference: a function without parameters takes none.
    parameters = tool.parameters or '{"type":"object","properties":{}}'
    function["parameters"] = _parsed(parameters, f"tools[{index}].function.parameters", clean)
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _parsed(text: str, param: str, clean: Clean) -> Any:
    try:
        return _cleaned(msgspec.json.decode(text), clean)
    except (msgspec.DecodeError, RecursionError) as error:
        raise refuse(ProblemKind.INVALID, f"'{param}' can't be read as JSON: {error}", param=param) from error


def _cleaned(value: Any, clean: Clean) -> Any:
    """Return decoded JSON with every text in it cleaned, the keys too: a schema's property names are client text."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_cleaned(item, clean) for item in value]
    if isinstance(value, dict):
        return {clean(key): _cleaned(item, clean) for key, item in value.items()}
    return value


def _reasoning_key(source: str) -> str:
    return "thinking" if ".thinking" in source and "reasoning_content" not in source else "reasoning_content"


def _shows_system(template: ChatTemplate) -> bool:
    return "Xanadu" in _rendered(template, [{"role": "system", "content": "Xanadu"}, {"role": "user", "content": "Hi"}])


def _shows_call(template: ChatTemplate, form: Form) -> bool:
    arguments = {"place": "Xanadu"} if form.object_arguments else '{"place":"Xanadu"}'
    # Nine letters and digits: some templates accept no other id.
    call = {"id": "call12345", "type": "function", "function": {"name": "find_city", "arguments": arguments}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": None if form.null_content else "", "tool_calls": [call]},
        {"role": "tool", "content": "There.", "name": "find_city", "tool_call_id": "call12345"},
    ]
    text = _rendered(template, messages)
    # A Python dictionary or doubly escaped JSON in the text: the template took the arguments for something else.
    mangled = any(sign in text for sign in ("{'place'", '\\"place\\"', "None"))
    return "find_city" in text and "Xanadu" in text and not mangled


def _rendered(template: ChatTemplate, messages: list[dict[str, Any]]) -> str:
    """Return the messages as the template renders them; empty where it refuses them."""
    try:
        return template.render({"messages": messages, "tools": None, "documents": None, "add_generation_prompt": True})
    except ChatTemplateError:
        return ""
