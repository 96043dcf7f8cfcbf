"""Literals and classes as XGrammar reads them: what it prints as ``\\xNN`` is not followed by a hexadecimal digit."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.protocol.errors import RequestRefused
from shared.protocol.formats import OutputFormat
from shared.protocol.request import ChatRequest, Constraint, Message
from tests.unit.grammar.texts import Texts
from worker.grammar.ebnf import literal
from worker.grammar.escapes import SpellingError, chunks, readable_grammar, readable_regex
from worker.grammar.planner import make_plan

_SWALLOWED = re.compile("[\x01-\x06\x0e-\x1a\x1c-\x1f\x7f-\xff][0-9a-fA-F]")


@given(st.text(st.characters(max_codepoint=0x17F) | st.characters() | st.sampled_from('0aF"\\u')))
def test_chunks_are_the_text_and_none_is_misread(text: str) -> None:
    parts = chunks(text)
    assert "".join(parts) == text
    assert not [part for part in parts if _SWALLOWED.search(part)]
    assert text in Texts(f"root ::= {literal(text)}")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('root ::= "élan" "große"', 'root ::= "élan" ("groß" "e")'),
        ('root ::= "gr\\u00f6\\u00dfe"*', 'root ::= ("gr\\u00f6\\u00df" "e")*'),
        ('root ::= "\\xdf\\u0065"', 'root ::= ("\\xdf" "\\u0065")'),
        ('root ::= "é\\"a" # "éa"', 'root ::= "é\\"a" # "éa"'),
        ("root ::= [ßa-f]", "root ::= [a-fß]"),
        ("root ::= [à-ÿ\\-0-9\\]]", "root ::= [\\-0-9\\]à-ÿ]"),
        ("root ::= [a-zß-]", "root ::= [a-z\\-ß]"),
    ],
)
def test_a_clients_grammar_is_split_and_ordered(written: str, read: str) -> None:
    assert readable_grammar(written) == read


def test_a_clients_regex_has_its_classes_ordered() -> None:
    assert readable_regex(r"\[éa\] [éa]+ße[\wäöü0-9]") == r"\[éa\] [aé]+ße[\w0-9äöü]"


def test_a_class_that_excludes_what_cannot_be_excluded_is_refused() -> None:
    with pytest.raises(SpellingError, match="excludes"):
        readable_grammar("root ::= [^é]")


@pytest.mark.parametrize(
    "constraint",
    [
        Constraint(kind="regex", value="[^é]"),
        Constraint(kind="grammar", value="root ::= [^é]"),
        Constraint(
            kind="structural_tag",
            value='{"type":"structural_tag","format":{"type":"tag","begin":"<ße>","content":{"type":"any_text"},'
            '"end":"x"}}',
        ),
    ],
)
def test_what_cannot_be_written_otherwise_is_refused(constraint: Constraint) -> None:
    request = ChatRequest(model="m", messages=(Message(role="user", content="Hi"),), constraint=constraint)
    with pytest.raises(RequestRefused) as refusal:
        make_plan(request, OutputFormat(), "")
    assert refusal.value.problem.param == "response_format"
