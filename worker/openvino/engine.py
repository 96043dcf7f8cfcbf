"""The OpenVINO engines: drive a pipeline of OpenVINO GenAI step by step, the batched or the stateful one."""

import itertools
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress

import openvino_genai

from shared.protocol.errors import Problem, ProblemKind, RequestRefused
from shared.protocol.events import TopToken
from worker.engine.checks import check_logits, check_prompt, max_output_tokens
from worker.engine.generation import Generation
from worker.engine.protocol import (
    EngineSequence,
    Gauges,
    GrammarError,
    Output,
    PromptOutput,
    SequenceRefused,
    StepOutput,
    StopReason,
)
from worker.grammar.json_tokens import JsonTokens
from worker.grammar.lengths import LengthChecker
from worker.model.devices import device_kind
from worker.model.generation_config import end_tokens, stop_strings
from worker.openvino.arrivals import GrammarArrivals, ImageArrivals
from worker.openvino.checks import check_images, check_sampling, check_speculation, check_stateful
from worker.openvino.huge_pages import compact
from worker.openvino.load import WARM_UP_ID, check_available, describe, load_model
from worker.openvino.logits.operation import LogitsHook
from worker.openvino.logits.readers import RowLost, read_rows
from worker.openvino.logits.rows import RowAssigner, readers_of
from worker.openvino.options import OpenVINOOptions
from worker.openvino.prompts import add_prompt, counted, is_too_long, refusal_of
from worker.openvino.recovery import Recovery, native_message
from worker.openvino.sampling import apply_speculation, configure, rank
from worker.openvino.stateful import Handle, paced
from worker.openvino.table import NO_REASON, RunningSequence, SequenceTable, Waiting
from worker.openvino.weights import served_path

logger = logging.getLogger(__name__)

_CLEARING_STEPS = 2
"""Steps after a sequence's end until it is freed (next step) and the metrics show it (the one after)."""

_UNLIMITED = 2**64 - 1

_COMPACT_AFTER = 2.0
"""Seconds after loading when memory is given back: the first requests have their first tokens."""

_RUNNING = openvino_genai.GenerationStatus.RUNNING
_LENGTH = openvino_genai.GenerationFinishReason.LENGTH


class OpenVINOEngine:
    """The :class:`~worker.engine.protocol.Engine` on OpenVINO GenAI.

    A request with an invalid grammar makes every further ``step()`` of the pipeline throw.
    :class:`~worker.openvino.recovery.Recovery` removes it, and the other sequences continue.
    """

    def __init__(self, options: OpenVINOOptions, progress: Callable[[str], None]) -> None:
        """Load the model at ``options.path`` and warm it up. Raises :class:`EngineLoadError`."""
        started = time.monotonic()
        devices = check_available(options)
        self._table = SequenceTable()
        self._refused: list[SequenceRefused] = []
        self._prompts: list[PromptOutput] = []
        self._request_ids = itertools.count(WARM_UP_ID + 1)
        self._clearing = self._steps = self._tokens = self._lost_rows = self._preemptions = 0
        self._drafted = self._accepted = 0
        self._step_seconds = self._host_seconds = 0.0
        self._computed_at: float | None = None
        """End of the last step (``time.perf_counter``), or None if the engine has been idle since."""
        self._speculation = options.speculation
        served = served_path(options, progress)
        loaded = load_model(options, served, progress)
        self._pipeline, self._vocabulary, self._logits_width = loaded.pipeline, loaded.vocabulary, loaded.logits_width
        self._json_tokens = JsonTokens(self._vocabulary)
        self._sees_images, self._batched = loaded.sees_images, loaded.choice.kind == "batched"
        self._grammars = loaded.grammars
        self._grammar_arrivals = GrammarArrivals(self._table, self._grammars)
        self._image_arrivals = ImageArrivals(self._table)
        self._uncounted: list[tuple[Handle, int, StepOutput]] = []
        """Last outputs of sequences with images, whose prompts are counted after the next step."""
        LogitsHook.listener = paced(
            self._pipeline, RowAssigner(self._table.running, resting=self._speculation == "draft")
        )
        self._recovery = Recovery(self._pipeline, self._table, self._restart, self._refuse_failed)
        end = self._pipeline.get_tokenizer().get_eos_token_id()
        # A folder states its end tokens in its files or the pipeline's config, a GGUF file in its vocabulary.
        stated = self._vocabulary.end_tokens or end_tokens(served) or self._pipeline.get_config().stop_token_ids
        self._end_tokens, self._end_texts = frozenset({end, *stated}), stop_strings(served)
        self._shape = loaded.shape
        self._cache_tokens = loaded.cache_tokens
        progress("hashing the model")
        self.engine_info = describe(options, served, loaded, started, devices)
        self._context_length = self.engine_info.context_length
        if device_kind(options.device) == "CPU":
            # Takes about a second, which the first requests do not share. Safe while the engine runs: virtual addresses
            # do not change.
            timer = threading.Timer(_COMPACT_AFTER, compact)
            timer.daemon = True
            timer.start()

    def finish_loading(self) -> Iterator[bool]:
        """Make what the first structured output would wait for."""
        if self._logits_width:
            yield from self._json_tokens.parts()
        if self._grammars is not None:
            with suppress(GrammarError):  # it refuses requests, by name
                self._grammars.prepare()

    def add(self, sequence: EngineSequence) -> None:
        """Add a sequence to the batch. Raises :class:`RequestRefused`, without affecting other sequences."""
        check_sampling(sequence)
        check_logits(sequence.sampling, len(self._vocabulary), hooked=self._logits_width > 0)
        if self._sees_images:
            check_images(sequence.sampling)
        check_speculation(sequence, self._speculation)
        if not self._batched:
            check_stateful(sequence.sampling, hooked=self._logits_width > 0)
            check_prompt(len(sequence.prompt), self.engine_info.max_prompt)
        generation = self._generation(sequence)
        if generation.stop_reason is not None and generation.prompt_scoring is None:
            self._table.wait(generation, Waiting.COMPLETE)
        elif self._recovery.in_progress:
            self._table.wait(generation, Waiting.SUSPECT)
        elif sequence.grammar is not None:
            self._grammar_arrivals.add(generation)
        elif sequence.images:
            self._image_arrivals.add(generation)
        else:
            self._start(generation)

    def cancel(self, number: int) -> None:
        """Remove a sequence, wherever it is. It is not part of the next step, after which its KV cache is free."""
        running = self._table.remove(number)
        if running is not None:
            self._drop(running)

    def preempt(self, numbers: Collection[int]) -> None:
        """Take these sequences out of the batch, and resume those preempted before that are not among them."""
        for number, preempted in self._table.waiting(Waiting.PREEMPTED).items():
            if number not in numbers:
                self._resume(preempted.generation)
        if not self.engine_info.prefix_caching:
            return
        for number in numbers:
            running = self._table.running.get(number)
            if running is not None and running.is_resumable(
                sees_images=self._sees_images, adjusts_logits=self.engine_info.adjusts_logits
            ):
                self._drop(running)
                self._table.wait(running.generation, Waiting.PREEMPTED)
                self._preemptions += 1

    def step(self) -> list[StepOutput]:
        """Advance every sequence; return the new outputs.

        Raises :class:`~worker.engine.protocol.EngineBroken` when the pipeline can't be recovered.
        """
        # 1. Sequences that were complete when they came, such as resumed ones.
        outputs: list[StepOutput] = []
        for number, (generation, *_) in self._table.waiting(Waiting.COMPLETE).items():
            self._table.remove(number)
            outputs.append(generation.append((), (), generation.stop_reason))
        # 2. Who waits may enter: a suspect on trial alone, or one whose grammar is compiled, or whose images are read.
        self._recovery.try_next()
        if not self._recovery.in_progress:
            self._grammar_arrivals.start(self._start_compiled, self._refuse_grammar)
            self._image_arrivals.start(self._restart)
        # 3. The pipeline computes one token of each. A failure goes to recovery, which finds the sequence at fault.
        started = time.perf_counter()
        if self._computed_at is not None:
            self._host_seconds += started - self._computed_at
        try:
            self._pipeline.step()
        except Exception as error:
            # Recovery discards the handles; read the tokens of earlier steps from them first.
            outputs += self._read()
            self._recovery.recover(error)
            self._clearing = _CLEARING_STEPS
            self._computed_at = None
            return outputs
        ended = time.perf_counter()
        self._step_seconds += ended - started
        self._steps += 1
        if self._clearing:
            self._clearing -= 1
        # 4. The new tokens become text and outputs.
        outputs += [counted(*uncounted) for uncounted in self._uncounted]
        self._uncounted = []
        outputs += self._read()
        self._recovery.end_trial()
        self._computed_at = ended if self.busy() else None
        return outputs

    def prompts(self) -> list[PromptOutput]:
        """Return and clear the log probabilities of prompts that the last step has completed."""
        prompts, self._prompts = self._prompts, []
        return prompts

    def refused(self) -> list[SequenceRefused]:
        """Return and clear the sequences that were removed because they made a step fail."""
        refused, self._refused = self._refused, []
        return refused

    def busy(self) -> bool:
        """Whether a step has work to do."""
        return bool(self._table.has_work or self._clearing or self._uncounted)

    def gauges(self) -> Gauges:
        """Return the pipeline's metrics, with the steps and tokens counted here."""
        metrics = self._pipeline.get_metrics()
        return Gauges(
            metrics.requests,
            metrics.scheduled_requests,
            metrics.cache_usage / 100,
            self._steps,
            self._tokens,
            self._step_seconds,
            self._host_seconds,
            self._lost_rows,
            self._preemptions,
            self._drafted,
            self._accepted,
        )

    def _generation(self, sequence: EngineSequence) -> Generation:
        """Return a new :class:`Generation`. Raises :class:`RequestRefused` if the sequence does not fit."""
        room = max_output_tokens(
            sequence,
            vocabulary=len(self._vocabulary),
            context_length=self._context_length,
            cache_tokens=self._cache_tokens,
        )
        limit = room if sequence.sampling.max_tokens is None else min(room, sequence.sampling.max_tokens)
        return Generation(
            sequence,
            self._vocabulary,
            end_tokens=self._end_tokens,
            end_texts=self._end_texts,
            limit=limit,
            limits=LengthChecker(sequence.length_limits, self._json_tokens) if sequence.length_limits else None,
        )

    def _start(self, generation: Generation, *, repeat: bool = True) -> RunningSequence:
        """Add a new sequence to the pipeline, or the rest of an interrupted one.

        A grammar can't start in the middle of an output, the pipeline's own penalties may count only tokens that it has
        generated, and on an NPU prompt and output together may be too long for a prompt. Such sequences are generated
        again from their start and compared with the known tokens, unless ``repeat`` is false.
        """
        sequence = generation.sequence
        tokens = tuple(generation.tokens)
        adjusts = self.engine_info.adjusts_logits
        stateful = generation.is_stateful(sees_images=self._sees_images, adjusts_logits=adjusts)
        too_long = self._shape is not None and len(sequence.prompt) + len(tokens) > self._shape.prompt
        done: tuple[int, ...] = () if repeat and (stateful or too_long) else tokens
        repeated = len(tokens) - len(done)
        config = configure(
            sequence,
            self._end_tokens,
            done=len(done),
            max_new_tokens=generation.remaining + repeated,
            adjusts_logits=adjusts,
        )
        drafts = apply_speculation(config, sequence.sampling, self._speculation, len(self._table.running))
        if sequence.images and sequence.sampling.beams == 1:
            # Only the pipeline knows how many tokens an image has, so it limits the length to the context.
            config.max_length, config.max_new_tokens = self._context_length, _UNLIMITED
        number = next(self._request_ids)
        readers = readers_of(
            sequence,
            generation.prompt_scoring,
            sequence.prompt + done,
            config,
            number=number,
            width=self._logits_width,
            logprobs=not self._batched,
            adjusts_logits=adjusts,
        )
        try:
            handle = add_prompt(
                self._pipeline, number, readers.input_tokens, config, sequence.images, spelled=self._sees_images
            )
        except Exception as error:
            raise refusal_of(native_message(error), self._context_length) from error
        running = RunningSequence(generation, handle, readers, repeated, drafts)
        self._table.run(running)
        return running

    def _restart(self, generation: Generation, *, repeat: bool = True) -> RunningSequence | None:
        """Start an interrupted generation again. If the pipeline refuses it, add it to the refused ones."""
        try:
            return self._start(generation, repeat=repeat)
        except RequestRefused as refusal:
            self._refuse(generation, refusal.problem)
            return None

    def _start_compiled(self, generation: Generation) -> None:
        """Start a sequence whose grammar is compiled. One with images is queued again, to be encoded."""
        if generation.sequence.images:
            self._image_arrivals.add(generation)
        else:
            self._restart(generation)

    def _refuse_grammar(self, generation: Generation, error: GrammarError) -> None:
        message = f"The engine can't compile the grammar of this request: {error}"
        self._refuse(generation, Problem(kind=ProblemKind.INVALID, message=message))

    def _resume(self, generation: Generation) -> None:
        """Start a preempted generation again."""
        if self._recovery.in_progress:
            self._table.wait(generation, Waiting.SUSPECT)
        elif (running := self._restart(generation)) is not None:
            running.proven = bool(generation.tokens)

    def _drop(self, running: RunningSequence) -> None:
        running.handle.cancel()
        self._clearing = _CLEARING_STEPS

    def _read(self) -> list[StepOutput]:
        """Read the new tokens of all sequences. Hot path: its duration is per-step host overhead."""
        outputs: list[StepOutput] = []
        for number, running in tuple(self._table.running.items()):
            handle = running.handle
            if running.beams > 1:
                outputs += self._read_beams(number, running)
                continue
            tokens, logprobs, finish = running.read()
            if self._speculation != "none":
                drafted, accepted = running.speculated(len(tokens))
                self._drafted += drafted
                self._accepted += accepted
            reason: StopReason | None = None
            running.proven = running.proven or bool(tokens)
            if finish != NO_REASON:  # the stateful pipeline reports it after the last token
                reason = "length" if finish == _LENGTH else "stop"
            elif not tokens and handle.get_status() == _RUNNING:
                continue
            elif not tokens:
                reason = "exhausted"
            if running.repeated:
                if not running.skip_repeated(tokens, logprobs):
                    self._continue_from_known(running)
                    continue
                if not tokens:
                    continue
            top: Sequence[tuple[TopToken, ...]] = ()
            if running.reader is not None and running.reader.reads and tokens:
                try:
                    reported = logprobs if self._batched else None
                    logprobs, top = read_rows(running.reader, tokens, reported, self._vocabulary.piece)
                    self._read_prompt(number, running)
                except RowLost as error:
                    self._end_without_rows(running, error)
                    continue
                if not running.usable and running.generation.stop_reason is None:
                    self.cancel(number)
                    self._restart(running.generation)
                    continue
            output = running.generation.append(tokens, logprobs, reason, top)
            self._tokens += len(output.delta.tokens) if output.delta else 0
            if output.reason is None:
                outputs.append(output)
            else:
                outputs += self._end(running, output)
        return outputs

    def _end(self, running: RunningSequence, output: StepOutput) -> list[StepOutput]:
        """Drop a sequence that has ended; return its last output, unless that waits for the number of prompt tokens."""
        self.cancel(output.number)
        if not running.generation.sequence.images:
            return [output]
        generated = len(running.input_tokens) - len(running.generation.sequence.prompt)
        self._uncounted.append((running.handle, generated, output))
        return []

    def _read_prompt(self, number: int, running: RunningSequence) -> None:
        """Report the log probabilities of a sequence's prompt, once. Raises :class:`RowLost` if some are missing."""
        if running.prompt is not None and running.generation.prompt_scoring is not None:
            self._prompts.append(Output(number, 0, running.prompt.result(self._vocabulary.piece)))
            running.generation.prompt_scoring = None

    def _end_without_rows(self, running: RunningSequence, error: RowLost) -> None:
        """End a sequence whose log probabilities, and perhaps biases, are not known to be right."""
        logger.error("a sequence has lost its logits: %s", error)
        self._lost_rows += 1
        message = "The engine lost the log probabilities of this request. Please send it again."
        self._refuse(running.generation, Problem(kind=ProblemKind.ENGINE_FAILED, message=message))

    def _read_beams(self, number: int, running: RunningSequence) -> list[StepOutput]:
        """Read the result of a beam search, which is available only at its end."""
        handle = running.handle
        if handle.can_read():
            beams = handle.read().values()
            output = rank(running.generation, beams, self._generation)
            self._tokens += sum(len(beam.generated_ids) for beam in beams)
        elif handle.get_status() == _RUNNING:
            return []
        else:
            output = running.generation.append((), (), "exhausted")
        return self._end(running, output)

    def _continue_from_known(self, running: RunningSequence) -> None:
        """Continue a sequence that could not repeat its known tokens from these tokens, with its penalties reset.

        With a grammar, that is impossible, and the sequence is refused.
        """
        self.cancel(running.number)
        if not running.generation.is_constrained:
            self._restart(running.generation, repeat=False)
        else:
            message = "A constrained output was interrupted, and the engine could not generate the same start again."
            self._refuse(running.generation, Problem(kind=ProblemKind.ENGINE_FAILED, message=message))

    def _refuse_failed(self, generation: Generation, error: str) -> None:
        """Refuse a sequence that makes the pipeline's steps fail with ``error``."""
        kind = ProblemKind.INVALID if generation.sequence.grammar else ProblemKind.ENGINE_FAILED
        problem = Problem(kind=kind, message=f"The engine failed on this request: {error}")
        self._refuse(generation, refusal_of(error, self._context_length).problem if is_too_long(error) else problem)

    def _refuse(self, generation: Generation, problem: Problem) -> None:
        """Remove a sequence, and report why."""
        self.cancel(generation.sequence.number)
        self._refused.append(SequenceRefused(generation.sequence.number, problem))
