"""Clients' EBNF grammars: each feature of XGrammar's notation means what its documentation says."""

import pytest

from shared.parsers.formats import OutputFormat
from shared.protocol.errors import RequestRefused
from shared.protocol.request import ChatRequest, Constraint, Message
from tests.support.grammar_oracle import tiny_oracle
from worker.engine.protocol import OutputGrammar
from worker.grammar.client_grammar import readable_grammar
from worker.grammar.plan import Plan
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
    plan = _plan(grammar)
    assert plan.grammar is not None
    assert [text for text in [*texts, *others] if tiny_oracle().accepts(plan.grammar, text)] == texts


@pytest.mark.parametrize(
    ("grammar", "rule"),
    [
        ('root ::= "a" b\nb ::= b "c"', "b"),
        ('root ::= "a" root', "root"),
        ('root ::= ("x" | b+)? "y"\nb ::= [b] (c | c{2})\nc ::= b', "b"),
    ],
)
def test_a_rule_that_never_ends_is_refused_because_it_would_not_be_enforced(grammar: str, rule: str) -> None:
    with pytest.raises(RequestRefused, match=f"'{rule}' never ends"):
        _plan(grammar)


@pytest.mark.parametrize(
    "grammar", ['root ::= "a" # b\nb ::= b', 'root ::= b* "y"\nb ::= b | "b"{0,2}', "root ::= a", ""]
)
def test_other_rules_that_contain_themselves_are_left_to_the_compiler(grammar: str) -> None:
    assert _plan(grammar).grammar == OutputGrammar(readable_grammar(grammar))


def _plan(grammar: str) -> Plan:
    constraint = Constraint(kind="grammar", value=grammar)
    request = ChatRequest(model="m", messages=(Message(role="user", content="Hi"),), constraint=constraint)
    return make_plan(request, OutputFormat(), "")
