"""Literals and classes are written so that XGrammar reads them correctly."""

import json
import re
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.parsers.formats import OutputFormat
from shared.protocol.errors import RequestRefused
from shared.protocol.request import ChatRequest, Constraint, Message
from tests.support.grammar_oracle import Texts, tiny_oracle
from worker.engine.protocol import OutputGrammar
from worker.grammar.client_grammar import readable_grammar
from worker.grammar.ebnf import character_class, literal, united, without
from worker.grammar.patterns import text_grammar, whole_regex_of
from worker.grammar.planner import make_plan
from worker.grammar.schema.compiler import schema_grammar
from worker.grammar.xgrammar import chunks, utf8_ranges

_SWALLOWED = re.compile("[\x01-\x06\x0e-\x1a\x1c-\x1f\x7f-\xff][0-9a-fA-F]")


# XGrammar has no NUL; in JSON it is always escaped.
@given(
    st.text(
        st.characters(min_codepoint=1, max_codepoint=0x17F)
        | st.characters(codec="utf-8", exclude_characters="\0")
        | st.sampled_from('0aF"\\u')
    )
)
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
        ("root ::= [ßa-f]", "root ::= [a-f\\u00df]"),
        ("root ::= [à-ÿ\\-0-9\\]]", "root ::= [\\u002d0-9\\u005d\\u00e0-\\u00ff]"),
        ("root ::= [a-zß-]", "root ::= [\\u002da-z\\u00df]"),
    ],
)
def test_a_clients_grammar_is_split_and_ordered(written: str, read: str) -> None:
    assert readable_grammar(written) == read


_characters = st.characters(codec="utf-8", exclude_categories=["Cc"])
_ends = (
    _characters
    | st.sampled_from("\x7f\x80\u07ff\u0800\u0fff\u1000가한힣\ud7ff\ue000\uffff\U00010000\U0003ffff\U0010ffff")
).map(ord)


@given(ends=st.lists(_ends, min_size=2, max_size=2).map(sorted), others=st.lists(_characters, max_size=5))
def test_a_range_contains_exactly_its_characters(ends: list[int], others: list[str]) -> None:
    first, last = ends
    near = [chr(point) for end in ends for point in (end - 1, end, end + 1) if 0x20 <= point <= 0x10FFFF]
    probes = [character for character in (*near, *others) if not "\ud800" <= character <= "\udfff"]
    for grammar in (
        f"root ::= {character_class(((first, last),))}",
        readable_grammar(f"root ::= [\\U{first:08x}-\\U{last:08x}]"),
        text_grammar(whole_regex_of(f"[{_in_class(first)}-{_in_class(last)}]")),
    ):
        accepted = [probe for probe in probes if tiny_oracle().accepts(OutputGrammar(grammar), probe)]
        assert accepted == [probe for probe in probes if first <= ord(probe) <= last]


def _in_class(point: int) -> str:
    return f"\\{chr(point)}" if chr(point) in "\\]^-[" else chr(point)


@pytest.mark.parametrize(
    ("words", "other"),
    [
        (["bbaa", "bba", "a", "baa"], "baaa"),
        (["aabb", "abab", "abaa", "bb", "bbb", "aaa", "baa"], "babb"),
        (["1221", "2221", "2212", "1", "112"], "1212"),
    ],
)
def test_alternatives_with_common_ends_are_not_mixed(words: list[str], other: str) -> None:
    choice = {"type": "or", "elements": [{"type": "const_string", "value": word} for word in words]}
    for constraint in (
        Constraint(kind="grammar", value="root ::= " + " | ".join(f'"{word}"' for word in words)),
        Constraint(kind="structural_tag", value=json.dumps({"format": choice})),
        Constraint(kind="regex", value=f"({'|'.join(words)})"),
        Constraint(kind="structural_tag", value=json.dumps({"format": {"type": "regex", "pattern": "|".join(words)}})),
    ):
        plan = make_plan(_request(constraint), OutputFormat(), "")
        assert plan.grammar is not None
        assert [word for word in [*words, other] if tiny_oracle().accepts(plan.grammar, word)] == words
    for schema in ({"enum": words}, {"type": "string", "pattern": f"^({'|'.join(words)})$"}):
        texts = Texts(schema_grammar(json.dumps(schema)))
        assert [word for word in [*words, other] if f'"{word}"' in texts] == words


@given(st.sets(st.text("abß1èé", min_size=1, max_size=5), min_size=2, max_size=8), st.data())
def test_an_enum_allows_its_values_and_no_mixture_of_them(words: set[str], data: st.DataObject) -> None:
    listed = sorted(words)
    texts = Texts(schema_grammar(json.dumps({"enum": listed})))
    assert all(f'"{word}"' in texts for word in listed)
    first, second = (data.draw(st.sampled_from(listed)) for _ in range(2))
    mixed = {first[:end] + second[start:] for end in range(len(first) + 1) for start in range(len(second) + 1)}
    assert [word for word in mixed - words if f'"{word}"' in texts] == []


def test_an_enum_of_long_common_beginnings_allows_each_value() -> None:
    lengths = range(1, 200, 7)
    texts = Texts(schema_grammar(json.dumps({"enum": ["a" * length for length in lengths]})))
    assert [length for length in range(100) if f'"{"a" * length}"' in texts] == [*range(1, 100, 7)]


def test_a_bounded_integer_has_no_more_digits_than_its_bound() -> None:
    texts = Texts(schema_grammar('{"type":"integer","maximum":19}'))
    assert [number for number in range(-200, 200) if str(number) in texts] == list(range(-200, 20))


def test_korean_syllables_are_all_in_their_range() -> None:
    assert "한국어" in Texts(readable_grammar("root ::= [가-힣]+"))
    assert '"한국어"' in Texts(schema_grammar('{"type":"string","pattern":"^.+$"}'))


@pytest.mark.parametrize(("first", "last"), [(0, 0x10FFFF), (0x20, 0xD7FF), (0xD000, 0xE000), (0x7F, 0x81), (5, 5)])
def test_the_parts_of_a_range_are_products_of_byte_ranges(first: int, last: int) -> None:
    parts = list(utf8_ranges(first, last))
    for start, end in parts:
        positions = zip(chr(start).encode(), chr(end).encode(), strict=True)
        assert prod(high - low + 1 for low, high in positions) == end - start + 1
    assert united(parts) == without(((first, last),), ((0xD800, 0xDFFF),))


@pytest.mark.parametrize(
    ("excluded", "inside"),
    [
        ("a", "a"),
        ("é", "é"),
        ("가-힣", "가한힣"),
        ("\\n\\]\\-^", "\n]-^"),
        (" -/", " !/"),
        ("\\x20-\\x2f\\x7f", "\x7f"),
        ("\\x61\\u00df-\\u00ff", "aßÿ"),
        ("\U00010000-\U0010ffff", "😀"),
        ("\\x01-\U0010fffe", "a é"),
    ],
)
def test_a_negated_class_matches_all_other_characters_and_no_other_bytes(excluded: str, inside: str) -> None:
    texts = Texts(readable_grammar(f"root ::= [^{excluded}]"))
    probes = f"\tab 09é!ß한😀\U0010ffff\u0100z{inside}"
    pattern = re.compile(f"[^{excluded}]")
    assert [text for text in probes if text in texts] == [text for text in probes if pattern.match(text)]
    texts = Texts(readable_grammar(f"root ::= [{excluded}]"))
    assert [text for text in probes if text in texts] == [text for text in probes if not pattern.match(text)]
    grammar = OutputGrammar(readable_grammar(f"root ::= [^{excluded}] [^{excluded}]*"))
    for seed in range(10):
        text = tiny_oracle().random(grammar, seed)  # raises an error if it is not UTF-8
        assert text is None or pattern.match(text)


@pytest.mark.parametrize("part", ["[^\\q]", "[^z-a]", "[^\\x00-\U0010ffff]"])
def test_a_negated_class_that_xgrammar_cannot_parse_stays_for_it_to_name(part: str) -> None:
    assert readable_grammar(f"root ::= {part}") == f"root ::= {part}"


@pytest.mark.parametrize(
    "constraint",
    [
        Constraint(kind="regex", value="(?=a)a"),
        Constraint(
            kind="structural_tag",
            value='{"type":"structural_tag","format":{"type":"regex","pattern":"(?=a)a"}}',
        ),
        Constraint(
            kind="structural_tag",
            value='{"type":"structural_tag","format":{"type":"tag","begin":"<ße>","content":{"type":"any_text"},'
            '"end":"x"}}',
        ),
    ],
)
def test_what_cannot_be_written_otherwise_is_refused(constraint: Constraint) -> None:
    with pytest.raises(RequestRefused) as refusal:
        make_plan(_request(constraint), OutputFormat(), "")
    assert refusal.value.problem.param == "response_format"


def _request(constraint: Constraint) -> ChatRequest:
    return ChatRequest(model="m", messages=(Message(role="user", content="Hi"),), constraint=constraint)
