"""Conversion of validated messages to the internal form, and the rules of tool calls and their results."""

from collections.abc import Iterator, Mapping, Sequence

from api.dialects.anthropic.blocks import (
    AssistantBlock,
    Base64Source,
    ContentSource,
    DocumentBlock,
    ImageBlock,
    PlainTextSource,
    ResultContent,
    SearchResultBlock,
    TextBlock,
    ThinkingBlock,
    ToolReferenceBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
    UserBlock,
)
from api.dialects.anthropic.schema import AnthropicAssistant, AnthropicSystem, AnthropicUser, Message, SystemContent
from api.dialects.base.body import json_text
from api.dialects.base.conversation import Conversation, Part, image
from api.dialects.base.encoded_reasoning import decode_reasoning
from shared.protocol import request as internal
from shared.protocol.errors import ProblemKind, RequestRefused, refuse

_BILLING = "x-anthropic-billing-header"
"""Start of a system block that Claude Code sends for Anthropic's accounting. It changes with every request, so in a
prompt it would defeat prefix caching."""

_SHOWN = 64


def translate_messages(
    system: SystemContent | None, messages: Sequence[Message], *, answered: bool
) -> tuple[internal.Message, ...]:
    """Return the internal form of validated messages.

    Consecutive turns of the user or the assistant are one, as in the reference. Raises :class:`RequestRefused` for
    results without a call, and if calls must be ``answered``, for those without a result, in the reference's words.
    """
    conversation = Conversation(joined=["user", "assistant"])
    _add_system(system, conversation)
    last_of_user = max((at for at, one in enumerate(messages) if isinstance(one, AnthropicUser)), default=-1)
    for index, message in enumerate(messages):
        match message:
            case AnthropicSystem(clear_at="next_user_message") if index < last_of_user:
                continue
            case AnthropicSystem():
                _add_system(message.content, conversation)
            case AnthropicAssistant():
                _add_assistant(f"messages[{index}]", message, conversation)
            case _ if isinstance(message.content, str):
                conversation.user([message.content])
            case _:
                _add_user(f"messages[{index}]", message.content, conversation)
    for call_id, path in conversation.unanswered.items() if answered else ():
        raise _broken(
            f"'tool_use' ids were found without 'tool_result' blocks after them: {call_id[:_SHOWN]}. Each "
            "'tool_use' block must have a corresponding 'tool_result' block in the next message.",
            path,
        )
    return conversation.finish()


def _add_system(system: SystemContent | None, conversation: Conversation) -> None:
    """Add instructions, if there is text."""
    texts = [system or ""] if not isinstance(system, list) else [block.text for block in system]
    if text := "\n".join(text for text in texts if not text.startswith(_BILLING)):
        conversation.system([text])


def _add_assistant(path: str, message: AnthropicAssistant, conversation: Conversation) -> None:
    blocks = message.content if isinstance(message.content, list) else [TextBlock(type="text", text=message.content)]
    calls = [block for block in blocks if isinstance(block, ToolUseBlock)]
    ids = {call.id for call in calls}
    if len(ids) < len(calls) or not ids.isdisjoint(conversation.tools):
        raise _broken("`tool_use` ids must be unique", path)
    conversation.assistant(
        "\n".join(block.text for block in blocks if isinstance(block, TextBlock)),
        path=path,
        reasoning="\n".join(filter(None, map(_reasoning, blocks))) or None,
        calls=[internal.ToolCall(id=call.id, name=call.name, arguments=json_text(call.input)) for call in calls],
    )


def _reasoning(block: AssistantBlock) -> str:
    """Return the reasoning in a block, which is in the signature if the client did not want to see it."""
    return (block.thinking or decode_reasoning(block.signature)) if isinstance(block, ThinkingBlock) else ""


def _add_user(path: str, blocks: Sequence[UserBlock], conversation: Conversation) -> None:
    """Add the results of tool calls, then the rest of a user message."""
    said: list[Part] = []
    for place, block in enumerate(blocks):
        at = f"{path}.content[{place}]"
        if isinstance(block, ToolResultBlock):
            _check_called(at, block.tool_use_id, conversation)
            conversation.result(block.tool_use_id, _result(at, block))
        else:
            said += _parts(at, block)
    if said:
        conversation.user(said)


def _check_called(path: str, call_id: str, conversation: Conversation) -> None:
    if call_id not in conversation.tools:
        raise _broken(
            f"unexpected 'tool_use_id' found in 'tool_result' blocks: {call_id[:_SHOWN]}. Each "
            "'tool_result' block must have a corresponding 'tool_use' block in a previous message.",
            path,
        )
    if call_id not in conversation.unanswered:
        raise _broken(
            "each 'tool_use' must have a single result. Found multiple 'tool_result' blocks with id: "
            f"{call_id[:_SHOWN]}",
            path,
        )


def _result(path: str, block: ToolResultBlock) -> list[Part]:
    content = [block.content] if isinstance(block.content, str) else block.content
    parts = [part for inner in content for part in _parts(path, inner)]
    if not block.is_error:
        return parts
    texts = [part for part in parts if isinstance(part, str)]
    return ["Error: " + "\n".join(texts), *(part for part in parts if not isinstance(part, str))]


def _parts(path: str, block: str | ResultContent) -> Iterator[Part]:
    """Yield the texts and images of a block. Those of kinds that no chat template has are in tags that name the kind.

    ``path`` is that of the block, or of the tool result that it is in.
    """
    match block:
        case str():
            yield block
        case TextBlock(text=text):
            yield text
        case ImageBlock():
            yield image(_url(block), path)
        case DocumentBlock(title=title, context=context):
            yield from _tagged(path, "document", {"title": title, "context": context}, _content(block))
        case SearchResultBlock(source=source, title=title, content=content):
            yield from _tagged(path, "search_result", {"source": source, "title": title}, content)
        case ToolReferenceBlock(tool_name=name):
            yield f"<tool_reference>{name}</tool_reference>"


def _tagged(
    path: str, kind: str, about: Mapping[str, str | None], content: Sequence[str | TextBlock | ImageBlock]
) -> Iterator[Part]:
    yield "\n".join([f"<{kind}>", *(f"<{field}>{value}</{field}>" for field, value in about.items() if value)])
    for block in content:
        yield from _parts(path, block)
    yield f"</{kind}>"


def _content(document: DocumentBlock) -> Sequence[str | TextBlock | ImageBlock]:
    match document.source:
        case PlainTextSource(data=text):
            return [text]
        case ContentSource(content=content):
            return [content] if isinstance(content, str) else content
        case _:
            raise AssertionError("PDFs and files are not served")


def _url(block: ImageBlock) -> str:
    match block.source:
        case Base64Source(media_type=kind, data=data):
            return f"data:{kind};base64,{data}"
        case URLSource(url=url):
            return url
        case _:
            raise AssertionError("files are not served")


def _broken(message: str, param: str) -> RequestRefused:
    return refuse(ProblemKind.INVALID, message, param=param)
