"""System messages within a conversation, for chat templates that take one at the start only.

Agents send instructions where they become relevant. They stay there, as text of a turn, so that the prefix of the
prompt stays the same and cached.
"""

from collections.abc import Iterable, Sequence

import msgspec

from shared.protocol.request import Message
from worker.prompt.tools_as_text import prefixed

_INSTRUCTING = ("system", "developer")


def in_turns(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return the messages with the leading instructions as one message, and later ones as text between tags.

    The text is part of the user's message that follows, or of the user's message or tool result before. Elsewhere it
    becomes a message of the user.
    """
    result: list[Message] = []
    late: list[str] = []
    for message in messages:
        if message.role in _INSTRUCTING:
            if not result:
                result.append(message)
            elif len(result) == 1 and result[0].role in _INSTRUCTING:
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
    return tuple(result)


def _add(result: list[Message], late: Sequence[str]) -> None:
    text = "\n".join(late)
    if text and result[-1].role in ("user", "tool"):
        result[-1] = _extended(result[-1], text)
    elif text:
        result.append(Message(role="user", content=text))


def _extended(message: Message, text: str) -> Message:
    return msgspec.structs.replace(message, content="\n".join(filter(None, (message.content, text))))
