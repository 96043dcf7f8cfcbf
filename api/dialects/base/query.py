"""Validation of query parameters."""

from collections.abc import Mapping
from typing import Any, TypeVar, get_origin

from pydantic import BaseModel
from werkzeug.datastructures import MultiDict

from api.dialects.base.validation import validate

_Model = TypeVar("_Model", bound=BaseModel)


def validate_query(model: type[_Model], query: Mapping[str, str], extra: Mapping[str, Any] | None = None) -> _Model:
    """Return the query's parameters as a ``model``, and ``extra`` values; parameters that it lacks are ignored.

    Texts become numbers and booleans. SDKs append ``[]`` to the names of lists. Raises :class:`RequestRefused`.
    """
    texts = MultiDict(query)
    value: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if _is_list(field.annotation):
            if items := [*texts.getlist(name), *texts.getlist(f"{name}[]")]:
                value[name] = items
        elif name in texts:
            value[name] = texts[name]
    return validate(model, value | dict(extra or {}), strict=False)


def _is_list(kind: Any) -> bool:
    return get_origin(kind) is list or any(map(_is_list, getattr(kind, "__args__", ())))
