"""Parser of chat completion bodies."""

from collections.abc import Iterator, Sequence
from typing import cast

from api.dialects.base.body import decode_object, json_text
from api.dialects.base.conversation import Conversation, Part, flatten, image
from api.dialects.base.custom_tools import custom_call, custom_tool
from api.dialects.base.interface import MessagesMissing
from api.dialects.base.sampling import sampling
from api.dialects.base.schemas import json_constraint
from api.dialects.base.unsupported import check_supported
from api.dialects.base.validation import validate
from api.dialects.openai.content import Content, ImagePart, RefusalPart, TextPart
from api.dialects.openai.extensions import ServedChatRequest, with_extensions
from api.dialects.openai.messages import AssistantMessage, FunctionMessage, FunctionToolCall, Message, ToolMessage
from api.dialects.openai.rules import check
from api.dialects.openai.schema import (
    ChatCompletionRequest,
    JsonObjectResponse,
    JsonSchema,
    JsonSchemaResponse,
    ResponseFormat,
)
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
from shared.protocol.errors import RequestRefused
from shared.protocol.request import ChatRequest, Constraint, ResponseForm, Sampling, Tier

DEFAULTS = Sampling(temperature=1.0, top_p=1.0, top_k=0)
"""The defaults of the reference, if neither client nor model specifies one. It has no top_k, so 0 disables it."""


def parse_chat(body: bytes, model: str | None = None) -> ChatRequest:
    """Parse a chat completion body. ``model`` replaces the one in it.

    Omitted sampling fields stay ``None``. The worker fills them from the model's defaults, then from the reference's.
    Raises :class:`RequestRefused` and no other exception.
    """
    value = decode_object(body)
    if model is not None:
        value["model"] = model
    try:
        request = validate(ServedChatRequest, value)
    except RequestRefused as refusal:
        if refusal.problem.param == "messages" and "messages" not in value:
            raise MessagesMissing(refusal.problem, model=value["model"]) from None
        raise
    return translate(request)


def translate(request: ServedChatRequest) -> ChatRequest:
    """Return the internal form of a validated request. The other dialects' requests extend this one.

    Raises :class:`RequestRefused` for a broken rule, and for unsupported features.
    """
    check(request)
    notes = check_supported(request)
    by_functions = request.functions is not None
    mode, named, allowed = _choice(request.function_call if by_functions else request.tool_choice)
    chat = ChatRequest(
        model=request.model,
        messages=_messages(request.messages),
        sampling=sampling(request),
        defaults=DEFAULTS,
        n=request.n or 1,
        tools=_tools(request, allowed),
        tool_choice=mode,
        named_tool=named,
        # A message can contain only one function call.
        parallel_tool_calls=not by_functions and request.parallel_tool_calls is not False,
        constraint=_constraint(request.response_format),
        template_kwargs=template_variables(request.reasoning_effort, request.verbosity),
        tier=tier_of(request.service_tier),
        store=bool(request.store),
        response=ResponseForm(
            stream=bool(request.stream),
            include_usage=bool(request.stream_options and request.stream_options.include_usage),
            continuous_usage=bool(request.stream_options and request.stream_options.continuous_usage_stats),
            obfuscate=bool(request.stream_options and request.stream_options.include_obfuscation),
            prompt_logprobs=request.prompt_logprobs,
            functions_form=by_functions,
            metadata=tuple((request.metadata or {}).items()),
            notes=notes,
        ),
    )
    return with_extensions(chat, request)


def _constraint(form: ResponseFormat | None) -> Constraint | None:
    match form:
        case JsonSchemaResponse(json_schema=JsonSchema(schema_=schema)) | JsonObjectResponse(schema_=schema):
            return json_constraint(schema)
        case _:
            return None


def tier_of(named: str | None) -> Tier | None:
    """Return the tier that a supported ``service_tier`` means."""
    # An alias in the reference.
    return "priority" if named == "fast" else cast("Tier | None", named)


def template_variables(effort: str | None, verbosity: str | None) -> str | None:
    """Return the reasoning effort and the verbosity of OpenAI's APIs as variables, a JSON object; None for neither."""
    variables: dict[str, object] = {}
    if effort is not None:
        variables["reasoning_effort"] = effort
        if effort == "none":
            # Switches of templates that have no effort levels.
            variables |= {"enable_thinking": False, "thinking": False}
    if verbosity is not None:
        variables["verbosity"] = verbosity
    return json_text(variables) if variables else None


def _messages(messages: Sequence[Message]) -> tuple[internal.Message, ...]:
    """Return the internal form of validated messages.

    Deprecated function calls and their results become tool calls and tool results. They have no ids, so ids are
    generated: nine letters and digits, because some chat templates accept no other form.
    """
    conversation = Conversation()
    function_id: str | None = None
    for index, message in enumerate(messages):
        match message:
            case AssistantMessage():
                # Templates have no field for a refusal, so it becomes the content.
                text = flatten(_parts(message.content, "")) or message.refusal or ""
                calls = _calls(message, f"call{index:05}")
                reasoning = message.reasoning if message.reasoning_content is None else message.reasoning_content
                conversation.assistant(text, reasoning=reasoning, calls=calls, name=message.name)
                if message.function_call is not None:
                    function_id = calls[-1].id
            case ToolMessage():
                conversation.result(message.tool_call_id, _parts(message.content, ""), name=message.name)
            case FunctionMessage():
                conversation.result(function_id, _parts(message.content, ""), name=message.name)
            case _:
                parts = _parts(message.content, f"messages[{index}]")
                if message.role == "user":
                    conversation.user(parts, name=message.name)
                else:
                    conversation.system(parts, role=message.role, name=message.name)
    return conversation.finish()


def _parts(content: Content | None, message: str) -> Iterator[Part]:
    for index, part in enumerate([content] if isinstance(content, str) else content or ()):
        match part:
            case str():
                yield part
            case TextPart():
                yield part.text
            case RefusalPart():
                yield part.refusal
            case ImagePart(image_url=picture):
                yield image(picture.url, f"{message}.content[{index}]", low=picture.detail == "low")
            case _:
                yield None


def _calls(message: AssistantMessage, function_id: str) -> list[internal.ToolCall]:
    calls = [
        internal.ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
        if isinstance(call, FunctionToolCall)
        else custom_call(call.id, call.custom.name, call.custom.input)
        for call in message.tool_calls or ()
    ]
    if message.function_call is not None:
        call = message.function_call
        calls.append(internal.ToolCall(id=function_id, name=call.name, arguments=call.arguments))
    return calls


def _tools(request: ChatCompletionRequest, allowed: frozenset[str] | None) -> tuple[internal.Tool, ...]:
    """Return the tools or functions. Those that are not ``allowed`` are omitted from the prompt, so that the model does
    not call them."""
    functions = request.functions or ()
    tools = [tool.function if isinstance(tool, FunctionTool) else tool.custom for tool in request.tools or ()]
    found = [_tool(tool, index) for index, tool in enumerate((*functions, *tools))]
    return tuple(tool for tool in found if allowed is None or tool.name in allowed)


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


def _tool(tool: Function | Custom, index: int) -> internal.Tool:
    if isinstance(tool, Custom):
        grammar = tool.format.grammar if isinstance(tool.format, GrammarInput) else None
        return custom_tool(
            tool.name,
            tool.description,
            grammar=None if grammar is None else (grammar.syntax, grammar.definition),
            param=f"tools[{index}].custom.format.grammar.definition",
        )
    return internal.Tool(
        name=tool.name,
        description=tool.description,
        parameters=None if tool.parameters is None else json_text(tool.parameters),
        strict=isinstance(tool, StrictFunction) and bool(tool.strict),
    )
