"""The rows of the tables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from api.dialects.interface import Dialect

PAGE_TESTS = "tests/unit/test_compatibility.py::"
"""The tests of the page itself, which show each row; named where no other test is about its fields."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Fields of a request, and a request that has all of them.

    ``fields`` are paths, apart by spaces: ``messages[].role`` is in the body, ``?name`` in the query, ``name:`` among
    the headers. ``body`` is laid over the interface's plain one. ``how`` tells what becomes of the fields; it is empty
    where they are refused, because the refusal has its own words. ``when`` names the values that are meant, where not
    all are. ``test`` is the pytest node of a test that shows it.
    """

    fields: str
    test: str
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
    """Fields of an answer, as paths; ``how`` tells what they carry, or why they are never sent."""

    fields: str
    test: str
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
