"""The tool calls in a conversation: each has a unique id, and one result."""

from shared.protocol import request as internal
from shared.protocol.errors import ProblemKind, RequestRefused, refuse

_SHOWN = 64


class Calls:
    """The calls so far. All methods raise :class:`RequestRefused` for a broken rule, in the reference's words."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        """The tool of each call, by its id."""
        self._waiting: dict[str, str] = {}
        """The messages with calls that have no result yet, by the id of the call."""

    def add(self, calls: tuple[internal.ToolCall, ...], message: str) -> None:
        """Add the calls of the ``message`` with this path."""
        for call in calls:
            if call.id in self._names:
                raise _broken("`tool_use` ids must be unique", message)
            self._names[call.id] = call.name
            self._waiting[call.id] = message

    def answer(self, call_id: str, block: str) -> str:
        """Return the tool of the call whose result is at the path ``block``."""
        if call_id not in self._names:
            raise _broken(
                f"unexpected 'tool_use_id' found in 'tool_result' blocks: {call_id[:_SHOWN]}. Each "
                "'tool_result' block must have a corresponding 'tool_use' block in a previous message.",
                block,
            )
        if self._waiting.pop(call_id, None) is None:
            raise _broken(
                "each 'tool_use' must have a single result. Found multiple 'tool_result' blocks with id: "
                f"{call_id[:_SHOWN]}",
                block,
            )
        return self._names[call_id]

    def check_answered(self) -> None:
        """Check that all calls have results."""
        for call_id, message in self._waiting.items():
            raise _broken(
                f"'tool_use' ids were found without 'tool_result' blocks after them: {call_id[:_SHOWN]}. Each "
                "'tool_use' block must have a corresponding 'tool_result' block in the next message.",
                message,
            )


def _broken(message: str, param: str) -> RequestRefused:
    return refuse(ProblemKind.INVALID, message, param=param)
