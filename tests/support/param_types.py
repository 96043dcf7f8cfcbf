"""The fields of the SDKs' requests and of this service's schemas as paths, to find what a schema does not know.

A path names a field (``tools[]<function>.strict``), a member of a union by its tag (``tools[]<function>``) or one of
the values of a literal (``service_tier=auto``).
"""

import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from typing_extensions import TypeAliasType, is_typeddict

_PLAIN = (str, int, float, bool)
TAGS = ("type", "role")
"""Fields whose only value names a member of a union."""


def unknown(params: Any, schema: type[BaseModel]) -> set[str]:
    """Return the topmost paths of ``params`` that ``schema`` neither has nor accepts as a part of any object."""
    ours = set(_paths(schema))
    known = {path for path in ours if not path.endswith("*")}
    anything = {path.removesuffix("*") for path in ours - known}
    missing = {path for path in _paths(params) if not path.endswith("*")} - known
    missing = {path for path in missing - anything if f"{path.partition('=')[0]}=" not in known}
    missing = {path for path in missing if not any(_accepts(above, path, known) for above in anything & _above(path))}
    return {path for path in missing if not missing & _above(path)}


def _accepts(anything: str, path: str, known: set[str]) -> bool:
    """Return whether ``path`` is in the object at ``anything``, and not in a member of a union with its own schema."""
    rest = path.removeprefix(anything)
    return not rest.startswith("<") or anything + rest[: rest.index(">") + 1] not in known


def _above(path: str) -> set[str]:
    """Return the paths that ``path`` is in."""
    return {path[:end] for end in range(len(path)) if path[end] in ".[<="}


def _paths(kind: Any, path: str = "", stack: tuple[Any, ...] = ()) -> Iterator[str]:
    """Yield the paths in ``kind``. One that ends with ``*`` accepts any object."""
    kind = _bare(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        yield from (f"{path}={value}" for value in arguments)
    elif origin in (Union, types.UnionType):
        for member in arguments:
            yield from _paths(member, path, stack)
    elif origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        yield f"{path}*"
    elif origin is not None and isinstance(origin, type) and issubclass(origin, (Sequence, Iterable)):
        yield from _paths(arguments[0], f"{path}[]", stack)
    elif kind in _PLAIN:
        yield f"{path}="
    elif kind not in stack and (fields := _fields(kind)) is not None:
        yield from _object(fields, path, (*stack, kind))
        if (
            isinstance(kind, type)
            and issubclass(kind, BaseModel)
            and kind.model_config.get("extra", "ignore") == "ignore"
        ):
            yield f"{path}*"


def _object(fields: Mapping[str, Any], path: str, stack: tuple[Any, ...]) -> Iterator[str]:
    tags = [value for tag in TAGS for value in (_values(fields[tag]) if tag in fields else ())]
    for place in [f"{path}<{tag}>" for tag in tags] or [path]:
        yield place
        for name, kind in fields.items():
            if not (tags and name in TAGS):
                yield f"{place}.{name}"
                yield from _paths(kind, f"{place}.{name}", stack)


def _fields(kind: Any) -> Mapping[str, Any] | None:
    """Return the fields of one of the SDKs' dictionaries or of this service's schemas; None for anything else."""
    if is_typeddict(kind):
        return {_alias(hint) or name: hint for name, hint in get_type_hints(kind, include_extras=True).items()}
    if isinstance(kind, type) and issubclass(kind, BaseModel) and kind.__module__.startswith("api."):
        return {field.alias or name: field.rebuild_annotation() for name, field in kind.model_fields.items()}
    return None


def _values(kind: Any) -> tuple[str, ...]:
    kind = _bare(kind)
    if get_origin(kind) in (Union, types.UnionType):
        return tuple(value for member in get_args(kind) for value in _values(member))
    return tuple(map(str, get_args(kind))) if get_origin(kind) is Literal else ()


def _alias(hint: Any) -> str | None:
    while get_origin(hint) in (Required, NotRequired):
        (hint,) = get_args(hint)
    return next((one.alias for one in getattr(hint, "__metadata__", ()) if getattr(one, "alias", None)), None)


def _bare(kind: Any) -> Any:
    while get_origin(kind) in (Annotated, Required, NotRequired) or isinstance(kind, TypeAliasType):
        kind = kind.__value__ if isinstance(kind, TypeAliasType) else get_args(kind)[0]
    return kind
