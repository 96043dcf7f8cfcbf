"""Parser of Anthropic's Messages requests: what becomes the prompt, the tools that the model sees, and the choice among
them.

The model does not see a tool with ``defer_loading`` until a ``tool_reference`` in a tool result names it. The client
searches; the service has no tool search of its own.
"""

from collections.abc import Iterator, Sequence

import msgspec

from api.dialects.anthropic.blocks import ToolReferenceBlock, ToolResultBlock
from api.dialects.anthropic.conversation import translate_messages
from api.dialects.anthropic.schema import (
    AnthropicAssistant,
    AnthropicOutput,
    AnthropicTool,
    AnthropicUser,
    CountTokensRequest,
    DisabledThinking,
    EnabledThinking,
    FreeChoice,
    MessagesRequest,
    MessagesTool,
    NamedChoice,
    NoChoice,
)
from api.dialects.base.body import decode_object, json_text
from api.dialects.base.conversation import continued
from api.dialects.base.sampling import sampling
from api.dialects.base.schemas import json_constraint, root_error
from api.dialects.base.unsupported import Only, Refused, findings, ignored
from api.dialects.base.validation import validate
from shared.protocol import request as internal
from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.request import COUNT, ChatRequest, Notes, ResponseForm, Sampling

DEFAULTS = Sampling(temperature=1.0, top_p=1.0, top_k=0)
"""The reference's defaults, used if neither the client nor the model specifies a value."""

EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
"""Levels of ``output_config.effort`` as ``reasoning_effort``, of which chat templates know three."""

_SHOWN = 64
"""Characters of a client's name that errors repeat."""


def parse_messages(body: bytes) -> ChatRequest:
    """Parse a Messages body. Raises :class:`RequestRefused` and no other exception."""
    request = validate(MessagesRequest, decode_object(body), unknown=_unknown)
    prompt = _prompt(request)
    if isinstance(request.messages[-1], AnthropicAssistant):
        prompt = continued(prompt, f"messages[{len(request.messages) - 1}]")
    return msgspec.structs.replace(
        prompt,
        sampling=msgspec.structs.replace(sampling(request), thinking_budget=_budget(request)),
        response=msgspec.structs.replace(prompt.response, hidden=_hidden(request), stream=bool(request.stream)),
        tier="default" if request.service_tier == "standard_only" else request.service_tier,
    )


def parse_count(body: bytes) -> ChatRequest:
    """Parse a body of which the prompt's tokens are to be counted. Raises :class:`RequestRefused`."""
    request = _prompt(validate(CountTokensRequest, decode_object(body), unknown=_unknown))
    last = request.messages[-1] if request.messages else None
    if last is not None and last.role == "assistant":
        request = msgspec.structs.replace(request, turn="none" if last.tool_calls else "continued")
    return msgspec.structs.replace(request, work=COUNT)


def _prompt(request: CountTokensRequest) -> ChatRequest:
    """Return a request with the fields that decide on the prompt and on the output's form."""
    notes = _check_supported(request)
    tools = _loaded_tools(request)
    mode, named, parallel = _chosen(request, tools)
    form, field = _format(request)
    return ChatRequest(
        model=request.model,
        messages=translate_messages(request.system, request.messages, answered=request.answered_calls),
        defaults=DEFAULTS,
        tools=tools,
        tool_choice=mode,
        named_tool=named,
        parallel_tool_calls=parallel,
        constraint=json_constraint(form.schema_, field) if form else None,
        template_kwargs=_template_kwargs(request),
        response=ResponseForm(notes=notes),
    )


def _check_supported(request: CountTokensRequest) -> Notes:
    """Raise :class:`RequestRefused` for the first feature that is not supported. Return what names the ignored ones."""
    found = list(findings(request))
    for finding in found:
        if isinstance(finding.mark, Refused | Only):
            code = finding.mark.code if isinstance(finding.mark, Refused) else None
            raise refuse(ProblemKind.INVALID, f"Not supported: {finding.mark.reason}", param=finding.path, code=code)
    return ignored(found)


def _unknown(names: Sequence[str]) -> RequestRefused:
    return refuse(ProblemKind.INVALID, "Extra inputs are not permitted", param=names[0][:_SHOWN])


def _format(request: CountTokensRequest) -> tuple[AnthropicOutput | None, str]:
    """Return the form of the output, and the field that sets it."""
    form = request.output_config.format if request.output_config else None
    if form is not None and request.output_format is not None:
        message = "It can't be combined with 'output_config.format', which replaces it."
        raise refuse(ProblemKind.INVALID, message, param="output_format")
    return (request.output_format, "output_format") if form is None else (form, "output_config.format")


def _hidden(request: MessagesRequest) -> internal.Hidden | None:
    if request.max_tokens == 0:
        return "all"
    return "reasoning" if getattr(request.thinking, "display", None) == "omitted" else None


def _budget(request: MessagesRequest) -> internal.ThinkingBudget | None:
    if not isinstance(request.thinking, EnabledThinking):
        return None
    # Clients have to state one, and it is a target, so it is no reason for a refusal.
    return internal.ThinkingBudget(tokens=request.thinking.budget_tokens, param="thinking.budget_tokens", strict=False)


def _template_kwargs(request: CountTokensRequest) -> str | None:
    """Return reasoning and effort as chat template variables, which other templates ignore."""
    variables: dict[str, object] = {}
    if request.thinking is not None:
        on = not isinstance(request.thinking, DisabledThinking)
        variables |= {"enable_thinking": on, "thinking": on}
    if request.output_config is not None and request.output_config.effort is not None:
        variables["reasoning_effort"] = EFFORTS[request.output_config.effort]
    return json_text(variables) if variables else None


def _loaded_tools(request: CountTokensRequest) -> tuple[internal.Tool, ...]:
    """Return the tools that the model sees. Raises :class:`RequestRefused`.

    Deferred tools follow the others, in the order of their references: so a new one does not change the prompt's start.
    """
    tools = _offered_tools(request)
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


def _chosen(
    request: CountTokensRequest, loaded: tuple[internal.Tool, ...]
) -> tuple[internal.ToolChoice, str | None, bool]:
    """Return the mode, the tool that must be called, and whether calls may be parallel.

    Raises :class:`RequestRefused` if that tool is not ``loaded``.
    """
    choice = request.tool_choice
    needs_tools = isinstance(choice, NamedChoice) or (isinstance(choice, FreeChoice) and choice.type == "any")
    if needs_tools and not request.tools:
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
                deferred = choice.name in {tool.name for tool in request.tools or () if isinstance(tool, MessagesTool)}
                reason = "is deferred, and no tool_reference loads it" if deferred else "not found in provided tools"
                message = f"Tool '{choice.name[:_SHOWN]}' {reason}."
                raise refuse(ProblemKind.INVALID, message, param="tool_choice.name")
            return "required", choice.name, False


def _offered_tools(request: CountTokensRequest) -> dict[str, MessagesTool]:
    tools: dict[str, MessagesTool] = {}
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
        if not isinstance(message, AnthropicUser) or isinstance(message.content, str):
            continue
        for place, block in enumerate(message.content):
            if isinstance(block, ToolResultBlock) and isinstance(block.content, list):
                for index, part in enumerate(block.content):
                    if isinstance(part, ToolReferenceBlock):
                        yield part.tool_name, f"messages[{at}].content[{place}].content[{index}].tool_name"


def _internal(tool: MessagesTool) -> internal.Tool:
    return internal.Tool(
        name=tool.name,
        description=tool.description,
        parameters=json_text(tool.input_schema),
        strict=bool(tool.strict),
    )
