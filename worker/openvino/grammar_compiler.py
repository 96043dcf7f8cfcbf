"""Compiles grammars with OpenVINO GenAI before the pipeline that enforces them needs them in a step."""

import re
import tempfile
import time
from functools import cached_property
from pathlib import Path

import numpy
import openvino
import openvino_genai
from openvino import opset13 as opset

from worker.engine.protocol import GrammarError, OutputGrammar

_NATIVE_PLACE = re.compile(r"^\[[0-9:]+\] \S+:\d+: ")
_WARM_UP = OutputGrammar('root ::= "a"')
_MAX_CACHED_SECONDS = 2.0
"""Seconds of compilation (CPU time) after which the cache is cleared. Measured: up to 130 MB of memory per second."""
_UNLIKELY = -20.0
"""Logit of the token that ends a text."""


class GrammarCompiler:
    """Compiles grammars into the cache that all pipelines with the same tokenizer and number of logits share.

    A pipeline compiles a new grammar in the middle of a step, and never forgets one. The compiler does it between
    steps instead, and clears the cache from time to time. It uses separate pipelines with stub models. All calls must
    come from the thread that steps the other pipelines of the tokenizer.
    """

    def __init__(self, tokenizer: openvino_genai.Tokenizer, width: int) -> None:
        """``width`` is the number of logits per token."""
        self._tokenizer, self._width = tokenizer, width
        self._compiled: set[OutputGrammar] = set()
        self._seconds = 0.0

    def prepare(self) -> None:
        """Do what the first grammar would wait for. Raises :class:`GrammarError`."""
        self.generate(_WARM_UP, 1)

    @cached_property
    def _pipelines(self) -> tuple[openvino_genai.LLMPipeline, openvino_genai.LLMPipeline]:
        """One with the model's number of logits, and one with another number."""
        end = self._tokenizer.get_eos_token_id()
        own, other = (stub_pipeline(_model(self._width + more, end), self._tokenizer) for more in (0, 1))
        return own, other

    def is_compiled(self, grammar: OutputGrammar) -> bool:
        """Return whether the cache has ``grammar``."""
        return grammar in self._compiled

    def compile(self, grammar: OutputGrammar) -> None:
        """Put ``grammar`` into the cache. Raises :class:`GrammarError`."""
        if grammar in self._compiled:
            return
        if self._seconds > _MAX_CACHED_SECONDS:
            self.clear()
        began = time.process_time()
        try:
            self.generate(grammar, 1)
        finally:
            self._seconds += time.process_time() - began
        self._compiled.add(grammar)

    def clear(self) -> None:
        """Empty the cache. Grammars of running sequences are freed when those end."""
        # The tokenizer has one compiler, and replaces it for a pipeline with another number of logits.
        for pipeline in reversed(self._pipelines):
            pipeline.generate(_prompt(), openvino_genai.GenerationConfig(max_new_tokens=1))
        self._compiled.clear()
        self._seconds = 0.0

    def generate(
        self,
        grammar: OutputGrammar | None,
        max_tokens: int,
        seed: int = 0,
        streamer: openvino_genai.StreamerBase | None = None,
    ) -> str:
        """Return a random text, under ``grammar`` if there is one. Raises :class:`GrammarError`."""
        config = openvino_genai.GenerationConfig(max_new_tokens=max_tokens, do_sample=True, rng_seed=seed)
        if grammar is None:
            config.ignore_eos = True
        else:
            config.structured_output_config = structured_output_config(grammar)
        try:
            (tokens,) = self._pipelines[0].generate(_prompt(), config, streamer).tokens
            return str(self._tokenizer.decode(tokens))
        except RuntimeError as error:
            raise GrammarError(_reason(str(error))) from error
        except UnicodeDecodeError as error:
            # Its message was cut within a character.
            raise GrammarError(_reason(error.object.decode(errors="replace"))) from error


def _prompt() -> openvino.Tensor:
    return openvino.Tensor(numpy.zeros((1, 1), numpy.int64))  # of a token id, as some tokenizers can't encode


def stub_pipeline(model: openvino.Model, tokenizer: openvino_genai.Tokenizer) -> openvino_genai.LLMPipeline:
    """Return a pipeline of the stub language model ``model``."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.xml"
        openvino.save_model(model, file)
        weights = openvino.Tensor(numpy.fromfile(file.with_suffix(".bin"), numpy.uint8))
        return openvino_genai.LLMPipeline(file.read_text(), weights, tokenizer, "CPU")


def _model(width: int, end: int) -> openvino.Model:
    """Build a stub language model with logits [batch, tokens, width].

    All tokens are equally probable except ``end``: texts under a grammar end only where it allows nothing else.
    """
    ids = stub_input("input_ids", [-1, -1], openvino.Type.i64)
    mask = stub_input("attention_mask", [-1, -1], openvino.Type.i64)
    beams = stub_input("beam_idx", [-1], openvino.Type.i32)
    shape = opset.concat([opset.shape_of(ids), opset.constant(numpy.array([width], numpy.int64))], 0)
    row = numpy.zeros((1, 1, width), numpy.float32)
    row[..., end] = _UNLIKELY
    logits = opset.broadcast(opset.constant(row), shape)
    logits.output(0).set_names({"logits"})
    return openvino.Model([opset.result(logits)], [ids, mask, beams], "stub")


def stub_input(name: str, shape: list[int], kind: openvino.Type) -> openvino.Node:
    """Return an input of a stub language model."""
    parameter = opset.parameter(shape, kind, name=name)
    parameter.output(0).set_names({name})
    return parameter


def _reason(message: str) -> str:
    """Return the ``message`` of a native error without its source locations."""
    lines = [line for line in message.strip().splitlines() if not line.startswith("Exception from ")]
    return _NATIVE_PLACE.sub("", " ".join(lines)).strip() or "It is invalid"


def structured_output_config(grammar: OutputGrammar) -> openvino_genai.StructuredOutputConfig:
    """Return the pipeline's config for ``grammar``.

    The pipeline's own support of JSON schemas and regular expressions ignores keywords and mixes up alternatives.
    """
    if grammar.tagged:
        return openvino_genai.StructuredOutputConfig(structural_tags_config=grammar.text)
    return openvino_genai.StructuredOutputConfig(grammar=grammar.text)
