"""Flat schemas: what a value must satisfy, without keywords that combine schemas.

``{"required": ["a"], "not": {"required": ["b"]}}`` becomes ``Flat(type=["object"], required=["a"], absent=["b"])``.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, get_args

import msgspec

from shared.parsers.schema_types import hashable, kinds_of_value
from worker.grammar.schema.keywords import COMBINING, FORMATS, NoValue, SchemaError, UnsupportedKeyword

Schema = Mapping[str, Any]
Matches = Callable[[str, str], bool | None]
"""Whether a pattern matches a text. None: dialects of regular expressions differ, or it takes too long to find out."""

Kind = Literal["object", "array", "string", "number", "integer", "boolean", "null"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_Count = Annotated[int, msgspec.Meta(ge=0)]
_Number = int | float


class Flat(msgspec.Struct, frozen=True, rename="camel"):
    """The keywords of JSON Schema 2020-12 that say something about a value itself; None: not said.

    A keyword without ``type`` allows only the types to which it applies. What no keyword says: ``excluded`` values are
    not allowed; an object does not have the properties ``absent``; ``checked`` are schemas of properties that don't
    count as evaluated; items may follow ``prefixItems`` (``further``); the grammar counts ``minLength`` (``counted``).
    """

    type: Annotated[list[Kind], msgspec.Meta(min_length=1)] | None = None
    enum: list[Any] | None = None
    excluded: list[Any] | None = None

    properties: dict[str, Any] | None = None
    pattern_properties: dict[str, Any] | None = None
    additional_properties: Any = None
    property_names: Any = None
    required: list[str] | None = None
    min_properties: _Count | None = None
    max_properties: _Count | None = None
    absent: list[str] | None = None
    checked: dict[str, Any] | None = None

    items: Any = None
    prefix_items: list[Any] | None = None
    min_items: _Count | None = None
    max_items: _Count | None = None
    unique_items: bool | None = None
    further: bool | None = None

    min_length: _Count | None = None
    max_length: _Count | None = None
    pattern: str | None = None
    format: str | None = None
    counted: bool | None = None

    minimum: _Number | None = None
    maximum: _Number | None = None
    exclusive_minimum: bool | _Number | None = None  # a flag up to draft 4
    exclusive_maximum: bool | _Number | None = None
    multiple_of: Annotated[float, msgspec.Meta(gt=0)] | Annotated[int, msgspec.Meta(gt=0)] | None = None

    def said(self, kind: str) -> list[str]:
        """Return the keywords of one of :data:`ABOUT` that are said."""
        return [_KEYWORDS[field] for field in ABOUT[kind] if getattr(self, field) is not None]

    def kinds(self) -> list[Kind]:
        """Return the types that are declared, or else those that keywords apply to."""
        return self.type if self.type is not None else [kind for kind in KINDS if kind in ABOUT and self.said(kind)]

    def bounds(self, least: str, most: str, path: str) -> tuple[int, int | None]:
        """Return the counts of two fields, by default 0 and None. Raises :class:`NoValue` if they exclude all."""
        low, high = getattr(self, least) or 0, getattr(self, most)
        if high is not None and high < low:
            raise NoValue(f"{path}/{_KEYWORDS[most]}", f"it is less than '{_KEYWORDS[least]}'")
        return low, high

    def is_possible(self) -> bool:
        """Whether a value may exist, as far as that is seen at once."""
        return self.type != [] and self.enum != [] and set(self.absent or ()).isdisjoint(self.required or ())

    def without_unevaluated(self) -> "Flat":
        """Return it without what counts as evaluated, which nothing in ``not`` does.

        Raises :class:`UnsupportedKeyword` if that, or what is limited outside the grammar, can't be left out.
        """
        if any(getattr(self, field) is not None for field in _NOT_IN_NOT):
            raise UnsupportedKeyword("", "not in 'not'")
        return msgspec.structs.replace(self, properties=None, checked=self.properties or self.checked)

    def fits(self, value: Any, matches: Matches) -> bool | None:
        """Whether it allows ``value``; None if that is not known, or depends on other keywords than ``required``."""
        kinds = kinds_of_value(value)
        if self.type is not None and kinds.isdisjoint(self.type):
            return False
        if self.excluded and hashable(value) in set(map(hashable, self.excluded)):
            return False
        if isinstance(value, str):
            return self._fits_text(value, matches)
        if "number" in kinds:
            return self._fits_number(value)
        if isinstance(value, dict) and any(name not in value for name in self.required or ()):
            return False
        others = [keyword for kind in kinds & ABOUT.keys() for keyword in self.said(kind) if keyword != "required"]
        return None if others else True

    def _fits_text(self, value: str, matches: Matches) -> bool | None:
        if not (self.min_length or 0) <= len(value) <= (math.inf if self.max_length is None else self.max_length):
            return False
        if self.pattern is not None:
            return matches(self.pattern, value)
        # Its expression matches less than the format allows.
        return not self.format or self.format not in FORMATS or matches(whole(FORMATS[self.format]), value) or None

    def _fits_number(self, value: float) -> bool | None:
        for sign, end, beyond in (
            (1, self.minimum, self.exclusive_minimum),
            (-1, self.maximum, self.exclusive_maximum),
        ):
            if end is not None and (sign * value < sign * end or (beyond is True and value == end)):
                return False
            if beyond is not None and not isinstance(beyond, bool) and sign * value <= sign * beyond:
                return False
        return True if self.multiple_of is None else None


ABOUT: Mapping[str, tuple[str, ...]] = {
    "object": Flat.__struct_fields__[3:12],
    "array": Flat.__struct_fields__[12:17],
    "string": Flat.__struct_fields__[18:22],
    "number": Flat.__struct_fields__[23:28],
}
"""The fields that apply to one type only."""
_KEYWORDS = dict(zip(Flat.__struct_fields__, Flat.__struct_encode_fields__, strict=True))
_COUNTS = {f"{end}{what}" for end in ("min", "max") for what in ("Properties", "Items", "Length")}
_OWN = {"excluded", "absent", "checked", "further", "counted"}
FLAT_KEYWORDS = frozenset(_KEYWORDS.values()) - _OWN
ASSERTIONS = FLAT_KEYWORDS | COMBINING | {"const", "additionalItems"}
"""The keywords that grammars enforce."""
_NOT_IN_NOT = (
    "pattern_properties", "additional_properties", "prefix_items", "items", "min_length", "max_length", "pattern",
    "unique_items",
)  # fmt: skip


def flat_of(schema: Schema, path: str) -> Flat:
    """Return the keywords of ``schema`` that don't combine schemas. Raises :class:`SchemaError` for a wrong value."""
    said = {keyword: value for keyword, value in schema.items() if keyword in FLAT_KEYWORDS}
    for keyword, value in said.items():
        if value is None:
            raise SchemaError(f"{path}/{keyword}", "it is null")
        if keyword in _COUNTS and isinstance(value, float) and value.is_integer():
            said[keyword] = int(value)
    if isinstance(said.get("type"), str):
        said["type"] = [said["type"]]
    try:
        return msgspec.convert(said, Flat)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).replace(" | null", "").partition(" - at `$.")
        keyword = re.split(r"\W", place)[0]
        raise SchemaError(f"{path}/{keyword}", f"{reason[0].lower()}{reason[1:]}") from error


def whole(expression: str) -> str:
    """Return a pattern of the texts that ``expression`` matches as a whole."""
    return f"^(?:{expression})$"


def merged(first: Flat, second: Flat, path: str, matches: Matches) -> Flat:
    """Return a schema for the values that both allow.

    Raises :class:`UnsupportedKeyword` if both have a keyword whose values can't be combined.
    """
    changes: dict[str, Any] = {}
    for field in Flat.__struct_fields__:
        one, other = getattr(first, field), getattr(second, field)
        if other is None or (one is not None and same(one, other)):
            continue
        if one is None:
            changes[field] = other
        elif field in _JOINS:
            changes[field] = _JOINS[field](one, other)
        elif field not in _MEMBERS and field not in _ITEMS:
            raise UnsupportedKeyword(
                path, f"two schemas that must both hold have different values of '{field}'; write them as one schema"
            )
    if _any_said(first, _MEMBERS) and _any_said(second, _MEMBERS):
        changes |= _members(first, second, matches)
    if _any_said(first, _ITEMS) and _any_said(second, _ITEMS):
        changes |= _items(first, second)
    return msgspec.structs.replace(first, **changes)


def _any_said(flat: Flat, fields: Iterable[str]) -> bool:
    return any(getattr(flat, field) is not None for field in fields)


def same(first: Any, second: Any) -> bool:
    """Whether two JSON values are equal. Unlike in Python, ``true`` does not equal 1."""
    waiting = [(first, second)]
    while waiting:
        one, other = waiting.pop()
        if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
            waiting += zip(one, other, strict=True)
        elif isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
            waiting += ((value, other[name]) for name, value in one.items())
        elif isinstance(one, list | dict) or isinstance(one, bool) != isinstance(other, bool) or one != other:
            return False
    return True


def both(schemas: Iterable[Any]) -> Any:
    """Return a schema for the values that all ``schemas`` allow."""
    distinct: list[Any] = []
    for schema in schemas:
        if schema is False:
            return False
        if schema is not True and not any(same(schema, other) for other in distinct):
            distinct.append(schema)
    return {"allOf": distinct} if len(distinct) > 1 else distinct[0] if distinct else True


def member_schemas(flat: Flat, name: str, matches: Matches) -> list[Any]:
    """Return the schemas that the member ``name`` of an object must satisfy, beside ``checked``."""
    patterns = flat.pattern_properties or {}
    found = {pattern: matches(pattern, name) for pattern in patterns}
    parts = [patterns[pattern] for pattern in found if found[pattern] is not False]
    if flat.properties is not None and name in flat.properties:
        return [*parts, flat.properties[name]]
    return parts if True in found.values() else [*parts, _or_any(flat.additional_properties)]


def _or_any(schema: Any) -> Any:
    return True if schema is None else schema


def _members(first: Flat, second: Flat, matches: Matches) -> dict[str, Any]:
    """Return the fields of members that ``first`` and ``second`` allow.

    Grammars let a name match only one pattern, so patterns are combined with the additional properties of the other.
    """
    result: dict[str, Any] = {}
    if first.properties is not None or second.properties is not None:
        result["properties"] = {
            name: both([*member_schemas(first, name, matches), *member_schemas(second, name, matches)])
            for name in dict.fromkeys([*(first.properties or ()), *(second.properties or ())])
        }
    patterns: dict[str, Any] = {}
    for one, other in ((first, second), (second, first)):
        for pattern, part in (one.pattern_properties or {}).items():
            theirs = (other.pattern_properties or {}).get(pattern, _or_any(other.additional_properties))
            patterns.setdefault(pattern, both([part, theirs]))
    if patterns:
        result["pattern_properties"] = patterns
    others = [flat.additional_properties for flat in (first, second) if flat.additional_properties is not None]
    if others:
        result["additional_properties"] = both(others)
    return result


def _items(first: Flat, second: Flat) -> dict[str, Any]:
    result: dict[str, Any] = {}
    prefixes = [flat.prefix_items or [] for flat in (first, second)]
    rests = [_or_any(flat.items) for flat in (first, second)]
    if longest := max(map(len, prefixes)):
        result["prefix_items"] = [
            both(prefix[at] if at < len(prefix) else rest for prefix, rest in zip(prefixes, rests, strict=True))
            for at in range(longest)
        ]
    if first.items is not None or second.items is not None:
        result["items"] = both(rests)
    return result


def _types(first: list[str], second: list[str]) -> list[str]:
    common = [kind for kind in first if kind in second]
    if "integer" not in common and (
        ("integer" in first and "number" in second) or ("integer" in second and "number" in first)
    ):
        common.append("integer")
    return common


def _multiple(first: float, second: float) -> int:
    if isinstance(first, int) and isinstance(second, int):
        return math.lcm(first, second)
    raise UnsupportedKeyword("/multipleOf", "two different ones are supported only as integers")


def _joined(first: list[Any], second: list[Any]) -> list[Any]:
    known = set(map(hashable, first))
    return [*first, *(value for value in second if hashable(value) not in known)]


def _common(first: list[Any], second: list[Any]) -> list[Any]:
    known = set(map(hashable, second))
    return [value for value in first if hashable(value) in known]


def _all_checked(first: Schema, second: Schema) -> Schema:
    return {**first, **second, **{name: both([first[name], second[name]]) for name in first if name in second}}


_MEMBERS = ("properties", "pattern_properties", "additional_properties")
_ITEMS = ("prefix_items", "items")
_JOINS: Mapping[str, Callable[[Any, Any], Any]] = {
    "type": _types,
    "enum": _common,
    **dict.fromkeys(("required", "absent", "excluded"), _joined),
    "checked": _all_checked,
    "property_names": lambda first, second: both([first, second]),
    "unique_items": lambda first, second: first or second,
    "multiple_of": _multiple,
    **dict.fromkeys(("minimum", "exclusive_minimum", "min_length", "min_items", "min_properties"), max),
    **dict.fromkeys(("maximum", "exclusive_maximum", "max_length", "max_items", "max_properties"), min),
}
