"""Annotations for what a reference has and this service does not support, and one walk that finds it in a request.

A field with such an annotation is validated like all others, and refused afterwards unless its value is neutral. What
has no effect is ignored, and named in a header of the response.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Annotated, Any, get_args, get_origin
from urllib.parse import quote

from pydantic import BaseModel

from api.dialects.base.validation import listed
from shared.protocol.errors import ProblemKind, RequestRefused, modality_refused, refuse
from shared.protocol.request import Notes


@dataclass(frozen=True, slots=True)
class Refused:
    """Annotates an unsupported field. ``reason`` is a sentence, or empty.

    ``neutral`` values mean the same as omitting the field, and are accepted; objects without their null fields.
    """

    reason: str
    neutral: tuple[Any, ...] = ()
    code: str | None = None
    """A code of the refusal of its own."""


@dataclass(frozen=True, slots=True)
class Only:
    """Annotates a field of which only some ``values`` are supported."""

    values: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class OtherModality:
    """Annotates the type of a content part that is neither text nor image. The path is that of the part."""


@dataclass(frozen=True, slots=True)
class Ignored:
    """Annotates a field that has no effect, whatever its value; an unknown member of a conversation is such a field."""


IGNORED_HEADER = "x-ignored-fields"
"""Names what has no effect in a request."""
_MAX_NAMED, _MAX_NAME = 20, 64
"""Maximum number of names in a header, and of characters of one."""

CACHED_ALWAYS = "Prompt prefixes are always cached automatically."
CHATS_ONLY = Refused("It is supported for chat completions only.", neutral=(False,))

Mark = Refused | Only | OtherModality | Ignored


@dataclass(frozen=True, slots=True)
class Unsupported:
    """An unsupported ``value`` in a request, at ``path``, and the annotation of its field."""

    path: str
    mark: Mark
    value: Any


def check_supported(body: BaseModel) -> Notes:
    """Raise :class:`RequestRefused` for the first unsupported feature in ``body``, in OpenAI's form.

    Return the header that names what is ignored, if anything is.
    """
    found = list(findings(body))
    for finding in found:
        match finding.mark:
            case Refused(reason=reason):
                raise unsupported(finding.path, reason)
            case Only() as mark:
                raise unsupported_value(finding.path, finding.value, mark)
            case OtherModality():
                raise modality_refused(finding.value, finding.path)
            case Ignored():
                continue
    return ignored(found)


def ignored(found: Iterable[Unsupported]) -> Notes:
    """Return the header that names what is ignored, if anything is."""
    paths = (re.sub(r"\[\d+\]", "[]", finding.path) for finding in found if isinstance(finding.mark, Ignored))
    return note(IGNORED_HEADER, paths)


def note(header: str, names: Iterable[str]) -> Notes:
    """Return a header with ``names`` of the client's, percent-encoded and bounded; nothing without names."""
    listed = [quote(name[:_MAX_NAME], safe="[].:/@+") for name in islice(dict.fromkeys(names), _MAX_NAMED + 1)]
    if len(listed) > _MAX_NAMED:
        listed[-1] = "..."
    return ((header, ", ".join(listed)),) if listed else ()


def also_ignored(notes: Notes, name: str) -> Notes:
    """Return ``notes`` with ``name`` among what is ignored."""
    before = dict(notes)
    return tuple((before | {IGNORED_HEADER: ", ".join(filter(None, (before.get(IGNORED_HEADER), name)))}).items())


def findings(value: Any, path: str = "") -> Iterator[Unsupported]:
    """Yield all unsupported features in a validated request, or in a part of one that is at ``path``."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from findings(item, f"{path}[{index}]")
    if not isinstance(value, BaseModel):
        return
    for name in value.model_extra or ():
        yield Unsupported(f"{path}.{name}" if path else name, _IGNORED, None)
    for name, field, mark in _visited(type(value)):
        given = getattr(value, name)
        if given is None:
            continue
        place = f"{path}.{field}" if path else field
        if mark is None:
            yield from findings(given, place)
        elif isinstance(mark, OtherModality):
            yield Unsupported(path, mark, given)
        elif isinstance(mark, Ignored) or not _is_supported(given, mark):
            yield Unsupported(place, mark, given)


def marked_fields(model: type[BaseModel]) -> dict[str, Refused | Only]:
    """Return the annotated fields of a schema itself, with their annotations, by name."""
    return {field: mark for _, field, mark in _visited(model) if isinstance(mark, Refused | Only)}


def supported_fields(model: type[BaseModel]) -> frozenset[str]:
    refused = {name for name, mark in marked_fields(model).items() if isinstance(mark, Refused)}
    return frozenset(field.alias or name for name, field in model.model_fields.items()) - refused


def unsupported(param: str, reason: str) -> RequestRefused:
    """Return the refusal of a field; ``reason`` is a sentence, or empty."""
    message = f"Unsupported parameter: '{param}' is not supported with this model. {reason}".rstrip()
    return refuse(ProblemKind.INVALID, message, param=param, code="unsupported_parameter")


def unsupported_value(param: str, value: str, mark: Only) -> RequestRefused:
    message = (
        f"Unsupported value: '{param}' does not support {value[:64]!r} with this model. "
        f"Supported values are: {listed(mark.values)}. {mark.reason}"
    )
    return refuse(ProblemKind.INVALID, message, param=param, code="unsupported_value")


_IGNORED = Ignored()


def _is_supported(value: Any, mark: Refused | Only) -> bool:
    if isinstance(mark, Only):
        return value in mark.values
    if isinstance(value, dict):
        value = {name: inner for name, inner in value.items() if inner is not None}
    return value in mark.neutral


@cache
def _visited(model: type[BaseModel]) -> tuple[tuple[str, str, Mark | None], ...]:
    """Return name, name in JSON and annotation of the fields that are, or may contain, something unsupported."""
    found = []
    for name, field in model.model_fields.items():
        mark = next((part for part in (*field.metadata, *_marks(field.annotation)) if isinstance(part, Mark)), None)
        if mark is not None or any(map(_is_visited, _models(field.annotation))):
            found.append((name, field.alias or name, mark))
    return tuple(found)


def _is_visited(model: type[BaseModel]) -> bool:
    return model.model_config.get("extra") == "allow" or bool(_visited(model))


def _marks(kind: Any) -> Iterator[Any]:
    """Yield the annotations of the parts of ``X | None``."""
    for part in get_args(kind):
        yield from getattr(part, "__metadata__", ())


def _models(kind: Any) -> Iterator[type[BaseModel]]:
    """Yield the schemas of objects in a type."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for inner in get_args(kind)[:1] if get_origin(kind) is Annotated else get_args(kind):
        yield from _models(inner)
