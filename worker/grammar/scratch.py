"""A pipeline without a model: it compiles grammars for a tokenizer's vocabulary and measures their cost."""

import re
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy
import openvino
import openvino_genai
from openvino import opset13 as opset

from shared.protocol.request import Constraint
from worker.engine.detokenizer import open_tokenizer
from worker.engine.structure import structure

_NATIVE_PLACE = re.compile(r"^\[[0-9:]+\] \S+:\d+: ")
_WARM_UP = Constraint(kind="grammar", value='root ::= "a"')
_WALK = 48
"""Most tokens of a random text."""
_WALKS = 10
_ENOUGH = 100
"""Tokens after which there are no more texts."""
_WINDOW = 8
"""Tokens that a cost per token is the average of."""
_DOUBTFUL = 2.0
_NOT_WORTH_REPEATING = 20.0
_REPETITIONS = 3
"""How often a slowdown between these two is measured again; the lowest counts."""
_BUDGET = 0.3
"""Seconds after which a text has been shown to be expensive."""


class GrammarError(ValueError):
    """A grammar can't be compiled; the message says why, for people."""


class Cost(msgspec.Struct, frozen=True):
    """What a constraint costs in CPU time: seconds to compile, and how many times longer a token takes under it."""

    compile: float
    slowdown: float


class ScratchPipeline:
    """Compiles constraints, and measures what they cost. All tokens are equally likely to it."""

    def __init__(self, path: str) -> None:
        """Load the tokenizer of the GGUF file or IR folder at ``path``. Raises :class:`RuntimeError` on failure."""
        tokenizer, vocabulary = open_tokenizer(Path(path))
        self._pipeline = _pipeline(len(vocabulary), tokenizer)
        self.measure(_WARM_UP)

    def measure(self, constraint: Constraint) -> Cost:
        """Compile a constraint, and generate random texts under it. Raises :class:`GrammarError`.

        Everything is CPU time and the lowest of several measurements, so that other load on the machine makes no
        difference.
        """
        compile_seconds = self.compile(constraint)
        slowdown = min(self.slowdown(constraint), _NOT_WORTH_REPEATING)
        for _ in range(_REPETITIONS):
            if not _DOUBTFUL < slowdown < _NOT_WORTH_REPEATING:
                break
            slowdown = min(slowdown, self.slowdown(constraint))
        return Cost(compile=compile_seconds, slowdown=slowdown)

    def slowdown(self, constraint: Constraint, first_seed: int = 0) -> float:
        """Measure once how many times longer a token takes, by the random texts from ``first_seed`` on."""
        before = self._plain()
        token, tokens = 0.0, 0
        for seed in range(first_seed, first_seed + _WALKS):
            seconds = self._walk(constraint, seed)
            token, tokens = max(token, _highest_average(seconds)), tokens + len(seconds)
            if tokens > _ENOUGH or token > _BUDGET / _WINDOW:
                break
        return token / max(before, self._plain())

    def compile(self, constraint: Constraint) -> float:
        """Compile and return how many seconds that took. Raises :class:`GrammarError`."""
        wall, cpu = time.perf_counter(), time.process_time()
        self._generate(constraint, 1)
        # On a busy machine the clock counts others' work, with several threads the CPU time counts double.
        return min(time.perf_counter() - wall, time.process_time() - cpu)

    def text(self, constraint: Constraint, most_tokens: int, seed: int = 0) -> str:
        """Return a random text under ``constraint``. Raises :class:`GrammarError`."""
        return self._generate(constraint, most_tokens, seed)

    def _plain(self) -> float:
        steps = _Steps(_BUDGET)
        self._generate(None, _WINDOW, 0, steps)
        return statistics.median(steps.seconds)

    def _walk(self, constraint: Constraint, seed: int) -> list[float]:
        """Seconds that each token of a random text takes."""
        walks: list[list[float]] = []
        for _ in range(2):
            steps = _Steps(_BUDGET)
            self._generate(constraint, _WALK, seed, steps)
            walks.append(steps.seconds)
        return [min(pair) for pair in zip(*walks, strict=False)]

    def _generate(
        self, constraint: Constraint | None, most_tokens: int, seed: int = 0, steps: "_Steps | None" = None
    ) -> str:
        config = openvino_genai.GenerationConfig(max_new_tokens=most_tokens, do_sample=True, rng_seed=seed)
        config.apply_chat_template = False
        if constraint is None:
            config.ignore_eos = True
        else:
            config.structured_output_config = structure(constraint)
        try:
            return str(self._pipeline.generate("a", config, steps))
        except RuntimeError as error:
            raise GrammarError(_reason(error)) from error


class _Steps(openvino_genai.StreamerBase):  # type: ignore[misc]
    """Takes the CPU time of each token but the first, which comes with the compilation."""

    def __init__(self, budget: float) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self._budget = budget
        self._last: float | None = None

    def write(self, token: int | Sequence[int]) -> openvino_genai.StreamingStatus:
        """Called with each token; stops the generation when it has taken ``budget`` seconds."""
        now = time.process_time()
        if self._last is not None:
            self.seconds.append(now - self._last)
        self._last = now
        if sum(self.seconds) > self._budget:
            return openvino_genai.StreamingStatus.STOP
        return openvino_genai.StreamingStatus.RUNNING

    def end(self) -> None:
        """Called after the last token."""


def _highest_average(seconds: Sequence[float]) -> float:
    """The most that some tokens in a row took, per token."""
    starts = range(max(len(seconds) - _WINDOW, 0) + 1)
    return max(sum(seconds[start : start + _WINDOW]) for start in starts) / _WINDOW


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
