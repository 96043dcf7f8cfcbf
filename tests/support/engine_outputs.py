"""Text and tokens of an engine's outputs."""

from collections.abc import Iterable

from shared.protocol.events import Delta
from worker.engine.protocol import StepOutput


def deltas_of(outputs: Iterable[StepOutput]) -> list[Delta]:
    """The deltas of the outputs that have one."""
    return [output.delta for output in outputs if output.delta is not None]


def text_of(outputs: Iterable[StepOutput]) -> str:
    """The whole text."""
    return "".join(delta.text for delta in deltas_of(outputs))


def tokens_of(outputs: Iterable[StepOutput]) -> tuple[int, ...]:
    """All token ids."""
    return tuple(token for delta in deltas_of(outputs) for token in delta.tokens)
