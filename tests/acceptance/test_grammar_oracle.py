"""Schemas as jsonschema reads them, against the grammars that the real compiler holds a model to.

What a grammar generates must be valid under the schema, and what is valid must be accepted, within the limits of
docs/json-schema.md. Schemas, values and texts are generated.
"""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from shared.parsers.formats import OutputFormat
from shared.protocol.errors import RequestRefused
from shared.protocol.request import ChatRequest, Constraint, Message, Tool
from tests.support.fuzzing import cases as examples
from tests.support.grammar_oracle import GrammarOracle, tiny_oracle
from tests.support.json_schemas import Case, cases, changed, narrowed_cases, single_cases
from worker.grammar.lengths import LengthChecker
from worker.grammar.planner import make_plan
from worker.grammar.schema.keywords import UNSUPPORTED
from worker.model.local import default_model

_EDITS = '{}[]",:\\0a1. -'


NOT_STRICT = frozenset({"maxLength", *UNSUPPORTED})
"""The keywords that are ignored in the parameters of tools that are not strict (docs/json-schema.md)."""


class Served:
    """A schema as it is served: a grammar, and an end to the output at the first string that is too long."""

    def __init__(self, oracle: GrammarOracle, schema: Any, **fields: Any) -> None:
        """``fields`` of the request, instead of output that follows ``schema``."""
        text = json.dumps(schema, ensure_ascii=False)
        fields = fields or {"constraint": Constraint(kind="json_schema", value=text)}
        request = ChatRequest(model="m", messages=(Message(role="user", content="Hi"),), **fields)
        plan = make_plan(request, OutputFormat(), "")
        assert plan.grammar is not None
        self._oracle = oracle
        self._constraint = plan.grammar
        self._bounded = plan.length_limits
        self._validator = jsonschema_rs.Draft202012Validator(text, validate_formats=True)

    def accepts(self, text: str) -> bool:
        """Whether the model could end with ``text``."""
        return self._oracle.accepts(self._constraint, text) and self._within_lengths(text) is not None

    def random(self, seed: int) -> str | None:
        """Return a random text that the model could end with ``stop``."""
        return self._within_lengths(self._oracle.random(self._constraint, seed))

    def nearest(self, text: str) -> str | None:
        """Return ``text`` if the model could end with it, or another text that it could end with."""
        return self._within_lengths(self._oracle.nearest(self._constraint, text))

    def is_valid(self, text: str) -> bool:
        """Whether ``text`` is JSON that jsonschema accepts. Numbers are compared exactly."""
        try:
            value = json.loads(text, parse_float=Decimal)
        except ValueError:
            return False
        return self._validator.is_valid(value)

    def _within_lengths(self, text: str | None) -> str | None:
        return None if text is None or LengthChecker(self._bounded).violates(text) else text


@pytest.fixture(scope="module")
def default_oracle() -> GrammarOracle:
    return GrammarOracle(Path(default_model()))


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_grammars_accept_what_jsonschema_accepts(data: st.DataObject) -> None:
    case = data.draw(cases)
    served = Served(tiny_oracle(), case.schema)
    for value in data.draw(st.lists(case.values, min_size=5, max_size=5)):
        text = compact(value)
        assert served.accepts(text) == served.is_valid(text), text
        damaged = data.draw(changed_text(value))
        found = served.nearest(damaged)
        assert found is None or served.is_valid(found), (damaged, found)


@settings(max_examples=examples(10), deadline=None)
@given(data=st.data())
def test_the_default_models_vocabulary_makes_no_difference(default_oracle: GrammarOracle, data: st.DataObject) -> None:
    case = data.draw(cases)
    served = Served(default_oracle, case.schema)
    for value in data.draw(st.lists(case.values, min_size=3, max_size=3)):
        text = compact(value)
        assume(default_oracle.can_spell(text))
        assert served.accepts(text) == served.is_valid(text), text


@settings(max_examples=examples(30), deadline=None)
@given(case=cases)
def test_grammars_generate_what_jsonschema_accepts(case: Case) -> None:
    served = Served(tiny_oracle(), case.schema)
    for seed in range(10):
        text = served.random(seed)
        assert text is None or served.is_valid(text), text


@settings(max_examples=examples(40), deadline=None)
@given(case=narrowed_cases(), data=st.data())
def test_keywords_that_a_grammar_narrows_are_never_widened(case: Case, data: st.DataObject) -> None:
    try:
        served = Served(tiny_oracle(), case.schema)
    except RequestRefused:
        reject()
    made = [served.random(seed) for seed in range(4)]
    made += [served.nearest(compact(value)) for value in data.draw(st.lists(case.values, min_size=4, max_size=4))]
    assert [text for text in made if text is not None and not served.is_valid(text)] == []


@settings(max_examples=examples(30), deadline=None)
@given(data=st.data())
def test_arguments_of_tools_that_are_not_strict(data: st.DataObject) -> None:
    case = data.draw(single_cases)
    ignored = data.draw(st.dictionaries(st.sampled_from(sorted(UNSUPPORTED)), st.just({"type": "null"}), max_size=2))
    served = Served(
        tiny_oracle(),
        {"prefixItems": [{"properties": {"arguments": {"properties": {"a": _without(case.schema, NOT_STRICT)}}}}]},
        tools=(Tool(name="f", parameters=json.dumps({"properties": {"a": case.schema | ignored}, "required": ["a"]})),),
        tool_choice="required",
    )
    for value in data.draw(st.lists(case.values, min_size=5, max_size=5)):
        call = f'{{"name": "f", "arguments": {{"a":{compact(value)}}}}}'
        assert served.accepts(f"<tool_call>\n{call}\n</tool_call>") == served.is_valid(f"[{call}]"), call


def _without(schema: Any, keywords: frozenset[str]) -> Any:
    if isinstance(schema, list):
        return [_without(part, keywords) for part in schema]
    if isinstance(schema, dict):
        return {key: _without(part, keywords) for key, part in schema.items() if key not in keywords}
    return schema


@st.composite
def changed_text(draw: st.DrawFn, value: Any) -> str:
    """Draw the text of ``value`` with one part of the value, or of the text, replaced."""
    if draw(st.booleans()):
        return compact(draw(changed(value)))
    text = compact(value)
    start = draw(st.integers(0, len(text)))
    return text[:start] + draw(st.text(_EDITS, max_size=2)) + text[start + draw(st.integers(0, 2)) :]


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
