"""The perplexity that the benchmarks measure."""

from pathlib import Path

import numpy
import openvino
import pytest
from numpy.typing import NDArray
from openvino import opset13 as opset

from bench.perplexity import perplexity

TOKENS = numpy.arange(600) * 7 % 11
"""More than the model is given at least at a time."""


def _bigram_model(folder: Path, logits: NDArray[numpy.float32]) -> Path:
    """An IR whose logits depend on the last token alone, with two of the inputs that language models have."""
    ids = opset.parameter([-1, -1], openvino.Type.i64, name="input_ids")
    ids.output(0).set_names({"input_ids"})
    beams = opset.parameter([-1], openvino.Type.i32, name="beam_idx")
    beams.output(0).set_names({"beam_idx"})
    result = opset.result(opset.gather(opset.constant(logits), opset.gather(ids, beams, 0), 0))
    result.output(0).set_names({"logits"})
    openvino.save_model(openvino.Model([result], [ids, beams]), folder / "openvino_model.xml", compress_to_fp16=False)
    return folder


def test_a_model_that_knows_nothing_is_as_perplexed_as_there_are_tokens(tmp_path: Path) -> None:
    folder = _bigram_model(tmp_path, numpy.zeros((11, 11), numpy.float32))
    assert perplexity(folder, TOKENS) == pytest.approx(11)


@pytest.mark.parametrize("most", [0, 4 * 11 * 300, 1 << 20], ids=["least", "more", "all"])
def test_the_perplexity_is_that_of_the_tokens_that_follow(
    tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.perplexity._LOGITS_BYTES", most)
    logits = numpy.random.default_rng(1).normal(size=(11, 11)).astype(numpy.float32)
    chances = numpy.exp(logits) / numpy.exp(logits).sum(axis=1, keepdims=True)
    expected = numpy.exp(-numpy.log(chances[TOKENS[:-1], TOKENS[1:]]).mean())
    assert perplexity(_bigram_model(tmp_path, logits), TOKENS) == pytest.approx(expected, rel=1e-5)


def test_one_token_has_no_perplexity(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 2 tokens; there are 1"):
        perplexity(tmp_path, TOKENS[:1])
