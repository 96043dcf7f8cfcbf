"""Texts of our grammars against an independent reading of JSON Schema: llguidance's, a byte at a time.

jsonschema judges finished texts in tests/acceptance; a compiler of masks must also follow each text on its way.
"""

import json
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from tests.support.fuzzing import cases as examples
from tests.support.grammar_oracle import tiny_oracle
from tests.support.json_schemas import cases
from worker.engine.protocol import OutputGrammar
from worker.grammar.lengths import LengthChecker
from worker.grammar.schema.compiler import schema_grammar
from worker.grammar.schema.limits import length_limits_of

llguidance = pytest.importorskip("llguidance")


class _Bytes:
    """A vocabulary of all bytes and an end."""

    eos_token_id = 256
    bos_token_id = None
    special_token_ids = (256,)
    tokens = (*(bytes([byte]) for byte in range(256)), b"<end>")

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text if isinstance(text, bytes) else text.encode())


TOKENIZER = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Bytes()))


class _Unsupported(Exception):
    """llguidance has no grammar for a schema."""


def _accepts(schema: dict[str, Any], text: str) -> bool:
    """Whether llguidance allows ``text``. Raises :class:`_Unsupported`.

    It leaves out U+007F, which JSON allows (RFC 8259, section 7).
    """
    text = text.replace("\x7f", "\x7e")
    grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides={"coerce_one_of": True})
    matcher = llguidance.LLMatcher(TOKENIZER, grammar, log_level=0)
    if matcher.is_error():
        raise _Unsupported(matcher.get_error())
    return all(matcher.consume_token(byte) for byte in text.encode()) and matcher.is_accepting()


SCHEMAS: tuple[dict[str, Any], ...] = (
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "boolean"}},
    {"type": "object", "patternProperties": {"^x-": {"type": "number"}}, "additionalProperties": False},
    {"type": "array", "items": {"enum": ["a", 1, None]}, "minItems": 1, "maxItems": 3},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}], "items": {"type": "null"}},
    {"type": "integer", "minimum": -7, "maximum": 1234},
    {"type": "number", "exclusiveMinimum": -1.5, "maximum": 20},
    {"type": "integer", "multipleOf": 25},
    {"type": "string", "pattern": "^[a-f]{2,4}(?:-[0-9]+)?$"},
    {"type": "string", "format": "date"},
    {"type": "string", "minLength": 3},
    {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 30}]},
    {"anyOf": [{"type": "boolean"}, {"type": "object", "properties": {"n": {"$ref": "#"}}, "required": ["n"]}]},
    {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
)


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_what_a_grammar_makes_another_compiler_allows(schema: dict[str, Any]) -> None:
    grammar = OutputGrammar(schema_grammar(json.dumps(schema)))
    made = [text for seed in range(12) if (text := tiny_oracle().random(grammar, seed)) is not None]
    assert made
    assert [text for text in made if not _accepts(schema, text)] == []


@pytest.mark.parametrize(
    ("schema", "texts"),
    [
        (
            {"type": "object", "properties": {"a": {"enum": [1, 2]}, "b": {"type": "boolean"}}, "required": ["b"],
             "additionalProperties": False},
            ["{}", '{"a":1}', '{"a":1,"b":true}', '{"b":false}', '{"a":3,"b":true}', '{"a":2,"b":0}', '{"b":true,}'],
        ),
        ({"type": "array", "items": {"enum": [0, 1]}, "minItems": 1, "maxItems": 2},
         ["[]", "[0]", "[0,1]", "[1,1,1]", "[2]", "[1,]"]),
        ({"type": "integer", "minimum": 8, "maximum": 12}, [str(number) for number in range(-1, 21)]),
        ({"enum": ["a", "ab", None, True, 7]}, ['"a"', '"ab"', '"b"', "null", "true", "false", "7", "77", '"'],),
        ({"type": "string", "pattern": "^(?:a|bc)?d$"}, ['"d"', '"ad"', '"bcd"', '"bd"', '"abcd"', '""']),
    ],
)  # fmt: skip
def test_of_small_schemas_both_allow_the_same(schema: dict[str, Any], texts: list[str]) -> None:
    grammar = OutputGrammar(schema_grammar(json.dumps(schema)))
    ours = [text for text in texts if tiny_oracle().accepts(grammar, text)]
    assert ours == [text for text in texts if _accepts(schema, text)]
    assert 0 < len(ours) < len(texts)


@settings(max_examples=examples(30), deadline=None)
@given(data=st.data())
def test_of_generated_schemas_both_allow_the_same(data: st.DataObject) -> None:
    case = data.draw(cases)
    try:
        _accepts(case.schema, "")
    except _Unsupported:
        reject()
    text = json.dumps(case.schema)
    grammar = OutputGrammar(schema_grammar(text))
    limits = length_limits_of([""], text)

    def allowed(text: str) -> bool:
        return tiny_oracle().accepts(grammar, text) and not LengthChecker(limits).violates(text)

    for value in data.draw(st.lists(case.values, min_size=3, max_size=3)):
        written = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        assert allowed(written) == _accepts(case.schema, written), written
    made = tiny_oracle().random(grammar, data.draw(st.integers(0, 99)))
    assert made is None or LengthChecker(limits).violates(made) or _accepts(case.schema, made), made


def test_values_whose_ends_share_rules_are_not_mixed() -> None:
    values = [f"{first}{second}-{last}" for first in "abc" for second in "xyz" for last in ("oned", "twod", "ned", "d")]
    grammar = OutputGrammar(schema_grammar(json.dumps({"enum": values[:-2]})))
    assert 't0 ::= "ed"' in grammar.text or 't0 ::= "d\\""' in grammar.text
    others = ["", "ax", "ax-", "ax-on", "ax-onetwod", "ax-nedd", "aax-d", "ax-oned ", "xa-d"]
    assert [text for text in [*values, *others] if tiny_oracle().accepts(grammar, f'"{text}"')] == values[:-2]


def test_the_common_beginning_of_many_names_belongs_to_each() -> None:
    names = [f'na"me_{number}' for number in range(100)]
    schema = {"properties": {name: {"const": 1} for name in names}, "required": names[:1], "maxProperties": 2}
    grammar = OutputGrammar(schema_grammar(json.dumps({"type": "object", **schema})))
    texts = [
        json.dumps(one) for one in ({names[0]: 1}, {names[0]: 1, names[99]: 1}, {names[0]: 1, "me_99": 1}, {"0": 1})
    ]
    assert [text for text in texts if tiny_oracle().accepts(grammar, text)] == texts[:2]
