"""Grammars of tool calls, in a model's tool-call format or as a JSON list, with arguments that follow their schema."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from shared.parsers.format import CallShape, Elements
from shared.parsers.schema_types import ANY_TYPE, ITEM, SchemaTypes
from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.request import INPUT, ChatRequest, CustomInput, Tool
from worker.engine.protocol import LengthLimits
from worker.grammar import tags
from worker.grammar.ebnf import (
    LAST_CHARACTER,
    Rules,
    character_class,
    either,
    literal,
    repeated,
    sequence,
    text_before,
    without,
)
from worker.grammar.json_text import BOOLEAN, NULL, NUMBER, JsonRules
from worker.grammar.lark import LarkError, lark_expression
from worker.grammar.patterns import whole_regex_of
from worker.grammar.regex import PatternError
from worker.grammar.regex_writer import written
from worker.grammar.schema.compiler import SchemaCompiler, decoded
from worker.grammar.schema.keywords import SchemaError, UnsupportedKeyword, escaped
from worker.grammar.schema.limits import length_limits_of
from worker.grammar.schema.members import subset_of
from worker.grammar.schema.strings import Options


def element_arguments(rules: Rules, schema: Mapping[str, Any], elements: Elements, *, strict: bool = False) -> str:
    """Return the expression of arguments as elements, for the object schema ``schema``, in its order.

    A value is raw text where the schema allows a string, and JSON otherwise. Unless ``strict``, keywords that can't be
    enforced are ignored. Raises :class:`SchemaError`.
    """
    required = schema.get("required", ())
    values = _Values(rules, schema, strict=strict, end=elements.value_end)
    parts = []
    for name, value in schema.get("properties", {}).items():
        kinds = values.types.types(value)
        path = f"/properties/{escaped(name)}"
        text = values.text(value, path) if "string" in kinds else ""
        bare = kinds - {"string"} and not elements.text_sign and text not in ("", text_before(elements.value_end))
        if bare and values.types.options(value) is None:
            # The string is limited, and the value may be another.
            text = either([text, values.json({"allOf": [value, {"type": sorted(kinds - {"string"})}]}, path)])
        part = element(elements, name, text) if text else ""
        if not text or (elements.text_sign and kinds != {"string"}):
            other = element(elements, name, values.json(value, path), kinds - {"string"})
            part = either([part, other]) if part else other
        parts.append(part if name in required else repeated(part, 0, 1))
    return sequence(parts)


def element(elements: Elements, name: str, value: str, kinds: Iterable[str] = ("string",)) -> str:
    """Return the expression of the argument ``name`` with ``value``, which is of one of ``kinds``."""
    begins = dict.fromkeys(elements.begin_for(name, kind) for kind in sorted(kinds))
    end = elements.newline + elements.value_end + elements.separator
    return sequence([either([literal(begin) for begin in begins]), value, literal(end)])


class _Values:
    """The expressions of the values of one tool's arguments, as JSON, or as text that ``end`` follows."""

    def __init__(self, rules: Rules, document: Mapping[str, Any], *, strict: bool, end: str = "") -> None:
        self.types = SchemaTypes(document)
        self._rules, self._strict, self._end = rules, strict, end
        # One for all values, because it limits the number of steps.
        self._texts = SchemaCompiler(rules, document, Options(strict=strict, end=end))
        self._values = SchemaCompiler(rules, document, Options(strict=strict, lengths=not strict))

    def text(self, schema: Any, path: str = "") -> str:
        """Return the expression of the strings, and of listed values, that ``schema`` allows."""
        listed = self.types.options(schema)
        if listed is None:
            strings = {"allOf": [schema, {"type": "string"}]}
            return self._compiled(self._texts, strings, path) or text_before(self._end)
        return self._rules.one_of(one if isinstance(one, str) else text.decode() for text, one in listed.items())

    def json(self, schema: Any, path: str) -> str:
        """Return the expression of the JSON texts that ``schema`` allows."""
        return self._compiled(self._values, schema, path) or JsonRules(self._rules).value()

    def _compiled(self, compiler: SchemaCompiler, schema: Any, path: str) -> str:
        """Return an expression; empty if it is not supported, and need not be."""
        try:
            return compiler.compile(schema, path)
        except SchemaError:
            if self._strict:
                raise
            return ""


def python_call(rules: Rules, function: "CallableTool") -> str:
    """Return the expression of a Python call, whose keyword arguments are JSON or Python's constants."""
    arguments(Rules(), function)  # Refuses what can't be held.
    name = function.tool.name
    if function.tool.custom is not None:
        text = input_string(rules, function.tool.custom)
        return sequence([literal(f'{name}({INPUT}="'), text, literal('")')])
    schema = _parameters(function)
    required = schema.get("required", ())
    values = _Values(rules, schema, strict=function.tool.strict)
    types, parts = values.types, []
    for key, value in schema.get("properties", {}).items():
        kinds = types.types(value)
        constants = {"boolean": ["True", "False"], "null": ["None"]}
        words = [literal(word) for kind, listed in constants.items() if kind in kinds for word in listed]
        if kinds <= constants.keys() and types.options(value) is None:
            expression = either(words)
        else:
            with _refusals(function):
                expression = values.json(value, f"/properties/{escaped(key)}")
            if "string" in kinds and not function.tool.strict:
                expression = either([expression, _single_quoted(rules, types, value)])
        parts.append((sequence([literal(f"{key}="), rules.define(expression)]), key in required))
    call = subset_of(rules, f"{name}(", parts, None, ")", 0, None)
    return call or literal(f"{name}()")


def _single_quoted(rules: Rules, types: SchemaTypes, schema: Any) -> str:
    options = types.options(schema)
    if options is None:
        return rules.define(sequence([literal("'"), repeated(_UNQUOTED, 0, None), literal("'")]))
    return rules.one_of(repr(option) for option in options.values())


def bare_arguments(rules: Rules, schema: Mapping[str, Any], quote: str, *, nested: bool, strict: bool = False) -> str:
    """Return the expression of an object without JSON's quotes, for the object schema ``schema``.

    It has bare keys, and strings between two ``quote``; or, if ``nested``, it is elements in elements with ``quote``
    before each tag. Types, ``enum``, ``const``, ``properties``, ``required`` and ``items`` are enforced, and if
    ``nested`` the keywords of strings; others are ignored. Raises :class:`SchemaError` if ``strict`` and a string's
    can't be enforced.
    """
    values = _Values(rules, schema, strict=strict, end=quote)
    anything, key, text = rules.reserve(), "[a-zA-Z0-9_.-]+", text_before(quote)
    string = text if nested else rules.define(sequence([literal(quote), text, literal(quote)]))

    def member(name: str, value: str) -> str:
        if not nested:
            return sequence([name, literal(":"), value])
        return sequence([literal(f"{quote}<"), name, literal(">"), value, literal(f"{quote}</"), name, literal(">")])

    def array(part: Mapping[str, Any], item: str) -> str:
        if not nested:
            return _bracketed("[", item, "]")
        if strict and part.get("uniqueItems"):
            raise UnsupportedKeyword("", "'uniqueItems' is not supported in this model's calls")
        return repeated(rules.define(member(literal(ITEM), item)), part.get("minItems", 0), part.get("maxItems"))

    def members(part: Any, depth: int) -> str:
        if not isinstance(properties := part.get("properties"), Mapping):
            return repeated(member(key, anything), 0, None) if nested else _bracketed("{", member(key, anything), "}")
        required = part.get("required", ())
        listed = [(member(literal(name), value(item, depth)), name in required) for name, item in properties.items()]
        if nested:
            return sequence([item if needed else repeated(item, 0, 1) for item, needed in listed])
        return subset_of(rules, "{", listed, None, "}", 0, None) or literal("{}")

    def value(part: Any, depth: int) -> str:
        options = values.types.options(part)
        if options is not None and not any(isinstance(option, list | dict) for option in options.values()):
            around = "" if nested else quote
            return rules.one_of(
                f"{around}{option}{around}" if isinstance(option, str) else written.decode()
                for written, option in options.items()
            )
        kinds = values.types.types(part)
        if kinds == ANY_TYPE or depth > _MAX_DEPTH or not isinstance(part, Mapping):
            return anything
        plain = sorted(kinds - {"string", "array", "object"})
        choices = [values.json({"allOf": [part, {"type": plain}]}, "")] if plain else []
        if "string" in kinds:
            limited = values.text(part) if nested else string
            if nested and limited == text:
                return text
            choices.append(limited)
        if "array" in kinds:
            choices.append(array(part, value(values.types.part(part, ITEM), depth + 1)))
        if "object" in kinds:
            choices.append(members(part, depth + 1))
        return rules.define(either(choices))

    if nested:
        rules.fill(anything, either([text, repeated(member(key, anything), 1, None)]))
    else:
        rules.fill(anything, either([NUMBER, BOOLEAN, NULL, string, members({}, 0), array({}, anything)]))
    return members(schema, 0) if "properties" in schema or not nested else ""


def _bracketed(begin: str, item: str, end: str) -> str:
    listed = sequence([item, repeated(sequence([literal(","), item]), 0, None)])
    return sequence([literal(begin), repeated(listed, 0, 1), literal(end)])


_UNQUOTED = character_class(without(((0x20, LAST_CHARACTER),), ((0x27, 0x27), (0x5C, 0x5C), (0xD800, 0xDFFF))))
"""A character of a string in single quotes that needs no escape."""
_MAX_DEPTH = 16
"""Levels of a schema to which an object with bare keys follows it."""
NO_PARAMETERS = '{"type":"object","properties":{}}'
"""Schema of a function that declares no parameters: an empty object, by OpenAI's reference."""


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


def optional_calls(shape: CallShape, tools: Sequence[CallableTool], *, parallel: bool) -> tags.Format:
    """Return the format of free text in which every call trigger starts a valid call."""
    return tags.triggered(
        [shape.trigger], _tags(shape, tools, parallel=parallel), stop_after_first=_single_call(shape, parallel)
    )


def required_calls(shape: CallShape, tools: Sequence[CallableTool], *, parallel: bool) -> tags.Format:
    """Return the format of one or more calls and nothing else."""
    every = _tags(shape, tools, parallel=parallel)
    if shape.listed or _single_call(shape, parallel):
        calls = tags.either(every)
    else:
        calls = tags.separated(every, shape.separator)
    return calls if shape.group is None else tags.tag(shape.group[0], calls, shape.group[1])


def listed_calls(shape: CallShape, tools: Sequence[CallableTool], *, parallel: bool) -> str:
    """Return the grammar of a list of calls, in JSON or in Python: one, or more if ``parallel``."""
    rules = Rules()
    if shape.content == "calls":
        options = [
            sequence(
                [
                    _numbered(shape.item_for(function.tool.name)),
                    arguments(rules, function, counted=is_counted(shape)),
                    literal(shape.item[1]),
                ]
            )
            for function in tools
        ]
        calls = JsonRules(rules).array(rules.define(either(options)), 1, None if parallel else 1)
    else:
        options = [python_call(rules, function) for function in tools]
        call = rules.define(either(options))
        more = sequence([literal(shape.separator or ", "), call])
        calls = sequence([call, repeated(more, 0, None)]) if parallel else call
    return rules.text(calls)


def argument_length_limits(shape: CallShape, tools: Sequence[CallableTool]) -> tuple[LengthLimits, ...]:
    """Return the arguments with strings of limited length.

    The limits apply to strict tools only, because an argument that is too long ends the job.
    """
    if not is_counted(shape):
        return ()
    values: list[LengthLimits] = []
    for function in tools:
        if function.tool.strict and function.tool.parameters is not None:
            begin = shape.item_for(function.tool.name) if shape.listed else shape.begin_for(function.tool.name)
            values += length_limits_of([begin], function.tool.parameters, minimums=function.minimums)
    return tuple(values)


def is_counted(shape: CallShape) -> bool:
    """Whether arguments are JSON after a known text, so that :mod:`worker.grammar.lengths` finds them."""
    text = shape.item[0] if shape.content == "calls" else shape.begin
    return shape.content in ("arguments", "calls") and "{n}" not in text


def _numbered(text: str) -> str:
    """Return the expression of ``text`` with a number in each ``{n}``."""
    first, *others = map(literal, text.split("{n}"))
    return sequence([first, *(part for other in others for part in ("[0-9]+", other))])


def _parameters(function: CallableTool) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = decoded(function.tool.parameters or NO_PARAMETERS)
    return schema


def arguments(rules: Rules, function: CallableTool, *, counted: bool = True) -> str:
    """Return the expression of a tool's arguments. ``counted``: those of a strict tool are (:func:`is_counted`).

    For a tool that is not strict, keywords that a grammar can't enforce are ignored. Raises :class:`RequestRefused`
    if the schema is invalid, or if the tool is strict and its schema is not supported, or if the grammar of a custom
    tool is not.
    """
    if function.tool.custom is not None:
        return sequence([literal(f'{{"{INPUT}": "'), input_string(rules, function.tool.custom), literal('"}')])
    with _refusals(function):
        schema = decoded(function.tool.parameters or NO_PARAMETERS)
        if not isinstance(schema, dict):
            raise SchemaError("", "the parameters are described by an object")
        # Arguments are always an object, even if the schema does not say so.
        schema.setdefault("type", "object")
        counted = counted or not function.tool.strict
        options = Options(strict=function.tool.strict, lengths=counted, minimums=counted and function.minimums)
        try:
            return SchemaCompiler(rules, schema, options).compile()
        except UnsupportedKeyword:
            if function.tool.strict:
                raise
            return JsonRules(rules).object(JsonRules(rules).value())


@contextmanager
def _refusals(function: CallableTool) -> Iterator[None]:
    """Refuse the request with the errors of a tool's schema."""
    param = f"tools[{function.index}].function.parameters"
    try:
        yield
    except SchemaError as error:
        message = f"Invalid schema for function '{function.tool.name}': {error}."
        raise refuse(ProblemKind.INVALID, message, param=param) from error


def _tags(shape: CallShape, tools: Sequence[CallableTool], *, parallel: bool) -> list[tags.Format]:
    if shape.listed:
        return [tags.tag(shape.begin, tags.grammar(listed_calls(shape, tools, parallel=parallel)), shape.end)]
    return [_tag(shape, function) for function in tools]


def _tag(shape: CallShape, function: CallableTool) -> tags.Format:
    begin, number, behind = shape.begin_for(function.tool.name).partition("{n}")
    rules = Rules()
    content = sequence([_numbered(number + behind), _content(rules, shape, function)])
    return tags.tag(begin, tags.grammar(rules.text(content)), shape.end)


def _content(rules: Rules, shape: CallShape, function: CallableTool) -> str:
    custom, strict = function.tool.custom, function.tool.strict
    apart = shape.elements or shape.quote
    checked = arguments(Rules() if apart else rules, function, counted=bool(apart) or is_counted(shape))
    if shape.content == "nested":
        if custom is not None:
            return sequence(
                [literal(f"{shape.quote}<{INPUT}>"), text_before(shape.quote), literal(f"{shape.quote}</{INPUT}>")]
            )
        with _refusals(function):
            return bare_arguments(rules, _parameters(function), shape.quote, nested=True, strict=strict)
    if shape.quote and custom is None and not strict:
        return bare_arguments(rules, _parameters(function), shape.quote, nested=False)
    if shape.elements is None:
        return arguments(rules, function, counted=False) if shape.quote else checked
    if custom is not None and custom.syntax != "text":
        return element(shape.elements, INPUT, input_text(rules, custom))
    with _refusals(function):
        return element_arguments(rules, _parameters(function), shape.elements, strict=strict)


def _single_call(shape: CallShape, parallel: bool) -> bool:
    return not parallel or shape.single


def input_string(rules: Rules, custom: CustomInput) -> str:
    """Return the expression of the content of a JSON string with an input of ``custom``.

    Raises :class:`RequestRefused` if its grammar is invalid or not supported.
    """
    return JsonRules(rules).content() if custom.syntax == "text" else input_text(rules, custom, in_json=True)


def input_text(rules: Rules, custom: CustomInput, *, in_json: bool = False) -> str:
    """Return the expression of the texts of the grammar of ``custom``, which has one. Raises as
    :func:`input_string` does."""
    try:
        if custom.syntax == "regex":
            return written(rules, whole_regex_of(custom.definition), in_json=in_json)
        return lark_expression(rules, custom.definition, in_json=in_json)
    except (PatternError, LarkError) as error:
        raise refuse(ProblemKind.INVALID, f"Invalid '{custom.param}': {error}.", param=custom.param) from error
