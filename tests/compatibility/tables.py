"""Reads the rows of the tables, ``tables/*.jsonl``: a file for each interface, of JSON objects, one a line.

The first one has the interface's ``title``, ``route``, ``about``, and its ``plain`` body, perhaps with a ``query``. Of
the others:

- a row with a ``body``, ``query`` or ``headers`` is a request's. Its ``fields`` are all that it has and the plain one
  has not, unless it lists them: ``a*`` is ``a`` with all that is in it.
- a row with a ``response`` is about these fields of responses, each ``under`` some prefixes, and ``also`` others.
- ``like`` is the name of a row of ``shared.jsonl``, ``rows`` that of a file whose rows come here.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields as fields_of
from pathlib import Path
from typing import Any

from tests.compatibility.paths import names_in
from tests.compatibility.rows import Answer, Request

_FOLDER = Path(__file__).parent / "tables"
_ABOUT_REQUESTS = {field.name for field in fields_of(Request)}


def read(name: str) -> tuple[Mapping[str, Any], tuple[Request, ...], tuple[Answer, ...]]:
    """Return the first object of an interface's file, and its rows."""
    head, *rows = _objects(name)
    plain = set(names_in(head["plain"]))
    requests = [_request(row, plain) for row in rows if row.keys() <= _ABOUT_REQUESTS]
    answers = [_answer(row) for row in rows if not row.keys() <= _ABOUT_REQUESTS]
    return head, tuple(requests), tuple(answers)


def _objects(name: str) -> Iterator[dict[str, Any]]:
    for line in (_FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if "rows" in row:
            yield from _objects(row["rows"])
        elif "like" in row:
            yield next(other for other in _objects("shared") if other["name"] == row["like"]) | row
        else:
            yield row


def _request(row: dict[str, Any], plain: set[str]) -> Request:
    there = list(dict.fromkeys(names_in(row.get("body", {}))))
    if "fields" in row:
        paths = [path for field in row["fields"].split() for path in _all_in(field, there)]
    else:
        paths = [f"?{name}" for name in row.get("query", ())] + [f"{name}:" for name in row.get("headers", ())]
        paths += [path for path in there if path not in plain]
    return Request(**row | {"fields": " ".join(paths)})


def _all_in(field: str, there: list[str]) -> list[str]:
    if not field.endswith("*"):
        return [field]
    return [path for path in there if path == field[:-1] or path.startswith((f"{field[:-1]}.", f"{field[:-1]}["))]


def _answer(row: dict[str, Any]) -> Answer:
    paths = [prefix + path for path in row["response"].split() for prefix in row.get("under", ("",))]
    return Answer(fields=" ".join((*paths, *row.get("also", "").split())), how=row["how"])
