"""Parser of Anthropic's Messages requests."""

from collections.abc import Sequence

import msgspec

from api.dialects.anthropic.conversation import translate_messages
from api.dialects.anthropic.schema import (
    AssistantMessage,
    CountTokensRequest,
    DisabledThinking,
    MessagesRequest,
    OutputFormat,
)
from api.dialects.anthropic.tools import chosen, loaded_tools
from api.dialects.base.body import decode_object, json_text
from api.dialects.base.sampling import sampling
from api.dialects.base.token_count import counting
from api.dialects.base.unsupported import Only, Refused, findings
from api.dialects.base.validation import validate
from shared.protocol import request as internal
from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.request import ChatRequest, Constraint, Sampling

DEFAULTS = Sampling(temperature=1.0, top_p=1.0, top_k=0)
"""The reference's defaults, used if neither the client nor the model specifies a value."""

EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
"""Levels of ``output_config.effort`` as ``reasoning_effort``, of which chat templates know three."""


def parse_messages(body: bytes) -> ChatRequest:
    """Parse a Messages body. Raises :class:`RequestRefused` and no other exception."""
    request = validate(MessagesRequest, decode_object(body), unknown=_unknown)
    return msgspec.structs.replace(
        _prompt(request),
        sampling=sampling(request),
        cut_at_context=True,
        hidden=_hidden(request),
        stream=bool(request.stream),
        user=request.metadata.user_id if request.metadata else None,
        tier="default" if request.service_tier == "standard_only" else request.service_tier,
    )


def parse_count(body: bytes) -> ChatRequest:
    """Parse a body of which the prompt's tokens are to be counted. Raises :class:`RequestRefused`."""
    return counting(_prompt(validate(CountTokensRequest, decode_object(body), unknown=_unknown)))


def _prompt(request: CountTokensRequest) -> ChatRequest:
    """Return a request with the fields that decide on the prompt and on the output's form."""
    _check_supported(request)
    tools = loaded_tools(request)
    mode, named, parallel = chosen(request, tools)
    form, field = _format(request)
    return ChatRequest(
        model=request.model,
        messages=translate_messages(request.system, request.messages),
        defaults=DEFAULTS,
        tools=tools,
        tool_choice=mode,
        named_tool=named,
        parallel_tool_calls=parallel,
        constraint=Constraint(kind="json_schema", value=json_text(form.schema_), param=field) if form else None,
        template_kwargs=_template_kwargs(request),
    )


def _check_supported(request: CountTokensRequest) -> None:
    """Raise :class:`RequestRefused` for the first feature that is not supported."""
    for finding in findings(request):
        if isinstance(finding.mark, Refused | Only):
            code = finding.mark.code if isinstance(finding.mark, Refused) else None
            raise refuse(ProblemKind.INVALID, f"Not supported: {finding.mark.reason}", param=finding.path, code=code)
    if isinstance(request.messages[-1], AssistantMessage):
        message = "Not supported: assistant message prefill. The conversation must end with a user message."
        raise refuse(ProblemKind.INVALID, message, param=f"messages[{len(request.messages) - 1}]")


def _unknown(names: Sequence[str]) -> RequestRefused:
    return refuse(ProblemKind.INVALID, "Extra inputs are not permitted", param=names[0][:64])


def _format(request: CountTokensRequest) -> tuple[OutputFormat | None, str]:
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


def _template_kwargs(request: CountTokensRequest) -> str | None:
    """Return reasoning and effort as chat template variables, which other templates ignore."""
    variables: dict[str, object] = {}
    if request.thinking is not None:
        on = not isinstance(request.thinking, DisabledThinking)
        variables |= {"enable_thinking": on, "thinking": on}
    if request.output_config is not None and request.output_config.effort is not None:
        variables["reasoning_effort"] = EFFORTS[request.output_config.effort]
    return json_text(variables) if variables else None
