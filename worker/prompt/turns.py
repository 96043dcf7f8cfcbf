"""Changes the turns of a conversation to those that a chat template accepts, and only where it refuses others."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise

import msgspec

from shared.protocol.request import Message
from worker.prompt.facts import TemplateFacts

INSTRUCTION_ROLES = ("system", "developer")
_BRIDGE = Message(role="assistant", content="Understood.")
_OPENING = Message(role="user", content="Begin.")


def accepted_turns(messages: Iterable[Message], facts: TemplateFacts) -> tuple[Message, ...]:
    """Return the messages in turns that the template accepts."""
    changes: tuple[tuple[bool, Callable[[Sequence[Message]], Iterable[Message]]], ...] = (
        (not (facts.system and facts.later_system_messages), _without_later_instructions),
        (not facts.system, _without_instructions),
        (facts.separate_content, _with_separate_content),
        (facts.call_ids != "own", partial(_with_call_ids, named=facts.call_ids == "named")),
        (facts.single_calls, _with_single_calls),
        (facts.user_first, _with_user_first),
        (facts.bridged_results, _with_bridges),
        (facts.merged_turns, _merged),
    )
    result = tuple(messages)
    for needed, change in changes:
        if needed:
            result = tuple(change(result))
    return result


def prefixed(message: Message, prefix: str) -> Message:
    images = tuple(msgspec.structs.replace(image, at=image.at + len(prefix)) for image in message.images)
    return msgspec.structs.replace(message, content=prefix + message.content, images=images)


def _without_later_instructions(messages: Iterable[Message]) -> Iterable[Message]:
    """Return the messages with the leading instructions as one message, and later ones as text between tags.

    Agents send instructions where they become relevant. They stay there, so that the prefix of the prompt stays the
    same and cached. The text is part of the user's message that follows, or of the user's message or tool result
    before. Elsewhere it becomes a message of the user.
    """
    result: list[Message] = []
    late: list[str] = []
    for message in messages:
        if message.role in INSTRUCTION_ROLES:
            if not result:
                result.append(message)
            elif len(result) == 1 and result[0].role in INSTRUCTION_ROLES:
                result[0] = _extended(result[0], message.content)
            else:
                late.append(f"<system>\n{message.content}\n</system>")
        elif late and message.role == "user":
            result.append(prefixed(message, "\n".join([*late, ""])))
            late = []
        else:
            _add(result, late)
            result.append(message)
            late = []
    _add(result, late)
    return result


def _add(result: list[Message], late: Sequence[str]) -> None:
    text = "\n".join(late)
    if text and result[-1].role in ("user", "tool"):
        result[-1] = _extended(result[-1], text)
    elif text:
        result.append(Message(role="user", content=text))


def _extended(message: Message, text: str) -> Message:
    return msgspec.structs.replace(message, content="\n".join(filter(None, (message.content, text))))


def _without_instructions(messages: Sequence[Message]) -> Iterable[Message]:
    """Return the messages with the leading instructions as part of the user's message that follows."""
    if not messages or messages[0].role not in INSTRUCTION_ROLES:
        return messages
    first, rest = messages[0], messages[1:]
    if rest and rest[0].role == "user":
        return (prefixed(rest[0], f"{first.content}\n\n"), *rest[1:])
    return (msgspec.structs.replace(first, role="user"), *rest)


def _with_separate_content(messages: Iterable[Message]) -> Iterator[Message]:
    for message in messages:
        if message.tool_calls and message.content:
            yield msgspec.structs.replace(message, tool_calls=(), reasoning=None)
            yield msgspec.structs.replace(message, content="", images=())
        else:
            yield message


def _with_call_ids(messages: Sequence[Message], *, named: bool) -> Iterator[Message]:
    """Yield the messages with call ids of nine letters and digits, or if ``named`` with a tool's name and a number."""
    every = [call for message in messages for call in message.tool_calls]
    ids = {call.id: f"functions.{call.name}:{number}" for number, call in enumerate(every)}

    def mapped(text: str) -> str:
        return ids.get(text, text) if named else hashlib.sha256(text.encode()).hexdigest()[:9]

    for message in messages:
        calls = tuple(msgspec.structs.replace(call, id=mapped(call.id)) for call in message.tool_calls)
        answered = mapped(message.tool_call_id) if message.tool_call_id is not None else None
        yield msgspec.structs.replace(message, tool_calls=calls, tool_call_id=answered)


def _with_single_calls(messages: Sequence[Message]) -> Iterator[Message]:
    """Yield each call with its results. Results of no call follow the last one."""
    at = 0
    while at < len(messages):
        message, at = messages[at], at + 1
        if len(message.tool_calls) < 2:
            yield message
            continue
        end = at
        while end < len(messages) and messages[end].role == "tool":
            end += 1
        results, at = list(messages[at:end]), end
        for call in message.tool_calls:
            yield msgspec.structs.replace(message, tool_calls=(call,))
            message = msgspec.structs.replace(message, content="", images=(), reasoning=None)
            yield from (result for result in results if result.tool_call_id == call.id)
            results = [result for result in results if result.tool_call_id != call.id]
        yield from results


def _with_user_first(messages: Sequence[Message]) -> Iterator[Message]:
    start = next((at for at, message in enumerate(messages) if message.role not in INSTRUCTION_ROLES), len(messages))
    yield from messages[:start]
    if start < len(messages) and messages[start].role != "user":
        yield _OPENING
    yield from messages[start:]


def _with_bridges(messages: Sequence[Message]) -> Iterator[Message]:
    yield from messages[:1]
    for before, message in pairwise(messages):
        if before.role == "tool" and message.role == "user":
            yield _BRIDGE
        yield message


def _merged(messages: Iterable[Message]) -> list[Message]:
    result: list[Message] = []
    for message in messages:
        if result and message.role == result[-1].role and message.role in ("user", "assistant"):
            result[-1] = _joined(result[-1], message)
        else:
            result.append(message)
    return result


def _joined(first: Message, second: Message) -> Message:
    separator = "\n\n" if first.content and second.content else ""
    second = prefixed(second, first.content + separator)
    return msgspec.structs.replace(
        second,
        images=first.images + second.images,
        reasoning="\n\n".join(filter(None, (first.reasoning, second.reasoning))) or None,
        tool_calls=first.tool_calls + second.tool_calls,
    )
