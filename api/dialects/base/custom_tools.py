"""The internal form of custom tools and of their calls, which OpenAI's two APIs share."""

from typing import Any, Literal

from api.dialects.base.body import json_text
from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.request import INPUT, CustomInput, Tool, ToolCall

_SYNTAXES = {"lark": "this Lark grammar", "regex": "this regular expression"}


def custom_tool(
    name: str,
    description: str | None,
    *,
    grammar: tuple[Literal["lark", "regex"], str] | None,
    param: str,
    namespace: str | None = None,
) -> Tool:
    """Return a custom tool. ``grammar`` is the syntax and definition of its input's grammar, ``param`` their field.

    The model gets the grammar as the description of its input.
    """
    value: dict[str, Any] = {"type": "string"}
    custom = CustomInput()
    if grammar is not None:
        syntax, definition = grammar
        value["description"] = f"Text that matches {_SYNTAXES[syntax]}:\n{definition}"
        custom = CustomInput(syntax=syntax, definition=definition, param=param)
    schema = {"type": "object", "properties": {INPUT: value}, "required": [INPUT], "additionalProperties": False}
    return Tool(name=name, description=description, parameters=json_text(schema), custom=custom, namespace=namespace)


def name_of_two_kinds(name: str, param: str) -> RequestRefused:
    """Return the refusal of a custom tool with the name of a function, or the other way round."""
    message = f"A function and a custom tool can't both be called '{name[:64]}'."
    return refuse(ProblemKind.INVALID, message, param=param)


def custom_call(call_id: str, name: str, text: str) -> ToolCall:
    """Return an earlier call of a custom tool with the input ``text``."""
    return ToolCall(id=call_id, name=name, arguments=json_text({INPUT: text}))
