"""Grammar of Qwen3-Coder's tool-call arguments: one tag per parameter, with raw strings and other values as JSON."""

from collections.abc import Mapping
from typing import Any

from worker.grammar.ebnf import LAST_CHARACTER, Rules, character_class, either, literal, repeated, sequence, without
from worker.grammar.json_text import JsonRules
from worker.grammar.schema import SchemaCompiler
from worker.json_schema.keywords import UnsupportedKeyword

_EVERY = ((1, LAST_CHARACTER),)
_NO_TAG = character_class(without(_EVERY, ((0x3C, 0x3C),)))
_NO_END = character_class(without(_EVERY, ((0x2F, 0x2F), (0x3C, 0x3C))))
_TEXT = f'{_NO_TAG}* ("<"+ {_NO_END} {_NO_TAG}*)*'
"""Text without ``</``, the start of an end tag, which would close the parameter."""


def xml_parameters(rules: Rules, schema: Mapping[str, Any]) -> str:
    """Return the expression of the parameters that the object schema ``schema`` describes, in its order.

    For strings, ``enum`` and ``const`` are enforced; other string keywords are ignored.
    """
    required = schema.get("required", ())
    parts = []
    for name, value in schema.get("properties", {}).items():
        part = sequence(
            [literal(f"<parameter={name}>\n"), _value(rules, schema, name, value), literal("\n</parameter>\n")]
        )
        parts.append(part if name in required else repeated(part, 0, 1))
    return sequence(parts)


def _value(rules: Rules, schema: Mapping[str, Any], name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        options = value.get("enum", [value["const"]] if "const" in value else [])
        if options and all(isinstance(option, str) for option in options):
            return either([literal(option) for option in options])
        if value.get("type") == "string":
            return _TEXT
    try:
        return SchemaCompiler(rules, schema, strict=False).compile(("properties", name))
    except UnsupportedKeyword:
        return JsonRules(rules).value()
