"""Tiny models with every kind of vocabulary (tests/models): grammars hold exactly, or are refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from shared.parsers.formats import OutputFormat
from shared.protocol.errors import RequestRefused
from shared.protocol.request import ChatRequest, Constraint, Message, Sampling, Tool
from shared.runtime.settings import EngineSettings
from tests.support.grammar_oracle import GrammarOracle
from worker.engine.protocol import EngineSequence, OutputGrammar
from worker.grammar.plan import Plan
from worker.grammar.planner import make_plan
from worker.model.local import default_model
from worker.openvino.engine import OpenVINOEngine
from worker.openvino.grammar_profiler import GrammarProfiler
from worker.openvino.options import OpenVINOOptions
from worker.openvino.prompt_maker import load_prompt_maker
from worker.prompt.messages import PromptOptions

MODELS = Path(__file__).parents[1] / "models"
HELD = (
    "qwen2-byte-level-bpe",
    "llama-byte-fallback-bpe",
    "phi3-byte-fallback-bpe",
    "gemma2-byte-fallback-bpe",
    "llama-byte-fallback-unigram",
)
UNHELD = ("gpt2-unigram", "gpt2-wordpiece")
CONTEXT = 2048
TEXTS = (
    "xyz abc",
    " leading and trailing ",
    "two  spaces",
    "▁",
    "a▁b",
    "<0x41>",
    "São Paulo, größte, naïve",
    "école, année, größe",
    "中文 と 한국어",
    "😀👩‍👩‍👧",
    "</s><s><eos><|im_end|><|end|>[SEP]",
    "tab\tand\nline",
    "\x01\x7f",
)
WEATHER = Tool(
    name="get_weather",
    strict=True,
    parameters=json.dumps(
        {
            "type": "object",
            "properties": {
                "city name": {"enum": ["São Paulo", "New York", "東京"]},
                "days": {"type": "array", "items": {"enum": ["to day", "größte"]}, "maxItems": 2},
            },
            "required": ["city name", "days"],
            "additionalProperties": False,
        },
        ensure_ascii=False,
    ),
)


class TinyEngine:
    def __init__(self, name: str, chat_template: str = "") -> None:
        settings = EngineSettings(precision="exact", cache_size=1, max_batch=16)
        options = OpenVINOOptions.from_settings(
            settings, path=str(MODELS / name), context_length=CONTEXT, chat_template=chat_template
        )
        self._engine = OpenVINOEngine(options, lambda stage: None)
        self.vocabulary = self._engine.engine_info.vocabulary

    def texts(self, plans: list[Plan], *, seed: int = 1) -> list[str]:
        """The texts that the model makes under the plans, each to its own end."""
        for number, plan in enumerate(plans):
            self._engine.add(
                EngineSequence(
                    number=number,
                    prompt=(5, 6, 7),
                    sampling=Sampling(temperature=1.5, seed=seed + number, max_tokens=600),
                    grammar=plan.grammar,
                    shown_tokens=plan.shown_tokens,
                )
            )
        texts = [""] * len(plans)
        while self._engine.busy():
            for made in self._engine.step():
                texts[made.number] += made.delta.text if made.delta else ""
                assert made.reason in (None, "stop")
        return texts


@pytest.fixture(scope="module", params=HELD)
def engine(request: pytest.FixtureRequest) -> TinyEngine:
    return TinyEngine(request.param)


def request(**fields: Any) -> ChatRequest:
    return ChatRequest(model="m", messages=(Message(role="user", content="Hi"),), **fields)


def schema_plan(schema: Any) -> Plan:
    return make_plan(request(constraint=Constraint(kind="json_schema", value=json.dumps(schema))), OutputFormat(), "")


def test_every_text_of_an_enum_comes_out_exactly(engine: TinyEngine) -> None:
    schemas = [
        {"type": "object", "properties": {text: {"enum": [text]}}, "required": [text], "additionalProperties": False}
        for text in TEXTS
    ]
    texts = engine.texts([schema_plan(schema) for schema in schemas])
    assert [json.loads(text) for text in texts] == [{text: text} for text in TEXTS]


def test_texts_outside_json_come_out_exactly(engine: TinyEngine) -> None:
    plans = []
    for text in TEXTS:
        escaped = "".join(f'"\\U{ord(character):08x}" ' for character in text)
        plans.append(Plan(grammar=OutputGrammar(f"root ::= {escaped}")))
    assert engine.texts(plans) == list(TEXTS)


def test_forced_calls_come_out_exactly(engine: TinyEngine) -> None:
    forced = request(tools=(WEATHER,), tool_choice="required", parallel_tool_calls=False)
    plan = make_plan(forced, OutputFormat(tools="hermes"), "")
    for text in engine.texts([plan] * 6):
        inner = text.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>")
        assert inner != text
        call = json.loads(inner)
        assert call["name"] == "get_weather"
        assert call["arguments"]["city name"] in ("São Paulo", "New York", "東京")
        assert set(call["arguments"]["days"]) <= {"to day", "größte"}


@pytest.mark.parametrize("name", ["default", *HELD[:4]])
def test_forced_text_may_be_written_in_the_tokenizers_own_tokens(name: str) -> None:
    oracle = GrammarOracle(Path(default_model()) if name == "default" else MODELS / name)
    json_text = '{"city name": "New York", "days": ["to day"]}'
    schema = json.loads(WEATHER.parameters or "")
    call = f'<tool_call>\n{{"name": "get_weather", "arguments": {json_text}}}\n</tool_call>'
    forced = request(tools=(WEATHER,), tool_choice="required", parallel_tool_calls=False)
    for plan, text in (
        (schema_plan(schema), json_text),
        (make_plan(forced, OutputFormat(tools="hermes"), ""), call),
    ):
        assert plan.grammar
        tokens = oracle.own_tokens(text)
        assert len(tokens) < len(text.encode())
        assert oracle.writes(plan.grammar, tokens)
        assert not oracle.writes(plan.grammar, tokens[:-1])


def test_schemas_with_free_parts_hold(engine: TinyEngine) -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": "^[A-Z][a-z]{2,6} [à-ÿ]{3}$"},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "on": {"type": "string", "format": "date"},
        },
        "required": ["name", "age", "on"],
        "additionalProperties": False,
    }
    for text in engine.texts([schema_plan(schema)] * 8):
        person = json.loads(text)
        assert set(person) == {"name", "age", "on"}
        assert 0 <= person["age"] <= 120


def test_a_digest_names_the_vocabulary_and_the_template() -> None:
    digests = [TinyEngine(HELD[0]).vocabulary, TinyEngine(HELD[0]).vocabulary, TinyEngine(HELD[1]).vocabulary]
    digests.append(TinyEngine(HELD[0], chat_template="another").vocabulary)
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3, digests


@pytest.mark.parametrize("name", [*HELD, *UNHELD])
def test_the_grammar_process_takes_every_vocabulary(name: str) -> None:
    GrammarProfiler(str(MODELS / name)).compile(OutputGrammar('root ::= "a b"'))


@pytest.mark.parametrize("name", UNHELD)
def test_a_vocabulary_without_bytes_is_refused_what_it_can_not_hold(name: str) -> None:
    maker = load_prompt_maker(PromptOptions(engine="auto", path=str(MODELS / name), context_length=CONTEXT))
    for fields, param in (
        ({"constraint": Constraint(kind="json_object", value="")}, "response_format"),
        ({"tools": (WEATHER,), "tool_choice": "required"}, "tool_choice"),
        ({"tools": (WEATHER,), "named_tool": "get_weather"}, "tool_choice"),
    ):
        with pytest.raises(RequestRefused) as caught:
            maker.plan(request(**fields))
        assert caught.value.problem.param == param
    free = maker.plan(request(tools=(WEATHER,)))
    assert (free.grammar, free.tools) == (None, "hermes")


@pytest.mark.parametrize("name", [*HELD, *UNHELD])
def test_every_template_takes_tools_without_a_system_message(name: str) -> None:
    maker = load_prompt_maker(PromptOptions(engine="auto", path=str(MODELS / name), context_length=CONTEXT))
    assert len(maker.prepare(request(tools=(WEATHER,))).tokens) > len(maker.prepare(request()).tokens)


@pytest.mark.parametrize("name", HELD)
def test_a_vocabulary_with_bytes_is_refused_nothing(name: str) -> None:
    maker = load_prompt_maker(PromptOptions(engine="auto", path=str(MODELS / name), context_length=CONTEXT))
    assert maker.plan(request(constraint=Constraint(kind="json_object", value=""))).grammar is not None
