"""Building blocks of the request schemas: a strict base class, discriminated unions, and refused nulls.

The schemas define what is allowed; ``validation.py`` translates pydantic's errors to the OpenAI service's messages.
Where pydantic's error has too little information for that, this module raises one of two custom errors, which carry
it in their message. (Annotated types in unions must be hashable, and an error context would not be.)
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StringConstraints,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

WRONG_BRANCH = "wrong_branch"
"""Error type: the text under a key names no branch of a union. Message: the key and all branches, space-separated."""
WRONG_TYPE = "wrong_type"
"""Error type: the JSON type is wrong. Message: the noun phrase of what was expected."""

_Item = TypeVar("_Item")


class Strict(BaseModel):
    """A JSON object without unknown keys or type coercion: ``"1"``, ``1.0`` and ``true`` are not integers."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def tag(value: str) -> str:
    """Return the tag of a union branch. Brackets distinguish it from field names in pydantic's error paths."""
    return f"<{value}>"


def is_tag(part: str | int) -> bool:
    """Whether a component of a pydantic error path is the tag of a union branch."""
    return isinstance(part, str) and re.fullmatch(r"<[a-z0-9_]+>", part) is not None


STRING = tag("string")
ARRAY = tag("array")
OBJECT = tag("object")
OTHER = tag("other")
_TAGS: Mapping[Any, str] = {str: STRING, list: ARRAY, dict: OBJECT}


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


@dataclass(frozen=True, slots=True)
class NotNull:
    """Refuses null for an optional field that the reference does not call nullable.

    It annotates ``X | None``, where ``None`` is only the default. The published schema does not allow null either.
    """

    expected: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        published = handler(schema)
        branches = [branch for branch in published.get("anyOf", ()) if branch != {"type": "null"}]
        return branches[0] if len(branches) == 1 else published

    def _check(self, value: Any) -> Any:
        if value is None:
            raise PydanticCustomError(WRONG_TYPE, "{expected}", {"expected": self.expected})
        return value


Items = Annotated[list[_Item], Field(fail_fast=True)]
"""An array whose validation stops at the first invalid item, so that a million invalid items cost no more than one."""

StringOrItems = Annotated[str | Items[_Item], ByType("one of a string or array of objects")]
"""A string, or an array of objects."""

OptionalText = Annotated[str | None, NotNull("a string")]
OptionalFlag = Annotated[bool | None, NotNull("a boolean")]
NonEmptyText = Annotated[str, Field(min_length=1)]
Identifier = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]+$", min_length=1, max_length=64)]
"""Names of functions, tools and schemas."""
