"""Parser of Anthropic's Messages requests."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from api.dialects.anthropic.blocks import (
    AssistantBlock,
    Base64Source,
    ImageBlock,
    ResultContent,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
    UserBlock,
)
from api.dialects.anthropic.calls import Calls
from api.dialects.anthropic.documents import parts_of
from api.dialects.anthropic.schema import (
    AssistantMessage,
    CountTokensRequest,
    DisabledThinking,
    Message,
    MessagesRequest,
    OutputFormat,
    SystemContent,
    SystemMessage,
    UserMessage,
)
from api.dialects.anthropic.tools import chosen, loaded_tools
from api.dialects.anthropic.unsupported import check_served
from api.dialects.base.body import decode_object, json_text
from api.dialects.base.encoded_reasoning import decode_reasoning
from api.dialects.base.message_content import MessageContent, check_scheme
from api.dialects.base.sampling import sampling
from api.dialects.base.token_count import counting
from api.dialects.base.validation import validate
from shared.protocol import request as internal
from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.request import ChatRequest, Constraint, Sampling

DEFAULTS = Sampling(temperature=1.0, top_p=1.0, top_k=0)
"""The reference's defaults, used if neither the client nor the model specifies a value."""

_BILLING = "x-anthropic-billing-header"
"""Start of a system block that Claude Code sends for Anthropic's accounting. It changes with every request, so in a
prompt it would defeat prefix caching."""

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
    check_served(request)
    tools = loaded_tools(request)
    mode, named, parallel = chosen(request, tools)
    form, field = _format(request)
    return ChatRequest(
        model=request.model,
        messages=(*_system(request.system), *_combined(_messages(request.messages))),
        defaults=DEFAULTS,
        tools=tools,
        tool_choice=mode,
        named_tool=named,
        parallel_tool_calls=parallel,
        constraint=Constraint(kind="json_schema", value=json_text(form.schema_), param=field) if form else None,
        template_kwargs=_template_kwargs(request),
    )


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


def _system(system: SystemContent | None) -> Iterator[internal.Message]:
    """Yield the system message, if there is text for one."""
    if isinstance(system, list):
        system = "\n".join(block.text for block in system if not block.text.startswith(_BILLING))
    if system:
        yield internal.Message(role="system", content=system)


def _messages(messages: Sequence[Message]) -> Iterator[internal.Message]:
    calls = Calls()
    last_of_user = max((at for at, one in enumerate(messages) if isinstance(one, UserMessage)), default=-1)
    for index, message in enumerate(messages):
        match message:
            case SystemMessage(clear_at="next_user_message") if index < last_of_user:
                continue
            case SystemMessage():
                yield from _system(message.content)
            case AssistantMessage():
                said = _assistant(message)
                calls.add(said.tool_calls, f"messages[{index}]")
                yield said
            case _ if isinstance(message.content, str):
                yield internal.Message(role="user", content=message.content)
            case _:
                yield from _user(index, message.content, calls)
    calls.check_answered()


def _combined(messages: Iterable[internal.Message]) -> Iterator[internal.Message]:
    """Yield ``messages`` with consecutive turns of the user or the assistant as one, as the reference has them.

    Some chat templates take only turns that alternate.
    """
    for role, turns in groupby(messages, key=lambda message: message.role):
        if role in ("user", "assistant"):
            yield _joined(list(turns))
        else:
            yield from turns


def _joined(turns: Sequence[internal.Message]) -> internal.Message:
    contents: list[str] = []
    images: list[internal.Image] = []
    size = 0
    for turn in turns:
        if turn.content and size:
            contents.append("\n")
            size += 1
        images += (msgspec.structs.replace(image, at=image.at + size) for image in turn.images)
        contents.append(turn.content)
        size += len(turn.content)
    return msgspec.structs.replace(
        turns[0],
        content="".join(contents),
        images=tuple(images),
        reasoning="\n".join(turn.reasoning for turn in turns if turn.reasoning) or None,
        tool_calls=tuple(call for turn in turns for call in turn.tool_calls),
    )


def _assistant(message: AssistantMessage) -> internal.Message:
    blocks = message.content if isinstance(message.content, list) else [TextBlock(type="text", text=message.content)]
    return internal.Message(
        role="assistant",
        content="\n".join(block.text for block in blocks if isinstance(block, TextBlock)),
        reasoning="\n".join(filter(None, map(_reasoning, blocks))) or None,
        tool_calls=tuple(
            internal.ToolCall(id=block.id, name=block.name, arguments=json_text(block.input))
            for block in blocks
            if isinstance(block, ToolUseBlock)
        ),
    )


def _reasoning(block: AssistantBlock) -> str:
    """Return the reasoning in a block, which is in the signature if the client did not want to see it."""
    return (block.thinking or decode_reasoning(block.signature)) if isinstance(block, ThinkingBlock) else ""


def _user(index: int, blocks: Sequence[UserBlock], calls: Calls) -> Iterator[internal.Message]:
    """Yield the results of tool calls, then the rest of a user message.

    Chat templates have no images in tool results, so these come first in what the user says.
    """
    said = MessageContent()
    for place, block in enumerate(blocks):
        param = f"messages[{index}].content[{place}]"
        if isinstance(block, ToolResultBlock):
            yield _result(block, calls.answer(block.tool_use_id, param))
            for part in _parts(block.content if isinstance(block.content, list) else ()):
                if isinstance(part, ImageBlock):
                    _add(said, part, param)
    for place, block in enumerate(blocks):
        if not isinstance(block, ToolResultBlock):
            for part in parts_of(block):
                _add(said, part, f"messages[{index}].content[{place}]")
    if not said.empty:
        yield internal.Message(role="user", content=said.text, images=said.images)


def _result(block: ToolResultBlock, name: str) -> internal.Message:
    if isinstance(block.content, str):
        text = block.content
    else:
        text = "\n".join(part.text for part in _parts(block.content) if isinstance(part, TextBlock))
    if block.is_error:
        text = f"Error: {text}"
    return internal.Message(role="tool", content=text, name=name, tool_call_id=block.tool_use_id)


def _parts(blocks: Iterable[ResultContent]) -> Iterator[TextBlock | ImageBlock]:
    for block in blocks:
        yield from parts_of(block)


def _add(content: MessageContent, block: TextBlock | ImageBlock, param: str) -> None:
    """Append a block. ``param`` is its path in the request, or that of the tool result that it is in."""
    if isinstance(block, TextBlock):
        content.add_text(block.text)
    else:
        url = _url(block)
        check_scheme(url, param)
        content.add_image(url, param)


def _url(block: ImageBlock) -> str:
    match block.source:
        case Base64Source(media_type=kind, data=data):
            return f"data:{kind};base64,{data}"
        case URLSource(url=url):
            return url
        case _:
            raise AssertionError("files are not served")
