"""Conversion of tools, functions and tool choice to the internal form."""

from collections.abc import Sequence

import msgspec

from api.dialects.base.body import json_text
from api.dialects.base.custom_tools import custom_tool
from api.dialects.openai.schema import ChatCompletionRequest
from api.dialects.openai.tools import (
    AllowedToolsChoice,
    Custom,
    CustomChoice,
    Function,
    FunctionCallChoice,
    FunctionChoice,
    FunctionTool,
    GrammarInput,
    Named,
    StrictFunction,
    ToolChoice,
    ToolReference,
)
from shared.protocol import request as internal


class Toolset(msgspec.Struct, frozen=True, kw_only=True):
    """The tool-related fields of :class:`shared.protocol.request.ChatRequest`."""

    tools: tuple[internal.Tool, ...] = ()
    functions_form: bool = False
    tool_choice: internal.ToolChoice = "auto"
    named_tool: str | None = None
    parallel_tool_calls: bool = True


def translate_tools(request: ChatCompletionRequest) -> Toolset:
    """Return the tools of a validated request.

    Tools that are not in ``allowed_tools`` are omitted from the prompt, so that the model does not call them.
    """
    if request.functions is not None:
        mode, named, _ = _choice(request.function_call)
        # A message can contain only one function call.
        return Toolset(
            tools=tuple(map(_tool, request.functions)),
            functions_form=True,
            tool_choice=mode,
            named_tool=named,
            parallel_tool_calls=False,
        )
    mode, named, allowed = _choice(request.tool_choice)
    tools = [
        _tool(tool.function) if isinstance(tool, FunctionTool) else _custom(index, tool.custom)
        for index, tool in enumerate(request.tools or ())
    ]
    return Toolset(
        tools=tuple(tool for tool in tools if allowed is None or tool.name in allowed),
        tool_choice=mode,
        named_tool=named,
        parallel_tool_calls=request.parallel_tool_calls is not False,
    )


def _choice(
    choice: ToolChoice | FunctionCallChoice | None,
) -> tuple[internal.ToolChoice, str | None, frozenset[str] | None]:
    """Return the mode, the tool that must be called, and the names of the allowed tools (None: all)."""
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
            return "required", choice.custom.name, None


def _names(references: Sequence[ToolReference]) -> frozenset[str]:
    return frozenset(
        reference.function.name if isinstance(reference, FunctionChoice) else reference.custom.name
        for reference in references
    )


def _custom(index: int, tool: Custom) -> internal.Tool:
    grammar = tool.format.grammar if isinstance(tool.format, GrammarInput) else None
    return custom_tool(
        tool.name,
        tool.description,
        grammar=None if grammar is None else (grammar.syntax, grammar.definition),
        param=f"tools[{index}].custom.format.grammar.definition",
    )


def _tool(function: Function) -> internal.Tool:
    return internal.Tool(
        name=function.name,
        description=function.description,
        parameters=None if function.parameters is None else json_text(function.parameters),
        strict=isinstance(function, StrictFunction) and bool(function.strict),
    )
