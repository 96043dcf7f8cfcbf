"""From a request body to the internal request."""

from api.dialects.interface import MessagesMissing
from api.dialects.openai.body import decode_object
from api.dialects.openai.content import Content, TextPart
from api.dialects.openai.messages import AssistantMessage, DeveloperMessage, SystemMessage, UserMessage
from api.dialects.openai.messages import Message as WireMessage
from api.dialects.openai.rules import check
from api.dialects.openai.schema import ChatCompletionRequest
from api.dialects.openai.unserved import check_served
from api.dialects.openai.validation import validate
from shared.errors import RequestRefused
from shared.request import ChatRequest, Message, Sampling

DEFAULTS = Sampling(temperature=1.0, top_p=1.0, top_k=0)
"""What the reference has where neither the client nor the model says anything; it knows no top_k, so that is off."""


def parse_chat(body: bytes) -> ChatRequest:
    """Translate the body of a chat completion request.

    Sampling fields that the client leaves out stay ``None``: the worker fills them from the model's own defaults, and
    from the reference's after those. Raises :class:`shared.errors.RequestRefused`, and nothing else.
    """
    value = decode_object(body)
    try:
        request = validate(ChatCompletionRequest, value)
    except RequestRefused as refusal:
        if refusal.problem.param == "messages" and "messages" not in value:
            raise MessagesMissing(refusal.problem, model=value["model"]) from None
        raise
    return translate(request)


def translate(request: ChatCompletionRequest) -> ChatRequest:
    """Return the internal form of a validated request; the other dialects' requests are extensions of this one.

    Raises :class:`shared.errors.RequestRefused` for a rule that it breaks, and for what is not served.
    """
    check(request)
    check_served(request)
    return ChatRequest(
        model=request.model,
        messages=tuple(_message(message) for message in request.messages),
        sampling=_sampling(request),
        defaults=DEFAULTS,
        stream=bool(request.stream),
        include_usage=bool(request.stream_options and request.stream_options.include_usage),
        user=request.user,
    )


def _sampling(request: ChatCompletionRequest) -> Sampling:
    limit = request.max_tokens if request.max_completion_tokens is None else request.max_completion_tokens
    return Sampling(
        max_tokens=limit,
        temperature=request.temperature,
        top_p=request.top_p,
        seed=request.seed,
        stop=(request.stop,) if isinstance(request.stop, str) else tuple(request.stop or ()),
    )


def _message(message: WireMessage) -> Message:
    # check_served has let only these pass.
    assert isinstance(message, SystemMessage | DeveloperMessage | UserMessage | AssistantMessage)
    return Message(role=message.role, content=flatten(message.content), name=message.name)


def flatten(content: Content | None) -> str:
    """Join the text parts of a message with line breaks.

    Chat templates for text want one string, and print a list as Python would. vLLM, llama.cpp's server and OpenVINO
    Model Server all join parts with a line break for them, so a client may change servers without a change of prompt.
    """
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text for part in content if isinstance(part, TextPart))
