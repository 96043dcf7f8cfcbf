"""Text and tokens of an engine's outputs."""

from collections.abc import Iterable

from shared.protocol.events import Delta
from worker.engine.interface import StepOutput


def news_of(outputs: Iterable[StepOutput]) -> list[Delta]:
    """What is new in each, where something is."""
    return [output.delta for output in outputs if output.delta is not None]


def text_of(outputs: Iterable[StepOutput]) -> str:
    """The whole text."""
    return "".join(delta.text for delta in news_of(outputs))


def tokens_of(outputs: Iterable[StepOutput]) -> tuple[int, ...]:
    """All token ids."""
    return tuple(token for delta in news_of(outputs) for token in delta.tokens)
