"""Conversion of input items to messages.

The items of one turn of the model (reasoning, text and calls) become one assistant message. All instructions become one
system message at the start, because many chat templates allow no other.
"""

from collections.abc import Iterable, Iterator

from api.dialects.base.conversation import Conversation, Part, flatten, image
from api.dialects.base.custom_tools import custom_call
from api.dialects.base.encoded_reasoning import decode_reasoning
from api.dialects.base.validation import missing, wrong_value
from api.dialects.responses.items import (
    PARTS_BY_ROLE,
    CallOutput,
    ContentPart,
    CustomCall,
    FunctionCall,
    InputImage,
    InputText,
    Item,
    MessageItem,
    OutputPart,
    OutputText,
    ReasoningItem,
    RefusalText,
)
from api.dialects.responses.offered_tools import qualified_name
from shared.protocol import request as internal
from shared.protocol.errors import ProblemKind, refuse

Placed = tuple[str, Item]
"""An item and its path in the request."""


def translate_items(
    instructions: str | None, items: Iterable[Placed], *, answered: bool = True
) -> tuple[internal.Message, ...]:
    """Return the messages of a conversation. ``answered``: each call must have an output.

    Raises :class:`RequestRefused` for the first rule that an item breaks.
    """
    conversation = Conversation(joined=["assistant"])
    leading = [instructions or ""]
    for path, item in items:
        match item:
            case MessageItem(role="system" | "developer"):
                leading.append(flatten(_parts(path, item)))
            case MessageItem(role="user"):
                conversation.user(_parts(path, item))
            case MessageItem():
                conversation.assistant(flatten(_parts(path, item)))
            case ReasoningItem():
                conversation.assistant(reasoning=_reasoning(item) or None)
            case FunctionCall():
                name = qualified_name(item.namespace, item.name)
                call = internal.ToolCall(id=item.call_id, name=name, arguments=item.arguments)
                conversation.assistant(path=path, calls=[call])
            case CustomCall():
                name = qualified_name(item.namespace, item.name)
                conversation.assistant(path=path, calls=[custom_call(item.call_id, name, item.input)])
            case CallOutput():
                _check_called(path, item, conversation)
                conversation.result(item.call_id, _output(path, item))
    for call_id, path in conversation.unanswered.items() if answered else ():
        raise refuse(ProblemKind.INVALID, f"No tool output found for function call {call_id[:64]}.", param=path)
    system = "\n\n".join(filter(None, leading))
    messages = (*([internal.Message(role="system", content=system)] if system else ()), *conversation.finish())
    if not messages:
        raise refuse(ProblemKind.INVALID, "Invalid 'input': it has no text.", param="input", code="empty_array")
    return messages


def _check_called(path: str, item: CallOutput, conversation: Conversation) -> None:
    if item.call_id not in conversation.tools:
        message = f"No tool call found for function call output with call_id {item.call_id[:64]}."
        raise refuse(ProblemKind.INVALID, message, param=f"{path}.call_id")


def _output(path: str, item: CallOutput) -> Iterator[Part]:
    for place, part in enumerate([item.output] if isinstance(item.output, str) else item.output):
        yield part if isinstance(part, str) else _part(part, f"{path}.output[{place}]")


def _reasoning(item: ReasoningItem) -> str:
    """Return earlier reasoning, from where there is most of it. Encrypted content of other services can't be read."""
    decoded = "" if item.content or item.encrypted_content is None else decode_reasoning(item.encrypted_content)
    return decoded or "\n".join(part.text for part in item.content or item.summary or ())


def _parts(path: str, message: MessageItem) -> Iterator[Part]:
    if isinstance(message.content, str):
        yield message.content
        return
    allowed = PARTS_BY_ROLE[message.role]
    for place, part in enumerate(message.content):
        at = f"{path}.content[{place}]"
        if part.type not in allowed:
            raise wrong_value(f"{at}.type", part.type, allowed)
        yield _part(part, at)


def _part(part: ContentPart | OutputPart, path: str) -> Part:
    match part:
        case InputText() | OutputText():
            return part.text
        case RefusalText():
            return part.refusal
        case InputImage(image_url=None):
            raise missing(f"{path}.image_url")
        case InputImage(image_url=str() as url):
            return image(url, path, low=part.detail == "low")
        case _:
            return None
