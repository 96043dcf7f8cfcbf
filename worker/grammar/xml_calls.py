"""Arguments as Qwen3-Coder writes them: a parameter is a tag, its text as it is and everything else as JSON."""

from collections.abc import Mapping
from typing import Any

from worker.grammar.ebnf import Rules, either, literal, repeated, sequence
from worker.grammar.json_text import JsonRules
from worker.grammar.keywords import UnsupportedKeyword
from worker.grammar.schema import SchemaCompiler

_TEXT = '([^<] | "<" [^/])*'
"""Text without an end tag, which would close the parameter."""


def xml_parameters(rules: Rules, schema: Mapping[str, Any]) -> str:
    """Return the expression of the parameters that ``schema`` (an object's) describes, in its order.

    Texts are held to an ``enum`` or a ``const``; other limits on texts are passed over.
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
