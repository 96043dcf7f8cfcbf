"""A pipeline without a model: it compiles grammars for a tokenizer's vocabulary, and that is all."""

import re
import tempfile
import time
from pathlib import Path

import numpy
import openvino
import openvino_genai
from openvino import opset13 as opset

from shared.request import Constraint
from worker.engine.detokenizer import open_tokenizer
from worker.engine.structure import structure

_NATIVE_PLACE = re.compile(r"^\[[0-9:]+\] \S+:\d+: ")
_WARM_UP = Constraint(kind="grammar", value='root ::= "a"')


class GrammarError(ValueError):
    """A grammar can't be compiled; the message says why, for people."""


class ScratchPipeline:
    """Compiles constraints. GenAI does that only on the way to a token, so it generates one: all are equally likely."""

    def __init__(self, path: str) -> None:
        """Load the tokenizer of the GGUF file or IR folder at ``path``. Raises :class:`RuntimeError` on failure."""
        tokenizer, vocabulary = open_tokenizer(Path(path))
        self._pipeline = _pipeline(len(vocabulary), tokenizer)
        self.compile(_WARM_UP)

    def compile(self, constraint: Constraint) -> float:
        """Compile and return how many seconds that took. Raises :class:`GrammarError`."""
        config = openvino_genai.GenerationConfig(max_new_tokens=1)
        config.apply_chat_template = False
        config.structured_output_config = structure(constraint)
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            self._pipeline.generate("a", config)
        except RuntimeError as error:
            raise GrammarError(_reason(error)) from error
        # On a busy machine the clock counts others' work, with several threads the CPU time counts double.
        return min(time.perf_counter() - wall, time.process_time() - cpu)


def _pipeline(vocabulary_size: int, tokenizer: openvino_genai.Tokenizer) -> openvino_genai.LLMPipeline:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.xml"
        openvino.save_model(_model(vocabulary_size), file)
        weights = openvino.Tensor(numpy.fromfile(file.with_suffix(".bin"), numpy.uint8))
        return openvino_genai.LLMPipeline(file.read_text(), weights, tokenizer, "CPU")


def _model(vocabulary_size: int) -> openvino.Model:
    """A language model's inputs and output, whose logits [batch, tokens, vocabulary] are all 0."""
    ids = _input("input_ids", [-1, -1], openvino.Type.i64)
    mask = _input("attention_mask", [-1, -1], openvino.Type.i64)
    beams = _input("beam_idx", [-1], openvino.Type.i32)
    shape = opset.concat([opset.shape_of(ids), opset.constant(numpy.array([vocabulary_size], numpy.int64))], 0)
    logits = opset.broadcast(opset.constant(numpy.zeros((1, 1, 1), numpy.float32)), shape)
    logits.output(0).set_names({"logits"})
    return openvino.Model([opset.result(logits)], [ids, mask, beams], "scratch")


def _input(name: str, shape: list[int], kind: openvino.Type) -> openvino.Node:
    parameter = opset.parameter(shape, kind, name=name)
    parameter.output(0).set_names({name})
    return parameter


def _reason(error: RuntimeError) -> str:
    """What is wrong, without the places in native sources that it was noticed at."""
    lines = [line for line in str(error).strip().splitlines() if not line.startswith("Exception from ")]
    return _NATIVE_PLACE.sub("", " ".join(lines)).strip() or type(error).__name__
