"""The building blocks of the request models: a strict base, unions told apart by one look, and nulls that are refused.

The models say *what* is allowed; ``validation.py`` turns pydantic's findings into the service's own words. Where a
finding alone would not hold enough for those words, the blocks here raise one of two custom errors, whose message
carries it (a context would not be hashable, as unions of annotated types need).
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
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

WRONG_BRANCH = "wrong_branch"
"""Error type: the text under a key names no branch of a union. Message: the key and all branches, apart by spaces."""
WRONG_TYPE = "wrong_type"
"""Error type: the JSON type is wrong. Message: the noun phrase of what was expected."""

_Item = TypeVar("_Item")


class Strict(BaseModel):
    """A JSON object that knows all its keys. No value is converted: ``"1"``, ``1.0`` and ``true`` are no integers."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def tag(value: str) -> str:
    """The name of a union's branch. Brackets keep it apart from field names in the paths that pydantic reports."""
    return f"<{value}>"


def is_tag(part: str | int) -> bool:
    """Whether a part of a pydantic path is the name of a union's branch."""
    return isinstance(part, str) and re.fullmatch(r"<[a-z_]+>", part) is not None


def by_key(key: str, *values: str) -> Discriminator:
    """Choose a union's branch by the text under ``key``; ``values`` are all that the service names, in its order."""

    def choose(value: Any) -> str | None:
        chosen = value.get(key) if isinstance(value, Mapping) else None
        return tag(chosen) if isinstance(chosen, str) else None

    return Discriminator(
        choose,
        custom_error_type=WRONG_BRANCH,
        custom_error_message=" ".join((key, *values)),
    )


def by_type(expected: str, branches: Mapping[type, str]) -> Discriminator:
    """Choose a union's branch by the JSON type of the value; ``expected`` describes all of them."""

    def choose(value: Any) -> str | None:
        return branches.get(type(value))

    return Discriminator(choose, custom_error_type=WRONG_TYPE, custom_error_message=expected)


STRING = tag("string")
ARRAY = tag("array")
OBJECT = tag("object")


@dataclass(frozen=True, slots=True)
class NotNull:
    """Refuse null for a field that may be left out: the reference marks those where null means the same.

    Annotates ``X | None``, where ``None`` is only the default; the published schema does not offer null either.
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
"""An array that stops at its first bad item, so that a million bad ones cost no more than one."""

OptionalText = Annotated[str | None, NotNull("a string")]
OptionalFlag = Annotated[bool | None, NotNull("a boolean")]
NonEmptyText = Annotated[str, Field(min_length=1)]
Identifier = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]+$", min_length=1, max_length=64)]
"""Names of functions, tools and schemas."""
