"""Building blocks of the request schemas: base classes of objects, and discriminated unions.

The schemas define what is allowed; ``validation.py`` translates pydantic's errors to the OpenAI service's messages.
Where pydantic's error has too little information for that, this module raises one of two custom errors, which carry
it in their message. (Annotated types in unions must be hashable, and an error context would not be.)
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, StringConstraints, model_validator
from pydantic_core import CoreSchema, core_schema

WRONG_BRANCH = "wrong_branch"
"""Error type: the text under a key names no branch of a union. Message: the key and all branches, space-separated."""
WRONG_TYPE = "wrong_type"
"""Error type: the JSON type is wrong. Message: the noun phrase of what was expected."""

_Item = TypeVar("_Item")


class _Object(BaseModel):
    """A JSON object without type coercion: ``"1"``, ``1.0`` and ``true`` are not integers.

    A member that is null or an empty list is as if left out, unless it is required. The first object of a class makes
    its validator: most replicas never see most classes.
    """

    model_config = ConfigDict(strict=True, frozen=True, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, value: Any) -> Any:
        # Most objects have nothing that is empty.
        if not isinstance(value, dict) or not (None in value.values() or [] in value.values()):
            return value
        required = required_names(cls)
        return {name: given for name, given in value.items() if name in required or not left_out(given)}


class Strict(_Object):
    """An object without unknown members."""

    model_config = ConfigDict(extra="forbid")


class History(_Object):
    """A part of a conversation. Its unknown members are ignored, and named in a header of the response.

    A client cannot take back what it has said: one unknown member would end its session for good.
    """

    model_config = ConfigDict(extra="allow")


def left_out(given: Any) -> bool:
    """Return whether a member with this value is as if left out."""
    return given is None or given == []


@cache
def required_names(model: type[BaseModel]) -> frozenset[str]:
    """Return the names of the required members of an object."""
    return frozenset(field.alias or name for name, field in model.model_fields.items() if field.is_required())


def tag(value: str) -> str:
    """Return the tag of a union branch. Brackets distinguish it from field names in pydantic's error paths."""
    return f"<{value}>"


def is_tag(part: str | int) -> bool:
    """Whether a component of a pydantic error path is the tag of a union branch."""
    return isinstance(part, str) and re.fullmatch(r"<[a-z0-9_]+>", part) is not None


STRING = tag("string")
ARRAY = tag("array")
OBJECT = tag("object")
BOOLEAN = tag("boolean")
OTHER = tag("other")
_TAGS: Mapping[Any, str] = {str: STRING, bool: BOOLEAN, list: ARRAY, dict: OBJECT}


@dataclass(frozen=True, slots=True)
class ByKey:
    """Annotates a union of objects: the string at ``key``, which is a literal in each of them, chooses one.

    A branch that has no literal there takes all other strings. ``untyped`` chooses where the key is absent. Errors list
    the strings in the union's order.
    """

    key: str
    untyped: Callable[[Mapping[str, Any]], str | None] = lambda _: None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        members = {name: member for member in get_args(source) for name in _literals(member, self.key)}
        branches = {OTHER if name is None else tag(name): member for name, member in members.items()}

        def choose(value: Any) -> str | None:
            if not isinstance(value, Mapping):
                return None
            chosen = value.get(self.key)
            if chosen is None:
                chosen = self.untyped(value)
            elif isinstance(chosen, str) and chosen not in members and OTHER in branches:
                return OTHER
            return tag(chosen) if isinstance(chosen, str) else None

        return core_schema.tagged_union_schema(
            {name: handler.generate_schema(member) for name, member in branches.items()},
            choose,
            custom_error_type=WRONG_BRANCH,
            custom_error_message=" ".join((self.key, *filter(None, members))),
        )


@dataclass(frozen=True, slots=True)
class ByType:
    """Annotates a union whose branches have different JSON types; ``expected`` describes them in errors."""

    expected: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.tagged_union_schema(
            {_tag_of(member): handler.generate_schema(member) for member in get_args(source)},
            lambda value: _TAGS.get(type(value)),
            custom_error_type=WRONG_TYPE,
            custom_error_message=self.expected,
        )


def _literals(member: Any, key: str) -> list[str | None]:
    """Return the strings at ``key`` of a branch; None stands for any other string."""
    kinds = [member.model_fields[key].annotation]
    found: list[str | None] = []
    while kinds:
        kind = kinds.pop(0)
        if get_origin(kind) is Literal:
            found += get_args(kind)
        elif kind is str:
            found.append(None)
        else:
            kinds += get_args(kind)
    return found


def _tag_of(kind: Any) -> str:
    """Return the tag of a branch's JSON type."""
    if isinstance(kind, type):
        return OBJECT if issubclass(kind, BaseModel) else _TAGS[kind]
    origin = get_origin(kind)
    if origin in _TAGS:
        return _TAGS[origin]
    return STRING if origin is Literal else _tag_of(get_args(kind)[0])


Items = Annotated[list[_Item], Field(fail_fast=True)]
"""An array whose validation stops at the first invalid item, so that a million invalid items cost no more than one."""

StringOrItems = Annotated[str | Items[_Item], ByType("one of a string or array of objects")]
"""A string, or an array of objects."""

NonEmptyText = Annotated[str, Field(min_length=1)]
Identifier = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]+$", min_length=1, max_length=64)]
"""Names of functions, tools and schemas."""
