"""Lark grammars of custom tools: the real compiler accepts what the converted grammar describes, and nothing else."""

import json

import pytest

from tests.support.apply_patch import GRAMMAR, PATCH
from tests.support.grammar_oracle import tiny_oracle
from worker.engine.protocol import OutputGrammar
from worker.grammar.ebnf import Rules, literal, sequence
from worker.grammar.lark import LarkError, lark_expression


def accepted(definition: str, text: str, *, in_json: bool = False) -> bool:
    rules = Rules()
    expression = lark_expression(rules, definition, in_json=in_json)
    if not in_json:
        return tiny_oracle().accepts(OutputGrammar(rules.text(expression)), text)
    whole = rules.text(sequence([literal('"'), expression, literal('"')]))
    return tiny_oracle().accepts(OutputGrammar(whole), json.dumps(text, ensure_ascii=False))


@pytest.mark.parametrize("in_json", [False, True])
def test_patches_of_codex(in_json: bool) -> None:
    for text in (PATCH, PATCH.rstrip()):
        assert accepted(GRAMMAR, text, in_json=in_json)
    for text in (
        PATCH + "+",
        PATCH.replace("*** Begin", "*** begin"),
        PATCH.replace("+\n", "\n"),
        PATCH.replace("old", ""),
        "*** Begin Patch\n*** End Patch\n",
    ):
        assert not accepted(GRAMMAR, text, in_json=in_json)


@pytest.mark.parametrize(
    ("definition", "matching", "other"),
    [
        ('start: "a" | b\nb: "b"', ("a", "b"), ("ab", "")),
        ('start: a\n     | b // or\n# more\na: "1"\nb: "2"', ("1", "2"), ("12",)),
        ('start: "a"+ "b"* "c"?', ("a", "aabc"), ("bc", "acc")),
        ('start: ["a" "b"] "c"', ("c", "abc"), ("ac",)),
        ('start: "a"~2 ("b" | "c")~1..2', ("aab", "aacb"), ("aa", "aabbb", "ab")),
        ('start: "a".."c"', ("a", "c"), ("d", "ab")),
        ('start: "Ab1"i /x[yz]/i /[^q]/i', ("aB1xYa", "AB1Xzr"), ("Ab1xyQ", "Ab1xyq")),
        ('start: /a.b/s "/" /\\//', ("a\nb//", "axb//"), ("ab//",)),
        ('start: "\\"\\\\\\n\\t\\x41\\u00e9"', ('"\\\n\tA\u00e9',), ("A",)),
        ("start: A B\nA: B | /c/\nB: DIGIT DIGIT\n%import common.DIGIT", ("1234", "c12"), ("123",)),
        ("start: N\n%import common.NUMBER -> N", ("1.5e3", "12", ".5"), ("e1", "1.5.2")),
        ("start: INT WORD\n%import common (INT, WORD)", ("12ab",), ("ab",)),
        ("start: W W\n%import common.CNAME -> W\n%import common.WS\n%ignore WS", ("ab cd", " a\n b "), ("a-b",)),
        ('?start: sum\n?sum: p | sum "+" p -> add\n?p: /[0-9]/ | "(" sum ")"', ("1+2+(3+4)",), ("1+", "(1")),
        ('!start.2: X\nX.-1: "x"', ("x",), ("y",)),
        ("start: C\n%import common.C_COMMENT -> C", ("/* a * b **/",), ("/* a */ */",)),
        ('start: "a"\n?other: "b"', ("a",), ("b",)),
    ],
)
@pytest.mark.parametrize("in_json", [False, True])
def test_a_text_is_accepted_if_and_only_if_it_matches(
    definition: str, matching: tuple[str, ...], other: tuple[str, ...], in_json: bool
) -> None:
    for text in matching:
        assert accepted(definition, text, in_json=in_json), text
    for text in other:
        assert not accepted(definition, text, in_json=in_json), text


@pytest.mark.parametrize(
    ("definition", "line", "named"),
    [
        ('begin: "a"', 1, "'start'"),
        ("start: a", 1, "'a' is not defined"),
        ('start: "a"\nstart: "b"', 2, "twice"),
        ('start: ("a"', 1, "')' is expected"),
        ('start: "a" & "b"', 1, "'& \"b\"'"),
        ('start: A\n\nA: b\nb: "b"', 3, "inside a terminal"),
        ("start: A\nA: B\nB: A", 3, "contains itself"),
        ('start: pair{"a"}\npair{x}: x x', 1, "'pair{\"a\"}'"),
        ("start: A\n%declare A", 2, "'%declare A'"),
        ("start: A\n%import python.NAME -> A", 2, "'%import python.NAME"),
        ("start: A\n%import common.UNKNOWN -> A", 2, "'UNKNOWN'"),
        ('%override start: "a"', 1, "'%override"),
        ('start[temperature=0]: "a"', 1, "'start["),
        ("start: <eot>", 1, "'<eot>'"),
        ('start: %json {"type": "string"}', 1, "%json"),
        ("start: /a/x", 1, "flag 'x'"),
        ('start: "a"\n  /(?=b)/', 2, "look ahead"),
        ('start: "\\q"', 1, "'\\q'"),
        ('start: "ab".."c"', 1, "range"),
        ('start: "a"~3..2', 1, "3 to 2"),
        (f"start: {'(' * 50}", 1, "nested"),
        ("start: A0\n" + "".join(f"A{n}: A{n + 1}\n" for n in range(5000)), 41, "nested"),
    ],
)
def test_what_cannot_be_converted_is_named_with_its_line(definition: str, line: int, named: str) -> None:
    with pytest.raises(LarkError) as refused:
        lark_expression(Rules(), definition, in_json=False)
    assert str(refused.value).startswith(f"line {line}: ")
    assert named in str(refused.value)


def test_a_rule_that_never_ends_is_refused_by_name() -> None:
    with pytest.raises(LarkError, match="'again'"):
        lark_expression(Rules(), 'start: "a" | again\nagain: [start] again "b"', in_json=True)


def test_terminals_that_grow_without_end_are_refused() -> None:
    chain = "".join(f"A{n}: A{n + 1} A{n + 1}\n" for n in range(30))
    with pytest.raises(LarkError, match="too large"):
        lark_expression(Rules(), f'start: A0\n{chain}A30: "a"', in_json=False)
