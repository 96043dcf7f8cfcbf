"""From a request body to the internal request."""

from api.dialects.interface import MessagesMissing
from api.dialects.openai.body import decode_object
from api.dialects.openai.completions_schema import CompletionRequest
from api.dialects.openai.conversation import translate_messages
from api.dialects.openai.extensions import ServedChatRequest, with_extensions
from api.dialects.openai.rules import check
from api.dialects.openai.schema import (
    ChatCompletionRequest,
    JsonObjectResponse,
    JsonSchemaResponse,
    ResponseFormat,
)
from api.dialects.openai.toolset import json_text, translate_tools
from api.dialects.openai.unserved import check_served
from api.dialects.openai.validation import validate
from shared.protocol.errors import RequestRefused
from shared.protocol.request import ChatRequest, Constraint, Sampling, Tier

DEFAULTS = Sampling(temperature=1.0, top_p=1.0, top_k=0)
"""What the reference has where neither the client nor the model says anything; it knows no top_k, so that is off."""


def parse_chat(body: bytes) -> ChatRequest:
    """Translate the body of a chat completion request.

    Sampling fields that the client leaves out stay ``None``: the worker fills them from the model's own defaults, and
    from the reference's after those. Raises :class:`RequestRefused`, and nothing else.
    """
    value = decode_object(body)
    try:
        request = validate(ServedChatRequest, value)
    except RequestRefused as refusal:
        if refusal.problem.param == "messages" and "messages" not in value:
            raise MessagesMissing(refusal.problem, model=value["model"]) from None
        raise
    return translate(request)


def translate(request: ServedChatRequest) -> ChatRequest:
    """Return the internal form of a validated request; the other dialects' requests are extensions of this one.

    Raises :class:`RequestRefused` for a rule that it breaks, and for what is not served.
    """
    check(request)
    check_served(request)
    toolset = translate_tools(request)
    chat = ChatRequest(
        model=request.model,
        messages=translate_messages(request.messages),
        sampling=sampling_of(
            request,
            max_tokens=request.max_tokens if request.max_completion_tokens is None else request.max_completion_tokens,
            logprobs=bool(request.logprobs),
        ),
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
        template_kwargs=_template_kwargs(request),
        user=request.user,
        tier=_tier(request),
        store=bool(request.store),
        metadata=tuple((request.metadata or {}).items()),
    )
    return with_extensions(chat, request)


def sampling_of(
    request: ChatCompletionRequest | CompletionRequest, *, max_tokens: int | None, logprobs: bool
) -> Sampling:
    """Return the sampling fields that chats and plain completions have in common, and the two that they tell apart."""
    # The engine wants a top_p above 0. With 0 only the likeliest token is left, as with a temperature of 0.
    greedy = request.top_p == 0
    return Sampling(
        max_tokens=max_tokens,
        temperature=0.0 if greedy else request.temperature,
        top_p=None if greedy else request.top_p,
        frequency_penalty=request.frequency_penalty,
        presence_penalty=request.presence_penalty,
        seed=request.seed,
        stop=(request.stop,) if isinstance(request.stop, str) else tuple(request.stop or ()),
        logprobs=logprobs,
    )


def _constraint(form: ResponseFormat | None) -> Constraint | None:
    if isinstance(form, JsonSchemaResponse) and form.json_schema.schema_ is not None:
        return Constraint(kind="json_schema", value=json_text(form.json_schema.schema_))
    # A JSON schema that is left out allows any object.
    if isinstance(form, JsonSchemaResponse | JsonObjectResponse):
        return Constraint(kind="json_object")
    return None


def _template_kwargs(request: ChatCompletionRequest) -> str | None:
    """Reasoning effort and verbosity for the chat template; templates that do not know them ignore them."""
    variables: dict[str, object] = {}
    if request.reasoning_effort is not None:
        variables["reasoning_effort"] = request.reasoning_effort
        if request.reasoning_effort == "none":
            # The switches of those templates that know no degrees.
            variables |= {"enable_thinking": False, "thinking": False}
    if request.verbosity is not None:
        variables["verbosity"] = request.verbosity
    return json_text(variables) if variables else None


def _tier(request: ChatCompletionRequest) -> Tier | None:
    if request.service_tier == "scale":
        raise AssertionError("the scale tier is not served")
    # Another name of it, by the reference.
    return "priority" if request.service_tier == "fast" else request.service_tier
