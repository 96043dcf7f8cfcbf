"""Shows interfaces whose responses are plain documents as dialects."""

import json
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from api.dialects.base.interface import Dialect, ResponseEncoder
from shared.protocol.request import ChatRequest


class Document:
    """Stands for the encoder of an interface whose responses are not streams."""

    done = b""

    def __init__(self, document: bytes) -> None:
        self._document = document

    def completion(self, choices: object, usage: object) -> bytes:
        return self._document

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: b""


class Adapter(Dialect):
    """Shows the parsers of an interface as those of a dialect."""

    def __init__(self, query: Mapping[str, str]) -> None:
        self._query = query

    def parse(self, body: bytes) -> ChatRequest:
        self.read(json.loads(body), self._query)
        return ChatRequest(model="m")

    def render(self, request: ChatRequest, *, response_id: str, created: int, fingerprint: str) -> ResponseEncoder:
        return Document(self.document())

    @abstractmethod
    def read(self, body: dict[str, Any], query: Mapping[str, str]) -> None:
        """Parse a request. Raises :class:`RequestRefused`."""

    @abstractmethod
    def document(self) -> bytes:
        """Return a response with all fields."""
