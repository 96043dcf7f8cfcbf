"""No accepted field may do nothing: each field of a request has a consumer in the worker, or is the API's alone, and
each field of its sampling changes what the engine gets."""

import ast
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any, get_args

import msgspec
import numpy
import pytest

from shared.protocol import request as parts
from shared.protocol.request import LOGITS, ChatRequest, PromptScoring, ResponseForm, Sampling, Work
from shared.runtime.settings import EngineSettings
from tests.support.paths import ROOT
from worker.engine.generation import Generation
from worker.engine.protocol import EngineSequence
from worker.engine.text import Vocabulary
from worker.openvino.logits.readers import Bias, Penalties, RowReader
from worker.openvino.options import Speculation
from worker.openvino.sampling import apply_speculation, configure

OF_THE_API = {
    "api/chat": {"best_of", "continuous_usage", "n", "prompts", "response", "store", "stream", "tier"}
    | {"PromptScoring.param", "notes"},
    "api/dialects/openai": {"base64", "echo", "functions_form", "include_usage", "obfuscate", "prompt_logprobs"},
    "api/dialects/anthropic": {"hidden"},
    "api/media": {"Image.url"},
    "api/dialects/responses": {"Tool.namespace"},
    "api/dialects/rerank": {"activation", "documents", "top"},
    "api/stored": {"background", "metadata", "echoed"},
}
"""The fields of a request that the API alone reads, by the place that does."""
HOLDERS = {"request", "response", "sampling", "own", "asked", "chat"}
"""Names of what has the fields."""
PARTS: Mapping[type[msgspec.Struct], set[str]] = {
    **{kind: {"work", "request"} for kind in get_args(Work)},
    parts.Constraint: {"constraint"},
    parts.Image: {"image"},
    parts.Message: {"message", "last", "turn", "previous"},
    PromptScoring: {"prompt_scoring", "scoring"},
    parts.ThinkingBudget: {"budget", "thinking_budget"},
    parts.Tool: {"tool"},
}
"""The types of parts of a request, and the names of what has their fields."""
CHECKS = {ROOT / "worker/engine/checks.py", ROOT / "worker/openvino/checks.py"}
"""Refusing a field is no use of it."""


def read_in(place: str, holders: Collection[str] = HOLDERS) -> set[str]:
    """The fields that the code in a file or folder reads of requests, or other ``holders``, itself or by a property."""
    found = {name for holder, name in reads(place) if holder in holders or holder == ANY}
    return found.union(*(properties()[name] for name in found & properties().keys()))


ANY = "*"


@cache
def reads(place: str) -> set[tuple[str, str]]:
    """What is read in a file or folder: the name of what has a field, without underscores before it, and the field."""
    path = ROOT / place
    files = [path] if path.is_file() else [file for file in path.rglob("*.py") if file not in CHECKS]
    return {read for file in files for read in reads_in(ast.parse(file.read_text("utf-8")))}


def reads_in(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=holder) | ast.Attribute(attr=holder), attr=name):
                yield holder.lstrip("_"), name
            case ast.MatchClass(kwd_attrs=names):
                yield from ((ANY, name) for name in names)
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
                yield ANY, name


@cache
def properties() -> Mapping[str, set[str]]:
    """The fields that each property of the request's types reads."""
    tree = ast.parse((ROOT / "shared/protocol/request.py").read_text("utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return {
        function.name: {name for holder, name in reads_in(function) if holder in ("self", ANY)}
        for function in functions
    }


def test_every_field_of_a_request_and_of_its_parts_has_a_consumer() -> None:
    asked = [(field, field, HOLDERS) for field in ChatRequest.__struct_fields__ + ResponseForm.__struct_fields__]
    asked += [(f"{kind.__name__}.{field}", field, PARTS[kind]) for kind in PARTS for field in kind.__struct_fields__]
    for name, field, holders in asked:
        places = [place for place, fields in OF_THE_API.items() if name in fields] or ["worker"]
        assert any(field in read_in(place, holders) for place in places), (name, places)


def test_every_field_of_the_sampling_has_a_consumer_in_the_worker() -> None:
    assert not {*Sampling.__struct_fields__} - read_in("worker")


VALUES: Mapping[str, Any] = {
    "frequency_penalty": 0.5,
    "presence_penalty": 0.5,
    "repetition_penalty": 1.5,
    "min_tokens": 3,
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 3,
    "min_p": 0.5,
    "seed": 7,
    "stop": ("b",),
    "stop_token_ids": (1,),
    "include_stop": True,
    "ignore_eos": True,
    "skip_special_tokens": False,
    "logprobs": True,
    "top_logprobs": 2,
    "prompt_scoring": PromptScoring(),
    "logit_bias": ((1, 1.0),),
    "allowed_token_ids": (1,),
    "bad_words": ("b",),
    "beams": 2,
    "length_penalty": 0.5,
    "num_assistant_tokens": 3,
    "assistant_confidence_threshold": 0.5,
    "max_ngram_size": 2,
}
BEFORE = {"max_tokens", "max_length", "thinking_budget"}
"""Fields that have become limits of the sequence before its engine is asked (:mod:`worker.jobs.generation`)."""
TOGETHER: Mapping[str, Any] = {
    "top_p": {"temperature": 1.0},
    "top_k": {"temperature": 1.0},
    "min_p": {"temperature": 1.0},
    "seed": {"temperature": 1.0},
    "include_stop": {"stop": ("b",)},
    "top_logprobs": {"logprobs": True},
    "length_penalty": {"beams": 2},
}
"""What a field needs to have an effect."""


VOCABULARY = Vocabulary([b"a", b"b", b"c", b"<s>", b"</s>"], special=(3,))


def given(sampling: Sampling, *, rows: bool = False) -> list[object]:
    """What the engine gets: its configs, the logits that it samples from, and the text that it returns."""
    words = ((1,),) if sampling.bad_words else ()
    sequence = EngineSequence(number=1, prompt=(0, 1), sampling=sampling, bad_word_tokens=words)
    found: list[object] = []
    for speculation in get_args(Speculation):
        config = configure(sequence, [4], done=0, max_new_tokens=9)
        apply_speculation(config, sampling, speculation)
        public = (name for name in dir(config) if not name.startswith("_"))
        found += [(name, value) for name in public if isinstance(value := getattr(config, name), int | float | set)]
    row = numpy.arange(5, dtype=numpy.float32)
    reader = RowReader(sampling, Bias(sampling, words, penalties=Penalties.of(sampling, sequence.prompt)))
    reader.bias.prepare((1, 1))
    reader.keep(row[None])
    taken = reader.take(1, None) if reader.reads else None
    reader.bias.add_to(row)
    generation = Generation(
        sequence, Vocabulary([b"a", b"b", b"c", b"<s>", b"</s>"], special=(3,)), end_tokens=(4,), limit=9
    )
    output = generation.append((3, 0, 1, 2, 4, 0), (-0.5,) * 6)
    # Fields that need logits change these, not only whether there are any.
    if rows:
        return [taken, row.tolist()]
    return [*found, taken, row.tolist(), output.delta, output.reason, generation.prompt_scoring]


@pytest.mark.parametrize("field", [field for field in Sampling.__struct_fields__ if field not in BEFORE])
def test_a_field_of_the_sampling_changes_what_the_engine_gets(field: str) -> None:
    others = TOGETHER.get(field, {})
    rows = field in LOGITS
    assert given(Sampling(**others, **{field: VALUES[field]}), rows=rows) != given(Sampling(**others), rows=rows)


def test_the_setting_names_the_fields_that_need_logits() -> None:
    described = EngineSettings.model_fields["logits"].description
    assert described is not None
    assert all(field in described for field in LOGITS)
