"""The rows of the tables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from api.dialects.base.interface import Dialect


@dataclass(frozen=True, kw_only=True)
class Request:
    """Fields of a request, and a request that has all of them.

    ``fields`` are space-separated paths: ``messages[].role`` is in the body, ``?name`` in the query, ``name:`` in the
    headers. ``body`` is merged into the interface's plain one. ``how`` describes the effect of the fields; it is empty
    if they are refused, because the refusal has its own message. ``when`` names the values that the row is about, if
    not all.
    """

    fields: str
    how: str = ""
    when: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def paths(self) -> list[str]:
        """The fields one by one."""
        return self.fields.split()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Fields of an answer, as paths; ``how`` describes their contents, or why they are never sent."""

    fields: str
    how: str

    @property
    def paths(self) -> list[str]:
        """The fields one by one."""
        return self.fields.split()


@dataclass(frozen=True, kw_only=True)
class Interface:
    """One route of an interface, with the rows of its table.

    ``dialect`` makes what reads a request with that query and those headers. ``plain`` is the smallest body.
    """

    title: str
    route: str
    about: str
    dialect: Callable[[Mapping[str, str], Mapping[str, str]], Dialect]
    plain: Mapping[str, Any]
    query: Mapping[str, str] = field(default_factory=dict)
    requests: tuple[Request, ...]
    answers: tuple[Answer, ...]
