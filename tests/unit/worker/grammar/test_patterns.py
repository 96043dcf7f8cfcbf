"""Clients' regular expressions: the real compiler accepts what Python's ``fullmatch`` does, and nothing else."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.grammar_oracle import tiny_oracle
from tests.support.regexes import regexes
from worker.engine.protocol import OutputGrammar
from worker.grammar.patterns import text_grammar, whole_regex_of
from worker.grammar.regex import PatternError

_atoms = st.sampled_from(
    ["a", "b", "é", "한", "\\d", "\\.", '"', "\\\\", "[ab]", "[^a]", "[b-dé-ü]", ".", "(?:ab|a)", "{"]
)
_quantifiers = st.sampled_from(["", "", "", "?", "*", "+", "{2}", "{1,3}", "{2,}", "*?"])
_patterns = regexes(_atoms, _quantifiers, max_leaves=6)


def accepted(pattern: str, text: str) -> bool:
    return tiny_oracle().accepts(OutputGrammar(text_grammar(whole_regex_of(pattern))), text)


@given(data=st.data(), pattern=_patterns)
def test_a_text_is_accepted_if_and_only_if_it_matches(data: st.DataObject, pattern: str) -> None:
    # Of "((a*)*){2,}", a text of a hundred characters takes seconds.
    matching = data.draw(
        st.from_regex(re.compile(pattern, re.ASCII), fullmatch=True).filter(lambda text: len(text) < 30)
    )
    other = data.draw(st.text('abcdé한1."\\{', max_size=6))
    for text in (matching, other):
        # Text generation can't write NUL; line ends are no characters for '.' in ECMA-262, of which Python knows one.
        if re.search("[\0\n\r\u2028\u2029]", text) or not text.isprintable():
            continue
        assert accepted(pattern, text) == (re.fullmatch(pattern, text, re.ASCII) is not None), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("^a|b$", "b"),
        ("^(a|b)$", "a"),
        ("(?P<year>[0-9]{4})", "2026"),
        ("(?<x>a)", "a"),
        ("[^é]", "中"),
        ("\\u00e9", "é"),
    ],
)
def test_what_other_dialects_write(pattern: str, text: str) -> None:
    assert accepted(pattern, text)
    assert not accepted(pattern, text + "!")


@pytest.mark.parametrize("pattern", ["(?=a)b", "(", "a)", "*", "(?i)a", "\\b", "a^", "$a", "[b-a]", "a{3,1}", "\\p{L}"])
def test_what_cannot_be_compiled_is_named(pattern: str) -> None:
    with pytest.raises(PatternError):
        text_grammar(whole_regex_of(pattern))
