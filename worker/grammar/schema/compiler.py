"""Compiler from JSON Schema to EBNF grammars of compact JSON.

A grammar may accept fewer texts than the schema, but never others. So properties come in the schema's order, an object
with ``properties`` has no additional ones unless ``additionalProperties`` allows them, and an unbounded range is
limited to a large number. Keywords that a grammar can't enforce are refused (:mod:`worker.grammar.schema.keywords`).
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from decimal import Decimal
from graphlib import CycleError, TopologicalSorter
from typing import Any

import msgspec

from shared.parsers.schema_types import hashable, kinds_of_value
from worker.grammar.ebnf import Rules, either, literal, repeated, sequence
from worker.grammar.json_text import COMMA, JsonRules, enclosed
from worker.grammar.schema.alternatives import SchemaAlternatives, target_of
from worker.grammar.schema.flat import ABOUT, FLAT_KEYWORDS, KINDS, Flat, Schema, both, member_schemas
from worker.grammar.schema.keywords import NoValue, SchemaError, UnsupportedKeyword, escaped
from worker.grammar.schema.members import Member, counted_parts, object_of, subset_of
from worker.grammar.schema.numbers import multiples, number_range
from worker.grammar.schema.strings import Options, Strings
from worker.grammar.schema.unlisted import UnlistedMembers

MAX_DEPTH = 64
"""Maximum nesting depth of schemas. The depth restarts at each reference."""

MAX_STEPS = 20_000
"""Maximum number of schemas visited, with repeated visits through ``allOf`` and the like; about half a second."""

_STATES = 10
"""States of a grammar that take as long as a schema."""
_ROOT = "root"


def schema_grammar(text: str, *, strict: bool = True, lengths: bool = True, minimums: bool = False) -> str:
    """Return the EBNF grammar of the JSON texts that are valid under the schema in ``text``, except for ``maxLength``.

    :mod:`worker.grammar.lengths` enforces ``maxLength``. With ``lengths=False`` the grammar itself does, which is
    expensive. With ``minimums=True``, that module also enforces ``minLength`` above
    :data:`~worker.grammar.lengths.GRAMMAR_MINIMUM`. With ``strict=False``, keywords that a grammar can't enforce
    are ignored. Raises :class:`SchemaError`.

    >>> schema_grammar('{"enum": [1, true]}').splitlines()
    ['root ::= t0', 't0 ::= ("1" | "true")']
    """
    rules = Rules()
    options = Options(strict=strict, lengths=lengths, minimums=minimums)
    return rules.text(SchemaCompiler(rules, decoded(text), options).compile())


def decoded(text: str) -> Any:
    """Return the schema in ``text``. Raises :class:`SchemaError` if it is not valid JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SchemaError("", f"the schema can't be read as JSON: {error}") from error


class SchemaCompiler:
    """Compiles one schema to grammar rules. Several compilers may share one set of rules."""

    def __init__(self, rules: Rules, document: Any, options: Options) -> None:
        """``document`` is the decoded schema, the target of its references."""
        self._rules = rules
        self._json = JsonRules(rules)
        self._document = document
        self._options = options
        self._strings = Strings(rules, options, self._step)
        self._unlisted = UnlistedMembers(rules, options, self._strings, self._lower)
        self._alternatives = SchemaAlternatives(document, self._strings, self._step, strict=options.strict)
        self._steps = 0
        self._named: dict[str, str] = {}
        self._waiting: deque[str] = deque()
        self._rule = _ROOT
        self._nested = 0
        self._begins_with: dict[str, set[str]] = {}
        self._open: dict[bytes, str] = {}
        """Schemas that are being compiled, with the names of the rules of those that occur in themselves."""

    def compile(self, schema: Any = None, path: str = "") -> str:
        """Return the expression of ``schema``, at ``path`` in the document, or of the whole document.

        Raises :class:`SchemaError`.
        """
        root = self._lower(self._document if schema is None else schema, path)
        while self._waiting:
            reference = self._waiting.popleft()
            self._rule = self._named[reference]
            target = target_of(self._document, reference, "")
            self._rules.fill(self._rule, self._lower(target, reference.removeprefix("#")))
        self._check_left_recursion()
        return root

    def _lower(self, schema: Any, path: str) -> str:
        """Return the expression of ``schema``. Raises :class:`NoValue` if it allows none."""
        if schema is True or schema == {}:
            return self._json.value()
        if schema is False:
            raise NoValue(path, "the schema 'false' allows no value")
        asserted = self._alternatives.assertions(schema, path)
        if set(asserted) == {"$ref"}:
            return self._reference(asserted["$ref"], path)
        key = msgspec.json.encode(asserted)
        if key in self._open:
            self._open[key] = self._open[key] or self._rules.reserve()
            return self._open[key]
        if len(self._open) >= MAX_DEPTH:
            raise SchemaError(path, f"the schema is nested more than {MAX_DEPTH} deep")
        self._open[key] = ""
        try:
            text = self._lower_keywords(asserted, path)
        finally:
            name = self._open.pop(key)
        if name:
            self._rules.fill(name, text)
        return name or text

    def _lower_keywords(self, schema: Schema, path: str) -> str:
        self._step(path)
        # The branches of a schema without other keywords may be shared rules.
        alone = next(iter(schema)) if len(schema) == 1 else ""
        if alone == "anyOf" or (
            alone == "oneOf" and (not self._options.strict or self._alternatives.are_apart(schema, path))
        ):
            if not (branches := schema[alone]):
                raise SchemaError(f"{path}/{alone}", "it has no schemas")
            return self._any(self._lower, ((branch, f"{path}/{alone}/{at}") for at, branch in enumerate(branches)))
        flats = self._alternatives.of(schema, path)
        if not flats:
            raise NoValue(path, "no value is allowed")
        return self._any(self._lower_flat, ((flat, path) for flat in flats))

    def _any(self, lower: Callable[[Any, str], str], schemas: Iterable[tuple[Any, str]]) -> str:
        """Return the expression of the ``schemas`` that allow a value, each at its path."""
        options: list[str] = []
        fault: NoValue | None = None
        for schema, path in schemas:
            try:
                options.append(lower(schema, path))
            except NoValue as error:
                fault = fault or error
        if not options and fault:
            raise fault
        return either(options)

    def _lower_flat(self, flat: Flat, path: str) -> str:
        if flat.enum is not None:
            values = self._fitting(flat, path)
            if not values:
                raise NoValue(path, "no value is allowed")
            return self._rules.one_of(msgspec.json.encode(value).decode() for value in values)
        kinds = flat.kinds()
        if not kinds and flat.excluded is None:
            return self._json.value()
        kinds = kinds or [kind for kind in KINDS if kind != "integer"]
        return self._any(lambda kind, where: self._of_kind(kind, flat, where), ((kind, path) for kind in kinds))

    def _fitting(self, flat: Flat, path: str) -> list[Any]:
        """Return the values of ``enum`` that surely satisfy the other keywords of ``flat``."""
        rest = msgspec.structs.replace(flat, enum=None, excluded=None)
        gone = set(map(hashable, flat.excluded or ()))
        return [value for value in flat.enum or () if hashable(value) not in gone and self._fits(value, rest, path)]

    def _fits(self, value: Any, flat: Flat, path: str) -> bool:
        """Whether a value of ``enum`` surely satisfies the other keywords of ``flat``."""
        fits = flat.fits(value, self._strings.matches)
        if fits is None and not isinstance(value, str):
            if self._options.strict:
                said = {keyword for kind in kinds_of_value(value) & ABOUT.keys() for keyword in flat.said(kind)}
                keyword = min(said & FLAT_KEYWORDS - {"required"}, default="enum")
                raise UnsupportedKeyword(f"{path}/{keyword}", "it is not supported together with 'enum' and 'const'")
            return True
        return fits is True

    def _of_kind(self, kind: str, flat: Flat, path: str) -> str:
        gone = [value for value in flat.excluded or () if kind in kinds_of_value(value)]
        match kind:
            case "string":
                return self._strings.string(flat, path, gone)
            case "boolean" | "null":
                words = ["true", "false"] if kind == "boolean" else ["null"]
                left = [word for word in words if msgspec.json.decode(word) not in gone]
                if not left:
                    raise NoValue(path, "no value is allowed")
                return either([literal(word) for word in left])
        if gone:
            raise NoValue(
                path, f"single values of the type '{kind}' can't be excluded by a grammar; name the allowed ones"
            )
        match kind:
            case "object":
                return self._object(flat, path)
            case "array":
                return self._array(flat, path)
            case _:
                return self._number(flat, path, whole=kind == "integer")

    def _object(self, flat: Flat, path: str) -> str:
        properties, required = flat.properties or {}, flat.required or ()
        minimum, maximum = flat.bounds("min_properties", "max_properties", path)
        closed = flat.additional_properties is None and not (
            flat.properties is None and flat.pattern_properties is None
        )
        named = self._names(flat, path)
        self._nested += 1
        members = []
        listed = [name for one in named for name in one.enum or () if isinstance(name, str) and not closed]
        checked, absent = flat.checked or {}, flat.absent or ()
        names = list(dict.fromkeys([*properties, *required, *listed, *checked]))
        for name in names:
            where = f"{path}/properties/{escaped(name)}" if name in properties else f"{path}/additionalProperties"
            allowed = name not in absent and any(
                (one.enum is None or name in one.enum) and self._fits(name, one, f"{path}/propertyNames")
                for one in named
            )
            parts = [*member_schemas(flat, name, self._strings.matches), checked.get(name, True)]
            try:
                value = self._lower(both(parts) if allowed else False, where)
                members.append(Member(name, value, name in required))
            except NoValue:
                if name in required:
                    raise
        others = self._unlisted.expression(flat, path, [*names, *absent], named, closed=closed)
        self._nested -= 1
        self._count([member.required for member in members], minimum, maximum, f"{path}/maxProperties")
        text = object_of(self._rules, members, others, minimum, maximum)
        if text is None:
            raise NoValue(path, "no object has the properties that 'minProperties' and 'maxProperties' ask for")
        return text

    def _names(self, flat: Flat, path: str) -> Sequence[Flat]:
        """Return the flat schemas of the names of properties."""
        if flat.property_names in (None, True):
            return [Flat()]
        return self._alternatives.of({"allOf": [{"type": "string"}, flat.property_names]}, f"{path}/propertyNames")

    def _array(self, flat: Flat, path: str) -> str:
        minimum, maximum = flat.bounds("min_items", "max_items", path)
        first = (flat.prefix_items or [])[:maximum]
        self._nested += 1
        parts = [self._lower(item, f"{path}/prefixItems/{index}") for index, item in enumerate(first)]
        rest_min = max(minimum - len(parts), 0)
        rest_max = None if maximum is None else maximum - len(parts)
        # A tuple that doesn't specify further items gets none.
        item = None
        values = self._unique_values(flat, path) if self._options.strict else None
        longer = not parts or flat.items is not None or flat.further or rest_min
        if flat.items is not False and longer and rest_max != 0 and values is None:
            with suppress(NoValue):
                item = self._lower(True if flat.items is None else flat.items, f"{path}/items")
        self._nested -= 1
        if values is not None:
            options = [(literal(msgspec.json.encode(value).decode()), False) for value in values]
            self._count([False] * len(options), minimum, maximum, f"{path}/maxItems")
            text = subset_of(self._rules, "[", options, None, "]", minimum, maximum)
            if text is None:
                raise NoValue(f"{path}/uniqueItems", "there are not as many different values")
            return text
        if rest_min and item is None:
            raise NoValue(f"{path}/minItems", "there are more than the other keywords allow")
        if not parts:
            return self._json.array(item, rest_min, rest_max) if item else literal("[]")
        listed = sequence([parts[0], *(f"{COMMA} {part}" for part in parts[1:])])
        if item:
            more = f"{COMMA} {self._json.listed(item, max(rest_min, 1), rest_max)}"
            listed = sequence([listed, repeated(more, min(rest_min, 1), 1)])
        return self._rules.define(enclosed("[", listed, "]", empty=False))

    def _unique_values(self, flat: Flat, path: str) -> list[Any] | None:
        """Return the values that an array may have once each, in the order of the schema.

        None if they are not listed: then :mod:`worker.grammar.lengths` ends the text at one that occurs again.
        """
        if not flat.unique_items or flat.max_items in (0, 1):
            return None
        unique: dict[Any, Any] = {}
        where = f"{path}/uniqueItems"
        for one in self._alternatives.of(True if flat.items is None else flat.items, f"{path}/items"):
            if one.enum is None or flat.prefix_items is not None:
                if self._options.lengths:
                    return None
                raise UnsupportedKeyword(where, "here it is supported only for items that are listed in an 'enum'")
            for value in self._fitting(one, where):
                unique.setdefault(hashable(value), value)
        return list(unique.values())

    def _number(self, flat: Flat, path: str, *, whole: bool) -> str:
        minimum, open_below = _limit(flat.minimum, flat.exclusive_minimum, max)
        maximum, open_above = _limit(flat.maximum, flat.exclusive_maximum, min)
        factor = flat.multiple_of if self._options.strict or flat.multiple_of == 1 else None
        if factor is None and whole:
            factor = 1
        if minimum is None and maximum is None and factor == (1 if whole else None):
            return self._json.integer() if whole else self._json.number()
        if factor is None:
            text = number_range(minimum, maximum, open_below=open_below, open_above=open_above)
        else:
            try:
                text = multiples(
                    Decimal(str(factor)), minimum, maximum, whole=whole, open_below=open_below, open_above=open_above
                )
            except ValueError:
                raise UnsupportedKeyword(
                    f"{path}/multipleOf",
                    "it is supported if it divides 1,000, or if 'minimum' and 'maximum' leave at most 200 values",
                ) from None
        if text is None:
            raise NoValue(path, "no number is in the range")
        return self._rules.define(text)

    def _reference(self, reference: Any, path: str) -> str:
        target_of(self._document, reference, path)  # raises if there is none
        if reference not in self._named:
            self._named[reference] = self._rules.reserve()
            self._waiting.append(reference)
        name = self._named[reference]
        if not self._nested:
            self._begins_with.setdefault(self._rule, set()).add(name)
        return name

    def _check_left_recursion(self) -> None:
        """Raise :class:`SchemaError` if a rule is left-recursive: it reaches itself without consuming a character."""
        try:
            TopologicalSorter(self._begins_with).prepare()
        except CycleError as error:
            found = next(reference for reference, name in self._named.items() if name in error.args[1])
            raise SchemaError("", f"'{found}' refers to itself without an object or array between") from error

    def _count(self, required: Sequence[bool], minimum: int, maximum: int | None, path: str) -> None:
        self._step(path, counted_parts(required, minimum, maximum) // _STATES)

    def _step(self, path: str, count: int = 1) -> None:
        self._steps += count
        if self._steps > MAX_STEPS:
            raise SchemaError(path, f"the schema is too large: it has more than {MAX_STEPS} parts")


def _limit(
    inclusive: float | None, exclusive: float | None, tighter: Callable[[Iterable[Decimal]], Decimal]
) -> tuple[Decimal | None, bool]:
    """Return a bound of a number range, or None, and whether the bound is exclusive."""
    closed = [] if inclusive is None else [Decimal(str(inclusive))]
    open_ = [] if exclusive is None or isinstance(exclusive, bool) else [Decimal(str(exclusive))]
    end = tighter([*closed, *open_]) if closed or open_ else None
    return end, end is not None and (end in open_ or exclusive is True)
