"""A grammar is only promised where the vocabulary can spell what it asks for."""

import json

import pytest

from shared.protocol.errors import RequestRefused
from shared.protocol.request import ChatRequest, Message, Tool
from worker.engine.protocol import OutputGrammar
from worker.grammar.plan import Plan
from worker.grammar.spelling import missing_bytes, spellable_plan

WORDS = frozenset(range(256)) - frozenset(b"abc")
CONTROL = frozenset({0x04, 0xF1})
REQUEST = ChatRequest(model="m", messages=(Message(role="user", content="Hi"),))


def plan(value: str, kind: str = "grammar", *, triggers: tuple[str, ...] = ()) -> Plan:
    return Plan(grammar=OutputGrammar(value, kind == "structural_tag"), param="response_format", triggers=triggers)


def test_a_vocabulary_with_every_byte_spells_everything() -> None:
    missing = missing_bytes([bytes([byte]) for byte in range(256)])
    assert missing == frozenset()
    whole = plan('root ::= "\U0010ffff"')
    assert spellable_plan(whole, REQUEST, missing) is whole


def test_bytes_that_stand_in_no_text_are_not_missed() -> None:
    assert missing_bytes([bytes([byte]) for byte in range(0xF5) if byte not in (0xC0, 0xC1)]) == frozenset()
    assert missing_bytes([b"ab", "é".encode()]) >= frozenset(b"ab") | {0xC3, 0xA9}


@pytest.mark.parametrize("kind", ["grammar", "regex", "structural_tag"])
def test_a_vocabulary_of_words_is_held_to_nothing(kind: str) -> None:
    value = '"a"'
    with pytest.raises(RequestRefused, match="single bytes") as caught:
        spellable_plan(plan(value, kind), REQUEST, WORDS)
    assert caught.value.problem.param == "response_format"


def test_a_forced_call_names_tool_choice() -> None:
    tools = (Tool(name="now"),)
    for fields in ({"tool_choice": "required"}, {"named_tool": "now"}):
        request = ChatRequest(model="m", messages=REQUEST.messages, tools=tools, **fields)  # type: ignore[arg-type]
        with pytest.raises(RequestRefused, match="tool_choice") as caught:
            spellable_plan(plan('root ::= "a"'), request, WORDS)
        assert caught.value.problem.param == "tool_choice"


def test_calls_that_may_be_made_go_unguided() -> None:
    kept = spellable_plan(plan('root ::= "a"', triggers=("<tool_call>",)), REQUEST, WORDS)
    assert (kept.grammar, kept.triggers) == (None, ())


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ('root ::= "\x04"', "grammar"),
        (r'root ::= "\x04"', "grammar"),
        (r'root ::= "a\u0004b"', "grammar"),
        (r'root ::= "\U00040000"', "grammar"),
        ('root ::= "\U00040000"', "grammar"),
        (r'root ::= "[^\x04]"', "grammar"),
        (r"a[\x04]", "regex"),
        (r"root ::= [\u0004-\U00040000]", "grammar"),
        (json.dumps({"type": "const_string", "value": "\x04"}), "structural_tag"),
        (json.dumps({"type": "sequence", "elements": [{"type": "regex", "pattern": r"\x04"}]}), "structural_tag"),
    ],
)
def test_a_character_that_can_not_be_spelled_is_named(value: str, kind: str) -> None:
    with pytest.raises(RequestRefused, match=r"character U\+(0004|40000)"):
        spellable_plan(plan(value, kind), REQUEST, CONTROL)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ('root ::= "größe 中文 😀"', "grammar"),
        (r'root ::= "\\u0004"', "grammar"),
        (r'root ::= [^"\\\x04]*', "grammar"),
        (r"[^\x04]+", "regex"),
        (r"root ::= [\u0004-z\U00040000-\U0010ffff]", "grammar"),
        (json.dumps({"type": "grammar", "grammar": r'root ::= [^\x04] "\\u0004"'}), "structural_tag"),
    ],
)
def test_what_only_looks_like_it_is_left_alone(value: str, kind: str) -> None:
    whole = plan(value, kind)
    assert spellable_plan(whole, REQUEST, CONTROL) is whole
