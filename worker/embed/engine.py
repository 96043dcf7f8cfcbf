"""The engine of embedding models and rerankers. Its step computes texts of one length, of as many jobs as have some.

So no text is padded, which would cost more than it gains, and a text that has just arrived waits for one step at most.
"""

import hashlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from struct import unpack

import numpy
import openvino
from numpy.typing import NDArray

from shared.protocol.errors import Problem, ProblemKind, refuse
from shared.protocol.events import Embedded
from shared.runtime.plugin_config import PluginValue
from worker.embed.graph import make_model
from worker.engine.protocol import (
    EngineBroken,
    EngineInfo,
    EngineLoadError,
    EngineSequence,
    Gauges,
    Output,
    PromptOutput,
    SequenceRefused,
)
from worker.model.embedding import EmbeddingFiles, read_files
from worker.model.identity import model_identity
from worker.model.source import ModelError
from worker.openvino.load import check_available
from worker.openvino.options import OpenVINOOptions
from worker.openvino.threads import engine_threads

STEP_TOKENS = 256
"""Tokens of a step, unless a single text has more. More of them gain nothing, and others would wait longer."""

_SLOTS = 64
"""Jobs at the same time. The more there are, the more texts have the same length."""


Vectors = NDArray[numpy.float32]


class _Texts:
    """The texts of a job, and the vectors of those that were computed."""

    def __init__(self, sequence: EngineSequence) -> None:
        self.number = sequence.number
        self.dimensions = sequence.dimensions
        self.remaining: dict[int, list[int]] = {}
        """Numbers of texts without a vector, by their length, the longest first."""
        self.tokens: list[tuple[int, ...]] = []
        begin = 0
        for length in sequence.lengths:
            self.tokens.append(sequence.prompt[begin : begin + length])
            begin += length
        self.firsts = sequence.firsts or sequence.lengths
        self.items = sequence.items
        for index in sorted(range(len(self.tokens)), key=lambda one: -len(self.tokens[one])):
            self.remaining.setdefault(len(self.tokens[index]), []).append(index)
        self.vectors: list[bytes] = [b""] * len(self.tokens)
        self.steps = sum(-(-length * len(indexes) // STEP_TOKENS) for length, indexes in self.remaining.items())
        """Steps that all its texts take alone."""


class EmbeddingEngine:
    """An :class:`~worker.engine.protocol.Engine` whose outputs are vectors."""

    def __init__(self, options: OpenVINOOptions, progress: Callable[[str], None]) -> None:
        """Raises :class:`EngineLoadError` for files that can't be served, or a device that is not here."""
        started = time.monotonic()
        if options.vectors.idle:
            # Before the threads that compute begin, which inherit it.
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        devices = check_available(options)
        progress("loading the model")
        try:
            files = read_files(Path(options.path), options.vectors)
            self._model, self._vocabulary = self._compiled(files, options)
            # Contents and versions decide on the values.
            versions = f"{model_identity(files.folder)} {openvino.get_version()} {options.device} {options.vectors}"
        except (ModelError, OSError, RuntimeError) as error:
            raise EngineLoadError(f"the model {options.path} can't be loaded: {error}") from error
        self._infer = self._model.create_infer_request()
        self._inputs = {name for one in self._model.inputs for name in one.get_names()}
        self._jobs: dict[int, _Texts] = {}
        self._preempted: frozenset[int] = frozenset()
        self._refused: list[SequenceRefused] = []
        self._steps = self._tokens = self._scheduled = 0
        self._seconds = 0.0
        digest = hashlib.sha256(versions.encode()).hexdigest()[:12]
        context = min(files.max_tokens, options.context_length)
        self._compute([(0,) * min(context, 8)], [context])
        slots = _SLOTS if options.fit_batch else options.max_batch
        self.engine_info = EngineInfo(
            context_length=context,
            cache_tokens=context * slots,
            slots=slots,
            query_reserve=min(slots - 1, -(-slots // 8)),
            fingerprint=f"fp_{digest}",
            device=options.device,
            load_seconds=time.monotonic() - started,
            devices=devices,
            vocabulary=digest,
            engine="reranker" if files.scores else "embedding",
            reason="the model's files",
            prefix_caching=False,
        )

    @staticmethod
    def _compiled(files: EmbeddingFiles, options: OpenVINOOptions) -> tuple[openvino.CompiledModel, int]:
        core = openvino.Core()
        model = make_model(files, core)
        # In f32, a text has the same vector in every batch and on every CPU.
        properties: dict[str, PluginValue] = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        properties |= engine_threads(options).properties | options.plugin_config
        return core.compile_model(model, options.device, properties), int(files.config.get("vocab_size") or 0)

    def add(self, sequence: EngineSequence) -> None:
        """Add the texts of a job. Raises :class:`RequestRefused` for tokens that the model does not have."""
        if sum(sequence.lengths) != len(sequence.prompt) or not all(sequence.lengths):
            raise refuse(ProblemKind.INTERNAL, "The lengths of the texts are not those of their tokens.")
        # The model would read weights of others, or beyond them, without a word.
        if self._vocabulary and not all(0 <= token < self._vocabulary for token in sequence.prompt):
            raise refuse(ProblemKind.INVALID, f"A token is not one of the {self._vocabulary} of this model.")
        self._jobs[sequence.number] = _Texts(sequence)

    def cancel(self, number: int) -> None:
        """Forget the texts of a job."""
        self._jobs.pop(number, None)

    def preempt(self, numbers: Collection[int]) -> None:
        """Leave the texts of these jobs waiting, and go on with all others."""
        self._preempted = frozenset(numbers)

    def step(self) -> list[Output[Embedded]]:
        """Compute texts of one length; return the vectors of jobs that are complete.

        Raises :class:`EngineBroken` when the model can't compute.
        """
        running = [job for job in self._jobs.values() if job.number not in self._preempted]
        if not running:
            return []
        # By turns that with the fewest steps and the oldest, so that neither a query nor a document waits for ever.
        # Of queries, the oldest: if the shortest went first, the longest would wait much longer than the others.
        first = min(running, key=attrgetter("steps")) if self._steps % 2 == 0 else running[0]
        length = next(iter(first.remaining))
        batch: list[tuple[_Texts, int]] = []
        most = max(1, STEP_TOKENS // length)
        for job in (first, *running):
            indexes = job.remaining.get(length, [])
            while indexes and len(batch) < most:
                batch.append((job, indexes.pop()))
            if length in job.remaining and not indexes:
                del job.remaining[length]
        began = time.monotonic()
        try:
            vectors = self._compute(
                *zip(*((job.tokens[index], job.firsts[index]) for job, index in batch), strict=True)
            )
        except RuntimeError as error:
            raise EngineBroken(f"the model failed: {error}") from error
        self._seconds += time.monotonic() - began
        self._steps += 1
        self._tokens += length * len(batch)
        self._scheduled = len({job.number for job, _ in batch})
        for (job, index), vector in zip(batch, vectors, strict=True):
            if not numpy.isfinite(vector).all() and self._jobs.pop(job.number, None) is not None:
                problem = Problem(kind=ProblemKind.INTERNAL, message="The model's vector of a text is not finite.")
                self._refused.append(SequenceRefused(job.number, problem))
            job.vectors[index] = self._encoded(vector, job.dimensions)
        done = [
            job for job in {id(job): job for job, _ in batch}.values() if not job.remaining and job.number in self._jobs
        ]
        return [self._output(self._jobs.pop(job.number)) for job in done]

    @staticmethod
    def _encoded(vector: Vectors, dimensions: int) -> bytes:
        """Return the vector's first ``dimensions`` values (0: all) as little-endian floats, of length 1 if cut."""
        if 0 < dimensions < len(vector):
            vector = vector[:dimensions]
            vector = vector / max(float(numpy.linalg.norm(vector)), 1e-12)
        return vector.astype("<f4").tobytes()

    @staticmethod
    def _output(job: _Texts) -> Output[Embedded]:
        vectors = job.vectors
        if job.items:
            # A document in several parts is as relevant as the best of them.
            parts = groupby(zip(job.items, vectors, strict=True), key=itemgetter(0))
            vectors = [max((part for _, part in own), key=lambda part: unpack("<2f", part)) for _, own in parts]
        return Output(job.number, 0, Embedded(b"".join(vectors), len(vectors)), "stop")

    def _compute(self, texts: Sequence[Sequence[int]], firsts: Sequence[int]) -> Vectors:
        """Return the vectors of texts of the same length. ``firsts`` are their numbers of tokens of the first type."""
        ids = numpy.array(texts, numpy.int64)
        places = numpy.broadcast_to(numpy.arange(ids.shape[1]), ids.shape)
        values = {
            "input_ids": ids,
            "attention_mask": numpy.ones_like(ids),
            "token_type_ids": (places >= numpy.array(firsts)[:, None]).astype(numpy.int64),
            "position_ids": places,
        }
        self._infer.infer({name: values[name] for name in self._inputs}, share_inputs=False)
        vectors: Vectors = self._infer.get_output_tensor(0).data.astype(numpy.float32)
        return vectors

    def prompts(self) -> list[PromptOutput]:
        """Return nothing: there are no log probabilities."""
        return []

    def refused(self) -> list[SequenceRefused]:
        """Return and clear the jobs that have failed."""
        refused, self._refused = self._refused, []
        return refused

    def busy(self) -> bool:
        """Whether texts wait that are not preempted."""
        return bool(self._jobs.keys() - self._preempted)

    def finish_loading(self) -> Iterator[bool]:
        """There is nothing left to make."""
        return iter(())

    def gauges(self) -> Gauges:
        """Return the metrics of the steps."""
        return Gauges(
            requests=len(self._jobs),
            scheduled=self._scheduled if self._jobs else 0,
            cache_usage=0.0,
            steps=self._steps,
            tokens=self._tokens,
            step_seconds=self._seconds,
        )
