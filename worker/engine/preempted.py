"""Preempted sequences: removed from the pipeline, and resumed later from their prompts and generated tokens."""

from collections.abc import Callable, Collection

from worker.engine.generation import Generation
from worker.engine.running import RunningSequence


class PreemptedSequences:
    """The preempted sequences. Their computed blocks stay in the prefix cache until others need the space."""

    def __init__(
        self,
        running: dict[int, RunningSequence],
        drop: Callable[[RunningSequence], None],
        resume: Callable[[Generation], None],
        *,
        caching: bool,
        sees_images: bool,
    ) -> None:
        """``running`` is the engine's table of sequences. ``drop`` removes one from the pipeline, ``resume`` adds it
        again. ``caching``: whether there is a prefix cache. ``sees_images``: the pipeline is that of a vision-language
        model.
        """
        self._running = running
        self._drop = drop
        self._resume = resume
        self._caching = caching
        self._sees_images = sees_images
        self._sequences: dict[int, Generation] = {}
        self.total = 0
        """How often a sequence was preempted."""

    def preempt(self, numbers: Collection[int]) -> None:
        """Preempt these sequences, and resume all others."""
        for number in [preempted for preempted in self._sequences if preempted not in numbers]:
            self._resume(self._sequences.pop(number))
        for number in numbers:
            running = self._running.get(number)
            if running is not None and self._is_resumable(running):
                self._drop(self._running.pop(number))
                self._sequences[number] = running.generation
                self.total += 1

    def cancel(self, number: int) -> None:
        """Remove a preempted sequence."""
        self._sequences.pop(number, None)

    def _is_resumable(self, running: RunningSequence) -> bool:
        """Return whether a sequence can be resumed exactly, and without recomputing all of it."""
        generation = running.generation
        return (
            self._caching
            and running.beams == 1
            and generation.prompt_scoring is None
            and not generation.sequence.images
            and not generation.is_stateful(sees_images=self._sees_images)
        )
