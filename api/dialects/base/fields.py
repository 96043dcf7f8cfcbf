"""Building blocks of the request schemas: a strict base class, discriminated unions, and refused nulls.

The schemas define what is allowed; ``validation.py`` translates pydantic's errors to the OpenAI service's messages.
Where pydantic's error has too little information for that, this module raises one of two custom errors, which carry
it in their message. (Annotated types in unions must be hashable, and an error context would not be.)
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StringConstraints,
    Tag,
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


def by_key(key: str, *values: str) -> Discriminator:
    """Discriminate a union by the string at ``key``; ``values`` are all valid ones, as ordered in the error."""

    def choose(value: Any) -> str | None:
        chosen = value.get(key) if isinstance(value, Mapping) else None
        return tag(chosen) if isinstance(chosen, str) else None

    return Discriminator(
        choose,
        custom_error_type=WRONG_BRANCH,
        custom_error_message=" ".join((key, *values)),
    )


def by_type(expected: str, branches: Mapping[type, str]) -> Discriminator:
    """Discriminate a union by the JSON type of the value; ``expected`` describes the allowed types."""

    def choose(value: Any) -> str | None:
        return branches.get(type(value))

    return Discriminator(choose, custom_error_type=WRONG_TYPE, custom_error_message=expected)


STRING = tag("string")
ARRAY = tag("array")
OBJECT = tag("object")


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

StringOrItems = Annotated[
    Annotated[str, Tag(STRING)] | Annotated[Items[_Item], Tag(ARRAY)],
    by_type("one of a string or array of objects", {str: STRING, list: ARRAY}),
]
"""A string, or an array of objects."""

OptionalText = Annotated[str | None, NotNull("a string")]
OptionalFlag = Annotated[bool | None, NotNull("a boolean")]
NonEmptyText = Annotated[str, Field(min_length=1)]
Identifier = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]+$", min_length=1, max_length=64)]
"""Names of functions, tools and schemas."""
