"""The tools that a request offers, as readers of calls need them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from shared.parsers.schema_types import SchemaTypes
from shared.protocol.request import Tool

ParameterTypes = Mapping[str, frozenset[str]]
"""The JSON Schema types that each parameter of a tool may have."""


class Offer:
    """Contains the names of the tools. Types of parameters are found when a call first needs them."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._schemas = {tool.name: tool.parameters for tool in tools}
        self._documents: dict[str, tuple[SchemaTypes, Any]] = {}
        self._types: dict[str, ParameterTypes] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._schemas

    def __bool__(self) -> bool:
        return bool(self._schemas)

    @property
    def names(self) -> Iterable[str]:
        """The names of the tools."""
        return self._schemas

    def document(self, name: str) -> tuple[SchemaTypes, Any]:
        """Return a tool's parameters; an empty schema if there is no such tool, or its schema is invalid."""
        if name not in self._documents:
            try:
                decoded = msgspec.json.decode(self._schemas.get(name) or "{}")
            except (msgspec.DecodeError, RecursionError):
                decoded = {}
            self._documents[name] = SchemaTypes(decoded), decoded
        return self._documents[name]

    def types(self, name: str) -> ParameterTypes:
        """Return the declared types of a tool's parameters; empty if there is no such tool."""
        if name not in self._types:
            types, schema = self.document(name)
            properties = schema.get("properties") if isinstance(schema, dict) else None
            listed = properties.items() if isinstance(properties, dict) else ()
            self._types[name] = {key: types.types(value) for key, value in listed}
        return self._types[name]
