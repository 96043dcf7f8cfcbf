"""The engine that runs models: OpenVINO GenAI's ContinuousBatchingPipeline, one step at a time."""

import hashlib
import itertools
import time
from collections.abc import Callable
from pathlib import Path

import numpy
import openvino
import openvino_genai
from openvino_genai.py_openvino_genai import GenerationHandle

from shared.errors import Problem, ProblemKind
from shared.request import Sampling
from worker.defaults import stated_fields
from worker.engine.beams import Beam, rank
from worker.engine.generation import Generation
from worker.engine.generation_config import check, configure
from worker.engine.interface import (
    EngineBroken,
    EngineLoadError,
    EngineRefusal,
    Facts,
    Gauges,
    Output,
    Refused,
    Sequence,
    StopReason,
)
from worker.engine.model_files import model_bytes, model_identity
from worker.engine.options import EngineOptions
from worker.engine.speculation import apply as apply_speculation
from worker.engine.speculation import check_speculation, speculation_of
from worker.engine.speculation import properties as speculation_properties
from worker.engine.tokenizer_vocabulary import read_vocabulary

EXACT = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0, "KV_CACHE_PRECISION": "f32"}
"""With these properties a text does not depend on what else is in the batch, nor on being resumed. A KV cache in f16
rounds tiny differences between kernels up: 1 of 24 texts came out different in a batch than alone; in f32, none."""

_PREFILL_TOKENS = 256
"""Prompt tokens a step, and so the length of a step that all others wait for. Longer ones gain no throughput on a
CPU (2,048 tokens: 3.5 s with 256 and with 4,096 a step)."""

_WARM_UP_TOKENS = 256
"""A whole number of KV blocks for every block size in use (16, 32, 64, 128, 256)."""

_CLEARING_STEPS = 2
"""After a sequence's end the pipeline frees it in the next step, and its metrics show that one step later."""

_MOST_RECOVERY_STEPS = 100
_RUNNING = openvino_genai.GenerationStatus.RUNNING
_NO_REASON = openvino_genai.GenerationFinishReason.NONE
_LENGTH = openvino_genai.GenerationFinishReason.LENGTH


class _Running:
    """A sequence in the pipeline, which cancels it when the last reference to ``handle`` goes."""

    __slots__ = ("generation", "handle", "proven", "repeated")

    def __init__(self, generation: Generation, handle: GenerationHandle, repeated: int) -> None:
        self.generation = generation
        self.handle = handle
        self.proven = False
        """Whether it has made a token: until then it may be one that breaks the pipeline."""
        self.repeated = repeated
        """How many of the generation's last tokens the pipeline has yet to make again."""


class OpenVINOEngine:
    """The :class:`~worker.engine.interface.Engine` on OpenVINO GenAI.

    A request whose grammar is invalid makes ``step()`` throw, for ever and for all. Then everything is
    cancelled and added again from token ids; sequences that have made tokens before come first, the others
    are tried one at a time, and the one on trial when the pipeline throws again is refused.
    """

    def __init__(self, options: EngineOptions, progress: Callable[[str], None]) -> None:
        """Load the model at ``options.path`` and warm it up. Raises :class:`EngineLoadError`."""
        started = time.monotonic()
        path = Path(options.path)
        if not path.exists():
            raise EngineLoadError(f"there is no model at {path}: give a GGUF file or an OpenVINO IR folder")
        self._running: dict[int, _Running] = {}
        self._suspects: list[Generation] = []
        self._on_trial: _Running | None = None
        self._complete: list[Generation] = []
        self._refused: list[Refused] = []
        self._request_ids = itertools.count()
        self._clearing = 0
        self._steps = 0
        self._tokens = 0
        progress(f"loading {path.name} ({model_bytes(path) / 1e6:.0f} MB) on {options.device}")
        self._speculation = speculation_of(options)
        self._pipeline = load_pipeline(options)
        progress("reading the tokenizer")
        tokenizer = self._pipeline.get_tokenizer()
        self._vocabulary = read_vocabulary(tokenizer)
        defaults = self._pipeline.get_config()
        self._end_tokens = frozenset({tokenizer.get_eos_token_id(), *defaults.stop_token_ids})
        self._context_length = options.context_length
        progress("warming up")
        measured = self._warm_up()
        # A cache of size 0 grows as needed: it holds all that the batch can ask for.
        self._cache_tokens = measured if options.cache_size else options.context_length * options.max_batch
        self.facts = Facts(
            context_length=options.context_length,
            cache_tokens=self._cache_tokens,
            fingerprint=_fingerprint(path, options),
            device=options.device,
            load_seconds=time.monotonic() - started,
            stated=tuple(sorted(stated_fields(path))),
        )

    def add(self, sequence: Sequence) -> None:
        """Take a sequence into the batch. Raises :class:`EngineRefusal`, harming no other sequence."""
        check(sequence)
        check_speculation(sequence.sampling, self._speculation)
        generation = self._generation(sequence)
        if generation.complete is not None:
            self._complete.append(generation)
        elif self._suspects or self._on_trial is not None:
            self._suspects.append(generation)
        else:
            self._start(generation)

    def cancel(self, number: int) -> None:
        """Drop a sequence: it takes no part in the next step, and its KV cache is free after it."""
        running = self._running.pop(number, None)
        if running is not None:
            self._drop(running)
        self._suspects = [suspect for suspect in self._suspects if suspect.sequence.number != number]
        self._complete = [complete for complete in self._complete if complete.sequence.number != number]

    def step(self) -> list[Output]:
        """Advance every sequence; return what is new.

        Raises :class:`~worker.engine.interface.EngineBroken` when the pipeline can't be brought back to work.
        """
        outputs = [generation.take((), (), generation.complete) for generation in self._complete]
        self._complete.clear()
        if self._suspects and self._on_trial is None:
            self._on_trial = self._restart(self._suspects.pop(0))
        try:
            self._pipeline.step()
        except Exception as error:
            # What the sequences made before is still in their handles, and would be lost with them.
            outputs += self._read()
            self._recover(error)
            return outputs
        self._steps += 1
        if self._clearing:
            self._clearing -= 1
        outputs += self._read()
        if self._on_trial is not None and (self._on_trial.proven or self._on_trial not in self._running.values()):
            self._on_trial = None
        return outputs

    def refused(self) -> list[Refused]:
        """Return, once, the sequences that broke the pipeline."""
        refused, self._refused = self._refused, []
        return refused

    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._running or self._suspects or self._complete or self._clearing)

    def gauges(self) -> Gauges:
        """The pipeline's own metrics, and the steps and tokens counted here."""
        metrics = self._pipeline.get_metrics()
        return Gauges(
            metrics.requests,
            metrics.scheduled_requests,
            metrics.cache_usage / 100,
            metrics.cache_size_in_bytes,
            self._steps,
            self._tokens,
        )

    def _generation(self, sequence: Sequence) -> Generation:
        """Return the account of a sequence. Raises :class:`EngineRefusal` if there is no room for it."""
        room = self._room(sequence)
        limit = room if sequence.sampling.max_tokens is None else min(room, sequence.sampling.max_tokens)
        return Generation(sequence, self._vocabulary, end_tokens=self._end_tokens, limit=limit)

    def _room(self, sequence: Sequence) -> int:
        """Return how many tokens an answer can have. Raises :class:`EngineRefusal` if the sequence has no place."""
        prompt, length = len(sequence.prompt), len(sequence.prompt) + len(sequence.generated)
        # The pipeline would take such ids without a word.
        if not prompt or min(sequence.prompt) < 0 or max(sequence.prompt) >= len(self._vocabulary):
            raise _refusal(
                ProblemKind.INVALID,
                f"The prompt must have token ids from 0 to {len(self._vocabulary) - 1}, and at least one.",
            )
        if prompt >= self._context_length:
            raise _refusal(
                ProblemKind.CONTEXT_LENGTH,
                f"The prompt has {prompt} tokens, which leaves no room for an answer: the context length is "
                f"{self._context_length} tokens.",
            )
        if length >= self._cache_tokens:
            raise _refusal(
                ProblemKind.CACHE_EXHAUSTED,
                f"The request needs a KV cache for over {length} tokens; this worker's holds {self._cache_tokens}.",
            )
        return self._context_length - prompt

    def _start(self, generation: Generation, *, repeat: bool = True) -> _Running:
        """Give the pipeline a new sequence, or what is left of one.

        A grammar can't begin in the middle, and some penalties count only what the pipeline itself has generated: such
        sequences are made again from their start, and compared, unless ``repeat`` is false.
        """
        sequence = generation.sequence
        tokens = tuple(generation.tokens)
        done: tuple[int, ...] = () if repeat and _remembers(generation) else tokens
        repeated = len(tokens) - len(done)
        config = configure(
            sequence, self._pipeline.get_config(), done=len(done), max_new_tokens=generation.remaining + repeated
        )
        apply_speculation(config, sequence.sampling, self._speculation)
        try:
            handle = self._pipeline.add_request(next(self._request_ids), _tensor(sequence.prompt + done), config)
        except Exception as error:
            raise _refusal(ProblemKind.INVALID, f"The engine refuses the request: {_last_line(error)}") from error
        running = _Running(generation, handle, repeated)
        self._running[sequence.number] = running
        return running

    def _restart(self, generation: Generation, *, repeat: bool = True) -> _Running | None:
        """Start a generation that was accepted before; refuse it if the pipeline does not take it now."""
        try:
            return self._start(generation, repeat=repeat)
        except EngineRefusal as refusal:
            self._refused.append(Refused(generation.sequence.number, refusal.problem))
            return None

    def _drop(self, running: _Running) -> None:
        running.handle.cancel()
        self._clearing = _CLEARING_STEPS

    def _read(self) -> list[Output]:
        """Take what the pipeline has made. This runs between any two steps: keep it short."""
        outputs: list[Output] = []
        for number, running in tuple(self._running.items()):
            handle = running.handle
            if running.generation.sequence.sampling.beams > 1:
                outputs += self._read_beams(number, running)
                continue
            tokens: list[int] = []
            logprobs: list[float] = []
            finish = _NO_REASON
            while handle.can_read():  # read() would block for ever, and the whole process with it
                for made in handle.read().values():
                    tokens += made.generated_ids
                    logprobs += made.generated_log_probs
                    finish = made.finish_reason
            reason: StopReason | None = None
            if tokens:
                running.proven = True
                if finish != _NO_REASON:
                    reason = "length" if finish == _LENGTH else "stop"
            elif handle.get_status() == _RUNNING:
                continue
            else:
                reason = "exhausted"
            if running.repeated and not self._repeats(running, tokens, logprobs):
                continue
            output = running.generation.take(tokens, logprobs, reason)
            self._tokens += len(output.tokens)
            outputs.append(output)
            if output.reason is not None:
                del self._running[number]
                self._drop(running)
        return outputs

    def _read_beams(self, number: int, running: _Running) -> list[Output]:
        """Take the result of a beam search, which comes all at once at its end."""
        handle = running.handle
        if handle.can_read():
            beams = [
                Beam(made.generated_ids, made.generated_log_probs, made.finish_reason == _LENGTH, made.score)
                for made in handle.read().values()
            ]
            output = rank(running.generation.sequence, beams, self._generation)
            self._tokens += sum(len(beam.tokens) for beam in beams)
        elif handle.get_status() == _RUNNING:
            return []
        else:
            output = running.generation.take((), (), "exhausted")
        del self._running[number]
        self._drop(running)
        return [output]

    def _repeats(self, running: _Running, tokens: list[int], logprobs: list[float]) -> bool:
        """Take the tokens off that the sequence had before; return whether others are left.

        A sequence that does not take the same way again goes on from its tokens, its penalties beginning anew; one with
        a grammar can't, and is refused.
        """
        known = running.generation.tokens[-running.repeated :]
        count = min(len(known), len(tokens))
        if tokens[:count] != known[:count] or not tokens:
            del self._running[running.generation.sequence.number]
            self._drop(running)
            if not running.generation.held:
                self._restart(running.generation, repeat=False)
            else:
                self._refuse(
                    running.generation,
                    ProblemKind.ENGINE_FAILED,
                    "A constrained answer was interrupted, and the engine could not make the same beginning again.",
                )
            return False
        running.repeated -= count
        del tokens[:count], logprobs[:count]
        return bool(tokens)

    def _recover(self, error: Exception) -> None:
        """Bring a pipeline that has thrown back to work, without the sequence that made it throw."""
        if not self._running:
            raise EngineBroken(f"the engine failed with no request in it: {_last_line(error)}") from error
        interrupted = list(self._running.values())
        self._running.clear()
        for running in interrupted:
            running.handle.cancel()
        self._clear_away(error)
        self._clearing = _CLEARING_STEPS
        culprit = self._on_trial
        self._on_trial = None
        if culprit is None:
            unproven = [running for running in interrupted if not running.proven]
            self._suspects += [running.generation for running in unproven]
            culprit = None if unproven else _most_suspicious(interrupted)
        if culprit is not None:
            self._refuse(
                culprit.generation,
                ProblemKind.INVALID if culprit.generation.sequence.constraint else ProblemKind.ENGINE_FAILED,
                f"The engine failed on this request: {_last_line(error)}",
            )
        for running in interrupted:
            if running.proven and running is not culprit:
                again = self._restart(running.generation)
                if again is not None:
                    again.proven = True

    def _clear_away(self, error: Exception) -> None:
        for _ in range(_MOST_RECOVERY_STEPS):
            try:
                self._pipeline.step()
            except RuntimeError:
                continue  # it may throw until the last cancelled request is gone
            if not self._pipeline.has_non_finished_requests():
                return
        raise EngineBroken(f"the engine failed and could not be cleared: {_last_line(error)}") from error

    def _refuse(self, generation: Generation, kind: ProblemKind, message: str) -> None:
        self._refused.append(Refused(generation.sequence.number, Problem(kind=kind, message=message)))

    def _warm_up(self) -> int:
        """Run one request; return how many tokens the KV cache holds at its present size."""
        config = self._pipeline.get_config()
        config.do_sample = False
        config.max_new_tokens = 1
        apply_speculation(config, Sampling(), self._speculation)
        prompt = tuple(index % len(self._vocabulary) for index in range(_WARM_UP_TOKENS))
        handle = self._pipeline.add_request(next(self._request_ids), _tensor(prompt), config)
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
        share: float = self._pipeline.get_metrics().max_cache_usage / 100
        if handle.get_status() != openvino_genai.GenerationStatus.FINISHED or not share:
            raise EngineLoadError(
                f"the KV cache can't hold {_WARM_UP_TOKENS} tokens: give the worker a larger --cache-size"
            )
        return round(_WARM_UP_TOKENS / share)


def load_pipeline(options: EngineOptions) -> openvino_genai.ContinuousBatchingPipeline:
    """Return the pipeline of the model at ``options.path``. Raises :class:`EngineLoadError`."""
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = options.cache_size
    scheduler.max_num_seqs = options.max_batch
    scheduler.max_num_batched_tokens = max(_PREFILL_TOKENS, 2 * options.max_batch)
    scheduler.enable_prefix_caching = options.prefix_caching
    try:
        properties = speculation_properties(options) | (EXACT if options.precision == "exact" else {})
        return openvino_genai.ContinuousBatchingPipeline(options.path, scheduler, options.device, properties)
    except Exception as error:
        raise EngineLoadError(f"OpenVINO can't load {options.path} on {options.device}: {_last_line(error)}") from error


def _fingerprint(path: Path, options: EngineOptions) -> str:
    parts = (
        openvino.__version__,
        openvino_genai.__version__,
        model_identity(path),
        options.device,
        options.precision,
    )
    return "fp_" + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:10]


def _remembers(generation: Generation) -> bool:
    """Whether the pipeline must have generated a sequence's tokens itself to go on rightly."""
    sampling = generation.sequence.sampling
    return bool(generation.held or sampling.frequency_penalty or sampling.presence_penalty)


def _most_suspicious(running: list[_Running]) -> _Running:
    """The newest sequence with a constraint, or else the newest."""

    def suspicion(one: _Running) -> tuple[bool, int]:
        sequence = one.generation.sequence
        return sequence.constraint is not None, sequence.number

    return max(running, key=suspicion)


def _tensor(tokens: tuple[int, ...]) -> openvino.Tensor:
    return openvino.Tensor(numpy.array([tokens], dtype=numpy.int64))


def _last_line(error: Exception) -> str:
    """The part of a native error that says what is wrong; the lines before name C++ sources."""
    return str(error).strip().rsplit("\n", 1)[-1] or type(error).__name__


def _refusal(kind: ProblemKind, message: str) -> EngineRefusal:
    return EngineRefusal(Problem(kind=kind, message=message))
