"""Bringing a pipeline whose ``step()`` has thrown back to work, without the sequence that made it throw."""

from collections.abc import Callable

import openvino_genai
from openvino_genai.py_openvino_genai import GenerationHandle

from shared.protocol.errors import ProblemKind
from worker.engine.generation import Generation
from worker.engine.interface import EngineBroken

_MOST_STEPS = 100


class Running:
    """A sequence in the pipeline, which cancels it when the last reference to ``handle`` goes."""

    __slots__ = ("beams", "generation", "handle", "logprobs", "proven", "repeated")

    def __init__(self, generation: Generation, handle: GenerationHandle, repeated: int) -> None:
        self.generation = generation
        self.handle = handle
        self.beams = generation.sequence.sampling.beams
        self.logprobs = generation.sequence.sampling.logprobs
        self.proven = False
        """Whether it has made a token: until then it may be one that breaks the pipeline."""
        self.repeated = repeated
        """How many of the generation's last tokens the pipeline has yet to make again."""


class Recovery:
    """Finds the sequence that breaks a pipeline, and lets the others go on.

    When a step has thrown, everything is cancelled and added again from token ids. Sequences that have made tokens
    before come first; the others are suspects, which are tried one at a time. The one on trial when the pipeline throws
    again is refused.
    """

    def __init__(
        self,
        pipeline: openvino_genai.ContinuousBatchingPipeline,
        running: dict[int, Running],
        restart: Callable[[Generation], Running | None],
        refuse: Callable[[Generation, ProblemKind, str], None],
    ) -> None:
        """``running`` is the engine's own table. ``restart`` enters a sequence into it again, or refuses it."""
        self._pipeline = pipeline
        self._running = running
        self._restart = restart
        self._refuse = refuse
        self._suspects: list[Generation] = []
        self._on_trial: Running | None = None

    @property
    def under_way(self) -> bool:
        """Whether there are suspects: then a new sequence must be one, too."""
        return bool(self._suspects or self._on_trial is not None)

    def suspect(self, generation: Generation) -> None:
        """Have a sequence tried after those that wait."""
        self._suspects.append(generation)

    def cancel(self, number: int) -> None:
        """Forget a sequence that waits to be tried."""
        self._suspects = [suspect for suspect in self._suspects if suspect.sequence.number != number]

    def try_next(self) -> None:
        """Before a step: put the next suspect on trial, if none is."""
        if self._suspects and self._on_trial is None:
            self._on_trial = self._restart(self._suspects.pop(0))

    def judge(self) -> None:
        """After a step that did not throw: end the trial of a sequence that has made a token or has gone."""
        if self._on_trial is not None and (self._on_trial.proven or self._on_trial not in self._running.values()):
            self._on_trial = None

    def recover(self, error: Exception) -> None:
        """Clear the pipeline after a step that has thrown ``error``, and start again what can't be to blame.

        What the sequences made before must have been read. Raises :class:`EngineBroken` when it can't be cleared.
        """
        if not self._running:
            raise EngineBroken(f"the engine failed with no request in it: {last_line(error)}") from error
        interrupted = list(self._running.values())
        self._running.clear()
        for running in interrupted:
            running.handle.cancel()
        self._clear_away(error)
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
                f"The engine failed on this request: {last_line(error)}",
            )
        for running in interrupted:
            if running.proven and running is not culprit:
                again = self._restart(running.generation)
                if again is not None:
                    again.proven = True

    def _clear_away(self, error: Exception) -> None:
        for _ in range(_MOST_STEPS):
            try:
                self._pipeline.step()
            except RuntimeError:
                continue  # it may throw until the last cancelled request is gone
            if not self._pipeline.has_non_finished_requests():
                return
        raise EngineBroken(f"the engine failed and could not be cleared: {last_line(error)}") from error


def last_line(error: Exception) -> str:
    """The part of a native error that says what is wrong; the lines before name C++ sources."""
    return str(error).strip().rsplit("\n", 1)[-1] or type(error).__name__


def _most_suspicious(running: list[Running]) -> Running:
    """The newest sequence with a constraint, or else the newest."""

    def suspicion(one: Running) -> tuple[bool, int]:
        sequence = one.generation.sequence
        return sequence.constraint is not None, sequence.number

    return max(running, key=suspicion)
