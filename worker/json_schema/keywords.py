"""The JSON Schema keywords that grammars enforce, and the unsupported ones with alternatives.

Vocabulary: JSON Schema 2020-12 and the drafts back to 4. Unknown keywords are annotations (2020-12, section 6.5), like
``title``. A known keyword that restricts values but can't be enforced is never ignored silently.
"""

from collections.abc import Mapping

OBJECT = frozenset({"properties", "required", "additionalProperties", "minProperties", "maxProperties"})
ARRAY = frozenset({"items", "prefixItems", "additionalItems", "minItems", "maxItems"})
STRING = frozenset({"minLength", "maxLength", "pattern", "format"})
NUMBER = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
COMBINING = frozenset({"$ref", "allOf", "anyOf", "oneOf", "const", "enum", "type"})
ASSERTIONS = OBJECT | ARRAY | STRING | NUMBER | COMBINING
"""The keywords that grammars enforce."""

UNSUPPORTED: Mapping[str, str] = {
    "not": "a grammar can't exclude values; name the allowed ones",
    "if": "use 'anyOf' with one schema for each case",
    "then": "use 'anyOf' with one schema for each case",
    "else": "use 'anyOf' with one schema for each case",
    "dependencies": "use 'anyOf' with one schema for each case",
    "dependentRequired": "use 'anyOf' with one schema for each case",
    "dependentSchemas": "use 'anyOf' with one schema for each case",
    "contains": "use 'prefixItems' for items with a different schemas",
    "minContains": "use 'prefixItems' for items with a different schemas",
    "maxContains": "use 'prefixItems' for items with a different schemas",
    "uniqueItems": "a grammar doesn't remember the items before",
    "patternProperties": "name the properties in 'properties'",
    "propertyNames": "name the properties in 'properties'",
    "unevaluatedItems": "use 'items' instead",
    "unevaluatedProperties": "use 'additionalProperties' instead",
    "$dynamicRef": "use '$ref' instead",
    "$recursiveRef": "use '$ref' instead",
    "extends": "use 'allOf' instead",
    "disallow": "a grammar can't exclude values; name the allowed ones",
}
"""Keywords that restrict values and can't be enforced, with the alternative to suggest to the client."""

HARMLESS: Mapping[str, object] = {"uniqueItems": False, "unevaluatedProperties": False, "dependentRequired": {}}
"""Unsupported keywords with values that every output of the grammars satisfies.

Grammars generate only the properties that the schema names, unless ``additionalProperties`` allows others.
"""


class SchemaError(ValueError):
    """A schema is invalid or can't be compiled to a grammar. ``path`` is a JSON pointer to the invalid part."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"at '#{path}': {reason}" if path else reason)
        self.path = path
        self.reason = reason


class UnsupportedKeyword(SchemaError):
    """A schema is valid but uses a keyword that a grammar can't enforce."""
