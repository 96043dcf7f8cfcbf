"""Builders for XGrammar's structural tags, and the translation of clients' structural tags.

Reference: https://xgrammar.mlc.ai/docs/structural_tag/structural_tag_api.html. JSON schemas in them are compiled by
:mod:`worker.grammar.schema.compiler`, because XGrammar's own JSON grammars allow unlimited whitespace.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Any

import msgspec

from worker.grammar.client_grammar import readable_grammar
from worker.grammar.ebnf import either as either_of
from worker.grammar.ebnf import literal
from worker.grammar.patterns import text_grammar, whole_regex_of
from worker.grammar.regex import PatternError
from worker.grammar.schema.compiler import MAX_DEPTH, schema_grammar
from worker.grammar.schema.keywords import SchemaError
from worker.grammar.xgrammar import is_readable, protect_alternatives

Format = dict[str, Any]
"""One part of a structural tag."""

_PARTS = ("content", "elements", "tags")

_FIELDS = {
    "any_text": {"excludes"},
    "const_string": {"value"},
    "grammar": {"grammar"},
    "json_schema": {"json_schema"},
    "or": {"elements"},
    "qwen_xml_parameter": {"json_schema"},
    "regex": {"pattern"},
    "sequence": {"elements"},
    "tag": {"begin", "content", "end"},
    "tags_with_separator": {"at_least_one", "separator", "stop_after_first", "tags"},
    "triggered_tags": {"at_least_one", "excludes", "stop_after_first", "tags", "triggers"},
}
"""The fields of each type of format. XGrammar ignores all others, and refuses other types."""


def const(text: str) -> Format:
    """Exactly ``text``."""
    return {"type": "const_string", "value": text}


def grammar(ebnf: str) -> Format:
    """Text that matches an EBNF grammar."""
    return {"type": "grammar", "grammar": ebnf}


def sequence(parts: Sequence[Format]) -> Format:
    """All parts in order."""
    return {"type": "sequence", "elements": list(parts)}


def either(options: Sequence[Format]) -> Format:
    """Any one of ``options``."""
    return options[0] if len(options) == 1 else {"type": "or", "elements": list(options)}


def tag(begin: str, content: Format, end: str) -> Format:
    """``content`` between a begin and an end marker."""
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def text_until(begin: str, end: str) -> Format:
    """``begin``, any text, and ``end``."""
    return tag(begin, {"type": "any_text"}, end)


def triggered(triggers: Sequence[str], tags: Sequence[Format], *, stop_after_first: bool) -> Format:
    """Free text, where each of ``triggers`` starts a tag that begins with it.

    With ``stop_after_first``, the first tag ends the text.
    """
    return {
        "type": "triggered_tags",
        "triggers": list(triggers),
        "tags": list(tags),
        "stop_after_first": stop_after_first,
    }


def separated(tags: Sequence[Format], separator: str) -> Format:
    """One or more tags, separated by ``separator``."""
    return {"type": "tags_with_separator", "tags": list(tags), "separator": separator, "at_least_one": True}


def to_json(part: Format) -> str:
    """Return the structural tag with the format ``part`` as JSON text."""
    return msgspec.json.encode({"type": "structural_tag", "format": part}).decode()


def client_format(text: str) -> Format:
    """Return the format of a client's structural tag, with its schemas compiled to grammars.

    Raises :class:`SchemaError` if ``text`` is not a structural tag, or contains an unsupported schema. XGrammar
    validates the parts themselves.
    """
    try:
        structural_tag = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SchemaError("", f"the structural tag can't be read as JSON: {error}") from error
    if not isinstance(structural_tag, Mapping) or not isinstance(structural_tag.get("format"), Mapping):
        raise SchemaError("", "a structural tag is an object with an object as 'format'")
    _check_fields(structural_tag, {"format"}, "")
    lowered: Format = _lowered(structural_tag["format"], "/format", 0)
    return lowered


def _lowered(part: Any, path: str, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise SchemaError(path, f"the structural tag is nested more than {MAX_DEPTH} deep")
    if isinstance(part, list):
        return [_lowered(item, f"{path}/{index}", depth + 1) for index, item in enumerate(part)]
    if not isinstance(part, Mapping):
        return part
    # Only a tag may omit its type.
    kind = part.get("type", "tag" if "begin" in part else None)
    if isinstance(kind, str) and kind in _FIELDS:
        _check_fields(part, _FIELDS[kind], path)
    match part:
        case {"type": "const_string", "value": str(text)} if not is_readable(text):
            return grammar(f"root ::= {literal(text)}\n")
        case {"type": "or", "elements": [_, *_] as options} if all(map(_is_text, options)):
            return grammar(
                protect_alternatives(f"root ::= {either_of([literal(option['value']) for option in options])}\n")
            )
        case {"type": "grammar", "grammar": str(text)}:
            return {**part, "grammar": readable_grammar(text)}
        case {"type": "regex", "pattern": str(text)}:
            return grammar(_regex(text, path))
    if "json_schema" in part and part.get("type") in ("json_schema", "qwen_xml_parameter"):
        ebnf = _schema(part["json_schema"], f"{path}/json_schema")
        return grammar(ebnf) if part["type"] == "json_schema" else dict(part)
    for key, value in part.items():
        if key not in _PARTS:
            _check_texts(value, f"{path}/{key}")
    return {key: _lowered(value, f"{path}/{key}", depth + 1) if key in _PARTS else value for key, value in part.items()}


def _check_fields(part: Mapping[str, Any], known: Set[str], path: str) -> None:
    """Raise :class:`SchemaError` for a field that is neither the type nor ``known``."""
    unknown = sorted(part.keys() - known - {"type"})
    if unknown:
        raise SchemaError(
            f"{path}/{unknown[0][:64]}", f"there is no such field; the fields are {', '.join(sorted(known))}"
        )


def _is_text(part: Any) -> bool:
    match part:
        case {"type": "const_string", "value": str()}:
            return True
    return False


def _regex(pattern: str, path: str) -> str:
    try:
        return text_grammar(whole_regex_of(pattern))
    except PatternError as error:
        raise SchemaError(path, str(error)) from error


def _check_texts(value: Any, path: str) -> None:
    """Raise :class:`SchemaError` for a string that XGrammar would misread and that can't be split into literals."""
    texts = value if isinstance(value, list) else [value]
    for text in texts:
        if isinstance(text, str) and not is_readable(text):
            raise SchemaError(
                path,
                f"{msgspec.json.encode(text).decode()} has a hexadecimal digit behind a control character or one from "
                "U+007F to U+00FF, which is not supported here; use a 'const_string' in a 'sequence'",
            )


def _schema(schema: Any, path: str) -> str:
    try:
        return schema_grammar(msgspec.json.encode(schema).decode(), lengths=False)
    except SchemaError as error:
        raise SchemaError(path + error.path, error.reason) from error
