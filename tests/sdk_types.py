"""The official SDK's types as a check of everything that is sent: strictly of the right type, and no field unknown."""

from typing import Literal, TypeVar

from openai.types import Completion, CompletionChoice
from pydantic import BaseModel

ADDED = {"reasoning_content"}
"""Fields that the SDK does not have, but that other servers' clients know."""

_Model = TypeVar("_Model", bound=BaseModel)


class CompletionChunkChoice(CompletionChoice):
    """The SDK has one type for completions and their chunks; in chunks the service itself sends null here."""

    finish_reason: Literal["stop", "length", "content_filter"] | None  # type: ignore[assignment]


class CompletionChunk(Completion):
    """A chunk of a plain completion."""

    choices: list[CompletionChunkChoice]  # type: ignore[assignment]


def checked(kind: type[_Model], document: str | bytes) -> _Model:
    """Return ``document`` as a ``kind``. Fails for a value of the wrong type and for a field that is unknown."""
    value = kind.model_validate_json(document, strict=True)
    _check_known(value)
    return value


def rechecked(value: _Model) -> _Model:
    """Check what the SDK's client has returned, which it does not do itself; return it."""
    checked(type(value), value.model_dump_json(exclude_unset=True, warnings=False))
    return value


def _check_known(value: object) -> None:
    if isinstance(value, BaseModel):
        assert (value.model_extra or {}).keys() <= ADDED, value.model_extra
        for inner in vars(value).values():
            _check_known(inner)
    if isinstance(value, list):
        for inner in value:
            _check_known(inner)
