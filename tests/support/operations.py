"""Counts the operations of a call, to compare how they grow with its input. Unlike times, they are always the same."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


class CountedText(str):
    """Text whose comparisons are counted: those of a search in a list happen in one line of code. So are the
    characters that are copied when something is appended to it, or when it is appended."""

    __slots__ = ()
    counted = 0
    """The count for all texts."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedText.counted += 1
        return str.__eq__(self, other)

    def __add__(self, other: str) -> "CountedText":
        CountedText.counted += len(self) + len(other)
        return CountedText(str.__add__(self, other))

    def __radd__(self, other: str) -> "CountedText":
        CountedText.counted += len(self) + len(other)
        return CountedText(str.__add__(other, self))


def with_counted_lists(value: Any) -> Any:
    """Return a JSON value in which the texts of all lists are counted."""
    match value:
        case list():
            return [CountedText(item) if isinstance(item, str) else with_counted_lists(item) for item in value]
        case dict():
            return {key: with_counted_lists(item) for key, item in value.items()}
    return value


def operations(call: Callable[[], object]) -> int:
    """Return the number of lines of Python that ``call`` executes, and of comparisons of counted texts."""
    lines = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal lines
        lines += 1
        return trace

    CountedText.counted = 0
    before = sys.gettrace()
    gc.disable()  # The finalizers of what earlier tests left are lines too.
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
        gc.enable()
    return lines + CountedText.counted
