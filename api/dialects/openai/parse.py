"""Parser of chat completion bodies."""

from typing import cast

from api.dialects.base.body import decode_object, json_text
from api.dialects.base.interface import MessagesMissing
from api.dialects.base.sampling import sampling
from api.dialects.base.template import template_variables
from api.dialects.base.unsupported import check_supported
from api.dialects.base.validation import validate
from api.dialects.openai.conversation import translate_messages
from api.dialects.openai.extensions import ServedChatRequest, with_extensions
from api.dialects.openai.rules import check
from api.dialects.openai.schema import (
    JsonObjectResponse,
    JsonSchemaResponse,
    ResponseFormat,
)
from api.dialects.openai.toolset import translate_tools
from shared.protocol.errors import RequestRefused
from shared.protocol.request import ChatRequest, Constraint, Sampling, Tier

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
    check_supported(request)
    toolset = translate_tools(request)
    chat = ChatRequest(
        model=request.model,
        messages=translate_messages(request.messages),
        sampling=sampling(request),
        defaults=DEFAULTS,
        n=request.n or 1,
        stream=bool(request.stream),
        include_usage=bool(request.stream_options and request.stream_options.include_usage),
        obfuscate=bool(request.stream_options and request.stream_options.include_obfuscation),
        tools=toolset.tools,
        functions_form=toolset.functions_form,
        tool_choice=toolset.tool_choice,
        named_tool=toolset.named_tool,
        parallel_tool_calls=toolset.parallel_tool_calls,
        constraint=_constraint(request.response_format),
        template_kwargs=template_variables(request.reasoning_effort, request.verbosity),
        user=request.user,
        tier=tier_of(request.service_tier),
        store=bool(request.store),
        metadata=tuple((request.metadata or {}).items()),
    )
    return with_extensions(chat, request)


def _constraint(form: ResponseFormat | None) -> Constraint | None:
    if isinstance(form, JsonSchemaResponse) and form.json_schema.schema_ is not None:
        return Constraint(kind="json_schema", value=json_text(form.json_schema.schema_))
    # An omitted JSON schema allows any object.
    if isinstance(form, JsonSchemaResponse | JsonObjectResponse):
        return Constraint(kind="json_object")
    return None


def tier_of(named: str | None) -> Tier | None:
    """Return the tier that a supported ``service_tier`` means."""
    # An alias in the reference.
    return "priority" if named == "fast" else cast("Tier | None", named)
