"""The tools of a Messages request that the model sees, and the choice among them.

The model does not see a tool with ``defer_loading`` until a ``tool_reference`` in a tool result names it. The client
searches; the service has no tool search of its own.
"""

from collections.abc import Iterator

from api.dialects.anthropic.blocks import ToolReferenceBlock, ToolResultBlock
from api.dialects.anthropic.schema import (
    AnthropicTool,
    CountTokensRequest,
    FreeChoice,
    NamedChoice,
    NoChoice,
    Tool,
    UserMessage,
)
from api.dialects.base.body import json_text
from api.dialects.base.strict_schema import root_error
from shared.protocol import request as internal
from shared.protocol.errors import ProblemKind, refuse

_SHOWN = 64


def loaded_tools(request: CountTokensRequest) -> tuple[internal.Tool, ...]:
    """Return the tools that the model sees. Raises :class:`RequestRefused`.

    Deferred tools follow the others, in the order of their references: so a new one does not change the prompt's start.
    """
    tools = _checked(request)
    if tools and all(tool.defer_loading for tool in tools.values()):
        message = "All tools have defer_loading set. At least one tool must be non-deferred."
        raise refuse(ProblemKind.INVALID, message, param="tools")
    names = [tool.name for tool in tools.values() if not tool.defer_loading]
    for name, param in _references(request):
        if name not in tools:
            message = f"Tool reference '{name[:_SHOWN]}' not found in available tools"
            raise refuse(ProblemKind.INVALID, message, param=param)
        names.append(name)
    return tuple(_internal(tools[name]) for name in dict.fromkeys(names))


def chosen(
    request: CountTokensRequest, loaded: tuple[internal.Tool, ...]
) -> tuple[internal.ToolChoice, str | None, bool]:
    """Return the mode, the tool that must be called, and whether calls may be parallel.

    Raises :class:`RequestRefused` if that tool is not ``loaded``.
    """
    choice = request.tool_choice
    if choice is not None and not request.tools and not isinstance(choice, NoChoice):
        raise refuse(ProblemKind.INVALID, "'tool_choice' may only be specified while providing 'tools'.", param="tools")
    match choice:
        case None:
            return "auto", None, True
        case NoChoice():
            return "none", None, True
        case FreeChoice(type=kind):
            return "auto" if kind == "auto" else "required", None, not choice.disable_parallel_tool_use
        case NamedChoice():
            if choice.name not in {tool.name for tool in loaded}:
                deferred = choice.name in {tool.name for tool in request.tools or () if isinstance(tool, Tool)}
                reason = "is deferred, and no tool_reference loads it" if deferred else "not found in provided tools"
                message = f"Tool '{choice.name[:_SHOWN]}' {reason}."
                raise refuse(ProblemKind.INVALID, message, param="tool_choice.name")
            return "required", choice.name, False


def _checked(request: CountTokensRequest) -> dict[str, Tool]:
    tools: dict[str, Tool] = {}
    for index, tool in enumerate(request.tools or ()):
        if isinstance(tool, AnthropicTool):
            raise AssertionError("Anthropic's own tools are not served")
        if tool.name in tools:
            raise refuse(ProblemKind.INVALID, "Tool names must be unique.", param=f"tools[{index}].name")
        if error := root_error(tool.input_schema):
            raise refuse(ProblemKind.INVALID, error, param=f"tools[{index}].input_schema")
        tools[tool.name] = tool
    return tools


def _references(request: CountTokensRequest) -> Iterator[tuple[str, str]]:
    """Yield the tools that tool results refer to, with the paths of the references."""
    for at, message in enumerate(request.messages):
        if not isinstance(message, UserMessage) or isinstance(message.content, str):
            continue
        for place, block in enumerate(message.content):
            if isinstance(block, ToolResultBlock) and isinstance(block.content, list):
                for index, part in enumerate(block.content):
                    if isinstance(part, ToolReferenceBlock):
                        yield part.tool_name, f"messages[{at}].content[{place}].content[{index}].tool_name"


def _internal(tool: Tool) -> internal.Tool:
    return internal.Tool(
        name=tool.name,
        description=tool.description,
        parameters=json_text(tool.input_schema),
        strict=bool(tool.strict),
    )
