"""Translation of pydantic's errors to the messages, paths and codes of the OpenAI service.

Like the service, it reports one error: unknown top-level fields first, then the first wrong type in the order of the
schema's fields, then the first other error.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from api.dialects.base.fields import WRONG_BRANCH, WRONG_TYPE, is_tag, left_out
from shared.protocol.errors import ProblemKind, RequestRefused, refuse

Unknown = Callable[[Sequence[str]], RequestRefused]
"""Returns the refusal of the fields with these names, which a request does not have."""

_Model = TypeVar("_Model", bound=BaseModel)

_SHOWN = 64
"""Maximum number of characters of a client's text that an error quotes."""

_EXPECTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_parsing_size": "an integer",
    "int_from_float": "an integer",
    "float_type": "a decimal",
    "bool_type": "a boolean",
    "bool_parsing": "a boolean",
    "dict_type": "an object",
    "model_type": "an object",
}
_ITEMS: Mapping[str | int, str] = {
    "modalities": "strings",
    "prompt": "integers",
    "stop_token_ids": "integers",
    "choice": "strings",
    "guided_choice": "strings",
}
"""Item types of array fields, where they are not objects."""
_BOUNDS = {
    "greater_than_equal": (
        "{noun} below minimum value. Expected a value >= {bound}, but got {value} instead",
        "{noun}_below_min_value",
    ),
    "less_than_equal": (
        "{noun} above maximum value. Expected a value <= {bound}, but got {value} instead",
        "{noun}_above_max_value",
    ),
    "greater_than": (
        "{noun} too small. Expected a value > {bound}, but got {value} instead",
        "{noun}_below_min_value",
    ),
    "less_than": (
        "{noun} too large. Expected a value < {bound}, but got {value} instead",
        "{noun}_above_max_value",
    ),
    "string_too_short": (
        "empty string. Expected a string with minimum length 1, but got an empty string instead",
        "empty_string",
    ),
    "string_too_long": (
        "string too long. Expected a string with maximum length {max_length}, but got a string with length {length} "
        "instead",
        "string_above_max_length",
    ),
    "string_pattern_mismatch": (
        "string does not match pattern. Expected a string that matches the pattern '{pattern}'",
        "invalid_value",
    ),
    "too_short": (
        "empty array. Expected an array with minimum length 1, but got an empty array instead",
        "empty_array",
    ),
    "too_long": (
        "array too long. Expected an array with maximum length {max_length}, but got an array with length {length} "
        "instead",
        "array_above_max_length",
    ),
    "too_many_properties": (
        "too many properties. Expected an object with at most {max_length} properties, but got an object with {length} "
        "properties instead",
        "object_above_max_properties",
    ),
}
"""The reason and the error code of each bound and pattern that schemas use, by pydantic's type of the error."""
_SHOWN_KEY = 512
"""Maximum number of characters of an object's key that ``param`` quotes."""
_KEY = "[key]"
"""Appended by pydantic to the path of an invalid key."""


def unrecognized(names: Sequence[str]) -> RequestRefused:
    """Return the refusal of the fields called ``names``, as under ``/v1/chat/completions``."""
    plural = "s" if len(names) > 1 else ""
    listing = _shortened(", ".join(names), 200)
    return refuse(ProblemKind.INVALID, f"Unrecognized request argument{plural} supplied: {listing}")


def validate(
    model: type[_Model], value: Mapping[str, Any], *, unknown: Unknown = unrecognized, strict: bool = True
) -> _Model:
    """Return ``value`` as a ``model``. Raises :class:`RequestRefused` with the first error.

    ``unknown`` returns the refusal of fields that ``model`` does not have. If not ``strict``, texts become numbers.
    """
    check_names(model, value, unknown=unknown)
    try:
        return model.model_validate(value, strict=strict)
    except ValidationError as error:
        findings = error.errors(include_url=False)
    finding = next(filter(_is_wrong_type, findings), findings[0])
    raise _translate(finding)


def listed(values: Sequence[str]) -> str:
    """Join quoted values as the service does: ``'a'``, ``'a' and 'b'``, ``'a', 'b', and 'c'``."""
    quoted = [f"'{value}'" for value in values]
    if len(quoted) < 3:
        return " and ".join(quoted)
    return f"{', '.join(quoted[:-1])}, and {quoted[-1]}"


def wrong_value(param: str, value: str, supported: Sequence[str]) -> RequestRefused:
    """Return the refusal of a string that is not one of the supported values."""
    message = f"Invalid value: '{_shortened(value)}'. Supported values are: {listed(supported)}."
    return refuse(ProblemKind.INVALID, message, param=param, code="invalid_value")


def check_names(model: type[BaseModel], value: Mapping[str, Any], *, unknown: Unknown = unrecognized) -> None:
    """Raise :class:`RequestRefused` if ``value`` has a field that ``model`` does not have."""
    if model.model_config.get("extra") == "allow":
        return
    names = [name for name in value.keys() - _names(model) if not left_out(value[name])]
    if names:
        raise unknown(sorted(names))


def unknown_parameter(param: str) -> RequestRefused:
    """Return the refusal of a field that its object does not have."""
    message = f"Unknown parameter: '{param}'."
    return refuse(ProblemKind.INVALID, message, param=param, code="unknown_parameter")


def invalid(field: str, why: str) -> RequestRefused:
    return refuse(ProblemKind.INVALID, f"Invalid '{field}': {why}.", param=field, code="invalid_value")


def missing(param: str) -> RequestRefused:
    """Return the refusal of a request without a required field."""
    message = f"Missing required parameter: '{param}'."
    return refuse(ProblemKind.INVALID, message, param=param, code="missing_required_parameter")


@cache
def _names(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(field.alias or name for name, field in model.model_fields.items())


def _is_wrong_type(finding: ErrorDetails) -> bool:
    """Whether a value has the wrong JSON type."""
    match finding["type"]:
        case "list_type":
            return True
        case "literal_error":
            return not isinstance(finding["input"], str)
        case kind if kind == WRONG_BRANCH:
            value, key = finding["input"], finding["msg"].split(" ", 1)[0]
            return not isinstance(value, dict) or not isinstance(value.get(key, ""), str)
        case kind:
            return kind == WRONG_TYPE or kind in _EXPECTED


def _translate(finding: ErrorDetails) -> RequestRefused:
    """Return the refusal for one of pydantic's errors."""
    param = _path(finding["loc"])
    value = finding["input"]
    match finding["type"]:
        case "missing":
            return missing(param)
        case "extra_forbidden":
            return unknown_parameter(param)
        case "literal_error" if isinstance(value, str):
            return wrong_value(param, value, re.findall(r"'([^']*)'", finding["ctx"]["expected"]))
        case "literal_error":
            return wrong_type(param, "a string", value)
        case kind if kind == WRONG_BRANCH:
            return _wrong_branch(param, finding["msg"].split(" "), value)
        case kind if kind == WRONG_TYPE:
            return wrong_type(param, finding["msg"], value)
        case "list_type":
            items = next((_ITEMS[part] for part in finding["loc"] if part in _ITEMS), "objects")
            return wrong_type(param, f"an array of {items}", value)
        case kind if kind in _EXPECTED:
            expected = "a metadata object" if param == "metadata" else _EXPECTED[kind]
            return wrong_type(param, expected, value)
        case _:
            return _out_of_bounds(finding)


def _path(location: Sequence[str | int]) -> str:
    """Format a path like ``messages[0].content[1].text``, without the tags of union branches."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif not is_tag(part) and part != _KEY:
            path += f".{_shortened(part)}" if path else _shortened(part)
    return path


def wrong_type(param: str, expected: str, value: Any) -> RequestRefused:
    """Return the refusal of a value with the wrong JSON type; ``expected`` is a noun phrase."""
    message = f"Invalid type for '{param}': expected {expected}, but got {_json_type(value)} instead."
    return refuse(ProblemKind.INVALID, message, param=param, code="invalid_type")


def _wrong_branch(param: str, names: Sequence[str], value: Any) -> RequestRefused:
    key, *branches = names
    if not isinstance(value, dict):
        return wrong_type(param, "an object", value)
    if key not in value:
        return missing(f"{param}.{key}")
    if not isinstance(value[key], str):
        return wrong_type(f"{param}.{key}", "a string", value[key])
    return wrong_value(f"{param}.{key}", value[key], branches)


def _out_of_bounds(finding: ErrorDetails) -> RequestRefused:
    """Return the refusal of a value or key that is out of bounds or does not match a pattern."""
    location = finding["loc"]
    is_key = location[-1] == _KEY
    subject = f"Invalid '{_path(location)}'"
    reason, code = _broken_bound(finding["type"], finding["input"], finding.get("ctx", {}))
    if is_key and finding["type"] == "string_too_long":
        # Only the keys of ``metadata`` have a bound.
        param = f"{_path(location[:-2])}.{_shortened(str(location[-2]), _SHOWN_KEY)}"
        message = f"Invalid property name in '{_path(location[:-2])}': {reason}."
        return refuse(ProblemKind.INVALID, message, param=param, code="property_name_above_max_length")
    if location == ("model",):
        return refuse(ProblemKind.INVALID, "you must provide a model parameter")
    return refuse(ProblemKind.INVALID, f"{subject}: {reason}.", param=_path(location), code=code)


def _broken_bound(kind: str, value: Any, context: Mapping[str, Any]) -> tuple[str, str]:
    """Return the reason and the error code."""
    if kind == "too_long" and isinstance(value, dict):
        kind = "too_many_properties"
    reason, code = _BOUNDS[kind]
    bound = next((context[name] for name in ("ge", "le", "gt", "lt") if name in context), None)
    # A field's type is that of its bound: a temperature of 3 is a decimal.
    noun = "decimal" if isinstance(bound, float) else "integer"
    words = {**context, "noun": noun}
    if bound is not None:
        words |= {"bound": _number(bound), "value": _number(value)}
    elif isinstance(value, str | list | dict):
        words["length"] = len(value)
    return reason.format(**words), code.format(noun=noun)


def _number(value: float) -> str:
    return _shortened(json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value))


def _json_type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a decimal number"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"


def _shortened(text: str, limit: int = _SHOWN) -> str:
    return text if len(text) <= limit else text[:limit] + "…"
