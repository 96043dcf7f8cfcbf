"""The newest responses of WebSockets that are not stored, so that the next ones can continue them."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec

from api.dialects.responses import History

ALL_CONVERSATIONS = 64
"""Maximum size of the conversations of all connections together, in multiples of the maximum body size. Each connection
keeps up to one body while it is idle, and there may be thousands of them."""


class ConnectionMemories:
    """The conversations of all connections, at most ``limit`` bytes; the oldest are dropped for newer ones."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._sizes: dict[ConnectionMemory, int] = {}
        """The sizes of what connections keep, the oldest first."""

    def add(self, memory: "ConnectionMemory", size: int) -> None:
        """Make room for the ``size`` bytes that ``memory``, which is empty, is going to keep."""
        self._sizes[memory] = size
        self._size += size
        while self._size > self._limit:
            next(iter(self._sizes)).clear()

    def remove(self, memory: "ConnectionMemory") -> None:
        """Count ``memory`` as empty."""
        self._size -= self._sizes.pop(memory, 0)


class ConnectionMemory:
    """One conversation, at most ``limit`` bytes of JSON; a larger one is not kept. It is dropped with the context."""

    def __init__(self, limit: int, memories: ConnectionMemories) -> None:
        """``memories`` are those of all connections, which have room for more than ``limit`` bytes."""
        self._limit = limit
        self._memories = memories
        self._id = ""
        self._items = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.clear()

    def history(self, response_id: str | None) -> History | None:
        """Return the conversation that ends with the response ``response_id``; None if it is not the one kept."""
        if not response_id or response_id != self._id:
            return None
        items: list[dict[str, Any]] = msgspec.json.decode(self._items)
        return History(earlier=tuple(items), referenced={item["id"]: item for item in items if item.get("id")})

    def keep(self, response_id: str, items: Sequence[Mapping[str, Any]]) -> None:
        """Keep the conversation in ``items``, which ends with the response ``response_id``, instead of another."""
        encoded = msgspec.json.encode(items)
        self.clear()
        if len(encoded) <= self._limit:
            self._memories.add(self, len(encoded))
            self._id, self._items = response_id, encoded

    def evict(self, response_id: object) -> None:
        """Drop the conversation if it ends with the response ``response_id``."""
        if response_id == self._id:
            self.clear()

    def clear(self) -> None:
        """Drop the conversation."""
        self._memories.remove(self)
        self._id, self._items = "", b""
