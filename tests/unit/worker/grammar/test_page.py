"""docs/schema-compiler.md shows what the compiler makes."""

import json
import re
from typing import Any

import pytest

from tests.support.paths import ROOT
from worker.grammar.ebnf import Rules
from worker.grammar.schema.alternatives import SchemaAlternatives
from worker.grammar.schema.compiler import schema_grammar
from worker.grammar.schema.flat import Flat
from worker.grammar.schema.strings import Options, Strings

_PAGE = (ROOT / "docs/schema-compiler.md").read_text("utf-8").replace("\\|", "\N{BROKEN BAR}")
_ROWS = [tuple(cell.strip() for cell in row.split("|")[1:3]) for row in re.findall(r"^\| `.*$", _PAGE, re.MULTILINE)]
_ABOUT_FLATS = [row for row in _ROWS if row[0].startswith("`{")]


@pytest.mark.parametrize(("schema", "flats"), _ABOUT_FLATS)
def test_flat_schemas_are_those_of_the_page(schema: str, flats: str) -> None:
    decoded: Any = json.loads(schema.strip("`"))
    strings = Strings(Rules(), Options(), lambda *_: None)
    made = SchemaAlternatives(decoded, strings, lambda _: None, strict=True).of(decoded, "")
    assert ", ".join(f"`{_said(flat)}`" for flat in made) == flats


@pytest.mark.parametrize(("flat", "grammar"), [row for row in _ROWS if row not in _ABOUT_FLATS])
def test_grammars_are_those_of_the_page(flat: str, grammar: str) -> None:
    schema = dict(zip(Flat.__struct_encode_fields__, _fields(eval(flat.strip("`"), {"Flat": Flat})), strict=True))
    made = schema_grammar(json.dumps({keyword: value for keyword, value in schema.items() if value is not None}))
    assert grammar.strip("`").replace("\N{BROKEN BAR}", "|") in made


def _fields(flat: Flat) -> list[Any]:
    return [getattr(flat, field) for field in Flat.__struct_fields__]


def _said(flat: Flat) -> str:
    said = zip(Flat.__struct_fields__, _fields(flat), strict=True)
    return f"Flat({', '.join(f'{field}={value!r}' for field, value in said if value is not None)})"
