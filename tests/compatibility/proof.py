"""What the code does with the fields of a row."""

import json
from dataclasses import dataclass

from shared.protocol.errors import Problem, RequestRefused
from tests.compatibility.paths import inside, of_param
from tests.compatibility.rows import Interface, Request


@dataclass(frozen=True)
class Refusal:
    """How a request was refused: the status, the reason, and the field that was named."""

    status: int
    message: str
    field: str


def refusal(interface: Interface, row: Request) -> Refusal | None:
    """Have the interface read the row's request; None if it takes it."""
    dialect = interface.dialect({**interface.query, **row.query}, row.headers)
    try:
        dialect.parse(json.dumps({**interface.plain, **row.body}).encode())
    except RequestRefused as refused:
        return Refusal(dialect.error(refused.problem).status, refused.problem.message, _named(refused.problem, row))
    return None


def missing_fields(interface: Interface, row: Request) -> set[str]:
    """Those of the row's fields that its own request does not have."""
    there = {path for path, _ in inside({**interface.plain, **row.body})}
    there |= {f"?{name}" for name in {**interface.query, **row.query}} | {f"{name}:" for name in row.headers}
    return set(row.paths) - there


def _named(problem: Problem, row: Request) -> str:
    """The row's field that a problem names; headers and the query are named without their marks."""
    path = of_param(problem.param or "")
    return next((field for field in row.paths if field.strip("?:") == path), path)
