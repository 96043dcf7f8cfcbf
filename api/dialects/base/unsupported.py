"""Refusals of features that a reference has and this service does not support."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from api.dialects.base.validation import listed
from shared.protocol.errors import ProblemKind, RequestRefused, refuse


@dataclass(frozen=True, slots=True)
class NotServed:
    """An unsupported field. ``neutral`` values mean the same as omitting the field, and are accepted.

    ``in_message`` is False if the reason is left out of the message, as in the OpenAI service's own.
    """

    reason: str
    neutral: tuple[Any, ...] = ()
    in_message: bool = True


@dataclass(frozen=True, slots=True)
class PartlyServed:
    """A field with unsupported values. ``served`` are the supported ones."""

    reason: str
    served: tuple[Any, ...]


def check_fields(
    request: BaseModel, not_served: Mapping[str, NotServed], partly_served: Mapping[str, PartlyServed]
) -> None:
    """Raise :class:`RequestRefused` for the first field of ``request`` that the tables refuse."""
    for field, row in not_served.items():
        value = getattr(request, field)
        if value is not None and value not in row.neutral:
            raise unsupported(field, row.reason if row.in_message else "")
    for field, part in partly_served.items():
        value = getattr(request, field)
        if value is not None and value not in part.served:
            raise unsupported_value(field, value, part)


def unsupported(param: str, reason: str) -> RequestRefused:
    """Return the refusal of a field; ``reason`` is a sentence, or empty."""
    message = f"Unsupported parameter: '{param}' is not supported with this model. {reason}".rstrip()
    return refuse(ProblemKind.INVALID, message, param=param, code="unsupported_parameter")


def unsupported_value(param: str, value: object, part: PartlyServed) -> RequestRefused:
    """Return the refusal of one value of a field."""
    message = (
        f"Unsupported value: '{param}' does not support {value!r} with this model. "
        f"Supported values are: {listed([str(served) for served in part.served])}. {part.reason}"
    )
    return refuse(ProblemKind.INVALID, message, param=param, code="unsupported_value")
