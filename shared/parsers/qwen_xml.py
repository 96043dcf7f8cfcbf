"""Qwen3-Coder tool calls: ``<function=NAME>`` with a ``<parameter=KEY>`` element for each argument.

The values are bare text. The tool's schema decides whether ``5`` is a number or a string.
"""

import re
from collections.abc import Callable, Mapping

import msgspec

from shared.parsers.json_text import quoted
from shared.parsers.parts import Writer
from shared.parsers.schema_types import ANY_TYPE, SchemaTypes, kinds_of_value
from shared.parsers.source import NAME_LIMIT, Malformed, Script, Source, markers

_FUNCTION = "<function="
_FUNCTION_END = "</function>"
_PARAMETER = "<parameter="
_PARAMETER_END = "</parameter>"
_CALL_END = "</tool_call>"
_NAME_END = markers(">")
_VALUE_ENDS = markers(*(newline + tag for newline in ("\n", "") for tag in (_PARAMETER_END, _FUNCTION_END)))
_TAGS = (_PARAMETER, _FUNCTION_END, _CALL_END)
_space = re.compile(r"\s*")
_STRING = frozenset({"string"})
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}

ParameterTypes = Mapping[str, frozenset[str]]
"""The JSON Schema types that each parameter of a tool may have."""


def parameter_types(schema: str | None) -> ParameterTypes:
    """Return the declared types of a tool's parameters. ``schema`` is a JSON Schema as JSON text."""
    try:
        decoded = msgspec.json.decode(schema or "{}")
    except (msgspec.DecodeError, RecursionError):
        return {}
    properties = decoded.get("properties") if isinstance(decoded, dict) else None
    if not isinstance(properties, dict):
        return {}
    schemas = SchemaTypes(decoded)
    return {key: schemas.types(value) for key, value in properties.items()}


def read_qwen_xml_calls(
    source: Source, writer: Writer, trigger: str, *, tools: Mapping[str, ParameterTypes]
) -> Script[None]:
    """Read one call after ``<tool_call>`` or ``<function=``. Raises :class:`Malformed` on invalid input."""
    if trigger != _FUNCTION:
        yield from source.skip_space()
        yield from source.expect(_FUNCTION)
    name, _ = yield from source.until(_NAME_END, NAME_LIMIT)
    name = name.strip()
    if not name:
        raise Malformed
    writer.open(name)
    writer.arguments("{")
    source.commit()
    types = tools.get(name, {})
    separator = ""
    while True:
        yield from source.skip_space()
        tag = yield from source.match(_PARAMETER, _FUNCTION_END, _CALL_END)
        if tag != _PARAMETER:
            break
        key, _ = yield from source.until(_NAME_END, NAME_LIMIT)
        writer.arguments(f"{separator}{quoted(key.strip())}: ")
        source.commit()
        separator = ", "
        if (yield from _value(source, writer, types.get(key.strip(), ANY_TYPE))) == _FUNCTION_END:
            tag = _FUNCTION_END
            break
    if tag is None:
        raise Malformed
    writer.arguments("}")
    writer.close()
    source.commit()
    if tag == _FUNCTION_END:
        yield from source.skip_space()
        if (yield from source.match(_CALL_END)) is not None:
            source.commit()


def _value(source: Source, writer: Writer, types: frozenset[str]) -> Script[str]:
    """Read a value, and return the tag that ended it. The line breaks before and after its text are not part of it."""

    def emit(piece: str) -> None:
        writer.arguments(quoted(piece)[1:-1])
        source.commit()

    if (yield from source.peek()) == "\n":
        source.take(source.at + 1)
    if types == _STRING:
        writer.arguments('"')
        end = yield from _through_end(source, emit)
        writer.arguments('"')
    else:
        pieces: list[str] = []
        end = yield from _through_end(source, pieces.append)
        writer.arguments(_converted("".join(pieces), types))
    source.commit()
    return end


def _through_end(source: Source, emit: Callable[[str], None]) -> Script[str]:
    """Consume a value and its end tag, which is returned; pass the value to ``emit`` in chunks.

    A value may contain the tags. ``</parameter>`` ends it if another tag follows; ``</function>``, where the model has
    forgotten ``</parameter>``, only before ``</tool_call>``. Raises :class:`Malformed` if there is no end.
    """
    while True:
        stop = yield from source.through(_VALUE_ENDS, emit, emit_cut_stop=False)
        if stop is None:
            raise Malformed
        space = yield from source.run(_space, NAME_LIMIT)
        end = stop.lstrip("\n")
        following = yield from source.ahead(_TAGS)
        if following == _CALL_END or (following is not None and end == _PARAMETER_END):
            return end
        if source.exhausted:
            raise Malformed
        emit(stop + space)


def _converted(text: str, types: frozenset[str]) -> str:
    """Return ``text`` as JSON of one of ``types``, or as a JSON string if it has none of these types."""
    bare = text.strip()
    bare = _PYTHON_WORDS.get(bare, bare)
    try:
        kinds = kinds_of_value(msgspec.json.decode(bare))
    except (msgspec.DecodeError, RecursionError):
        return quoted(text)
    if "string" in kinds:
        return quoted(text)
    return bare if types & kinds else quoted(text)
