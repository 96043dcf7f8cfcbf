"""Conversion of input items to messages.

The items of one turn of the model (reasoning, text and calls) become one assistant message. All instructions become one
system message at the start, because many chat templates allow no other.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from api.dialects.base.body import json_text
from api.dialects.base.encoded_reasoning import decode_reasoning
from api.dialects.base.message_content import MessageContent, check_scheme
from api.dialects.base.validation import missing, wrong_value
from api.dialects.responses.items import (
    PARTS_BY_ROLE,
    CustomCall,
    CustomCallOutput,
    FunctionCall,
    FunctionCallOutput,
    InputImage,
    InputText,
    Item,
    Message,
    OutputText,
    Reasoning,
    RefusalText,
)
from api.dialects.responses.offered_tools import qualified_name
from shared.protocol import request as internal
from shared.protocol.errors import ProblemKind, refuse

Placed = tuple[str, Item]
"""An item and its path in the request."""


def translate_items(instructions: str | None, items: Iterable[Placed]) -> tuple[internal.Message, ...]:
    """Return the messages of a conversation. Raises :class:`RequestRefused` for the first rule that an item breaks."""
    conversation = _Conversation()
    if instructions:
        conversation.add_instructions(instructions)
    for path, item in items:
        conversation.add(path, item)
    return conversation.finish()


@dataclass
class _Turn:
    """The model's output in one turn."""

    texts: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[internal.ToolCall] = field(default_factory=list)

    def message(self) -> internal.Message:
        return internal.Message(
            role="assistant",
            content="\n".join(self.texts),
            reasoning="\n".join(self.reasoning) or None,
            tool_calls=tuple(self.calls),
        )


class _Conversation:
    def __init__(self) -> None:
        self._instructions: list[str] = []
        self._messages: list[internal.Message] = []
        self._turn: _Turn | None = None
        self._user_content: MessageContent | None = None
        """Content of the next user message. Images of tool results come first, because chat templates have none in
        results, and summaries too, because many templates allow no two user messages in a row."""
        self._names: dict[str, str] = {}
        """The tools that were called, by the id of the call."""
        self._unanswered: dict[str, str] = {}
        """The paths of calls without a result, by the id of the call."""

    def add_instructions(self, text: str) -> None:
        """Add instructions."""
        self._instructions.append(text)

    def add(self, path: str, item: Item) -> None:
        """Add an item."""
        match item:
            case Message(role="system" | "developer"):
                self.add_instructions(_collected(path, item, MessageContent()).text)
            case Message(role="user"):
                self._end_turn()
                content = self._user_content or MessageContent()
                content.add_other()
                self._user_content = None
                content = _collected(path, item, content)
                self._messages.append(internal.Message(role="user", content=content.text, images=content.images))
            case Message():
                self._assistant_turn().texts.append(_collected(path, item, MessageContent()).text)
            case Reasoning():
                turn = self._assistant_turn()
                turn.reasoning += _reasoning(item)
            case FunctionCall():
                self._call(path, item, item.arguments)
            case CustomCall():
                self._call(path, item, json_text({"input": item.input}))
            case FunctionCallOutput() | CustomCallOutput():
                self._answer(path, item)

    def finish(self) -> tuple[internal.Message, ...]:
        """Return all messages."""
        for call_id, path in self._unanswered.items():
            message = f"No tool output found for function call {call_id[:64]}."
            raise refuse(ProblemKind.INVALID, message, param=path)
        self._end_turn()
        self._flush()
        leading = "\n\n".join(text for text in self._instructions if text)
        system = (internal.Message(role="system", content=leading),) if leading else ()
        if not (system or self._messages):
            raise refuse(ProblemKind.INVALID, "Invalid 'input': it has no text.", param="input", code="empty_array")
        return (*system, *self._messages)

    def _assistant_turn(self) -> _Turn:
        self._flush()
        if self._turn is None:
            self._turn = _Turn()
        return self._turn

    def _end_turn(self) -> None:
        if self._turn is not None:
            self._messages.append(self._turn.message())
            self._turn = None

    def _flush(self) -> None:
        """Add the images of tool results as a message of the user."""
        if self._user_content is not None:
            self._messages.append(
                internal.Message(role="user", content=self._user_content.text, images=self._user_content.images)
            )
            self._user_content = None

    def _call(self, path: str, item: FunctionCall | CustomCall, arguments: str) -> None:
        name = qualified_name(item.namespace, item.name)
        self._assistant_turn().calls.append(internal.ToolCall(id=item.call_id, name=name, arguments=arguments))
        self._names[item.call_id] = name
        self._unanswered[item.call_id] = path

    def _answer(self, path: str, item: FunctionCallOutput | CustomCallOutput) -> None:
        if item.call_id not in self._names:
            message = f"No tool call found for function call output with call_id {item.call_id[:64]}."
            raise refuse(ProblemKind.INVALID, message, param=f"{path}.call_id")
        self._unanswered.pop(item.call_id, None)
        self._end_turn()
        texts: list[str] = []
        for place, part in enumerate([] if isinstance(item.output, str) else item.output):
            if isinstance(part, InputText):
                texts.append(part.text)
            elif isinstance(part, InputImage):
                self._user_content = self._user_content or MessageContent()
                _add_image(self._user_content, part, f"{path}.output[{place}]")
        self._messages.append(
            internal.Message(
                role="tool",
                content=item.output if isinstance(item.output, str) else "\n".join(texts),
                name=self._names[item.call_id],
                tool_call_id=item.call_id,
            )
        )


def _reasoning(item: Reasoning) -> list[str]:
    """Return earlier reasoning, from where there is most of it. Encrypted content of other services can't be read."""
    sealed = "" if item.content or item.encrypted_content is None else decode_reasoning(item.encrypted_content)
    return [sealed] if sealed else [part.text for part in item.content or item.summary or ()]


def _collected(path: str, message: Message, content: MessageContent) -> MessageContent:
    """Append the parts of a message to ``content``."""
    if isinstance(message.content, str):
        content.add_text(message.content)
        return content
    allowed = PARTS_BY_ROLE[message.role]
    for place, part in enumerate(message.content):
        at = f"{path}.content[{place}]"
        if part.type not in allowed:
            raise wrong_value(f"{at}.type", part.type, allowed)
        match part:
            case InputText() | OutputText():
                content.add_text(part.text)
            case RefusalText():
                content.add_text(part.refusal)
            case InputImage():
                _add_image(content, part, at)
    return content


def _add_image(content: MessageContent, part: InputImage, path: str) -> None:
    if part.image_url is None:
        raise missing(f"{path}.image_url")
    check_scheme(part.image_url, path)
    content.add_image(part.image_url, path, low=part.detail == "low")
