"""The newest response of a WebSocket that is not stored, so that the next one can continue it."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from api.dialects.responses import History


class ConnectionMemory:
    """One conversation, at most ``limit`` bytes of JSON; a larger one is not kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._id = ""
        self._items = b""

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
            self._id, self._items = response_id, encoded

    def evict(self, response_id: object) -> None:
        """Drop the conversation if it ends with the response ``response_id``."""
        if response_id == self._id:
            self.clear()

    def clear(self) -> None:
        """Drop the conversation."""
        self._id, self._items = "", b""
