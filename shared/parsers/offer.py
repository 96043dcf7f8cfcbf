"""The tools that a request offers, as readers of calls need them."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shared.parsers.schema_types import SchemaTypes
from shared.protocol.request import Tool

ParameterTypes = Mapping[str, frozenset[str]]
"""The JSON Schema types that each parameter of a tool may have."""


class Offer:
    """Contains the names of the tools. Types of parameters are found when a call first needs them."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._schemas = {tool.name: tool.parameters for tool in tools}
        self._types: dict[str, ParameterTypes] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._schemas

    def __bool__(self) -> bool:
        return bool(self._schemas)

    @property
    def names(self) -> Iterable[str]:
        """The names of the tools."""
        return self._schemas

    def types(self, name: str) -> ParameterTypes:
        """Return the declared types of a tool's parameters; empty if there is no such tool."""
        if name not in self._types:
            self._types[name] = _parameter_types(self._schemas.get(name))
        return self._types[name]


def _parameter_types(schema: str | None) -> ParameterTypes:
    try:
        decoded = msgspec.json.decode(schema or "{}")
    except (msgspec.DecodeError, RecursionError):
        return {}
    properties = decoded.get("properties") if isinstance(decoded, dict) else None
    if not isinstance(properties, dict):
        return {}
    schemas = SchemaTypes(decoded)
    return {key: schemas.types(value) for key, value in properties.items()}
