"""Spelled tokens: a rewritten tokenizer turns them into exactly the same tokens."""

import random
import shutil
from typing import cast

import numpy
import openvino
import openvino_genai
import pytest
from openvino import opset13 as opset
from openvino_genai.py_openvino_genai import GenerationHandle

from tests.support.paths import MODELS
from worker.engine.protocol import Ending, EngineLoadError, Output
from worker.openvino.detokenizer import tokenizer_core
from worker.openvino.prompts import accept_spelled, counted, empty_added_segments, spell

BPE = ("qwen2-byte-level-bpe", "llama-byte-fallback-bpe", "phi3-byte-fallback-bpe", "gemma2-byte-fallback-bpe")
OTHERS = ("llama-byte-fallback-unigram", "gpt2-wordpiece")
FILE = "openvino_tokenizer.xml"
SIZE = 300


def encode(tokenizer: openvino_genai.Tokenizer, text: str, *, add_special_tokens: bool = False) -> list[int]:
    ids = tokenizer.encode(text, add_special_tokens=add_special_tokens).input_ids.data[0]
    return [int(token) for token in ids]


@pytest.fixture(scope="module", params=BPE)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def rewritten(name: str, tmp_path_factory: pytest.TempPathFactory) -> openvino_genai.Tokenizer:
    folder = tmp_path_factory.mktemp(name) / name
    shutil.copytree(MODELS / name, folder)
    model = tokenizer_core().read_model(MODELS / name / FILE)
    accept_spelled(model, SIZE)
    openvino.save_model(model, folder / FILE, compress_to_fp16=False)
    return openvino_genai.Tokenizer(str(folder))


def test_spelled_tokens_are_encoded_as_themselves(rewritten: openvino_genai.Tokenizer) -> None:
    every = list(range(SIZE))
    assert encode(rewritten, spell(every)) == every
    # Far more than the 8,192 tokens at which some tokenizers cut a text.
    many = random.Random(1).choices(every, k=20_000)
    assert encode(rewritten, spell(many)) == many


def test_text_between_spelled_tokens_is_encoded_as_before(name: str, rewritten: openvino_genai.Tokenizer) -> None:
    original = openvino_genai.Tokenizer(str(MODELS / name))
    special = original.get_eos_token()
    for text in (special, 3 * special, f"{special}\n"):
        assert encode(rewritten, f"{spell([5, 6])}{text}{spell([7])}") == [5, 6, *encode(original, text), 7]


def test_a_rewritten_tokenizer_adds_no_tokens(rewritten: openvino_genai.Tokenizer) -> None:
    assert encode(rewritten, spell([5, 6, 7]), add_special_tokens=True) == [5, 6, 7]


def test_segments_of_added_tokens_are_emptied() -> None:
    def constant(value: int) -> openvino.Node:
        return opset.constant(numpy.array([value], numpy.int32))

    text = [opset.parameter([1], openvino.Type.i32) for _ in range(3)]
    # Begins, ends and tokens of "<s>", of a text, and of "</s>"; then the ids of the segments.
    inputs = [constant(0), constant(1), constant(7), *text, constant(0), constant(1), constant(8), constant(0)]
    joined = openvino.Model([opset.result(opset.concat(inputs, 0))], text)
    empty_added_segments(joined.get_result().input_value(0).get_node())
    given = [openvino.Tensor(numpy.array([value], numpy.int32)) for value in (3, 4, 5)]
    result = openvino.Core().compile_model(joined, "CPU")(given)[0]
    assert result.tolist() == [0, 0, 7, 3, 4, 5, 0, 0, 8, 0]


@pytest.mark.parametrize("name", OTHERS)
def test_other_tokenizers_are_refused(name: str) -> None:
    model = tokenizer_core().read_model(MODELS / name / FILE)
    with pytest.raises(EngineLoadError, match="only with a BPE tokenizer"):
        accept_spelled(model, SIZE)


class CountingHandle:
    """A pipeline's handle that knows the number of its input tokens, or does not."""

    def __init__(self, tokens: int | None) -> None:
        self._tokens = tokens

    def get_perf_metrics(self) -> "CountingHandle":
        if self._tokens is None:
            raise RuntimeError("Perf metrics are not available until generation has completed.")
        return self

    def get_num_input_tokens(self) -> int:
        return self._tokens or 0


def test_last_outputs_get_the_number_of_prompt_tokens() -> None:
    ended, never_run = (cast(GenerationHandle, CountingHandle(tokens)) for tokens in (82, None))
    stopped = Output(1, 5, None, "stop")
    assert counted(ended, 0, stopped) == Output(1, 5, None, "stop", Ending(prompt_tokens=82))
    assert counted(ended, 30, stopped) == Output(1, 5, None, "stop", Ending(prompt_tokens=52))
    assert counted(never_run, 0, stopped) == stopped
