"""Fields as paths: ``messages[].content[].text`` is the text of a part of a message."""

import re
import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin

from pydantic import BaseModel
from typing_extensions import get_type_hints, is_typeddict

_TRANSPARENT = (Union, types.UnionType, Required, NotRequired, Annotated)


def inside(value: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Each path in a JSON value, as often as it occurs, with what is there."""
    if isinstance(value, dict):
        for key, inner in value.items():
            path = f"{prefix}.{key}" if prefix else key
            yield path, inner
            yield from inside(inner, path)
    elif isinstance(value, list):
        for inner in value:
            yield from inside(inner, f"{prefix}[]")


_CLIENTS = {"parameters", "schema", "input_schema", "parsed_arguments", "logit_bias", "json", "guided_json"}
"""Fields of requests whose contents are the client's own: their names are no fields of the interface."""


def names_in(body: object) -> Iterator[str]:
    """Each path of a field of the interface in a request, as often as it occurs."""
    for path, _ in inside(body):
        if not _CLIENTS & set(re.split(r"[.\[\]]+", path)[:-1]):
            yield path


def of_type(kind: Any, prefix: str = "", outer: tuple[Any, ...] = ()) -> Iterator[str]:
    """Each path that a type of an SDK describes: of a typed dictionary, a pydantic model, and whatever holds them."""
    hints = _fields(kind)
    if hints is not None:
        if kind in outer:
            return
        for name, inner in hints.items():
            path = f"{prefix}.{name}" if prefix else name
            yield path
            yield from of_type(inner, path, (*outer, kind))
        return
    origin = get_origin(kind)
    if origin is None or origin is Literal or origin in (dict, typing.Mapping):
        return
    inner_prefix = prefix if origin in _TRANSPARENT else f"{prefix}[]"
    for inner in get_args(kind):
        yield from of_type(inner, inner_prefix, outer)


def of_param(param: str) -> str:
    """The path that an error's ``param`` means: ``messages.[0].content`` is ``messages[].content``."""
    return re.sub(r"\.?\[\d+\]", "[]", param)


def _fields(kind: Any) -> dict[str, Any] | None:
    if is_typeddict(kind):
        return get_type_hints(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {name: field.annotation for name, field in kind.model_fields.items()}
    return None
