"""The supported ``format`` values of JSON Schema as regular expressions.

They match less than the standards allow where that keeps the grammars small. Length limits are omitted, because
counting makes grammars large. Standards: RFC 3339 for dates and times, RFC 4122, RFC 5321, RFC 1123, RFC 2673,
RFC 4291, RFC 3986, and ISO 8601 for durations.
"""

from collections.abc import Mapping

_YEAR = "[12][0-9]{3}"
_DATE = (
    f"{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
    "02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?(?:Z|[+-](?:0[0-9]|1[0-4]):[0-5][0-9])"
_HOST = "[a-z0-9]+(?:[.-][a-z0-9]+)*"
_COUNT = "[0-9]{1,4}"
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_LOCAL_PART = r"[A-Za-z0-9_%+-]+(?:\.[A-Za-z0-9_%+-]+)*"

FORMATS: Mapping[str, str] = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "duration": f"P(?:{_COUNT}D(?:T{_COUNT}H)?|T{_COUNT}(?:H(?:{_COUNT}M)?|M(?:{_COUNT}S)?|S)|{_COUNT}[WMY])",
    "uuid": "[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
    "email": rf"{_LOCAL_PART}@{_HOST}\.[a-z]{{2,10}}",
    "hostname": _HOST,
    "ipv4": rf"{_BYTE}(?:\.{_BYTE}){{3}}",
    "ipv6": "(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}",
    "uri": rf"(?:https?|ftp)://{_HOST}(?::[1-9][0-9]{{1,3}})?(?:/[A-Za-z0-9._~!$&'()*+,;=:@-]*)*",
}
"""The supported formats. Each expression must match the whole string."""
