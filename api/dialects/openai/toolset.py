"""From tools, functions and the choice among them to the internal request."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from api.dialects.openai.schema import ChatCompletionRequest
from api.dialects.openai.tools import (
    AllowedToolsChoice,
    CustomChoice,
    Function,
    FunctionCallChoice,
    FunctionChoice,
    FunctionTool,
    Named,
    StrictFunction,
    ToolChoice,
)
from shared.protocol import request as internal


class Toolset(msgspec.Struct, frozen=True, kw_only=True):
    """What a request says of tools; the fields are those of :class:`shared.protocol.request.ChatRequest`."""

    tools: tuple[internal.Tool, ...] = ()
    functions_form: bool = False
    tool_choice: internal.ToolChoice = "auto"
    named_tool: str | None = None
    parallel_tool_calls: bool = True


def translate_tools(request: ChatCompletionRequest) -> Toolset:
    """Return the tools of a request that has passed all checks.

    Of ``allowed_tools`` the others are left out altogether: what the model is not told of, it does not call.
    """
    if request.functions is not None:
        mode, named, _ = _choice(request.function_call)
        # A message has room for one function call only.
        return Toolset(
            tools=tuple(map(_tool, request.functions)),
            functions_form=True,
            tool_choice=mode,
            named_tool=named,
            parallel_tool_calls=False,
        )
    mode, named, allowed = _choice(request.tool_choice)
    functions = [tool.function for tool in request.tools or () if isinstance(tool, FunctionTool)]
    return Toolset(
        tools=tuple(_tool(function) for function in functions if allowed is None or function.name in allowed),
        tool_choice=mode,
        named_tool=named,
        parallel_tool_calls=request.parallel_tool_calls is not False,
    )


def json_text(value: Any) -> str:
    """Return ``value`` as compact JSON, whatever the size of its numbers."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _choice(
    choice: ToolChoice | FunctionCallChoice | None,
) -> tuple[internal.ToolChoice, str | None, frozenset[str] | None]:
    """The mode, the tool that must be called, and the names of those that may be, if not all."""
    match choice:
        case None:
            return "auto", None, None
        case str():
            return choice, None, None
        case FunctionChoice():
            return "required", choice.function.name, None
        case AllowedToolsChoice():
            return choice.allowed_tools.mode, None, _names(choice.allowed_tools.tools)
        case Named():
            return "required", choice.name, None
        case CustomChoice():
            raise AssertionError("custom tools are not served")


def _names(references: Sequence[Any]) -> frozenset[str]:
    return frozenset(reference.function.name for reference in references if isinstance(reference, FunctionChoice))


def _tool(function: Function) -> internal.Tool:
    return internal.Tool(
        name=function.name,
        description=function.description,
        parameters=None if function.parameters is None else json_text(function.parameters),
        strict=isinstance(function, StrictFunction) and bool(function.strict),
    )
