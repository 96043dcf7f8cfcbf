"""The JSON Schema keywords that grammars enforce, and the unsupported ones with alternatives.

Vocabulary: JSON Schema 2020-12 and the drafts back to 4. Unknown keywords are annotations (2020-12, section 6.5), like
``title``. A known keyword that restricts values but can't be enforced is never ignored silently.
"""

from collections.abc import Mapping

COMBINING = frozenset(
    {
        "$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependencies", "dependentRequired",
        "dependentSchemas", "contains", "minContains", "maxContains", "unevaluatedProperties", "unevaluatedItems",
    }
)  # fmt: skip
"""Keywords that :mod:`worker.grammar.schema.alternatives` turns into those of flat schemas."""

UNSUPPORTED: Mapping[str, str] = {
    "$dynamicRef": "use '$ref' instead",
    "$recursiveRef": "use '$ref' instead",
    "extends": "use 'allOf' instead",
    "disallow": "name the allowed values",
}
"""Keywords that restrict values and can't be enforced, with the alternative to suggest to the client."""


class SchemaError(ValueError):
    """A schema is invalid or can't be compiled to a grammar. ``path`` is a JSON pointer to the invalid part."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"at '#{path}': {reason}" if path else reason)
        self.path = path
        self.reason = reason


class UnsupportedKeyword(SchemaError):
    """A schema is valid but uses a keyword that a grammar can't enforce."""


class NoValue(SchemaError):
    """A schema allows no value, or none that a grammar makes."""


def escaped(name: str) -> str:
    """Return a key escaped for a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


_YEAR = "[12][0-9]{3}"
_DATE = (
    f"{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
    "02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?(?:Z|[+-](?:0[0-9]|1[0-4]):[0-5][0-9])"
_PATH = "(?:/[A-Za-z0-9._~!$&'()*+,;=:@-]*)*"
_HOST = "[a-z0-9]+(?:[.-][a-z0-9]+)*"
_COUNT = "[0-9]{1,4}"
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_LOCAL_PART = r"[A-Za-z0-9_%+-]+(?:\.[A-Za-z0-9_%+-]+)*"
_EMAIL = rf"{_LOCAL_PART}@{_HOST}\.[a-z]{{2,10}}"
_URI = f"(?:https?|ftp)://{_HOST}(?::[1-9][0-9]{{1,3}})?{_PATH}"

FORMATS: Mapping[str, str] = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "duration": f"P(?:{_COUNT}D(?:T{_COUNT}H)?|T{_COUNT}(?:H(?:{_COUNT}M)?|M(?:{_COUNT}S)?|S)|{_COUNT}[WMY])",
    "uuid": "[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
    "email": _EMAIL,
    "hostname": _HOST,
    "ipv4": rf"{_BYTE}(?:\.{_BYTE}){{3}}",
    "ipv6": "(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}",
    "uri": _URI,
    "uri-reference": f"{_URI}|{_PATH}",
    "uri-template": _URI,
    "iri": _URI,
    "iri-reference": f"{_URI}|{_PATH}",
    "idn-email": _EMAIL,
    "idn-hostname": _HOST,
    "json-pointer": "(?:/[A-Za-z0-9._-]*)*",
    "relative-json-pointer": "(?:0|[1-9][0-9]{0,2})(?:#|(?:/[A-Za-z0-9._-]*)*)",
    "regex": r"[A-Za-z0-9 _/:@,.^$-]*",
}
"""The supported ``format`` values as regular expressions, each of which must match the whole string.

They match less than the standards allow where that keeps the grammars small. Length limits are omitted, because
counting makes grammars large. Standards: RFC 3339 for dates and times, RFC 4122, RFC 5321, RFC 1123, RFC 2673,
RFC 4291, RFC 3986, RFC 6901, and ISO 8601 for durations.
"""
