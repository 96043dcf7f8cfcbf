"""Clients' EBNF grammars: each feature of XGrammar's notation means what its documentation says."""

import pytest

from shared.protocol.formats import OutputFormat
from shared.protocol.request import ChatRequest, Constraint, Message
from tests.support.grammar_oracle import tiny_oracle
from worker.grammar.planner import make_plan


@pytest.mark.parametrize(
    ("grammar", "texts", "others"),
    [
        ('root ::= "a"{3}', ["aaa"], ["aa", "aaaa"]),
        ('root ::= "a"{2,} [b]{1,2}', ["aab", "aaaabb"], ["ab", "aabbb"]),
        ('root ::= ("ab" | "c"){0,2}', ["", "ab", "cab"], ["ccc"]),
        ('root ::= [0-9]+ ("." [0-9]*)?', ["1", "1.", "1.5"], [".5"]),
        ('root ::= (("a")?)+ "z"', ["z", "aaz"], ["a"]),
        (r"root ::= [^a-c\n]", ["d", "é"], ["a", "\n"]),
        (r"root ::= [\]\-^a]", ["]", "-", "^", "a"], ["\\", "b"]),
        (r"root ::= [\u4e00-\u9fff]+", ["日本"], ["a"]),
        (r'root ::= "\u00e9\x41\n\t\"\\\U0001F600"', ['éA\n\t"\\😀'], ["éA"]),
        ('# one | two\nroot ::= a # "three\na ::= "x" | "#"\n', ["x", "#"], [""]),
        ('root ::=\n  "a"\n  b\n\nb ::= "b"\n    | "c"', ["ab", "ac"], ["a"]),
        ('root ::= a-rule.x_1\na-rule.x_1 ::= "q"', ["q"], [""]),
        ('root ::= "" | "a" root', ["", "a", "aaa"], ["b"]),
        ('root ::= "(" root ")" | "x"', ["x", "((x))"], ["(x"]),
        ('root ::= a "b"\na ::= "a" | "c" (="b")', ["ab", "cb"], ["a", "b"]),
        ('root ::= TagDispatch(("<a>", a), loop_after_dispatch=true)\na ::= "1"', ["x", "<a>1y<a>1"], ["<a>2"]),
    ],
)
def test_a_grammar_allows_its_texts_and_no_others(grammar: str, texts: list[str], others: list[str]) -> None:
    constraint = Constraint(kind="grammar", value=grammar)
    request = ChatRequest(model="m", messages=(Message(role="user", content="Hi"),), constraint=constraint)
    plan = make_plan(request, OutputFormat(), "")
    assert plan.constraint is not None
    assert [text for text in [*texts, *others] if tiny_oracle().accepts(plan.constraint, text)] == texts
