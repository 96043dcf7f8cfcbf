"""Hypothesis strategies for JSON schemas that are served, each with values that are valid or nearly so.

The grammars generate fewer texts than a schema allows (docs/json-schema.md). The values stay within these limits, so a
value that is valid must be accepted.
"""

import json
from datetime import date
from typing import Any, NamedTuple

from hypothesis import assume
from hypothesis import strategies as st

from worker.grammar.schema.limits import length_limits_of

Values = st.SearchStrategy[Any]


class Case(NamedTuple):
    """A schema and ``values`` near it. ``kind`` is its JSON type, or something else if it has several."""

    kind: str
    schema: dict[str, Any]
    values: Values


Cases = st.SearchStrategy[Case]

_FREE_TEXTS = st.text('ab01 é中😀"\\/\n\x7f', max_size=8)
_PLAIN_TEXTS = st.text("ab01 é中😀/", max_size=8)
_NAMES = ("a", "b", "größe", 'c "d"', "e/f~", "")
_OTHER_NAMES = ("x", "yé", "zz")
"""Additional properties must not start with the same letter as a named one."""
_PATTERNS = (
    "^a+$", "b", "^[A-Z]{2}-[0-9]{2,3}$", "^(a|bc)*$", "^é?x", r"^\w+ \d$", '^["\\\\]{1,2}$', "a.c$", "^(?:ab?){2,}|c$",
    "^[^ab]$", r"^\u00e9\x41\/$", "^[ -~]{3}$", r"^\s[\d.]$", "^(0|[1-9][0-9]*)$", "^$", "a|^b|c$",
    "^.+é.*b$", "^.*.{2}é$", "^[a-z]{1,9}$", "^a.{0,5}$", "^(?:[^a]b){1,5}$",
)  # fmt: skip
_PATTERN_CHARACTERS = "".join(map(chr, range(0x20, 0x7F))) + "é한"
_DAYS = st.dates(date(1000, 1, 1), date(2999, 12, 31)).map(str).filter(lambda day: not day.endswith("-02-29"))
_FORMATS: dict[str, Values] = {
    "date": _DAYS | st.just("2024-02-30"),
    "time": st.sampled_from(["12:30:59Z", "23:59:00.25+01:00", "24:00:00Z", "12:30"]),
    "date-time": st.builds(lambda day, time: f"{day}T{time:%H:%M:%S}Z", _DAYS, st.times()),
    "duration": st.sampled_from(["P1D", "PT5M", "P3W", "PT", "1D", "P"]),
    "uuid": st.uuids(version=4).map(str) | st.just("0-1"),
    "email": st.sampled_from(["a@b.co", "x.y+z@mail.example.org", "a@", "a b@c.de"]),
    "hostname": st.sampled_from(["a.b", "example-1.org", "-a", "a..b"]),
    "ipv4": st.ip_addresses(v=4).map(str) | st.sampled_from(["256.1.1.1", "1.2.3"]),
    "ipv6": st.ip_addresses(v=6).map(lambda address: address.exploded),
    "uri": st.sampled_from(["https://a.b/c", "ftp://a:99/", "a b", "//"]),
}
_WORDS = st.text("ab", min_size=1, max_size=4)
"""Texts with common prefixes and suffixes."""
_SCALARS = (None, True, False, 0, 1, -7, 12, "", "a", "größe", 'say "x"\\')


def _texts(limits: dict[str, int]) -> Case:
    # 'minLength' counts only characters that are not escaped.
    return Case("string", {"type": "string", **limits}, _PLAIN_TEXTS if "minLength" in limits else _FREE_TEXTS)


def _matching(pattern: str) -> Case:
    matches = st.from_regex(pattern, alphabet=_PATTERN_CHARACTERS)
    return Case("string", {"type": "string", "pattern": pattern}, matches | _PLAIN_TEXTS)


def _formatted(name: str) -> Case:
    return Case("string", {"type": "string", "format": name}, _FORMATS[name])


@st.composite
def _numbers(draw: st.DrawFn) -> Case:
    kind = draw(st.sampled_from(["integer", "number"]))
    unit = 1 if kind == "integer" else draw(st.sampled_from([1, 10, 100]))
    low = draw(st.integers(-150, 150) | st.sampled_from([0, -(10**9), 10**9]))
    high = low + draw(st.integers(2, 120) | st.just(10**6))
    ends = {"minimum": low, "exclusiveMinimum": low, "maximum": high, "exclusiveMaximum": high}
    names = draw(st.lists(st.sampled_from(list(ends)), max_size=3, unique=True))
    schema = {"type": kind, **{name: _decimal(ends[name], unit) for name in names}}
    near = st.integers(low - 3, low + 3) | st.integers(high - 3, high + 3) | st.integers(low, high)
    if kind == "integer":
        return Case(kind, schema, near | st.integers(-(10**14), 10**14))
    # Numbers have at least as many decimal places as the bounds.
    finer = st.builds(lambda whole, digit: _decimal(whole * 10 + digit, unit * 10), near, st.integers(1, 9))
    return Case(kind, schema, finer | near if unit == 1 else finer)


def _decimal(number: int, unit: int) -> int | float:
    return number // unit if number % unit == 0 else number / unit


def _listed(values: list[Any]) -> Case:
    schema = {"const": values[0]} if len(values) == 1 else {"enum": values}
    return Case("listed", schema, st.sampled_from([*values, *_SCALARS]) | _WORDS)


_leaves: Cases = st.one_of(
    st.fixed_dictionaries({}, optional={"minLength": st.integers(0, 3), "maxLength": st.integers(3, 6)}).map(_texts),
    st.sampled_from(_PATTERNS).map(_matching),
    st.sampled_from(sorted(_FORMATS)).map(_formatted),
    _numbers(),
    st.lists(st.sampled_from([*_SCALARS, [], {}, [1, "a"], {"k": [None]}]), min_size=1, max_size=4).map(_listed),
    st.lists(_WORDS, min_size=3, max_size=8, unique=True).map(_listed),
    st.just(Case("boolean", {"type": "boolean"}, st.booleans())),
    st.just(Case("null", {"type": "null"}, st.none())),
    st.just(Case("any", {}, st.sampled_from([*_SCALARS, 1.5, [], {}, [{"a": [1, -2.25]}]]))),
)


@st.composite
def _arrays(draw: st.DrawFn, inner: Cases) -> Case:
    item = draw(inner)
    least = draw(st.integers(0, 2))
    limits = draw(st.fixed_dictionaries({}, optional={"minItems": st.just(least), "maxItems": st.integers(least, 4)}))
    return Case("array", {"type": "array", "items": item.schema, **limits}, st.lists(item.values, max_size=5))


@st.composite
def _tuples(draw: st.DrawFn, inner: Cases) -> Case:
    first = draw(st.lists(inner, min_size=1, max_size=3))
    schema: dict[str, Any] = {"type": "array", "prefixItems": [case.schema for case in first]}
    # A grammar allows complete tuples only, and further items only if 'items' is given.
    values: Values = st.tuples(*(case.values for case in first)).map(list)
    if draw(st.booleans()):
        schema["minItems"] = len(first)
    match draw(st.sampled_from(["absent", "none", "any"])):
        case "none":
            schema["items"] = False
        case "any":
            further = draw(inner)
            schema["items"] = further.schema
            values = st.builds(list.__add__, values, st.lists(further.values, max_size=2))
    return Case("array", schema, values)


@st.composite
def _objects(draw: st.DrawFn, inner: Cases) -> Case:
    members = draw(st.dictionaries(st.sampled_from(_NAMES), inner, min_size=1, max_size=4))
    required = draw(st.lists(st.sampled_from(list(members)), unique=True))
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: case.schema for name, case in members.items()},
        "required": required,
    }
    # Now and then a required property is missing.
    values: Values = _some_members(members, required) | _some_members(members, required[1:])
    others = draw(st.sampled_from(["absent", "none", "any"]))
    if others == "none":
        schema["additionalProperties"] = False
    elif others == "any" and "" not in members:
        other = draw(inner)
        schema["additionalProperties"] = other.schema
        limits = draw(st.sampled_from([{}, {"maxProperties": len(members) + 1}, {"minProperties": len(required)}]))
        schema |= limits
        # Named properties count towards maxProperties even when they are omitted.
        named = _some_members(members, list(members)) if "maxProperties" in limits else values
        values = st.builds(dict.__or__, named, st.dictionaries(st.sampled_from(_OTHER_NAMES), other.values))
    return Case("object", schema, values)


@st.composite
def _some_members(draw: st.DrawFn, members: dict[str, Case], required: list[str]) -> dict[str, Any]:
    """Draw an object with its properties in the order of ``members``."""
    return {name: draw(case.values) for name, case in members.items() if name in required or draw(st.booleans())}


@st.composite
def _maps(draw: st.DrawFn, inner: Cases) -> Case:
    value = draw(inner)
    limits = draw(st.sampled_from([{}, {"minProperties": 1}, {"maxProperties": 2}, {"maxProperties": 0}]))
    values = st.dictionaries(st.sampled_from((*_NAMES, *_OTHER_NAMES)), value.values, max_size=3)
    return Case("object", {"type": "object", "additionalProperties": value.schema, **limits}, values)


def _limits_lengths(case: Case) -> bool:
    """Whether a string has a length limit. With several schemas for a value, the lowest limit counts."""
    return any('"maxLength"' in limits.schema for limits in length_limits_of([""], json.dumps(case.schema)))


def _mixes_numbers(*options: Case) -> bool:
    """Whether a value of one option may be a number of another, which has as many decimal places as its bounds."""
    kinds = {case.kind for case in options}
    return "number" in kinds and not kinds.isdisjoint({"any", "integer", "listed", "union"})


@st.composite
def _unions(draw: st.DrawFn, inner: Cases) -> Case:
    options = draw(st.lists(inner, min_size=2, max_size=3, unique_by=lambda case: case.kind))
    kinds = {case.kind for case in options}
    disjoint = not kinds & {"any", "listed", "union"} and not kinds >= {"integer", "number"}
    assume(disjoint or not any(map(_limits_lengths, options)))
    assume(not _mixes_numbers(*options))
    keyword = draw(st.sampled_from(["anyOf", "oneOf"])) if disjoint else "anyOf"
    return Case("union", {keyword: [case.schema for case in options]}, st.one_of(*(case.values for case in options)))


@st.composite
def _variants(draw: st.DrawFn, inner: Cases) -> Case:
    """Draw objects that a constant property distinguishes."""
    ones, others = draw(inner), draw(inner)
    assume(not _limits_lengths(ones) and not _limits_lengths(others) and not _mixes_numbers(ones, others))
    options = [
        {"type": "object", "properties": {"kind": {"const": name}, "v": case.schema}, "required": ["kind", "v"]}
        for name, case in (("p", ones), ("q", others))
    ]
    values = st.builds(
        lambda kind, value: {"kind": kind, "v": value}, st.sampled_from(["p", "q", "r"]), ones.values | others.values
    )
    return Case("union", {"oneOf": options}, values)


@st.composite
def _intersections(draw: st.DrawFn, inner: Cases) -> Case:
    """Draw a schema whose keywords are spread over ``allOf``."""
    case = draw(st.one_of(_numbers(), _objects(inner)))
    apart = [keyword for keyword in case.schema if keyword not in ("type", "properties", "additionalProperties")]
    rest = {keyword: value for keyword, value in case.schema.items() if keyword not in apart}
    parts = [rest, *({keyword: case.schema[keyword]} for keyword in apart)]
    return Case(case.kind, {"allOf": parts}, case.values)


@st.composite
def _lists_by_reference(draw: st.DrawFn) -> Case:
    """Draw the schema of a linked list, which refers to itself."""
    case = draw(single_cases)
    node = {
        "type": "object",
        "properties": {"v": case.schema, "next": {"$ref": "#/$defs/a~1node"}},
        "required": ["v"],
        "additionalProperties": False,
    }
    values = st.lists(case.values, min_size=1, max_size=3).map(_linked)
    return Case("object", {"$ref": "#/$defs/a~1node", "$defs": {"a/node": node}}, values)


def _linked(values: list[Any]) -> dict[str, Any]:
    first, *rest = values
    return {"v": first, "next": _linked(rest)} if rest else {"v": first}


single_cases: Cases = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        _arrays(inner), _tuples(inner), _objects(inner), _maps(inner), _unions(inner), _variants(inner),
        _intersections(inner),
    ),
    max_leaves=4,
)  # fmt: skip
cases: Cases = st.one_of(single_cases, single_cases, single_cases, _lists_by_reference())

_PARTS: tuple[dict[str, Any], ...] = (
    {"type": "integer", "multipleOf": 5}, {"type": "number", "multipleOf": 0.1}, {"type": "boolean"},
    {"enum": ["a", "ab", None, 7]}, {"type": "string", "not": {"const": "a"}}, {"const": "k"},
    {"type": "array", "items": {"enum": ["a", "b", 1]}, "uniqueItems": True, "minItems": 1},
    {"type": "array", "contains": {"const": 1}, "items": {"type": "integer"}},
)  # fmt: skip
_ABOUT_MEMBERS: tuple[dict[str, Any], ...] = (
    {"minProperties": 2}, {"minProperties": 1, "maxProperties": 2}, {"propertyNames": {"maxLength": 3}},
    {"propertyNames": {"enum": ["a", "b", "x-1"]}}, {"patternProperties": {"^x-[0-9]+$": {"type": "null"}}},
    {"patternProperties": {"^z": {"type": ["boolean", "string"]}}}, {"additionalProperties": {"type": "integer"}},
    {"additionalProperties": False}, {"dependentRequired": {"a": ["b"], "b": ["c"]}},
    {"dependentSchemas": {"a": {"properties": {"b": {"const": "k"}}, "required": ["b"]}}},
    {"if": {"properties": {"a": {"enum": ["a", "k", True]}}, "required": ["a"]}, "then": {"required": ["c"]}},
    {"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"properties": {"b": False}}},
    {"allOf": [{"properties": {"d": {"type": "null"}}}], "unevaluatedProperties": False},
    {"anyOf": [{"properties": {"d": {"const": 1}}, "required": ["d"]}, {}], "unevaluatedProperties": False},
)  # fmt: skip


@st.composite
def narrowed_cases(draw: st.DrawFn) -> Case:
    """Draw an object schema of keywords for which a grammar may allow less, with values that need not be valid."""
    properties = {name: draw(st.sampled_from(_PARTS)) for name in ("a", "b", "c")}
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    for keywords in draw(st.lists(st.sampled_from(_ABOUT_MEMBERS), min_size=1, max_size=2)):
        schema |= keywords
    values = st.sampled_from([5, -10, 2.5, True, "a", "k", "b", None, ["a", 1], [1], [2, 1]])
    return Case("object", schema, st.dictionaries(st.sampled_from(["a", "b", "c", "d", "x-1", "ze"]), values))


_JUNK = st.sampled_from([*_SCALARS, 1.5, 10**6, "b" * 7, [], {}, [None], {"a": 1}])


@st.composite
def changed(draw: st.DrawFn, value: Any) -> Any:
    """Draw ``value`` with one of its parts replaced, removed or added."""
    if isinstance(value, dict | list) and value and draw(st.booleans()):
        key = draw(st.sampled_from(list(value) if isinstance(value, dict) else range(len(value))))
        copy = value.copy()
        copy[key] = draw(changed(value[key]))
        return copy
    if isinstance(value, dict) and draw(st.booleans()):
        gone = draw(st.sampled_from([*value, None]))
        added = draw(st.dictionaries(st.sampled_from((*_NAMES, *_OTHER_NAMES)), _JUNK, max_size=1))
        return {name: part for name, part in value.items() if name != gone} | added
    if isinstance(value, list) and draw(st.booleans()):
        return [*value[draw(st.integers(0, 1)) :], *draw(st.lists(_JUNK, max_size=2))]
    return draw(_JUNK)
