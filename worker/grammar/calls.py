"""Grammars of tool calls, in a model's tool-call format or as a JSON list, with arguments that follow their schema."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from shared.parsers.schema_types import SchemaTypes
from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.formats import DEEPSEEK_CALLS_BEGIN, DEEPSEEK_CALLS_END, CallShape, ToolFormat, ToolFormatName
from shared.protocol.request import INPUT, ChatRequest, Tool
from worker.engine.lengths import LengthLimits
from worker.grammar import tags
from worker.grammar.custom_input import input_string, input_text
from worker.grammar.ebnf import LAST_CHARACTER, Rules, character_class, either, literal, repeated, sequence, without
from worker.grammar.json_text import JsonRules
from worker.grammar.schema.compiler import SchemaCompiler, decoded
from worker.grammar.schema.keywords import SchemaError, UnsupportedKeyword
from worker.grammar.schema.limits import length_limits_of

_EVERY = ((1, LAST_CHARACTER),)
_NO_TAG = character_class(without(_EVERY, ((0x3C, 0x3C),)))
_NO_END = character_class(without(_EVERY, ((0x2F, 0x2F), (0x3C, 0x3C))))
_TEXT = f'{_NO_TAG}* ("<"+ {_NO_END} {_NO_TAG}*)*'
"""Text without ``</``, the start of an end tag, which would close the parameter."""


def xml_parameters(rules: Rules, schema: Mapping[str, Any]) -> str:
    """Return the expression of Qwen3-Coder's parameters for the object schema ``schema``, in its order.

    Each is a tag, with raw text where the schema allows a string, and other values as JSON.

    For raw text, ``enum`` and ``const`` are enforced; other keywords are ignored.
    """
    required = schema.get("required", ())
    types = SchemaTypes(schema)
    parts = []
    for name, value in schema.get("properties", {}).items():
        part = xml_parameter(name, _value(rules, schema, types, name, value))
        parts.append(part if name in required else repeated(part, 0, 1))
    return sequence(parts)


def xml_parameter(name: str, value: str) -> str:
    """Return the expression of Qwen3-Coder's parameter ``name`` with ``value``."""
    return sequence([literal(f"<parameter={name}>\n"), value, literal("\n</parameter>\n")])


def _value(rules: Rules, schema: Mapping[str, Any], types: SchemaTypes, name: str, value: Any) -> str:
    if "string" in types.types(value):
        options = types.options(value)
        if options is None:
            return _TEXT
        return rules.one_of(option if isinstance(option, str) else text.decode() for text, option in options.items())
    try:
        return SchemaCompiler(rules, schema, strict=False).compile(("properties", name))
    except UnsupportedKeyword:
        return JsonRules(rules).value()


NO_PARAMETERS = '{"type":"object","properties":{}}'
"""Schema of a function that declares no parameters: an empty object, by OpenAI's reference."""

_SEPARATORS: Mapping[ToolFormatName, str] = {
    "hermes": "\n",
    "qwen3_coder": "\n",
    "llama3_json": ";",
    "deepseek_v3": "\n",
}
"""Separator between two calls; empty for other formats."""

_GROUPS: Mapping[ToolFormatName, tuple[str, str]] = {
    "deepseek_v3": (DEEPSEEK_CALLS_BEGIN, DEEPSEEK_CALLS_END),
    "deepseek_v31": (DEEPSEEK_CALLS_BEGIN, DEEPSEEK_CALLS_END),
}
"""Begin and end marker of a group of calls, for formats that have them."""

_ONE_AT_A_TIME = frozenset({"harmony"})
"""Formats whose messages contain one call and end the turn."""


class CallableTool(msgspec.Struct, frozen=True):
    """A tool that the model may call, and its index in the request.

    ``minimums`` is as in :func:`~worker.grammar.schema.limits.length_limits_of`, and only set for strict tools.
    """

    tool: Tool
    index: int
    minimums: bool = False


def callable_tools(request: ChatRequest, *, minimums: bool) -> tuple[CallableTool, ...]:
    """Return the tools that the request allows the model to call. ``minimums`` is for strict ones."""
    if request.tool_choice == "none":
        return ()
    named = request.named_tool
    return tuple(
        CallableTool(tool, index, minimums and tool.strict)
        for index, tool in enumerate(request.tools)
        if named is None or tool.name == named
    )


def optional_calls(form: ToolFormat, shape: CallShape, tools: Sequence[CallableTool], *, parallel: bool) -> tags.Format:
    """Return the format of free text in which every call trigger starts a valid call."""
    return tags.triggered(
        [shape.trigger], _tags(shape, tools, parallel=parallel), stop_after_first=_single_call(form, parallel)
    )


def required_calls(form: ToolFormat, shape: CallShape, tools: Sequence[CallableTool], *, parallel: bool) -> tags.Format:
    """Return the format of one or more calls and nothing else."""
    every = _tags(shape, tools, parallel=parallel)
    if shape.content == "calls" or _single_call(form, parallel):
        calls = tags.either(every)
    else:
        calls = tags.separated(every, _SEPARATORS.get(form.name, ""))
    if form.name not in _GROUPS:
        return calls
    begin, end = _GROUPS[form.name]
    return tags.tag(begin, calls, end)


def json_array_calls(tools: Sequence[CallableTool], *, parallel: bool) -> str:
    """Return the grammar of a JSON list of objects with ``name`` and ``arguments``: one, or more if ``parallel``."""
    rules = Rules()
    options = [
        sequence([literal(_listed_begin(function)), arguments(rules, function), literal("}")]) for function in tools
    ]
    calls = JsonRules(rules).array(rules.define(either(options)), 1, None if parallel else 1)
    return rules.text(calls)


def argument_length_limits(shape: CallShape, tools: Sequence[CallableTool]) -> tuple[LengthLimits, ...]:
    """Return the arguments with strings of limited length.

    The limits apply to strict tools only, because an argument that is too long ends the job.
    """
    if shape.content == "xml":
        return ()
    values: list[LengthLimits] = []
    for function in tools:
        if function.tool.strict and function.tool.parameters is not None:
            listed = shape.content == "calls"
            begin = _listed_begin(function) if listed else shape.begin_for(function.tool.name)
            values += length_limits_of([begin], function.tool.parameters, minimums=function.minimums)
    return tuple(values)


def _listed_begin(function: CallableTool) -> str:
    return f'{{"name": {_json(function.tool.name)}, "arguments": '


def arguments(rules: Rules, function: CallableTool) -> str:
    """Return the expression of a tool's arguments.

    For a tool that is not strict, keywords that a grammar can't enforce are ignored. Raises :class:`RequestRefused`
    if the schema is invalid, or if the tool is strict and its schema is not supported, or if the grammar of a custom
    tool is not.
    """
    if function.tool.custom is not None:
        return sequence([literal(f'{{"{INPUT}": "'), input_string(rules, function.tool.custom), literal('"}')])
    param = f"tools[{function.index}].function.parameters"
    try:
        schema = decoded(function.tool.parameters or NO_PARAMETERS)
        if not isinstance(schema, dict):
            raise SchemaError("", "the parameters are described by an object")
        # Arguments are always an object, even if the schema does not say so.
        schema.setdefault("type", "object")
        return SchemaCompiler(rules, schema, strict=function.tool.strict, minimums=function.minimums).compile()
    except SchemaError as error:
        if isinstance(error, UnsupportedKeyword) and not function.tool.strict:
            return JsonRules(rules).object(JsonRules(rules).value())
        message = f"Invalid schema for function '{function.tool.name}': {error}."
        raise refuse(ProblemKind.INVALID, message, param=param) from error


def _tags(shape: CallShape, tools: Sequence[CallableTool], *, parallel: bool) -> list[tags.Format]:
    if shape.content == "calls":
        return [tags.tag(shape.begin, tags.grammar(json_array_calls(tools, parallel=parallel)), shape.end)]
    return [tags.tag(shape.begin_for(function.tool.name), _content(shape, function), shape.end) for function in tools]


def _content(shape: CallShape, function: CallableTool) -> tags.Format:
    rules = Rules()
    custom = function.tool.custom
    if shape.content == "xml" and custom is not None and custom.syntax != "text":
        return tags.grammar(rules.text(xml_parameter(INPUT, input_text(rules, custom))))
    expression = arguments(rules, function)
    if shape.content == "xml":
        rules = Rules()
        expression = xml_parameters(rules, decoded(function.tool.parameters or NO_PARAMETERS))
    return tags.grammar(rules.text(expression))


def _single_call(form: ToolFormat, parallel: bool) -> bool:
    return not parallel or form.name in _ONE_AT_A_TIME


def _json(text: str) -> str:
    return msgspec.json.encode(text).decode()
