"""Schemas without keywords that combine schemas: each schema becomes a list of flat ones, any of which may hold.

``allOf`` and ``$ref`` are merged, ``anyOf`` lists its branches, and conditions become cases: ``dependentRequired``, for
example, means that a property is absent or that others are required. The flat schemas may allow fewer values than the
schema, never others.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from worker.grammar.schema import keywords
from worker.grammar.schema.apart import Apart
from worker.grammar.schema.keywords import SchemaError, UnsupportedKeyword
from worker.grammar.schema.merging import Matches, Schema, merged, same
from worker.grammar.schema.reading import items_of, target_of

MAX_ALTERNATIVES = 64
"""Maximum number of flat schemas of one schema."""

_MAX_CONTAINS = 16
_OTHER_TYPES = {
    "number": {"integer", "number"},
    "integer": {"integer", "number"},
}
_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")

Flat = dict[str, Any]
Path = str
Seen = tuple[str, ...]


class Alternatives:
    """Makes the flat schemas of the schemas in one document."""

    def __init__(
        self,
        document: Any,
        *,
        strict: bool,
        matches: Matches,
        are_apart: Callable[[str, str], bool],
        step: Callable[[str], None],
    ) -> None:
        """``matches`` says whether a pattern matches a text, ``are_apart`` that no text matches two patterns.

        ``step`` is called with the path of every schema that is visited; it limits their number. Unless ``strict``,
        keywords that can't be enforced are ignored.
        """
        self._document = document
        self._strict = strict
        self._matches = matches
        self._step = step
        self._apart = Apart(self.of, partial(self.of, wide=True), matches, are_apart)
        self._checked: set[int] = set()
        """The schemas of the document, by ``id()``, whose references are known to be good."""

    def of(self, schema: Any, path: Path, seen: Seen = (), *, wide: bool = False) -> list[Flat]:
        """Return the flat schemas of ``schema``; none if it allows no value.

        ``wide``: they may allow more values than the schema, never fewer. Raises :class:`SchemaError`.
        """
        self._step(path)
        if isinstance(schema, bool):
            return [{}] if schema else []
        schema = self.assertions(schema, path)
        own = {keyword: value for keyword, value in schema.items() if keyword not in keywords.APPLIED}
        flats = [own]
        for options in self._conditions(schema, own, path, seen, wide):
            flats = self._product(flats, options, path)
        if wide:
            return flats
        if "oneOf" in schema:
            flats = self._one_of(schema, flats, path, seen)
        for unevaluated, rest in (("unevaluatedProperties", "additionalProperties"), ("unevaluatedItems", "items")):
            if unevaluated in schema:
                flats = [{rest: schema[unevaluated], **flat} for flat in flats]
        return flats

    def assertions(self, schema: Any, path: Path) -> Flat:
        """Return the assertion keywords of ``schema`` as those of 2020-12.

        Raises :class:`UnsupportedKeyword` for an unsupported one, :class:`SchemaError` if ``schema`` is none.
        """
        if not isinstance(schema, Mapping):
            raise SchemaError(path, "a schema is an object, true or false")
        if "$id" in schema and schema is not self._document:
            self._check_references(schema, path)
        for keyword in schema:
            if keyword in keywords.UNSUPPORTED and self._strict:
                raise UnsupportedKeyword(
                    f"{path}/{keyword}",
                    f"the keyword '{keyword}' is not supported: {keywords.UNSUPPORTED[keyword]}",
                )
        found = {keyword: value for keyword, value in schema.items() if keyword in keywords.ASSERTIONS}
        for keyword, value in found.items():
            if keyword in _OBJECTS and not isinstance(value, dict):
                raise SchemaError(f"{path}/{keyword}", "expected an object")
            if keyword in _LISTS and not isinstance(value, list):
                raise SchemaError(f"{path}/{keyword}", "expected a list")
        if not all(isinstance(name, str) for name in found.get("required", ())):
            raise SchemaError(f"{path}/required", "expected a list of names")
        rest = found.pop("additionalItems", None)
        if isinstance(found.get("items"), list):  # up to draft 2019-09
            found["prefixItems"] = found.pop("items")
            if rest is not None:
                found["items"] = rest
        if "const" in found:
            value = found.pop("const")
            listed = found.get("enum", [value])
            found["enum"] = [option for option in listed if same(option, value)]
        return found

    def _check_references(self, schema: Schema, path: Path) -> None:
        """Raise :class:`UnsupportedKeyword` if ``#`` in the references of ``schema`` is ``schema`` itself.

        Source: JSON Schema 2020-12, section 8.2.1. An ``$id`` that begins with ``#`` is an anchor of older drafts.
        """
        if id(schema) in self._checked:
            return
        if not str(schema["$id"]).startswith("#") and b'"$ref":"#' in msgspec.json.encode(schema):
            raise UnsupportedKeyword(
                f"{path}/$id", "the references in this schema are relative to it; remove '$id', or the references"
            )
        self._checked.add(id(schema))

    def _product(self, flats: Iterable[Flat], options: list[Flat], path: Path) -> list[Flat]:
        result: list[Flat] = []
        for flat in flats:
            for option in options:
                both = merged(flat, option, path, self._matches)
                if _is_possible(both) and both not in result:
                    result.append(both)
        if len(result) > MAX_ALTERNATIVES:
            raise UnsupportedKeyword(path, f"its conditions have more than {MAX_ALTERNATIVES} cases")
        return result

    def _conditions(self, schema: Schema, own: Flat, path: Path, seen: Seen, wide: bool) -> Iterator[list[Flat]]:
        """Yield lists of flat schemas, one of each of which must hold."""
        if "$ref" in schema:
            reference = schema["$ref"]
            if reference in seen:
                raise SchemaError(path, f"'{reference}' refers to itself")
            yield self.of(target_of(self._document, reference, path), path, (*seen, reference), wide=wide)
        for index, part in enumerate(items_of(schema, "allOf", path)):
            yield self.of(part, f"{path}/allOf/{index}", seen, wide=wide)
        for keyword in ("anyOf", "oneOf") if wide else ("anyOf",):
            if keyword in schema:
                yield [flat for options in self._branches(schema, keyword, path, seen, wide=wide) for flat in options]
        if wide:
            return
        for make in (self._not, self._if, self._dependent, self._contains):
            try:
                yield from make(schema, own, path, seen)
            except UnsupportedKeyword:
                if self._strict:
                    raise

    def _branches(
        self, schema: Schema, keyword: str, path: Path, seen: Seen, *, wide: bool = False
    ) -> list[list[Flat]]:
        branches = items_of(schema, keyword, path)
        if not branches:
            raise SchemaError(f"{path}/{keyword}", "it has no schemas")
        return [self.of(branch, f"{path}/{keyword}/{index}", seen, wide=wide) for index, branch in enumerate(branches)]

    def are_apart(self, schema: Schema, path: Path) -> bool:
        """Whether no text that is made for a branch of ``oneOf`` fits another."""
        branches = self._branches(schema, "oneOf", path, ())
        wide = self._branches(schema, "oneOf", path, (), wide=True)
        return all(
            self._apart.made(one, other, path, final=True)
            for index, first in enumerate(branches)
            for at, second in enumerate(wide)
            if at != index
            for one in first
            for other in second
        )

    def _one_of(self, schema: Schema, bases: list[Flat], path: Path, seen: Seen) -> list[Flat]:
        """Return ``bases`` merged with each branch of ``oneOf``, without the values that fit another branch too."""
        branches = self._branches(schema, "oneOf", path, seen)
        wide = self._branches(schema, "oneOf", path, seen, wide=True) if self._strict else ()
        result: list[Flat] = []
        for index, branch in enumerate(branches):
            flats = self._product(bases, branch, path)
            for at, others in enumerate(wide):
                if at != index and flats:
                    flats = self._without(flats, others, schema["oneOf"][at], path, seen)
                    if not flats:
                        raise UnsupportedKeyword(
                            f"{path}/oneOf",
                            f"a value could fit both {min(at, index)} and {max(at, index)}; use 'anyOf', or give them "
                            "different types or a required property with different 'const' values",
                        )
            result += flats
        return result

    def _without(self, flats: list[Flat], others: list[Flat], branch: Any, path: Path, seen: Seen) -> list[Flat]:
        """Return ``flats`` without the values that fit ``others``, the wide flat schemas of ``branch``."""
        result: list[Flat] = []
        for start in flats:
            flat = start
            for other in others:
                self._step(path)
                if self._apart.made(flat, other, path):
                    continue
                name = self._apart.missing(flat, other)
                if name is None or not _is_object(flat):
                    break
                flat = merged(flat, {"absent": [name]}, path, self._matches)
            else:
                result.append(flat)
                continue
            try:
                result += self._product([start], self._negated(branch, path, seen), path)
            except UnsupportedKeyword:
                continue
        return result

    def _not(self, schema: Schema, own: Flat, path: Path, seen: Seen) -> Iterator[list[Flat]]:
        if "not" in schema:
            yield self._negated(schema["not"], f"{path}/not", seen)

    def _if(self, schema: Schema, own: Flat, path: Path, seen: Seen) -> Iterator[list[Flat]]:
        if "if" not in schema or not {"then", "else"} & set(schema):
            return
        where = f"{path}/if"
        yes = self._product(
            self.of(schema["if"], where, seen), self.of(schema.get("then", True), f"{path}/then", seen), path
        )
        no = self._negated(schema["if"], where, seen)
        yield [*yes, *self._product(no, self.of(schema.get("else", True), f"{path}/else", seen), path)]

    def _dependent(self, schema: Schema, own: Flat, path: Path, seen: Seen) -> Iterator[list[Flat]]:
        for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
            for name, need in schema.get(keyword, {}).items():
                where = f"{path}/{keyword}/{name}"
                options = [{"required": need}] if isinstance(need, list) else self.of(need, where, seen)
                options = self._product([{"required": [name]}], options, where)
                yield options if name in own.get("required", ()) else [{"absent": [name]}, *options]

    def _contains(self, schema: Schema, own: Flat, path: Path, seen: Seen) -> Iterator[list[Flat]]:
        if "contains" not in schema:
            return
        least, most = schema.get("minContains", 1), schema.get("maxContains")
        if not isinstance(least, int) or least > _MAX_CONTAINS:
            raise UnsupportedKeyword(f"{path}/minContains", f"supported are counts up to {_MAX_CONTAINS}")
        part = schema["contains"]
        if most is None:
            yield [{"prefixItems": [part] * least, "further": True, "minItems": least}] if least else [{}]
        else:
            yield [{"items": part, "minItems": least, "maxItems": most}]

    def _negated(self, schema: Any, path: Path, seen: Seen) -> list[Flat]:
        """Return flat schemas of values for which ``schema`` does not hold.

        A schema does not hold if one of its keywords does not. Keywords that can't be negated are left out, unless
        that leaves none.
        """
        self._step(path)
        if isinstance(schema, bool):
            return [] if schema else [{}]
        asserted = self.assertions(schema, path)
        result: list[Flat] = []
        missing = ""
        known = not asserted
        for keyword, value in asserted.items():
            try:
                options = self._negation(keyword, value, path, seen)
            except UnsupportedKeyword:
                options = None
            if options is None:
                missing = missing or keyword
            else:
                known = True
                result += options
        if not known:
            raise UnsupportedKeyword(path, f"'{missing}' can't be excluded by a grammar; name the allowed values")
        return result

    def _negation(self, keyword: str, value: Any, path: Path, seen: Seen) -> list[Flat] | None:
        """Return flat schemas of values for which one keyword does not hold; None if there is no way to write them."""
        where = f"{path}/{keyword}"
        match keyword, value:
            case "required", list():
                return [{"type": "object", "absent": [name]} for name in value]
            case "properties", dict():
                return list(self._negated_properties(value, where, seen))
            case "enum", list():
                return [{"excluded": value}, *_between(value)]
            case "type", str() | list():
                named = {value} if isinstance(value, str) else set(value)
                gone = set().union(*(_OTHER_TYPES.get(kind, {kind}) for kind in named))
                return [{"type": [kind for kind in _TYPES if kind not in gone]}] if set(_TYPES) - gone else []
            case "not", _:
                return [_unevaluated(flat) for flat in self.of(value, where, seen)]
            case "anyOf", list():
                flats: list[Flat] = [{}]
                for part in value:
                    flats = self._product(flats, self._negated(part, where, seen), path)
                return flats
            case "allOf", list():
                return self._any_negated(value, where, seen)
            case "$ref", str() if value not in seen:
                return self._negated(target_of(self._document, value, path), path, (*seen, value))
            case "minLength", 1:
                return [{"enum": [""]}]
            case "maxLength", int():
                return [{"type": "string", "minLength": value + 1, "counted": True}]
            case (("minItems" | "minProperties"), int()) if value > 0:
                kind, opposite = _COUNTS[keyword]
                return [{"type": kind, opposite: value - 1}]
            case (("maxItems" | "maxProperties"), int()):
                kind, opposite = _COUNTS[keyword]
                return [{"type": kind, opposite: value + 1}]
            case (("minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum"), int() | float()) if not isinstance(
                value, bool
            ):
                return [{"type": "number", _BOUNDS[keyword]: value}]
        return None

    def _negated_properties(self, properties: Schema, path: Path, seen: Seen) -> Iterator[Flat]:
        for name, part in properties.items():
            try:
                if self._negated(part, path, seen):
                    yield {"type": "object", "required": [name], "checked": {name: {"not": part}}}
            except UnsupportedKeyword:
                continue

    def _any_negated(self, parts: list[Any], path: Path, seen: Seen) -> list[Flat] | None:
        result: list[Flat] | None = None
        for part in parts:
            try:
                result = [*(result or ()), *self._negated(part, path, seen)]
            except UnsupportedKeyword:
                continue
        return result


_OBJECTS = frozenset({"properties", "patternProperties", "dependencies", "dependentRequired", "dependentSchemas"})
_LISTS = frozenset({"required", "enum", "allOf", "anyOf", "oneOf", "prefixItems"})
_COUNTS = {
    "minItems": ("array", "maxItems"),
    "maxItems": ("array", "minItems"),
    "minProperties": ("object", "maxProperties"),
    "maxProperties": ("object", "minProperties"),
}
_BOUNDS = {
    "minimum": "exclusiveMaximum",
    "maximum": "exclusiveMinimum",
    "exclusiveMinimum": "maximum",
    "exclusiveMaximum": "minimum",
}


def _between(values: Iterable[Any]) -> list[Flat]:
    """Return flat schemas of the numbers that are not in ``values``, if numbers are in it, and not many."""
    numbers = sorted({value for value in values if isinstance(value, int | float) and not isinstance(value, bool)})
    least = [{}, *({"exclusiveMinimum": number} for number in numbers)]
    most = [*({"exclusiveMaximum": number} for number in numbers), {}]
    return (
        [{"type": "number"} | low | high for low, high in zip(least, most, strict=True)] if 0 < len(numbers) < 9 else []
    )


def _unevaluated(flat: Flat) -> Flat:
    """Return ``flat`` without what counts as evaluated, which nothing in ``not`` does.

    Raises :class:`UnsupportedKeyword` if that, or what is limited outside the grammar, can't be left out.
    """
    if not _NOT_IN_NOT.isdisjoint(flat):
        raise UnsupportedKeyword("", "not in 'not'")
    return {"checked" if keyword == "properties" else keyword: value for keyword, value in flat.items()}


_NOT_IN_NOT = frozenset({"patternProperties", "additionalProperties", "prefixItems", "items"}) | {
    "minLength", "maxLength", "pattern", "uniqueItems"
}  # fmt: skip


def _is_object(flat: Flat) -> bool:
    return flat.get("type") in ("object", ["object"])


def _is_possible(flat: Flat) -> bool:
    if flat.get("type") == [] or flat.get("enum") == []:
        return False
    absent = flat.get("absent", ())
    return not any(name in absent for name in flat.get("required", ()) if isinstance(name, str))
