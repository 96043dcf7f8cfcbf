"""Compiler from JSON Schema to EBNF grammars of compact JSON.

A grammar may accept fewer texts than the schema, but never others. So properties come in the schema's order, an object
with ``properties`` has no additional ones unless ``additionalProperties`` allows them, and an unbounded range is
limited to a large number. Keywords that a grammar can't enforce are refused (:mod:`worker.json_schema.keywords`).
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from worker.grammar.ebnf import Rules, either, literal, repeated, sequence
from worker.grammar.json_text import BOOLEAN, COMMA, NULL, JsonRules, Member, enclosed, object_of
from worker.grammar.limits import with_length_limits
from worker.grammar.numbers import integer_range, number_range
from worker.grammar.patterns import PatternError, string_content
from worker.json_schema import keywords
from worker.json_schema.keywords import FORMATS, SchemaError, UnsupportedKeyword
from worker.json_schema.merging import Schema, merged, same
from worker.json_schema.reading import (
    are_disjoint,
    bounds_of,
    escaped,
    items_of,
    kinds_of,
    kinds_of_value,
    limit_of,
    possible_values,
    target_of,
)

MAX_DEPTH = 64
"""Maximum nesting depth of schemas. The depth restarts at each reference."""

MAX_STEPS = 20_000
"""Maximum number of schemas visited, with repeated visits through ``allOf`` and the like; about half a second."""

_ROOT = "root"


def schema_grammar(text: str, *, strict: bool = True, lengths: bool = True) -> str:
    """Return the EBNF grammar of the JSON texts that are valid under the schema in ``text``, except for ``maxLength``.

    :mod:`worker.json_schema.lengths` enforces ``maxLength``. With ``lengths=False`` the grammar itself does, which is
    expensive. With ``strict=False``, keywords that a grammar can't enforce are ignored. Raises :class:`SchemaError`.
    """
    rules = Rules()
    document = decoded(text)
    if strict and lengths:
        document = with_length_limits(document)
    return rules.text(SchemaCompiler(rules, document, strict=strict, lengths=lengths).compile())


def decoded(text: str) -> Any:
    """Return the schema in ``text``. Raises :class:`SchemaError` if it is not valid JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SchemaError("", f"the schema can't be read as JSON: {error}") from error


class SchemaCompiler:
    """Compiles one schema to grammar rules. Several compilers may share one set of rules."""

    def __init__(self, rules: Rules, document: Any, *, strict: bool, lengths: bool = True) -> None:
        """``document`` is the decoded schema, the target of its references. Other arguments: :func:`schema_grammar`."""
        self._rules = rules
        self._json = JsonRules(rules)
        self._document = document
        self._strict = strict
        self._lengths = lengths
        self._depth = 0
        self._steps = 0
        self._named: dict[str, str] = {}
        self._waiting: deque[str] = deque()
        self._rule = _ROOT
        self._nested = 0
        self._begins_with: dict[str, set[str]] = {}

    def compile(self, place: tuple[str, ...] = ()) -> str:
        """Return the expression of the schema at the keys ``place`` in the document. Raises :class:`SchemaError`."""
        schema = self._document
        for key in place:
            schema = schema[key]
        root = self._lower(schema, "".join(f"/{escaped(key)}" for key in place))
        while self._waiting:
            reference = self._waiting.popleft()
            self._rule = self._named[reference]
            target = self._target(reference, "")
            self._rules.fill(self._rule, self._lower(target, reference.removeprefix("#")))
        self._check_left_recursion()
        return root

    def _lower(self, schema: Any, path: str) -> str:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise SchemaError(path, f"the schema is nested more than {MAX_DEPTH} deep")
        self._step(path)
        if schema is True:
            text = self._json.value()
        elif isinstance(schema, Mapping):
            text = self._lower_keywords(self._assertions(schema, path), path)
        elif schema is False:
            raise SchemaError(path, "the schema 'false' allows no value")
        else:
            raise SchemaError(path, "a schema is an object, true or false")
        self._depth -= 1
        return text

    def _lower_keywords(self, schema: Schema, path: str) -> str:
        if set(schema) == {"$ref"}:
            return self._reference(schema["$ref"], path)
        schema = self._flattened(schema, path, ())
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return self._branches(schema, keyword, path)
        if "const" in schema or "enum" in schema:
            return self._values(schema, path)
        kinds = kinds_of(schema, path)
        if not kinds:
            return self._json.value()
        return either([self._of_kind(kind, schema, path) for kind in kinds])

    def _assertions(self, schema: Schema, path: str) -> dict[str, Any]:
        """Return the assertion keywords of ``schema``. Raises :class:`UnsupportedKeyword` for an unsupported one."""
        for keyword in schema:
            if keyword in keywords.UNSUPPORTED and self._strict:
                if keyword in keywords.HARMLESS and schema[keyword] == keywords.HARMLESS[keyword]:
                    continue
                raise UnsupportedKeyword(
                    f"{path}/{keyword}",
                    f"the keyword '{keyword}' is not supported: {keywords.UNSUPPORTED[keyword]}",
                )
        return {keyword: value for keyword, value in schema.items() if keyword in keywords.ASSERTIONS}

    def _flattened(self, schema: Schema, path: str, seen: tuple[str, ...]) -> dict[str, Any]:
        """Return ``schema`` merged with the target of its ``$ref`` and the schemas of its ``allOf``."""
        self._step(path)
        result = {keyword: value for keyword, value in schema.items() if keyword not in ("$ref", "allOf")}
        parts: list[tuple[Any, str, tuple[str, ...]]] = []
        if "$ref" in schema:
            reference = schema["$ref"]
            if reference in seen:
                raise SchemaError(path, f"'{reference}' refers to itself")
            parts.append((self._target(reference, path), path, (*seen, reference)))
        for index, part in enumerate(items_of(schema, "allOf", path)):
            parts.append((part, f"{path}/allOf/{index}", seen))
        for part, where, known in parts:
            if part is True:
                continue
            if not isinstance(part, Mapping):
                raise SchemaError(where, "expected a schema that is an object")
            result = merged(result, self._flattened(self._assertions(part, where), where, known), where)
        return result

    def _branches(self, schema: Schema, keyword: str, path: str) -> str:
        branches = items_of(schema, keyword, path)
        if not branches:
            raise SchemaError(f"{path}/{keyword}", "it has no schemas")
        rest = {name: value for name, value in schema.items() if name != keyword}
        flat = []
        options = []
        for index, branch in enumerate(branches):
            where = f"{path}/{keyword}/{index}"
            if rest or keyword == "oneOf":
                if not isinstance(branch, Mapping):
                    raise SchemaError(where, "expected a schema that is an object")
                flat.append(self._flattened(self._assertions(branch, where), where, ()))
            options.append(self._lower(merged(rest, flat[-1], where) if rest else branch, where))
        if keyword == "oneOf" and self._strict:
            self._check_disjoint(flat, path)
        return either(options)

    def _check_disjoint(self, branches: Sequence[Schema], path: str) -> None:
        for index, branch in enumerate(branches):
            for other in range(index):
                if not are_disjoint(branches[other], branch, path):
                    raise UnsupportedKeyword(
                        f"{path}/oneOf",
                        f"a value could fit both {other} and {index}; use 'anyOf', or give them different types or a "
                        "required property with different 'const' values",
                    )

    def _values(self, schema: Schema, path: str) -> str:
        values = possible_values(schema) or []
        if "const" in schema and "enum" in schema:
            values = [value for value in items_of(schema, "enum", path) if same(value, schema["const"])]
        kinds = kinds_of({"type": schema["type"]}, path) if "type" in schema else None
        values = [value for value in values if kinds is None or kinds_of_value(value) & set(kinds)]
        others = set(schema) - {"const", "enum", "type"}
        if others and self._strict:
            raise UnsupportedKeyword(
                f"{path}/{min(others)}", "only 'type' is supported together with 'enum' and 'const'"
            )
        if not values:
            raise SchemaError(path, "no value is allowed")
        return self._rules.define(either([literal(msgspec.json.encode(value).decode()) for value in values]))

    def _of_kind(self, kind: str, schema: Schema, path: str) -> str:
        match kind:
            case "object":
                return self._object(schema, path)
            case "array":
                return self._array(schema, path)
            case "string":
                return self._string(schema, path)
            case "boolean":
                return BOOLEAN
            case "null":
                return NULL
            case _:
                return self._number(schema, path, whole=kind == "integer")

    def _object(self, schema: Schema, path: str) -> str:
        properties = schema.get("properties", {})
        required = items_of(schema, "required", path)
        if not isinstance(properties, Mapping):
            raise SchemaError(f"{path}/properties", "expected an object")
        if not all(isinstance(name, str) for name in required):
            raise SchemaError(f"{path}/required", "expected a list of names")
        minimum, maximum = bounds_of(schema, "minProperties", "maxProperties", path)
        others = schema.get("additionalProperties", "properties" not in schema)
        names = list(dict.fromkeys([*properties, *required]))
        self._nested += 1
        members = []
        for name in names:
            value = properties.get(name, others)
            where = f"{path}/properties/{escaped(name)}" if name in properties else f"{path}/additionalProperties"
            if name not in properties and others is False and "additionalProperties" not in schema:
                value = True
            members.append(Member(name, self._lower(value, where), name in required))
        other_value = None if others is False else self._lower(others, f"{path}/additionalProperties")
        self._nested -= 1
        if not members and other_value is not None:
            if minimum > 1 and self._strict:
                raise UnsupportedKeyword(f"{path}/minProperties", "more than 1 is not supported; name the properties")
            return self._json.object(other_value, minimum, maximum)
        if self._strict and minimum > len(set(required)):
            raise UnsupportedKeyword(f"{path}/minProperties", "not supported; name the properties in 'required'")
        if self._strict and maximum is not None and maximum < len(names):
            raise UnsupportedKeyword(f"{path}/maxProperties", "fewer than there are properties is not supported")
        return object_of(self._rules, members, other_value, None if maximum is None else max(maximum - len(names), 0))

    def _array(self, schema: Schema, path: str) -> str:
        items = schema.get("items", True)
        first = items_of(schema, "prefixItems", path)
        if isinstance(items, list):  # up to draft 2019-09
            first, items = items, schema.get("additionalItems", True)
        minimum, maximum = bounds_of(schema, "minItems", "maxItems", path)
        first = first[:maximum]
        self._nested += 1
        parts = [self._lower(item, f"{path}/prefixItems/{index}") for index, item in enumerate(first)]
        rest_min = max(minimum - len(parts), 0)
        rest_max = None if maximum is None else maximum - len(parts)
        # A tuple that doesn't specify further items gets none.
        if items is False or (parts and "items" not in schema and not rest_min) or rest_max == 0:
            if rest_min:
                raise SchemaError(f"{path}/minItems", "there are more than the other keywords allow")
            item = None
        else:
            item = self._lower(items, f"{path}/items")
        self._nested -= 1
        if not parts:
            return self._json.array(item, rest_min, rest_max) if item else literal("[]")
        listed = sequence([parts[0], *(f"{COMMA} {part}" for part in parts[1:])])
        if item:
            more = f"{COMMA} {self._json.listed(item, max(rest_min, 1), rest_max)}"
            listed = sequence([listed, repeated(more, min(rest_min, 1), 1)])
        return self._rules.define(enclosed("[", listed, "]", empty=False))

    def _string(self, schema: Schema, path: str) -> str:
        minimum, maximum = bounds_of(schema, "minLength", "maxLength", path)
        expression, keyword = schema.get("pattern"), "pattern"
        if not isinstance(expression, str | None):
            raise SchemaError(f"{path}/pattern", "expected a text")
        form = schema.get("format")
        if not isinstance(form, str | None):
            raise SchemaError(f"{path}/format", "expected a text")
        if form is not None and expression is None:
            if form in FORMATS:
                expression, keyword = f"^(?:{FORMATS[form]})$", "format"
            elif self._strict:
                known = ", ".join(sorted(FORMATS))
                raise UnsupportedKeyword(f"{path}/format", f"'{form}': supported are {known}")
        # With a pattern, the format is an annotation, as JSON Schema's 'format' is by default. Clients such as zod send
        # both, where the pattern describes the format.
        if expression is None:
            return self._json.string(minimum, None if self._lengths else maximum)
        try:
            content = string_content(expression, self._json.content())
        except PatternError as error:
            if self._strict:
                raise UnsupportedKeyword(f"{path}/{keyword}", f"{error}") from error
            return self._json.string(minimum)
        too_long = (
            not self._lengths and maximum is not None and (content.max_length is None or content.max_length > maximum)
        )
        if self._strict and (content.min_length < minimum or too_long):
            name = "maxLength" if too_long else "minLength"
            raise UnsupportedKeyword(
                f"{path}/{name}", f"not supported together with '{keyword}', unless that implies it"
            )
        return self._rules.define(sequence([literal('"'), content.text, literal('"')]))

    def _number(self, schema: Schema, path: str, *, whole: bool) -> str:
        if "multipleOf" in schema and self._strict and not (whole and schema["multipleOf"] == 1):
            raise UnsupportedKeyword(f"{path}/multipleOf", "the only 'multipleOf' that is supported is 1 for integers")
        minimum, open_below = limit_of(schema, "minimum", "exclusiveMinimum", path, max)
        maximum, open_above = limit_of(schema, "maximum", "exclusiveMaximum", path, min)
        if minimum is None and maximum is None:
            return self._json.integer() if whole else self._json.number()
        if whole:
            low = None if minimum is None else -int((-minimum).to_integral_value("ROUND_FLOOR"))
            high = None if maximum is None else int(maximum.to_integral_value("ROUND_FLOOR"))
            low = low + 1 if low is not None and open_below and low == minimum else low
            high = high - 1 if high is not None and open_above and high == maximum else high
            text = integer_range(low, high)
        else:
            text = number_range(minimum, maximum, open_below=open_below, open_above=open_above)
        if text is None:
            raise SchemaError(path, "no number is in the range")
        return self._rules.define(text)

    def _reference(self, reference: Any, path: str) -> str:
        self._target(reference, path)
        if reference not in self._named:
            self._named[reference] = self._rules.reserve()
            self._waiting.append(reference)
        name = self._named[reference]
        if not self._nested:
            self._begins_with.setdefault(self._rule, set()).add(name)
        return name

    def _target(self, reference: Any, path: str) -> Any:
        """Return the target of a reference. Raises :class:`SchemaError` if there is none."""
        return target_of(self._document, reference, path)

    def _check_left_recursion(self) -> None:
        """Raise :class:`SchemaError` if a rule is left-recursive: it reaches itself without consuming a character."""
        for start in self._begins_with:
            seen: set[str] = set()
            waiting = [start]
            while waiting:
                for following in self._begins_with.get(waiting.pop(), ()):
                    if following == start:
                        found = next(reference for reference, name in self._named.items() if name == start)
                        raise SchemaError("", f"'{found}' refers to itself without an object or array between")
                    if following not in seen:
                        seen.add(following)
                        waiting.append(following)

    def _step(self, path: str) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise SchemaError(path, f"the schema is too large: it has more than {MAX_STEPS} parts")
