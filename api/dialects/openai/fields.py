"""The building blocks of the request models: a strict base, unions told apart by one look, and nulls that are refused.

The models say *what* is allowed; ``validation.py`` turns pydantic's findings into the service's own words. Where a
finding alone would not hold enough for those words, the blocks here raise one of two custom errors, whose message
carries it (a context would not be hashable, as unions of annotated types need).
"""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, StringConstraints
from pydantic_core import PydanticCustomError

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


def not_null(expected: str) -> BeforeValidator:
    """Refuse null for a field that may be left out: the reference marks those where null means the same."""
    return BeforeValidator(_null_refusal(expected))


def _null_refusal(expected: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if value is None:
            raise PydanticCustomError(WRONG_TYPE, "{expected}", {"expected": expected})
        return value

    return check


Items = Annotated[list[_Item], Field(fail_fast=True)]
"""An array that stops at its first bad item, so that a million bad ones cost no more than one."""

OptionalText = Annotated[str | None, not_null("a string")]
OptionalFlag = Annotated[bool | None, not_null("a boolean")]
NonEmptyText = Annotated[str, Field(min_length=1)]
Identifier = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]+$", min_length=1, max_length=64)]
"""Names of functions, tools and schemas."""
