"""Arguments of tools that a model writes as XML."""

import pytest

from shared.protocol.request import Constraint
from tests.support.grammar_oracle import Texts, tiny_oracle
from worker.grammar.calls import xml_parameters
from worker.grammar.ebnf import Rules

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
GRAMMAR = Rules().text(xml_parameters(Rules(), SCHEMA))


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("", True),
        ("a < b, <b> and <<c>>", True),
        ("größe 한 </", False),
        ("x</parameter>\n<parameter=b>\ny", False),
        ("x<</parameter>\n<parameter=b>\ny", False),
    ],
)
def test_a_string_has_no_end_tag_inside(text: str, allowed: bool) -> None:
    assert (f"<parameter=a>\n{text}\n</parameter>\n" in Texts(GRAMMAR)) == allowed


def test_a_string_is_utf8() -> None:
    for seed in range(10):
        tiny_oracle().random(Constraint(kind="grammar", value=GRAMMAR), seed)  # raises an error if it is not UTF-8
