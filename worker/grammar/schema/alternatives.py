"""Schemas without keywords that combine schemas: each schema becomes a list of flat ones, any of which may hold.

``allOf`` and ``$ref`` are merged, ``anyOf`` lists its branches, and conditions become cases: ``dependentRequired``, for
example, means that a property is absent or that others are required. The flat schemas may allow fewer values than the
schema, never others.

``{"required": ["a"], "anyOf": [{"minProperties": 2}, {"type": "null"}]}`` becomes ``Flat(required=["a"],
min_properties=2)`` and ``Flat(type=["null"], required=["a"])``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from shared.parsers import schema_types
from worker.grammar.schema import keywords
from worker.grammar.schema.apart import Apart
from worker.grammar.schema.flat import ASSERTIONS, KINDS, Flat, Schema, flat_of, merged, same
from worker.grammar.schema.keywords import SchemaError, UnsupportedKeyword
from worker.grammar.schema.strings import Strings

MAX_ALTERNATIVES = 64
"""Maximum number of flat schemas of one schema."""

_MAX_CONTAINS = 16
_MAX_EXCLUDED = 8
"""Maximum number of excluded numbers: each makes one more case."""
_OTHER_TYPES = {
    "number": {"integer", "number"},
    "integer": {"integer", "number"},
}

Path = str
Seen = tuple[str, ...]


def target_of(document: Any, reference: Any, path: str) -> Any:
    """Return the target in ``document`` of a reference at ``path``. Raises :class:`SchemaError`."""
    where = f"{path}/$ref"
    if not isinstance(reference, str):
        raise SchemaError(where, "expected a text")
    if reference != "#" and not reference.startswith("#/"):
        raise UnsupportedKeyword(where, f"'{reference}' is no reference into the schema itself: '#/...' is supported")
    try:
        return schema_types.target_of(document, reference)
    except LookupError:
        raise SchemaError(where, f"the schema has nothing at '{reference}'") from None


class SchemaAlternatives:
    """Makes the flat schemas of the schemas in one document."""

    def __init__(self, document: Any, strings: Strings, step: Callable[[str], None], *, strict: bool) -> None:
        """``step`` is called with the path of every schema that is visited; it limits their number. Unless ``strict``,
        keywords that can't be enforced are ignored.
        """
        self._document = document
        self._strict = strict
        self._matches = strings.matches
        self._step = step
        self._apart = Apart(self.of, partial(self.of, wide=True), strings)
        self._checked: set[int] = set()
        """The schemas of the document, by ``id()``, whose references are known to be good."""

    def of(self, schema: Any, path: Path, seen: Seen = (), *, wide: bool = False) -> list[Flat]:
        """Return the flat schemas of ``schema``; none if it allows no value.

        ``wide``: they may allow more values than the schema, never fewer. Raises :class:`SchemaError`.
        """
        self._step(path)
        if isinstance(schema, bool):
            return [Flat()] if schema else []
        schema = self.assertions(schema, path)
        own = flat_of(schema, path)
        flats = [own]
        for options in self._conditions(schema, own, path, seen, wide):
            flats = self._product(flats, options, path)
        if wide:
            return flats
        if "oneOf" in schema:
            flats = self._one_of(schema, flats, path, seen)
        for unevaluated, rest in (("unevaluatedProperties", "additional_properties"), ("unevaluatedItems", "items")):
            if unevaluated in schema:
                flats = [
                    msgspec.structs.replace(flat, **{rest: schema[unevaluated]})
                    if getattr(flat, rest) is None
                    else flat
                    for flat in flats
                ]
        return flats

    def assertions(self, schema: Any, path: Path) -> dict[str, Any]:
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
        found = {keyword: value for keyword, value in schema.items() if keyword in ASSERTIONS}
        for keyword, value in found.items():
            for kind, names, what in ((dict, _OBJECTS, "an object"), (list, _LISTS, "a list")):
                if keyword in names and not isinstance(value, kind):
                    raise SchemaError(f"{path}/{keyword}", f"expected {what}")
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
                if both.is_possible() and both not in result:
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
        for index, part in enumerate(schema.get("allOf", ())):
            yield self.of(part, f"{path}/allOf/{index}", seen, wide=wide)
        for keyword in ("anyOf", "oneOf") if wide else ("anyOf",):
            if keyword in schema:
                yield [flat for options in self._branches(schema, keyword, path, seen, wide=wide) for flat in options]
        if wide:
            return
        for made in (
            self._not(schema, path, seen),
            self._if(schema, path, seen),
            self._dependent(schema, own, path, seen),
            self._contains(schema, path),
        ):
            try:
                yield from made
            except UnsupportedKeyword:
                if self._strict:
                    raise

    def _branches(
        self, schema: Schema, keyword: str, path: Path, seen: Seen, *, wide: bool = False
    ) -> list[list[Flat]]:
        if not schema[keyword]:
            raise SchemaError(f"{path}/{keyword}", "it has no schemas")
        return [
            self.of(branch, f"{path}/{keyword}/{index}", seen, wide=wide)
            for index, branch in enumerate(schema[keyword])
        ]

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
                if name is None or flat.type != ["object"]:
                    break
                flat = merged(flat, Flat(absent=[name]), path, self._matches)
            else:
                result.append(flat)
                continue
            try:
                result += self._product([start], self._negated(branch, path, seen), path)
            except UnsupportedKeyword:
                continue
        return result

    def _not(self, schema: Schema, path: Path, seen: Seen) -> Iterator[list[Flat]]:
        if "not" in schema:
            yield self._negated(schema["not"], f"{path}/not", seen)

    def _if(self, schema: Schema, path: Path, seen: Seen) -> Iterator[list[Flat]]:
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
                options = self.of({"required": need} if isinstance(need, list) else need, where, seen)
                options = self._product([Flat(required=[name])], options, where)
                yield options if name in (own.required or ()) else [Flat(absent=[name]), *options]

    def _contains(self, schema: Schema, path: Path) -> Iterator[list[Flat]]:
        if "contains" not in schema:
            return
        least, most = schema.get("minContains", 1), schema.get("maxContains")
        if not isinstance(least, int) or least > _MAX_CONTAINS:
            raise UnsupportedKeyword(f"{path}/minContains", f"supported are counts up to {_MAX_CONTAINS}")
        part = schema["contains"]
        if most is None:
            yield [Flat(prefix_items=[part] * least, further=True, min_items=least) if least else Flat()]
        else:
            yield [flat_of({"items": part, "minItems": least, "maxItems": most}, path)]

    def _negated(self, schema: Any, path: Path, seen: Seen) -> list[Flat]:
        """Return flat schemas of values for which ``schema`` does not hold.

        A schema does not hold if one of its keywords does not. Keywords that can't be negated are left out, unless
        that leaves none.
        """
        self._step(path)
        if isinstance(schema, bool):
            return [] if schema else [Flat()]
        asserted = self.assertions(schema, path)
        flat_of(asserted, path)  # raises for wrong values
        return self._any_negated(
            ((keyword, partial(self._negation, keyword, value, path, seen)) for keyword, value in asserted.items()),
            path,
        )

    def _any_negated(self, parts: Iterable[tuple[str, Callable[[], list[Flat]]]], path: Path) -> list[Flat]:
        """Return what those of ``parts`` make that can be negated, which one must, if there are any."""
        made: list[list[Flat]] = []
        missing: list[str] = []
        for name, negate in parts:
            try:
                made.append(negate())
            except UnsupportedKeyword:
                missing.append(name)
        if missing and not made:
            raise UnsupportedKeyword(path, f"'{missing[0]}' can't be excluded by a grammar; name the allowed values")
        return [flat for flats in made for flat in flats]

    def _negation(self, keyword: str, value: Any, path: Path, seen: Seen) -> list[Flat]:
        """Return flat schemas of values for which one keyword does not hold. Raises :class:`UnsupportedKeyword`."""
        where = f"{path}/{keyword}"
        match keyword, value:
            case "required", _:
                return [Flat(type=["object"], absent=[name]) for name in value]
            case "properties", _:
                return [
                    Flat(type=["object"], required=[name], checked={name: {"not": part}})
                    for name, part in value.items()
                    if self._may_fail(part, where, seen)
                ]
            case "enum", _:
                return [Flat(excluded=value), *_between(value)]
            case "type", _:
                named = {value} if isinstance(value, str) else set(value)
                gone = set().union(*(_OTHER_TYPES.get(kind, {kind}) for kind in named))
                return [Flat(type=left)] if (left := [kind for kind in KINDS if kind not in gone]) else []
            case "not", _:
                return [flat.without_unevaluated() for flat in self.of(value, where, seen)]
            case "anyOf", _:
                flats = [Flat()]
                for part in value:
                    flats = self._product(flats, self._negated(part, where, seen), path)
                return flats
            case "allOf", _:
                return self._any_negated(((keyword, partial(self._negated, part, where, seen)) for part in value), path)
            case "$ref", str() if value not in seen:
                return self._negated(target_of(self._document, value, path), path, (*seen, value))
            case "minLength", 1:
                return [Flat(enum=[""])]
            case "maxLength", _:
                return [Flat(type=["string"], min_length=int(value) + 1, counted=True)]
            case (("minItems" | "maxItems" | "minProperties" | "maxProperties"), _) if value or keyword.startswith(
                "max"
            ):
                kind, opposite, further = _COUNTS[keyword]
                return [flat_of({"type": kind, opposite: value + further}, path)]
            case (("minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum"), _) if not isinstance(value, bool):
                return [flat_of({"type": "number", _BOUNDS[keyword]: value}, path)]
        raise UnsupportedKeyword(where, "it can't be excluded")

    def _may_fail(self, part: Any, path: Path, seen: Seen) -> bool:
        try:
            return bool(self._negated(part, path, seen))
        except UnsupportedKeyword:
            return False


_OBJECTS = frozenset({"dependencies", "dependentRequired", "dependentSchemas"})
_LISTS = frozenset({"enum", "allOf", "anyOf", "oneOf"})
_COUNTS = {
    "minItems": ("array", "maxItems", -1),
    "maxItems": ("array", "minItems", 1),
    "minProperties": ("object", "maxProperties", -1),
    "maxProperties": ("object", "minProperties", 1),
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
    if not 0 < len(numbers) <= _MAX_EXCLUDED:
        return []
    return [
        Flat(type=["number"], exclusive_minimum=low, exclusive_maximum=high)
        for low, high in zip([None, *numbers], [*numbers, None], strict=True)
    ]
