"""Recovers a pipeline whose ``step()`` has thrown: identifies and removes the sequence that caused it."""

from collections.abc import Callable

from worker.engine.generation import Generation
from worker.engine.protocol import EngineBroken
from worker.openvino.stateful import Pipeline
from worker.openvino.table import RunningSequence, SequenceTable, Waiting

_MAX_CLEARING_STEPS = 100


class Recovery:
    """Finds the sequence that makes the pipeline throw, and resumes the others.

    When a step throws, all sequences are cancelled. Those that have generated tokens are added again at once. The
    others are suspects, which are tried one at a time. If the pipeline throws again, the suspect on trial is refused.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        table: SequenceTable,
        restart: Callable[[Generation], RunningSequence | None],
        refuse: Callable[[Generation, str], None],
    ) -> None:
        """``restart`` adds a sequence to the pipeline again, or refuses it. ``refuse`` gets the pipeline's message."""
        self._pipeline = pipeline
        self._table = table
        self._restart = restart
        self._refuse = refuse
        self._on_trial: RunningSequence | None = None

    @property
    def in_progress(self) -> bool:
        """Whether suspects are being tried. A new sequence must then be added as a suspect."""
        return bool(self._on_trial is not None or self._table.waiting(Waiting.SUSPECT))

    def try_next(self) -> None:
        """Before a step: start the trial of the next suspect, unless one is on trial."""
        if self._on_trial is None:
            for suspect in self._table.waiting(Waiting.SUSPECT).values():
                self._on_trial = self._restart(suspect.generation)
                return

    def end_trial(self) -> None:
        """After a successful step: end the trial of a suspect that has generated a token or has ended."""
        if self._on_trial is not None and (self._on_trial.proven or self._on_trial not in self._table.running.values()):
            self._on_trial = None

    def recover(self, error: Exception) -> None:
        """Clear the pipeline after a step that has thrown ``error``, and restart the sequences that are not suspects.

        All outputs must have been read before. Raises :class:`EngineBroken` when the pipeline can't be cleared.
        """
        if not self._table.running:
            raise EngineBroken(f"the engine failed with no request in it: {native_message(error)}") from error
        interrupted = list(self._table.running.values())
        for running in interrupted:
            self._table.remove(running.number)
            running.handle.cancel()
        self._clear_pipeline(error)
        culprit = self._on_trial
        self._on_trial = None
        if culprit is None:
            unproven = [running for running in interrupted if not running.proven]
            for running in unproven:
                self._table.wait(running.generation, Waiting.SUSPECT)
            culprit = None if unproven else _most_suspicious(interrupted)
        if culprit is not None:
            self._refuse(culprit.generation, native_message(error))
        for running in interrupted:
            if running.proven and running is not culprit:
                restarted = self._restart(running.generation)
                if restarted is not None:
                    restarted.proven = True

    def _clear_pipeline(self, error: Exception) -> None:
        """Step until the cancelled requests are gone. Raises :class:`EngineBroken` if they stay."""
        for _ in range(_MAX_CLEARING_STEPS):
            try:
                self._pipeline.step()
            except RuntimeError:
                continue  # it may throw until the last cancelled request is gone
            if not self._pipeline.has_non_finished_requests():
                return
        raise EngineBroken(f"the engine failed and could not be cleared: {native_message(error)}") from error


def native_message(error: Exception) -> str:
    """Return the last line of a native error, which is the message; the lines before name C++ source files."""
    return str(error).strip().rsplit("\n", 1)[-1] or type(error).__name__


def _most_suspicious(sequences: list[RunningSequence]) -> RunningSequence:
    """Return the newest sequence with a grammar, or else the newest."""

    def suspicion(running: RunningSequence) -> tuple[bool, int]:
        sequence = running.generation.sequence
        return sequence.grammar is not None, sequence.number

    return max(sequences, key=suspicion)
