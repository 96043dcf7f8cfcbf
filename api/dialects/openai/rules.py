"""Validation rules of the reference across several fields, with the OpenAI service's messages.

Each rule is a function that raises. :func:`check` calls them in the order that was observed in the OpenAI service.
"""

import re
from collections.abc import Mapping

from api.dialects.base.conversation import check_scheme
from api.dialects.base.custom_tools import name_of_two_kinds
from api.dialects.base.schemas import check_parameters
from api.dialects.base.validation import missing, wrong_value
from api.dialects.openai.content import PARTS_BY_ROLE, ImagePart
from api.dialects.openai.messages import AssistantMessage, FunctionMessage, Message, ToolMessage
from api.dialects.openai.schema import ChatCompletionRequest, JsonSchemaResponse
from api.dialects.openai.tools import CustomChoice, CustomTool, FunctionChoice, FunctionTool, Named
from shared.protocol.errors import ProblemKind, RequestRefused, refuse

# Without leading zeros, which would give one token several biases.
_TOKEN_ID = re.compile(r"0|[1-9][0-9]{0,9}")


def check(request: ChatCompletionRequest) -> None:
    """Raise :class:`RequestRefused` for the first rule that ``request`` breaks."""
    for rule in _RULES:
        rule(request)


def switched_off(field: str, switch: str) -> RequestRefused:
    """Return the refusal of a field that requires another one to be enabled."""
    message = f"The '{field}' parameter is only allowed when '{switch}' is enabled."
    return refuse(ProblemKind.INVALID, message, param=field)


def _switches(request: ChatCompletionRequest) -> None:
    for field, given, switch, on in (
        ("stream_options", request.stream_options is not None, "stream", request.stream),
        ("top_logprobs", request.top_logprobs is not None, "logprobs", request.logprobs),
    ):
        if given and not on:
            raise switched_off(field, switch)


def _stored_metadata(request: ChatCompletionRequest) -> None:
    if request.metadata is not None and not request.store:
        raise switched_off("metadata", "store")


def check_logit_bias(bias: Mapping[str, int] | None) -> None:
    """Raise :class:`RequestRefused` unless ``bias`` maps token ids to numbers from -100 to 100."""
    for token, value in (bias or {}).items():
        if not _TOKEN_ID.fullmatch(token):
            reason = f"the keys are token ids, but got '{token[:64]}'"
        elif not -100 <= value <= 100:
            reason = f"biases are from -100 to 100, but token {token} has one of {str(value)[:64]}"
        else:
            continue
        raise refuse(ProblemKind.INVALID, f"Invalid value for 'logit_bias': {reason}.", param="logit_bias")


def _logit_bias(request: ChatCompletionRequest) -> None:
    check_logit_bias(request.logit_bias)


def _one_token_limit(request: ChatCompletionRequest) -> None:
    if request.max_tokens is not None and request.max_completion_tokens is not None:
        message = "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
        raise refuse(ProblemKind.INVALID, message, param="max_tokens", code="invalid_parameter_combination")


def _companions(request: ChatCompletionRequest) -> None:
    """Require tools or functions for a choice that needs them."""
    for field, choice, needed, there in (
        ("tool_choice", request.tool_choice, "tools", request.tools),
        ("function_call", request.function_call, "functions", request.functions),
    ):
        if choice not in (None, "none", "auto") and there is None:
            message = f"Invalid value for '{field}': '{field}' is only allowed when '{needed}' are specified."
            raise refuse(ProblemKind.INVALID, message, param=field)


def _tools_or_functions(request: ChatCompletionRequest) -> None:
    if request.tools is not None and request.functions is not None:
        message = "Invalid value for 'functions': 'functions' is not allowed when 'tools' are specified."
        raise refuse(ProblemKind.INVALID, message, param="functions")


def _chosen_tools(request: ChatCompletionRequest) -> None:
    """Require that every function or tool chosen by name exists."""
    choice = request.tool_choice
    if choice is not None and not isinstance(choice, str):
        chosen = [choice] if isinstance(choice, FunctionChoice | CustomChoice) else choice.allowed_tools.tools
        tools = request.tools or ()
        functions = {tool.function.name for tool in tools if isinstance(tool, FunctionTool)}
        custom = {tool.custom.name for tool in tools if isinstance(tool, CustomTool)}
        for reference in chosen:
            if isinstance(reference, FunctionChoice) and reference.function.name not in functions:
                raise _unknown_choice("tool_choice", "function", reference.function.name, "tools")
            if isinstance(reference, CustomChoice) and reference.custom.name not in custom:
                raise _unknown_choice("tool_choice", "custom tool", reference.custom.name, "tools")
    if isinstance(request.function_call, Named):
        name = request.function_call.name
        if all(function.name != name for function in request.functions or ()):
            raise _unknown_choice("function_call", "function", name, "functions")


def _names_of_one_kind(request: ChatCompletionRequest) -> None:
    tools = request.tools or ()
    functions = {tool.function.name for tool in tools if isinstance(tool, FunctionTool)}
    for index, tool in enumerate(tools):
        if isinstance(tool, CustomTool) and tool.custom.name in functions:
            raise name_of_two_kinds(tool.custom.name, f"tools[{index}].custom.name")


def _unknown_choice(param: str, kind: str, name: str, among: str) -> RequestRefused:
    message = f"Invalid value for '{param}': no {kind} named '{name[:64]}' was specified in the '{among}' parameter."
    return refuse(ProblemKind.INVALID, message, param=param)


def _parameters_are_schemas(request: ChatCompletionRequest) -> None:
    for index, tool in enumerate(request.tools or ()):
        if isinstance(tool, FunctionTool):
            check_parameters(tool.function.name, tool.function.parameters, f"tools[{index}].function.parameters")
    for index, function in enumerate(request.functions or ()):
        check_parameters(function.name, function.parameters, f"functions[{index}].parameters")


def _output_has_schema(request: ChatCompletionRequest) -> None:
    form = request.response_format
    if isinstance(form, JsonSchemaResponse) and form.json_schema.schema_ is None and form.json_schema.strict:
        raise missing("response_format.json_schema.schema")


def _audio_output(request: ChatCompletionRequest) -> None:
    if request.modalities is not None and "audio" in request.modalities and request.audio is None:
        raise missing("audio")


def _parts_fit_roles(request: ChatCompletionRequest) -> None:
    for index, message in enumerate(request.messages):
        if isinstance(message, FunctionMessage) or not isinstance(message.content, list):
            continue
        allowed = PARTS_BY_ROLE[message.role]
        for place, part in enumerate(message.content):
            if part.type not in allowed:
                raise wrong_value(f"messages[{index}].content[{place}].type", part.type, allowed)


def _images_have_urls(request: ChatCompletionRequest) -> None:
    for index, message in enumerate(request.messages):
        for place, part in enumerate(message.content if isinstance(message.content, list) else ()):
            if isinstance(part, ImagePart):
                check_scheme(part.image_url.url, f"messages[{index}].content[{place}]")


def _assistants_say_something(request: ChatCompletionRequest) -> None:
    for index, message in enumerate(request.messages):
        if isinstance(message, AssistantMessage) and not (
            message.content is not None
            or message.refusal is not None
            or message.tool_calls
            or message.function_call
            or message.audio
            or message.reasoning_content
            or message.reasoning
        ):
            message_text = "Invalid value for 'content': expected a string, got null."
            # The OpenAI service writes these paths with dots; see the recorded errors.
            raise refuse(ProblemKind.INVALID, message_text, param=f"messages.[{index}].content")


def _tool_results_answer_calls(request: ChatCompletionRequest) -> None:
    """Require that tool messages directly follow the assistant message with their calls, and cover all of them."""
    if not request.answered_calls:
        return
    awaited: set[str] = set()
    open_ids: set[str] = set()
    for index, message in enumerate(request.messages):
        if isinstance(message, ToolMessage):
            _check_result(index, message, awaited)
            open_ids.discard(message.tool_call_id)
            continue
        _check_answered(open_ids)
        awaited = _call_ids(message)
        open_ids = set(awaited)
    _check_answered(open_ids)


def _call_ids(message: Message) -> set[str]:
    if isinstance(message, AssistantMessage):
        return {call.id for call in message.tool_calls or ()}
    return set()


def _check_result(index: int, message: ToolMessage, awaited: set[str]) -> None:
    if not awaited:
        # The misspelling is the OpenAI service's.
        text = (
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
        )
        raise refuse(ProblemKind.INVALID, text, param=f"messages.[{index}].role")
    if message.tool_call_id not in awaited:
        text = (
            f"Invalid parameter: 'tool_call_id' of '{message.tool_call_id[:64]}' not found in 'tool_calls' "
            "of previous message."
        )
        raise refuse(ProblemKind.INVALID, text, param=f"messages.[{index}].tool_call_id")


def _check_answered(open_ids: set[str]) -> None:
    if open_ids:
        shown = ", ".join(sorted(call_id[:64] for call_id in open_ids)[:8])
        message = (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {shown}"
        )
        raise refuse(ProblemKind.INVALID, message, param="messages")


_RULES = (
    _switches,
    _one_token_limit,
    _companions,
    _stored_metadata,
    _tools_or_functions,
    _chosen_tools,
    _names_of_one_kind,
    _parameters_are_schemas,
    _output_has_schema,
    _audio_output,
    _parts_fit_roles,
    _images_have_urls,
    _assistants_say_something,
    _tool_results_answer_calls,
    _logit_bias,
)
